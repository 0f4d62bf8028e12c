/* lane.c -- see lane.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/lane.h"

#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"

enum {
    ALIGN = 1024, /* floats: the areas have pages of their own */
    SPINS = 1000, /* before the link's own waiting begins */
    SPINS_BUSY = 50 * 1000 * 1000,
};

static const td_comm_opts PATIENT = {.stall_ms = UINT32_MAX};
static const td_coll_opts IDLE = {.timeout_ms = TD__LINK_IDLE_MS};

/* How long a message to the other side may take. */
static const td_coll_opts *patience(const td__ps_lane *l)
{
    return l->peer == 0 ? &IDLE : NULL; /* a server may be busy; a worker waits for what comes */
}

/* How long what comes from there may. */
static td_coll_opts awaited(const td__ps_lane *l, bool idle)
{
    return (td_coll_opts){.timeout_ms = idle ? TD__LINK_IDLE_MS : l->within_ms};
}

/* The server's memory is used by both; the worker's share of it stays untouched. It is zero, which
 * is what a mailbox begins with. */
static td_status open_areas(td__ps_lane *l, td__ps_lane_size size)
{
    size_t mail = td__align_up(2 * sizeof(td__mailbox) / sizeof(float), ALIGN);
    size_t push = td__align_up(size.push, ALIGN), nbytes;
    void *mine;
    if (!td__size_mul(mail + push + size.pull + 1, sizeof(float), &nbytes))
        return TD_FAIL(TD_ENOMEM, "a shard of %zu floats is too large", size.pull);
    TD_TRY(td_comm_alloc(l->link, nbytes, &mine));
    void *const *both = td__comm_shared(l->link, mine);
    l->shared = both != NULL;
    td__mailbox *boxes = both ? both[0] : mine;
    l->in = &boxes[l->peer]; /* [0]: to the worker */
    l->out = &boxes[!l->peer];
    l->push = (float *)boxes + mail;
    l->pull = l->push + push;
    l->push_count = size.push;
    l->pull_count = size.pull;
    l->spins = SPINS;
    return TD_OK;
}

td_status td__ps_lane_open(td_comm *comm, int server, int client, td__ps_lane_size size,
                           td__ps_lane *out)
{
    int rank = td_comm_rank(comm);
    bool in = rank == server || rank == client, serves = rank == server;
    td_comm *link = NULL;
    TD_TRY(td__comm_split_with(comm, in ? 0 : -1, serves ? 0 : 1, &PATIENT, &link));
    if (!in)
        return TD_OK;
    *out = (td__ps_lane){.link = link, .peer = serves, .rank = serves ? client : server};
    return open_areas(out, size);
}

td_status td__ps_lanes_open(td_comm *comm, int servers, int team, const td__ps_lane_size *size,
                            td__ps_lane *out)
{
    int rank = td_comm_rank(comm), ranks = td_comm_size(comm);
    for (int s = 0; s < servers; s++)
        for (int w = servers; w < ranks; w += team) {
            bool in = rank == s || (rank >= w && rank < w + team);
            td_comm *link = NULL;
            TD_TRY(td__comm_split_with(comm, in ? 0 : -1, rank, &PATIENT, &link));
            if (!in)
                continue;
            td__ps_lane *l = &out[rank == s ? (w - servers) / team : s];
            *l = (td__ps_lane){.link = link,
                               .peer = rank == s,
                               .member = rank == s ? 0 : rank - w,
                               .rank = rank == s ? w : s};
            TD_TRY(open_areas(l, size[s]));
        }
    return TD_OK;
}

void td__ps_lanes_close(td__ps_lane *lanes, int n)
{
    for (int i = 0; lanes && i < n; i++) {
        td_comm_destroy(lanes[i].link);
        lanes[i].link = NULL;
    }
}

void td__ps_lanes_abort(td__ps_lane *lanes, int n, const char *why)
{
    for (int i = 0; lanes && i < n; i++)
        if (lanes[i].link)
            td_comm_abort(lanes[i].link, why);
}

void td__ps_lane_waits(td__ps_lane *l, td__ps_wait_mode mode)
{
    l->spins = mode == TD__PS_BUSY ? SPINS_BUSY : mode == TD__PS_BLOCK ? 0 : SPINS;
    td__comm_set_patient(l->link, mode == TD__PS_BLOCK);
}

static td__mailbox_side side_of(const td__ps_lane *l, const td_coll_opts *opts)
{
    return (td__mailbox_side){l->link, l->peer, opts, l->spins};
}

td_status td__ps_tell(const td__ps_lane *l, const void *message, size_t nbytes)
{
    td__mailbox_side side = side_of(l, patience(l));
    if (l->shared && td__mailbox_fits(nbytes))
        return td__mailbox_put(l->out, &side, message, nbytes);
    return td_send(l->link, message, nbytes, TD_U8, l->peer, patience(l));
}

td_status td__ps_hear(const td__ps_lane *l, void *message, size_t nbytes, bool idle)
{
    td_coll_opts opts = awaited(l, idle);
    td__mailbox_side side = side_of(l, &opts);
    if (l->shared && td__mailbox_fits(nbytes))
        return td__mailbox_get(l->in, &side, message, nbytes);
    return td_recv(l->link, message, nbytes, TD_U8, l->peer, &opts);
}

td_status td__ps_hand(const td__ps_lane *l, const float *area, size_t count)
{
    return l->shared || !count ? TD_OK
                               : td_send(l->link, area, count, TD_F32, l->peer, patience(l));
}

td_status td__ps_take(const td__ps_lane *l, float *area, size_t count)
{
    td_coll_opts opts = awaited(l, false);
    return l->shared || !count ? TD_OK : td_recv(l->link, area, count, TD_F32, l->peer, &opts);
}

/* The part of a range that holding i has and that moves over the link between it and this side:
 * towards the server only once. */
static td__param_range part_of(const td__ps_lane *l, int i, td__param_range at, bool push)
{
    const td__ps_holding *h = &l->holds[i];
    bool moves = (l->peer || h->member == l->member) && (!push || h->pushes);
    size_t begin = at.begin > h->at.begin ? at.begin : h->at.begin;
    size_t end = at.end < h->at.end ? at.end : h->at.end;
    return moves && begin < end ? (td__param_range){begin, end} : (td__param_range){begin, begin};
}

td_status td__ps_hand_range(const td__ps_lane *l, const float *area, td__param_range at)
{
    if (!l->holds)
        return td__ps_hand(l, area, at.end - at.begin);
    for (int i = 0; !l->shared && i < l->n_holds; i++) {
        td__param_range p = part_of(l, i, at, !l->peer);
        if (p.begin < p.end)
            TD_TRY(td_send(l->link, area + (p.begin - at.begin), p.end - p.begin, TD_F32,
                           l->peer ? 1 + l->holds[i].member : 0, patience(l)));
    }
    return TD_OK;
}

td_status td__ps_take_range(const td__ps_lane *l, float *area, td__param_range at)
{
    td_coll_opts opts = awaited(l, false);
    if (!l->holds)
        return td__ps_take(l, area, at.end - at.begin);
    for (int i = 0; !l->shared && i < l->n_holds; i++) {
        td__param_range p = part_of(l, i, at, l->peer);
        if (p.begin < p.end)
            TD_TRY(td_recv(l->link, area + (p.begin - at.begin), p.end - p.begin, TD_F32,
                           l->peer ? 1 + l->holds[i].member : 0, &opts));
    }
    return TD_OK;
}
