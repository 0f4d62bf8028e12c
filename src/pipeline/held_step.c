/* held_step.c -- see held_step.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/held_step.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "optim/optimizer.h"

enum {
    SLICE = 16 << 10
}; /* elements that are updated at once, where the optimizer may be given any */

typedef struct ranges {
    td__optim_range *at; /* (n) of params with dense gradients, which lie where these do */
    int n;
} ranges;

struct td__held_step {
    td__held_opts o;
    td__step_taker taker;
    td__grad_pool *blocks;
    td__partial sum;     /* elements of what is held alone are ever touched */
    ranges held;         /* what this rank updates: its own, and what it mirrors */
    ranges own, mirrors; /* what it sends, and gets; none unless o.sends */
    td__mirror_place place;
    bool prepared;
};

/* The sum may lie in memory of the host or of the device. */
static td_status take(void *user, const float *sum, size_t begin, size_t count)
{
    td__held_step *h = user;
    td_stream *on = td__grad_stream(h->blocks);
    td__stream_copy(on, h->sum.dense + begin, sum, count * sizeof *sum);
    td__stream_drain(on);
    return TD_OK;
}

static td_status find_ranges(const td__held_step *h, td__holding of, ranges *out)
{
    return td__ownership_ranges(td__shards_ownership(h->o.shards), of, &out->at, &out->n);
}

static td_status set_up(td__held_step *h)
{
    td__holding all = td__shards_holding(h->o.shards);
    TD_TRY(td__grad_pool_create(h->o.program, h->o.params, 1, &h->blocks));
    TD_TRY(td__grad_hold(h->blocks, &h->sum));
    TD_TRY(find_ranges(h, all, &h->held));
    if (!h->o.sends)
        return TD_OK;
    TD_TRY(td__mirror_place_of(td__comm_host_of(h->o.comm), all.rank, all.ranks, &h->place));
    TD_ASSERT(h->place.mirror == all.mirror, "rank %d mirrors %d", all.rank, all.mirror);
    TD_TRY(find_ranges(h, (td__holding){all.ranks, all.rank, -1}, &h->own));
    return find_ranges(h, (td__holding){all.ranks, all.mirror, -1}, &h->mirrors);
}

td_status td__held_step_create(const td__held_opts *o, td__held_step **out)
{
    td__held_step *h = *out = td__calloc(1, sizeof *h);
    if (!h)
        return TD_FAIL(TD_ENOMEM, "no memory for the sum of a step");
    h->o = *o;
    h->taker = (td__step_taker){.user = h, .take = take, .all = true};
    td_status st = set_up(h);
    if (st) {
        td__held_step_destroy(h);
        *out = NULL;
    }
    return st;
}

void td__held_step_destroy(td__held_step *h)
{
    if (!h)
        return;
    td__grad_stack last = {.n = 1, .room = 1, .at = &h->sum};
    if (h->sum.block)
        td__grad_clear(h->blocks, &last);
    td__grad_pool_destroy(h->blocks);
    td__free(h->held.at);
    td__free(h->own.at);
    td__free(h->mirrors.at);
    td__free(h);
}

const td__step_taker *td__held_step_taker(const td__held_step *h)
{
    return &h->taker;
}

float *td__held_step_sum(const td__held_step *h)
{
    return h->sum.dense;
}

void td__held_step_begin(td__held_step *h)
{
    h->prepared = false;
}

/* ---- Mirrors --------------------------------------------------------------------------------- */

static td_status pass(td__held_step *h, td__optim_range r, int to, int from)
{
    td_device *d = td__params_device(h->o.params);
    size_t n = r.end - r.begin;
    td__mapping map;
    TD_TRY(td__mem_map(d, h->sum.dense + r.begin, n * sizeof(float),
                       to < 0 ? TD_MAP_WRITE : TD_MAP_READ, &map));
    td_status st = to < 0 ? td_recv(h->o.comm, map.at, n, TD_F32, from, NULL)
                          : td_send(h->o.comm, map.at, n, TD_F32, to, NULL);
    if (!st && to < 0)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

static td_status send_own(td__held_step *h, uint64_t *sent)
{
    for (int i = 0; i < h->own.n; i++) {
        TD_TRY(pass(h, h->own.at[i], h->place.mirrored_by, -1));
        *sent += (h->own.at[i].end - h->own.at[i].begin) * sizeof(float);
    }
    return TD_OK;
}

static td_status receive_mirrored(td__held_step *h)
{
    for (int i = 0; i < h->mirrors.n; i++)
        TD_TRY(pass(h, h->mirrors.at[i], -1, h->place.mirror));
    return TD_OK;
}

/* A send may have to wait for its receive, so every other rank of the ring receives first. */
td_status td__held_step_mirror(td__held_step *h, uint64_t *sent)
{
    *sent = 0;
    if (!h->o.sends)
        return TD_OK;
    if (h->place.place % 2 == 0)
        TD_TRY(send_own(h, sent));
    TD_TRY(receive_mirrored(h));
    return h->place.place % 2 ? send_own(h, sent) : TD_OK;
}

/* ---- The update ------------------------------------------------------------------------------ */

td_status td__held_step_prepare(td__held_step *h, double lr, double scale)
{
    uint64_t steps = td_optimizer_steps(h->o.optimizer);
    TD_TRY(td__optim_begin(h->o.optimizer, lr, scale));
    td_optimizer_set_steps(h->o.optimizer, steps); /* it is not done yet */
    h->prepared = true;
    return TD_OK;
}

bool td__held_step_prepared(const td__held_step *h)
{
    return h && h->prepared;
}

static void apply_range(td__held_step *h, size_t begin, size_t end)
{
    size_t step = td__optim_sliceable(h->o.optimizer) ? SLICE : end - begin;
    for (; begin < end; begin += step)
        td__optim_apply(h->o.optimizer, h->sum.dense + begin, begin,
                        end - begin < step ? end - begin : step);
}

td_status td__held_step_apply(td__held_step *h)
{
    td_params *ps = h->o.params;
    td_optimizer *o = h->o.optimizer;
    TD_ASSERT(h->prepared, "an update that is not prepared");
    h->prepared = false;
    td_optimizer_set_steps(o, td_optimizer_steps(o) + 1);
    for (int k = 0; k < h->held.n; k++)
        for (int i = 0; i < td_params_count(ps); i++) {
            td_param_info info = td_params_info(ps, i);
            size_t from = info.offset, to = info.offset + info.count;
            from = h->held.at[k].begin > from ? h->held.at[k].begin : from;
            to = h->held.at[k].end < to ? h->held.at[k].end : to;
            if (!info.is_state && from < to)
                apply_range(h, from, to);
        }
    td__params_fold(ps, h->o.program, NULL, h->sum.dense);
    return td__optim_end(o);
}
