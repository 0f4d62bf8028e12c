/* slices.c -- see slices.h.
 *
 * Checkpoints hold whole blocks and know nothing of slices, so a run may go on at another stage or
 * with another number of ranks. Loading one goes tensor by tensor: rank 0 reads, all are told, each
 * keeps what is its own; nobody ever holds more than a tensor that it does not keep. Writing one
 * brings the slices of bucket after bucket to rank 0, which holds a whole copy while it writes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/slices.h"

#include <string.h>

#include "base/fail.h"
#include "graph/params.h"
#include "graph/walk.h"
#include "optim/optimizer.h"
#include "train/step_zero.h"

enum { PIECE = 1 << 18 }; /* floats that are told at once */

/* ---- Making ---------------------------------------------------------------------------------- */

td_status td__slices_resolve(td__train_opts *o)
{
    if (o->zero < 0 || o->zero >= TD__ZERO_STAGES)
        return TD_FAIL(TD_EINVAL, "parallel.zero is %d: must be 0 to 3", o->zero);
    if (o->zero && o->reducer)
        return TD_FAIL(TD_EINVAL, "parallel.zero %d: gradients cannot be reduced by '%s' as well",
                       o->zero, o->reducer);
    if (!o->comm || td_comm_size(o->comm) == 1)
        o->zero = 0;
    if (o->zero > 1 && o->threads > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.zero %d: ranks run one compute thread each, not %d; start more "
                       "ranks instead",
                       o->zero, o->threads);
    return TD_OK;
}

/* The first values, tensor by tensor, so that the block never is there whole. No rank may leave it
 * to others (`blank`): nobody else has its slices. */
static td_status fill(td__trainer *t, const td_program *p)
{
    const td__zero_map *m = td__zero_map_of(t->zero);
    int b = 0;
    for (int i = 0; i < td_params_count(t->params); i++) {
        size_t at = td_params_info(t->params, i).offset;
        for (; b < m->params && at >= m->begin[b + 1]; b++)
            td__zero_drop(t->zero, b);
        TD_TRY(td__params_fill(t->params, p, i, t->o.seed));
    }
    td__zero_drop_all(t->zero);
    return TD_OK;
}

td_status td__slices_make(td__trainer *t, const td_program *p)
{
    td__optim_range *own;
    int n;
    bool late = t->o.zero == 3 || t->o.blank;

    TD_TRY(td__params_create(p, late ? NULL : &t->o.seed, &t->params));
    td__zero_opts z = {.comm = t->o.comm,
                       .params = t->params,
                       .stage = t->o.zero,
                       .shards = t->o.shards,
                       .accumulate = t->o.accumulate,
                       .bucket_nbytes = t->o.bucket_nbytes};
    TD_TRY(td__zero_create(&z, &t->zero));
    if (t->o.zero == 3)
        TD_TRY(fill(t, p));
    TD_TRY(td__zero_ranges(td__zero_map_of(t->zero), t->params, td__trainer_rank(t), &own, &n));
    td_status st = td__optim_create_own(&t->o.optim, t->params, own, n, &t->optimizer);
    td__free(own);
    return st;
}

int64_t td__slices_rows(const void *user, int64_t index, int64_t rows, int64_t *out)
{
    const td__trainer *t = user;
    (void)index;
    return td__zero_rows(rows, t->o.shards, td__trainer_rank(t), td__trainer_ranks(t), out);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

/* A tensor of state k that rank 0 has at `from`, to those who hold parts of it. */
static td_status tell_state(td__trainer *t, int k, const td_param_info *info, const float *from,
                            float *piece)
{
    for (size_t at = 0; at < info->count; at += PIECE) {
        size_t n = info->count - at < PIECE ? info->count - at : PIECE, first, held;
        size_t begin = info->offset + at, end = begin + n;
        float *state;
        if (from)
            memcpy(piece, from + at, n * sizeof *piece);
        TD_TRY(td_broadcast(t->o.comm, piece, n, TD_F32, 0, NULL));
        for (size_t x = begin;
             (held = td__optim_state_part(t->optimizer, k, x, end, &first, &state));
             x = first + held)
            memcpy(state, piece + (first - begin), held * sizeof *state);
    }
    return TD_OK;
}

static td_status tell_param(td__trainer *t, const td_param_info *info)
{
    size_t all;
    float *block = td_params_block(t->params, &all) + info->offset;
    for (size_t at = 0; at < info->count; at += PIECE)
        TD_TRY(td_broadcast(t->o.comm, block + at,
                            info->count - at < PIECE ? info->count - at : PIECE, TD_F32, 0, NULL));
    return TD_OK;
}

static td_status tell_checkpoint(td__trainer *t, td__checkpoint_reader *r, float *piece)
{
    const td__zero_map *m = td__zero_map_of(t->zero);
    size_t all;
    float *block = td_params_block(t->params, &all);

    for (int i = 0; i < td_params_count(t->params); i++) {
        td_param_info info = td_params_info(t->params, i);
        if (r)
            TD_TRY(td__checkpoint_read(r, i, block + info.offset));
        TD_TRY(tell_param(t, &info));
        for (int b = 0; t->o.zero == 3 && b < m->params; b++)
            if (m->begin[b] <= info.offset && info.offset < m->begin[b + 1])
                td__zero_drop(t->zero, b);
        for (int k = 0; !info.is_state && k < td_optimizer_state_count(t->optimizer); k++)
            TD_TRY(tell_state(t, k, &info, r ? td__checkpoint_state(r, k, i) : NULL, piece));
    }
    return TD_OK;
}

/* What every rank holds whole: at stage 3 that is what lies behind the buckets. */
static td_status tell_whole(td__trainer *t)
{
    const td__zero_map *m = td__zero_map_of(t->zero);
    size_t all, begin = t->o.zero == 3 && m->params ? m->begin[m->params] : 0;
    float *block = td_params_block(t->params, &all);
    return td_broadcast(t->o.comm, block + begin, all - begin, TD_F32, 0, NULL);
}

td_status td__slices_begin(td__trainer *t, bool resumed)
{
    td__checkpoint_reader *r = NULL;
    td_status st = TD_OK;

    if (!resumed)
        TD_TRY(tell_whole(t));
    if (resumed) {
        float *piece = td__calloc(PIECE, sizeof *piece);
        if (!piece)
            return TD_FAIL(TD_ENOMEM, "no memory to read a checkpoint");
        if (td__trainer_rank(t) == 0)
            st = td__checkpoint_open(&t->resumed, t->params, t->optimizer, &r);
        if (!st)
            st = tell_checkpoint(t, r, piece);
        td__checkpoint_close(r);
        td__free(piece);
    }
    td_params_touch(t->params);
    return st;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* Bucket after bucket of the params (k < 0) or of state k; out is rank 0's. */
static td_status collect(td__trainer *t, int k, float *out)
{
    const td__zero_map *m = td__zero_map_of(t->zero);
    int rank = td__trainer_rank(t);
    size_t all, first, held;
    float *own = NULL, *block = td_params_block(t->params, &all);

    for (int b = 0; b < m->params; b++) {
        const size_t *cut = td__zero_cut(m, b);
        if (k < 0)
            own = block + cut[rank];
        else
            (void)td__optim_state_part(t->optimizer, k, cut[rank], cut[rank + 1], &first, &own);
        TD_TRY(td__zero_collect(t->zero, b, own, 0, out ? out + m->begin[b] : NULL));
    }
    size_t begin = m->params ? m->begin[m->params] : 0;
    size_t end = k < 0 ? all : td_params_trainable(t->params);
    if (out && k < 0) /* row-sparse params and states: rank 0 has them whole */
        memcpy(out + begin, block + begin, (end - begin) * sizeof *out);
    for (size_t x = begin;
         out && k >= 0 && (held = td__optim_state_part(t->optimizer, k, x, end, &first, &own));
         x = first + held)
        memcpy(out + first, own, held * sizeof *out);
    return TD_OK;
}

td_status td__slices_save(td__trainer *t, bool best)
{
    td__checkpoint_room room = {0};

    if (t->checkpointer)
        TD_TRY(td__checkpointer_room(t->checkpointer, t->params, t->optimizer, &room));
    TD_TRY(collect(t, -1, room.block));
    for (int k = 0; k < td_optimizer_state_count(t->optimizer); k++)
        TD_TRY(collect(t, k, room.states ? room.states + (size_t)k * room.stride : NULL));
    if (t->checkpointer)
        td__checkpointer_start(t->checkpointer, &t->state, t->params, t->optimizer, best);
    return TD_OK;
}

/* ---- The digest ------------------------------------------------------------------------------ */

typedef struct window {
    td__zero *zero;
    const td_params *ps;
    int here; /* bucket that is there; -1: none */
} window;

static td_status show(void *user, int param)
{
    window *w = user;
    const td__zero_map *m = td__zero_map_of(w->zero);
    size_t at = td_params_info(w->ps, param).offset;
    int b = 0;

    while (b < m->params && at >= m->begin[b + 1])
        b++;
    if (b == w->here || b == m->params)
        return TD_OK;
    if (w->here >= 0)
        td__zero_drop(w->zero, w->here);
    w->here = b;
    return td__zero_gather(w->zero, b);
}

td_status td__slices_digest(td__trainer *t, char hex[65])
{
    window w = {t->zero, t->params, -1};
    td_status st = td__params_digest(t->params, show, &w, hex);
    if (w.here >= 0)
        td__zero_drop(t->zero, w.here);
    return st;
}
