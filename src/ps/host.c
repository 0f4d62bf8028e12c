/* host.c -- the side that has the block: a thread for each client answers its requests in their
 * order. See client.h.
 *
 * With one client the block lies in its lane: in shared memory a pull is its answer alone, else it
 * is sent from there. With several a pull is a copy of the block in the client's lane, so that what
 * is read, or sent, is not changed meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/algo.h"
#include "ps/client.h"

typedef struct guest {
    td__ps_host *owner;
    td__ps_lane *lane;
    pthread_t thread;
    bool started;
    td_status failed;
    char text[256];
} guest;

struct td__ps_host {
    td__ps_lane *lanes; /* (clients) */
    guest *guests;      /* (clients) */
    int clients;
    td__ps_range own;
    td__ps_host_opts opts;
    float *block, *mine;  /* (own.count); mine: NULL if it lies in a lane */
    pthread_mutex_t lock; /* of the block */
};

static td_status answer_push(td__ps_host *h, td__ps_lane *l, const td__ps_ask *a)
{
    size_t at = a->begin - h->own.begin;
    TD_TRY(td__ps_take(l, l->push + at, a->count));
    pthread_mutex_lock(&h->lock);
    if (h->opts.apply)
        h->opts.apply(h->opts.user, h->block + at, l->push + at, a->begin, a->count);
    else
        td__reduce(h->block + at, h->block + at, l->push + at, a->count, TD_F32, TD_REDUCE_SUM);
    pthread_mutex_unlock(&h->lock);
    return td__ps_tell(l, &a->number, sizeof a->number);
}

static td_status answer_pull(td__ps_host *h, td__ps_lane *l, const td__ps_ask *a)
{
    size_t at = a->begin - h->own.begin;
    if (h->mine) {
        pthread_mutex_lock(&h->lock);
        memcpy(l->pull + at, h->block + at, a->count * sizeof *h->block);
        pthread_mutex_unlock(&h->lock);
    }
    TD_TRY(td__ps_tell(l, &a->number, sizeof a->number));
    return td__ps_hand(l, l->pull + at, a->count);
}

static td_status answer(td__ps_host *h, td__ps_lane *l, bool *ends)
{
    td__ps_ask a;
    TD_TRY(td__ps_hear(l, &a, sizeof a, true));
    *ends = a.verb == TD__PS_ASK_END;
    if (*ends)
        return TD_OK;
    if (a.begin < h->own.begin || a.count > TD__PS_PIECE || a.begin - h->own.begin > h->own.count ||
        a.count > h->own.count - (a.begin - h->own.begin) || a.verb > TD__PS_ASK_END)
        return TD_FAIL(TD_EPROTO, "rank %d asks for %llu floats from %llu on", l->rank,
                       (unsigned long long)a.count, (unsigned long long)a.begin);
    return a.verb == TD__PS_ASK_PUSH ? answer_push(h, l, &a) : answer_pull(h, l, &a);
}

static void *attend(void *arg)
{
    guest *g = arg;
    bool ends = false;
    while (!g->failed && !ends)
        g->failed = answer(g->owner, g->lane, &ends);
    if (!g->failed)
        return NULL;
    snprintf(g->text, sizeof g->text, "%s", td_last_error());
    if (g->failed == TD_EPEER)
        TD_LOG(WARN, TRAIN, "%s: its pushes so far stay", g->text);
    else
        td_comm_abort(g->lane->link, g->text);
    return NULL;
}

static td_status close_host(td__ps_host *h)
{
    td_status st = TD_OK;
    for (int i = 0; h->guests && i < h->clients; i++) {
        guest *g = &h->guests[i];
        if (g->started)
            pthread_join(g->thread, NULL);
        if (g->failed && g->failed != TD_EPEER && !st)
            st = TD_FAIL(g->failed, "%s", g->text);
    }
    td__ps_lanes_close(h->lanes, h->clients);
    pthread_mutex_destroy(&h->lock);
    td__free(h->mine);
    td__free(h->guests);
    td__free(h->lanes);
    td__free(h);
    return st;
}

td_status td__ps_host_close(td__ps_host *h)
{
    return h ? close_host(h) : TD_OK;
}

static td_status start(td__ps_host *h)
{
    bool in_lane = h->clients == 1;
    h->mine = in_lane ? NULL : td__calloc(h->own.count + 1, sizeof *h->mine);
    h->block = in_lane ? h->lanes[0].pull : h->mine;
    if (!h->block)
        return TD_FAIL(TD_ENOMEM, "no memory for a block of %zu floats", h->own.count);
    if (h->opts.values)
        memcpy(h->block, h->opts.values + h->own.begin, h->own.count * sizeof *h->block);
    for (int i = 0; i < h->clients; i++) {
        guest *g = &h->guests[i];
        *g = (guest){.owner = h, .lane = &h->lanes[i]};
        td__ps_lane_waits(g->lane, h->opts.waits);
        int error = pthread_create(&g->thread, NULL, attend, g);
        if (error)
            return TD_FAIL(TD_EIO, "cannot start a thread for rank %d: %s", g->lane->rank,
                           strerror(error));
        g->started = true;
    }
    return TD_OK;
}

td_status td__ps_host_open(td_comm *comm, int servers, size_t floats, const td__ps_host_opts *opts,
                           td__ps_host **out)
{
    int clients = td_comm_size(comm) - servers;
    *out = NULL;
    td__ps_host *h = td__calloc(1, sizeof *h);
    td__ps_lane_size *sizes = td__calloc((size_t)servers, sizeof *sizes);
    td_status st = h && sizes ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d clients", clients);
    if (!st) {
        *h = (td__ps_host){.lanes = td__calloc((size_t)clients, sizeof *h->lanes),
                           .guests = td__calloc((size_t)clients, sizeof *h->guests),
                           .clients = clients,
                           .own = td__ps_even_shard(floats, servers, td_comm_rank(comm)),
                           .opts = opts ? *opts : (td__ps_host_opts){0}};
        pthread_mutex_init(&h->lock, NULL);
        if (!h->lanes || !h->guests)
            st = TD_FAIL(TD_ENOMEM, "no memory for %d clients", clients);
    }
    for (int s = 0; !st && s < servers; s++) {
        size_t count = td__ps_even_shard(floats, servers, s).count;
        sizes[s] = (td__ps_lane_size){count, count};
    }
    if (!st)
        st = td__ps_lanes_open(comm, servers, 1, sizes, h->lanes);
    if (!st)
        st = start(h);
    td__free(sizes);
    if (!st) {
        *out = h;
        return TD_OK;
    }
    if (h) {
        td__ps_lanes_abort(h->lanes, h->lanes ? clients : 0, "the server has failed");
        td_status more = close_host(h); /* of the threads that ran */
        (void)more;
    }
    return st;
}
