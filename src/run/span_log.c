/* span_log.c -- see span_log.h. A ring: a place is taken by counting up, so that threads never
 * wait for each other; spans are read when none are being added. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/span_log.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/clock_sync.h"

struct td__span_log {
    td__span *ring;
    uint64_t room;
    _Atomic uint64_t added;
    td__clock_map clock;
};

const char *td__span_name(td__span_kind kind)
{
    switch (kind) {
#define X(id, name) \
    case TD_SPAN_##id: return name;
        TD_SPAN_MAP(X)
#undef X
    case TD_SPAN_COUNT: break;
    }
    return "?";
}

td_status td__span_log_create(int room, td__span_log **out)
{
    td__span_log *l = td__calloc(1, sizeof *l);

    *out = NULL;
    TD_ASSERT(room > 0, "room for %d spans", room);
    if (l)
        l->ring = td__calloc((size_t)room, sizeof *l->ring);
    if (!l || !l->ring) {
        td__free(l);
        return TD_FAIL(TD_ENOMEM, "no memory for a trace of %d spans", room);
    }
    l->room = (uint64_t)room;
    *out = l;
    return TD_OK;
}

void td__span_log_destroy(td__span_log *l)
{
    if (!l)
        return;
    td__free(l->ring);
    td__free(l);
}

void td__span_log_add(td__span_log *l, const td__span *s)
{
    if (!l)
        return;
    uint64_t at = atomic_fetch_add_explicit(&l->added, 1, memory_order_relaxed);
    l->ring[at % l->room] = *s;
}

static uint64_t first(const td__span_log *l)
{
    uint64_t added = atomic_load(&l->added);
    return added > l->room ? added - l->room : 0;
}

int td__span_log_count(const td__span_log *l)
{
    return (int)(atomic_load(&l->added) - first(l));
}

td__span td__span_log_at(const td__span_log *l, int i)
{
    return l->ring[(first(l) + (uint64_t)i) % l->room];
}

uint64_t td__span_log_lost(const td__span_log *l)
{
    return first(l);
}

td_status td__span_log_start(td__span_log *l, td_comm *comm)
{
    return comm ? td__clock_measure(comm, NULL, NULL, &l->clock.start) : TD_OK;
}

/* ---- Gathering ------------------------------------------------------------------------------- */

static uint64_t moved(const td__clock_map *m, uint64_t ns)
{
    return ns ? (uint64_t)td__clock_to_first(m, ns) : 0;
}

static td_status copy_spans(const td__span_log *l, td__span **out)
{
    int n = td__span_log_count(l);
    td__span *spans = td__calloc((size_t)n + 1, sizeof *spans);

    *out = spans;
    if (!spans)
        return TD_FAIL(TD_ENOMEM, "no memory to gather %d spans", n);
    bool same = l->clock.start.offset_ns == 0 && l->clock.end.offset_ns == 0;
    for (int i = 0; i < n; i++) {
        spans[i] = td__span_log_at(l, i);
        if (same)
            continue;
        spans[i].begin_ns = moved(&l->clock, spans[i].begin_ns);
        spans[i].end_ns = moved(&l->clock, spans[i].end_ns);
        spans[i].posted_ns = moved(&l->clock, spans[i].posted_ns);
    }
    return TD_OK;
}

typedef struct parcel {
    uint64_t n, lost;
} parcel;

static td_status receive(td_comm *comm, int peer, td__span_sink *sink, void *user)
{
    parcel p;

    TD_TRY(td_recv(comm, &p, sizeof p, TD_U8, peer, NULL));
    if (p.n > INT32_MAX)
        return TD_FAIL(TD_EPROTO, "rank %d sends a trace of %llu spans", peer,
                       (unsigned long long)p.n);
    td__span *spans = td__calloc(p.n + 1, sizeof *spans);
    if (!spans)
        return TD_FAIL(TD_ENOMEM, "no memory for the trace of rank %d", peer);
    td_status st = td_recv(comm, spans, p.n * sizeof *spans, TD_U8, peer, NULL);
    if (!st)
        st = sink(user, peer, spans, (int)p.n, p.lost);
    td__free(spans);
    return st;
}

td_status td__span_log_gather(td__span_log *l, td_comm *comm, td__span_sink *sink, void *user)
{
    int rank = comm ? td_comm_rank(comm) : 0, size = comm ? td_comm_size(comm) : 1;
    td__span *spans = NULL;
    td_status st = TD_OK;

    if (comm)
        TD_TRY(td__clock_measure(comm, NULL, NULL, &l->clock.end));
    parcel p = {(uint64_t)td__span_log_count(l), td__span_log_lost(l)};
    TD_TRY_OR(st, done, copy_spans(l, &spans));
    if (rank == 0) {
        TD_TRY_OR(st, done, sink(user, 0, spans, (int)p.n, p.lost));
        for (int r = 1; r < size; r++)
            TD_TRY_OR(st, done, receive(comm, r, sink, user));
    } else {
        TD_TRY_OR(st, done, td_send(comm, &p, sizeof p, TD_U8, 0, NULL));
        TD_TRY_OR(st, done, td_send(comm, spans, p.n * sizeof *spans, TD_U8, 0, NULL));
    }
done:
    td__free(spans);
    return st;
}
