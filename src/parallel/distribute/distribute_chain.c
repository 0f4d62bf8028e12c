/* distribute_chain.c -- a pipelined relay along a ridge: rank 0 hands each block to rank 1, which
 * hands it on to rank 2 while it already receives the next one, and so on. Every rank sends the
 * data once at most, whatever the number of ranks, and a chain of n ranks is n - 2 blocks later
 * done than one of two.
 *
 * Two threads a rank, joined by a ring of blocks: the caller fills (reads on rank 0, receives
 * elsewhere), a second one sends on to the next rank. Each has a link of its own (links.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/distribute/distribute.h"
#include "parallel/links.h"

enum { RING = 4 };

typedef struct relay {
    td__spread *s;
    td_comm *before, *after;
    size_t room;
    char *ring[RING]; /* block b lies in b % RING */

    /* The lock protects what follows. Both threads do bounded work between two looks at it, and
     * their links end when the other side does. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t filled, sent;
    td_status failed; /* of either; the other then stops */
    char text[512];
} relay;

/* The first failure is everybody's: who waits for this rank must not. */
static void fail(relay *r, td_status st)
{
    pthread_mutex_lock(&r->lock);
    if (!r->failed) {
        r->failed = st;
        snprintf(r->text, sizeof r->text, "%s", td_last_error());
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->before)
        td_comm_abort(r->before, r->text);
    if (r->after)
        td_comm_abort(r->after, r->text);
}

/* Wait until *counter is at least `least`; false: the other thread failed. */
static bool reach(relay *r, const int64_t *counter, int64_t least)
{
    pthread_mutex_lock(&r->lock);
    while (*counter < least && !r->failed)
        pthread_cond_wait(&r->changed, &r->lock);
    bool ok = !r->failed;
    pthread_mutex_unlock(&r->lock);
    return ok;
}

static void advance(relay *r, int64_t *counter)
{
    pthread_mutex_lock(&r->lock);
    ++*counter;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *hand_on(void *arg)
{
    relay *r = arg;

    for (int64_t b = 0; b < r->s->blocks; b++) {
        if (!reach(r, &r->filled, b + 1))
            return NULL;
        td_status st =
            td_send(r->after, r->ring[b % RING], td__spread_nbytes(r->s, b), TD_U8, 1, NULL);
        if (st) {
            fail(r, st);
            return NULL;
        }
        advance(r, &r->sent);
    }
    return NULL;
}

static td_status fill(relay *r, int64_t block)
{
    char *data = r->ring[block % RING];

    if (r->before)
        TD_TRY(td_recv(r->before, data, td__spread_nbytes(r->s, block), TD_U8, 0, NULL));
    return td__spread_take(r->s, block, data);
}

static void fill_all(relay *r)
{
    for (int64_t b = 0; b < r->s->blocks; b++) {
        if (r->after && !reach(r, &r->sent, b + 1 - RING))
            return;
        td_status st = fill(r, b);
        if (st) {
            fail(r, st);
            return;
        }
        advance(r, &r->filled);
    }
}

static td_status run(relay *r)
{
    pthread_t thread;

    for (int i = 0; i < RING; i++)
        if (!(r->ring[i] = td__alloc_block(r->room)))
            return TD_FAIL(TD_ENOMEM, "no memory for %d blocks of %zu bytes", RING, r->room);
    if (r->after) {
        int error = pthread_create(&thread, NULL, hand_on, r);
        if (error)
            return TD_FAIL(TD_ENOMEM, "cannot start a thread that hands data on: %s",
                           strerror(error));
    }
    fill_all(r);
    if (r->after)
        pthread_join(thread, NULL);
    return r->failed ? TD_FAIL(r->failed, "%s", r->text) : TD_OK;
}

static td_status spread(td__spread *s)
{
    relay r = {.s = s, .room = td__spread_room(s)};

    TD_TRY(td__links_line(s->comm, &r.before, &r.after));
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    td_status st = run(&r);
    if (!st) /* nobody takes a link away that still carries something */
        st = td_barrier(s->comm, NULL);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    for (int i = 0; i < RING; i++)
        td__free_block(r.ring[i], r.room);
    td_comm_destroy(r.before);
    td_comm_destroy(r.after);
    return st;
}

const td__distribute_def td__distribute_chain = {
    .name = "chain",
    .help = "blocks are handed on from rank to rank, many at a time; every rank keeps all samples",
    .spread = spread,
};
