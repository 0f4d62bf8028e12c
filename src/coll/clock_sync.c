/* clock_sync.c -- see clock_sync.h. Rank 0 answers the other ranks one after the other, so that no
 * ping waits behind another's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/clock_sync.h"

#include "base/clock.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

enum { PINGS = 12 };

td__clock_sample td__clock_best(const td__ping *pings, int n)
{
    const td__ping *best = &pings[0];

    for (int i = 1; i < n; i++)
        if (pings[i].got_ns - pings[i].sent_ns < best->got_ns - best->sent_ns)
            best = &pings[i];
    double half = 0.5 * (double)(best->got_ns - best->sent_ns);
    /* Differences first: clocks count from the start of their machines; a double has 53 bits. */
    return (td__clock_sample){.at_ns = best->sent_ns + (uint64_t)half,
                              .offset_ns = (double)(int64_t)(best->there_ns - best->sent_ns) - half,
                              .error_ns = half};
}

double td__clock_to_first(const td__clock_map *m, uint64_t own_ns)
{
    double span = (double)(int64_t)(m->end.at_ns - m->start.at_ns);
    double t = span > 0 ? (double)(int64_t)(own_ns - m->start.at_ns) / span : 0;
    double offset = m->start.offset_ns + t * (m->end.offset_ns - m->start.offset_ns);

    return (double)own_ns + offset;
}

static uint64_t read_clock(void *user)
{
    (void)user;
    return td__clock_ns();
}

static td_status ask(td_comm *c, td__clock_fn clock, void *user, td__clock_sample *out)
{
    td__ping pings[PINGS];
    uint8_t question = 0;

    for (int i = 0; i < PINGS; i++) {
        pings[i].sent_ns = clock(user);
        TD_TRY(td_send(c, &question, 1, TD_U8, 0, NULL));
        TD_TRY(td_recv(c, &pings[i].there_ns, sizeof pings[i].there_ns, TD_U8, 0, NULL));
        pings[i].got_ns = clock(user);
    }
    *out = td__clock_best(pings, PINGS);
    return TD_OK;
}

static td_status answer(td_comm *c, int peer, td__clock_fn clock, void *user)
{
    uint8_t question;

    for (int i = 0; i < PINGS; i++) {
        TD_TRY(td_recv(c, &question, 1, TD_U8, peer, NULL));
        uint64_t now = clock(user);
        TD_TRY(td_send(c, &now, sizeof now, TD_U8, peer, NULL));
    }
    return TD_OK;
}

/* The same answer on all ranks, or somebody would wait for a ping. */
static bool shares_clock(const td_comm *c, int rank)
{
    return rank == 0 || !c->host_of || c->host_of[rank] == c->host_of[0];
}

td_status td__clock_measure(td_comm *c, td__clock_fn clock, void *user, td__clock_sample *out)
{
    bool real = !clock;
    int size = td_comm_size(c), rank = td_comm_rank(c);

    clock = clock ? clock : read_clock;
    *out = (td__clock_sample){.at_ns = clock(user)};
    for (int r = 1; r < size; r++) {
        if (real && shares_clock(c, r))
            continue;
        if (rank == 0)
            TD_TRY(answer(c, r, clock, user));
        else if (rank == r)
            TD_TRY(ask(c, clock, user, out));
    }
    return TD_OK;
}
