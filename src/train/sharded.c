/* sharded.c -- see sharded.h.
 *
 * Checkpoints hold whole blocks and know nothing of shards, so a run may go on at another stage or
 * with another number of ranks. Loading one goes tensor by tensor: rank 0 reads, all are told, each
 * keeps what is its own. Writing one goes tensor by tensor too, in the order of the file: rank 0
 * tells the others which bucket it needs next, they bring their shards, it writes, and training
 * waits. So nobody ever holds more than a tensor, or a bucket, that it does not keep. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sharded.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "graph/params.h"
#include "graph/walk.h"
#include "optim/optimizer.h"

enum { PIECE = 1 << 18 }; /* floats that are told at once */

/* ---- Making ---------------------------------------------------------------------------------- */

static bool params_sharded(const td__trainer *t)
{
    return t->replica.shards && td__shards_of_params(t->replica.shards);
}

/* Numbers that are written tensor by tensor, so that the block never is there whole: of the buckets
 * before the tensor only the shards of this rank stay. */
typedef struct filling {
    td__trainer *t;
    int bucket;
} filling;

static td_status drop_past(void *user, int i)
{
    filling *f = user;
    const td__trainer *t = f->t;
    const td__ownership *m = params_sharded(t) ? td__shards_ownership(t->replica.shards) : NULL;
    size_t at = td_params_info(t->replica.params, i).offset;
    for (; m && f->bucket < m->params && at >= m->begin[f->bucket + 1]; f->bucket++)
        td__shards_drop(t->replica.shards, f->bucket);
    return TD_OK;
}

/* The first values. No rank may leave them to others (`blank`): nobody else has its shards. */
td_status td__sharded_fill(td__trainer *t)
{
    filling f = {.t = t};
    for (int i = 0; i < td_params_count(t->replica.params); i++) {
        TD_TRY(drop_past(&f, i));
        TD_TRY(td__params_fill(t->replica.params, td__trainer_program(t), i, t->o.seed));
    }
    if (params_sharded(t))
        td__shards_drop_all(t->replica.shards);
    return TD_OK;
}

td_status td__trainer_load(td__trainer *t, const char *path)
{
    if (!params_sharded(t))
        return td_params_load(t->replica.params, path);
    filling f = {.t = t};
    td_status st = td__params_load(t->replica.params, drop_past, &f, path);
    td__shards_drop_all(t->replica.shards);
    return st;
}

td_status td__trainer_load_checkpoint(td__trainer *t, const td__checkpoint_info *from)
{
    if (!params_sharded(t))
        return td__checkpoint_load(from, t->replica.params, NULL);
    t->run.resumed = *from;
    return td__sharded_begin(t, true);
}

static td__sync_hold hold_of(const td__trainer *t)
{
    return (td__sync_hold){.config = &t->o.sync,
                           .comm = t->world.comm,
                           .elastic = t->o.members != NULL,
                           .params = t->replica.params,
                           .set = t->run.train_set,
                           .rows = t->plan.micro_batch_rows,
                           .micro_batches = t->o.micro_batches,
                           .accumulate = t->o.accumulate};
}

td_status td__sharded_join(td__trainer *t)
{
    td__sync_hold h = hold_of(t);
    return td__sync_hold_shards(&h, &t->replica.shards);
}

td_status td__sharded_map(void *user, int ranks, td__ownership *out, td__holding *holdings)
{
    td__sync_hold h = hold_of(user);
    return td__sync_map(&h, ranks, out, holdings);
}

td_status td__sharded_make(td__trainer *t, const td_program *p)
{
    bool late = td__trainer_traits(t).sharded_params || t->o.blank;

    TD_TRY(td__params_create(p, late ? NULL : &t->o.seed, &t->replica.params));
    TD_TRY(td__sharded_join(t));
    if (params_sharded(t) && !t->o.untrained)
        TD_TRY(td__sharded_fill(t));
    return td__ownership_optimizer(&t->o.optim, t->replica.params,
                                   td__shards_ownership(t->replica.shards),
                                   td__shards_holding(t->replica.shards), &t->replica.optimizer);
}

td_status td__sharded_make_none(td__trainer *t, const td_program *p)
{
    TD_TRY(td__params_create(p, NULL, &t->replica.params));
    return td__optim_create_own(&t->o.optim, t->replica.params, &(td__optim_range){0, 0}, 0,
                                &t->replica.optimizer);
}

void td__sharded_close(td__trainer *t)
{
    td__states_keep(t);
    td__sync_destroy(t->run.sync);
    t->run.sync = NULL;
    td__lockstep_destroy(t->run.eval_walk);
    td__lockstep_destroy(t->run.predict_walk);
    t->run.eval_walk = t->run.predict_walk = NULL;
    td__shards_destroy(t->replica.shards);
    t->replica.shards = NULL;
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
        TD_TRY(td_broadcast(t->world.comm, piece, n, TD_F32, 0, NULL));
        for (size_t x = begin;
             (held = td__optim_state_part(t->replica.optimizer, k, x, end, &first, &state));
             x = first + held)
            TD_TRY(td__mem_write(td__params_device(t->replica.params), state,
                                 piece + (first - begin), held * sizeof *state));
    }
    return TD_OK;
}

/* Tensor i, which rank 0 reads from the file. */
static td_status tell_param(td__trainer *t, td__checkpoint_reader *r, int i)
{
    td_param_info info = td_params_info(t->replica.params, i);
    td__mapping map;
    TD_TRY(td__params_map_tensor(t->replica.params, i, TD_MAP_WRITE, &map));
    td_status st = r ? td__checkpoint_read(r, i, map.at) : TD_OK;
    for (size_t at = 0; at < info.count && !st; at += PIECE)
        st = td_broadcast(t->world.comm, (float *)map.at + at,
                          info.count - at < PIECE ? info.count - at : PIECE, TD_F32, 0, NULL);
    if (!st)
        return td__params_unmap_tensor(t->replica.params, i, &map);
    td__mem_map_drop(&map);
    return st;
}

/* State k of tensor i, which rank 0 reads from the file. */
static td_status tell_state_of(td__trainer *t, const td__checkpoint_reader *r, int k, int i,
                               float *piece)
{
    td_param_info info = td_params_info(t->replica.params, i);
    const td_attr_pieces *how = td__params_pieces(t->replica.params, i);
    const float *from = r ? td__checkpoint_state(r, k, i) : NULL;
    float *packed = from && how ? td__alloc_block(info.count * sizeof *packed) : NULL;
    if (from && how && !packed)
        return TD_FAIL(TD_ENOMEM, "no memory to read a checkpoint");
    if (packed)
        td__pieces_pack(how, packed, from);
    td_status st = tell_state(t, k, &info, packed ? packed : from, piece);
    if (packed)
        td__free_block(packed, info.count * sizeof *packed);
    return st;
}

static td_status tell_checkpoint(td__trainer *t, td__checkpoint_reader *r, float *piece)
{
    const td__ownership *m = td__shards_ownership(t->replica.shards);

    for (int i = 0; i < td_params_count(t->replica.params); i++) {
        td_param_info info = td_params_info(t->replica.params, i);
        TD_TRY(tell_param(t, r, i));
        for (int b = 0; params_sharded(t) && b < m->params; b++)
            if (m->begin[b] <= info.offset && info.offset < m->begin[b + 1])
                td__shards_drop(t->replica.shards, b);
        int states =
            info.is_state || t->o.untrained ? 0 : td_optimizer_state_count(t->replica.optimizer);
        for (int k = 0; k < states; k++)
            TD_TRY(tell_state_of(t, r, k, i, piece));
    }
    return TD_OK;
}

/* What every rank holds whole: at stage 3 that is what lies behind the buckets. */
static td_status tell_whole(td__trainer *t)
{
    const td__ownership *m = td__shards_ownership(t->replica.shards);
    size_t all = td__params_total(t->replica.params);
    size_t begin = params_sharded(t) && m->params ? m->begin[m->params] : 0;
    td__mapping map;
    TD_TRY(td__params_map(t->replica.params, begin, all - begin, TD_MAP_BOTH, &map));
    td_status st = td_broadcast(t->world.comm, map.at, all - begin, TD_F32, 0, NULL);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

/* All blocks, from the checkpoint that rank 0 goes on from; and the optimizer's steps. */
static td_status tell_resumed(td__trainer *t)
{
    td__checkpoint_reader *r = NULL;
    td_status st = TD_OK;
    float *piece = td__calloc(PIECE, sizeof *piece);

    if (!piece)
        return TD_FAIL(TD_ENOMEM, "no memory to read a checkpoint");
    if (td__trainer_rank(t) == 0)
        st = td__checkpoint_open(&t->run.resumed, t->replica.params,
                                 t->o.untrained ? NULL : t->replica.optimizer, &r);
    if (!st)
        st = tell_checkpoint(t, r, piece);
    td__checkpoint_close(r);
    td__free(piece);
    TD_TRY(st);
    uint64_t steps = td_optimizer_steps(t->replica.optimizer);
    TD_TRY(td_broadcast(t->world.comm, &steps, sizeof steps, TD_U8, 0, NULL));
    td_optimizer_set_steps(t->replica.optimizer, steps);
    return TD_OK;
}

td_status td__sharded_begin(td__trainer *t, bool resumed)
{
    TD_TRY(resumed ? tell_resumed(t) : tell_whole(t));
    td_params_touch(t->replica.params);
    return TD_OK;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* What rank 0 asks for: bucket b of the params (k < 0) or of state k; or nothing more: with DONE, k
 * is the token under which all tell what they hold, or 0. */
enum { DONE = -1, FAILED = -2 };
typedef struct request {
    int32_t k, b;
} request;

typedef struct stream {
    td__trainer *t;
    float *window;     /* rank 0: the bucket asked for last */
    td__mapping shown; /* rank 0: the tensor shown last, if it is not shown in the window */
    request last;
} stream;

static td_status bring(td__trainer *t, request q, float *window)
{
    const size_t *cut = td__shards_of(td__shards_ownership(t->replica.shards), q.b);
    int rank = td__trainer_rank(t);
    size_t all, first;
    float *own = NULL;

    if (q.k < 0)
        own = td_params_block(t->replica.params, &all) + cut[rank];
    else
        (void)td__optim_state_part(t->replica.optimizer, q.k, cut[rank], cut[rank + 1], &first,
                                   &own);
    return td__shards_collect(t->replica.shards, q.b, own, 0, window);
}

static td_status ask(stream *s, request q)
{
    s->last = q;
    TD_TRY(td_broadcast(s->t->world.comm, &q, sizeof q, TD_U8, 0, NULL));
    return q.b < 0 ? TD_OK : bring(s->t, q, s->window);
}

static td_status serve(td__trainer *t, bool *saved)
{
    for (request q;;) {
        TD_TRY(td_broadcast(t->world.comm, &q, sizeof q, TD_U8, 0, NULL));
        *saved = q.b == DONE;
        uint32_t token = (uint32_t)q.k;
        if (q.b < 0)
            return *saved && token ? td__sharded_tell(t, false, &token) : TD_OK;
        TD_TRY(bring(t, q, NULL));
    }
}

/* A tensor in the window, row-major. */
static td_status show_in_window(stream *s, int i, float *at, float **data)
{
    const td_params *ps = s->t->replica.params;
    const td_attr_pieces *how = td__params_pieces(ps, i);
    *data = at;
    if (!how)
        return TD_OK;
    s->shown = (td__mapping){.of = at, .nbytes = td_params_info(ps, i).count * sizeof *at};
    s->shown.at = td__alloc_block(s->shown.nbytes);
    if (!s->shown.at) {
        s->shown = (td__mapping){0};
        return TD_FAIL(TD_ENOMEM, "no memory for a tensor of a checkpoint");
    }
    *data = s->shown.at;
    td__pieces_unpack(how, *data, at);
    return TD_OK;
}

/* A td__checkpoint_source's: what rank 0 holds whole is shown where it is. */
static td_status show_tensor(void *user, int k, int i, float **data)
{
    stream *s = user;
    td__trainer *t = s->t;
    const td__ownership *m = td__shards_ownership(t->replica.shards);
    td_param_info info = td_params_info(t->replica.params, i);
    bool sharded = !info.is_state && !info.sparse && info.count && (k >= 0 || params_sharded(t));
    size_t first;
    int b = 0;

    float *held = td_params_block(t->replica.params, NULL) + info.offset;
    if (!sharded && k >= 0)
        (void)td__optim_state_part(t->replica.optimizer, k, info.offset, info.offset + info.count,
                                   &first, &held);
    td__mem_map_drop(&s->shown);
    if (!sharded) {
        TD_TRY(td__params_map_at(t->replica.params, i, held, TD_MAP_READ, &s->shown));
        *data = s->shown.at;
        return TD_OK;
    }
    while (info.offset >= m->begin[b + 1])
        b++;
    if (s->last.k != k || s->last.b != b)
        TD_TRY(ask(s, (request){k, b}));
    return show_in_window(s, i, s->window + (info.offset - m->begin[b]), data);
}

/* Will another checkpoint follow, as far as is known? */
static bool is_last(const td__trainer *t)
{
    return t->report.finishing || td__train_at_end(t) || td__train_gives_up(t) ||
           t->world.phase == TD_RUN_STOPPING;
}

/* The others learn what became of it, unless they cannot be reached. */
static td_status end_stream(stream *s, td_status st)
{
    char why[360];
    uint32_t token = 0;
    if (!st)
        TD_TRY(td__sharded_tell(s->t, is_last(s->t), &token));
    if (st != TD_EIO)
        return st ? st : ask(s, (request){(int32_t)token, DONE});
    snprintf(why, sizeof why, "%s", td_last_error());
    TD_TRY(ask(s, (request){-1, FAILED}));
    return TD_FAIL(st, "%s", why);
}

static td_status write_whole(td__trainer *t, bool best, const char *digest)
{
    const td__ownership *m = td__shards_ownership(t->replica.shards);
    stream s = {.t = t, .last = {-1, -1}};
    td__checkpoint_source from = {show_tensor, &s, digest};
    size_t most = 1;

    for (int b = 0; b < m->params; b++)
        most = m->begin[b + 1] - m->begin[b] > most ? m->begin[b + 1] - m->begin[b] : most;
    s.window = td__alloc_block(most * sizeof *s.window);
    if (!s.window)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu floats of a checkpoint", most);
    td_status st = td__checkpointer_write(t->run.checkpointer, &t->replica.state, t->replica.params,
                                          t->replica.optimizer, best, &from);
    td__free_block(s.window, most * sizeof *s.window);
    td__mem_map_drop(&s.shown);
    return end_stream(&s, st);
}

td_status td__sharded_save(td__trainer *t, bool best, bool *saved)
{
    char digest[65];

    *saved = false;
    if (params_sharded(t))
        TD_TRY(td__sharded_digest(t, digest));
    else if (t->run.checkpointer)
        TD_TRY(td_params_digest(t->replica.params, digest));
    if (!t->run.checkpointer)
        return serve(t, saved);
    TD_TRY(write_whole(t, best, digest));
    *saved = true;
    return TD_OK;
}

td_status td__sharded_owed(td__trainer *t)
{
    uint8_t owed[3] = {t->run.dirty, t->run.owes_best, t->run.checkpointer != NULL};
    if (!t->replica.shards)
        return TD_OK;
    TD_TRY(td_broadcast(t->world.comm, owed, sizeof owed, TD_U8, 0, NULL));
    t->run.dirty = owed[0];
    t->run.owes_best = owed[1];
    t->run.saves = owed[2];
    return TD_OK;
}

/* ---- The digest ------------------------------------------------------------------------------ */

typedef struct window {
    td__shards *shards;
    const td_params *ps;
    int here; /* bucket that is there; -1: none */
} window;

static td_status show(void *user, int param)
{
    window *w = user;
    const td__ownership *m = td__shards_ownership(w->shards);
    size_t at = td_params_info(w->ps, param).offset;
    int b = 0;

    while (b < m->params && at >= m->begin[b + 1])
        b++;
    if (b == w->here || b == m->params)
        return TD_OK;
    if (w->here >= 0)
        td__shards_drop(w->shards, w->here);
    w->here = b;
    return td__shards_gather(w->shards, b);
}

td_status td__sharded_digest(td__trainer *t, char hex[65])
{
    window w = {t->replica.shards, t->replica.params, -1};
    td_status st = td__params_digest(t->replica.params, show, &w, hex);
    if (w.here >= 0)
        td__shards_drop(t->replica.shards, w.here);
    return st;
}

/* ---- A file of the weights ------------------------------------------------------------------- */

typedef struct exported {
    window w;
    int shown; /* params, in the order of the file */
} exported;

static td_status show_next(void *user, int i)
{
    exported *e = user;
    e->shown++;
    return show(&e->w, i);
}

/* Rank 0 writes. The others bring their shards in the order of the file, also of those params that
 * a full disk does not take. */
td_status td__trainer_save(td__trainer *t, const char *path)
{
    const td_params *ps = t->replica.params;
    if (!params_sharded(t))
        return td__trainer_rank(t) ? TD_OK : td_params_save(ps, path);
    exported e = {.w = {t->replica.shards, ps, -1}};
    const td_param_info **order;
    char why[400];
    td_status st = TD_OK, walk = TD_OK;
    TD_TRY(td__params_by_name(ps, &order));
    if (td__trainer_rank(t) == 0)
        st = td__params_save(ps, show_next, &e, path);
    snprintf(why, sizeof why, "%s", st ? td_last_error() : "");
    for (int i = e.shown; i < td_params_count(ps) && !walk; i++)
        walk = show(&e.w, td__params_index(ps, order[i]));
    if (e.w.here >= 0)
        td__shards_drop(t->replica.shards, e.w.here);
    td__free(order);
    TD_TRY(walk);
    return st ? TD_FAIL(st, "%s", why) : TD_OK;
}
