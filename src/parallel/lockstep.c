/* lockstep.c -- see lockstep.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/lockstep.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/walk.h"
#include "parallel/shard_script.h"
#include "step/row_cache.h"

struct td__lockstep {
    td__shards *shards;
    td__micro_batch_set *set;
    td_params *ps;
    bool evaluate;
    int rank, size;
    td__shard_script scripts[TD__ROW_PLACES]; /* by place of the cache */
    td__row_cache cache;                      /* 0 rows: the plain script */
    /* The round under way. */
    const td__lockstep_round *round;
    const td__shard_script *script;
    int next;
    td_runner *runner;
    float *grads; /* the runner's */
};

td_status td__lockstep_create(td__shards *shards, td__micro_batch_set *set, td_params *ps,
                              bool evaluate, td__lockstep **out)
{
    td__lockstep *l = *out = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory to run micro-batches in step");
    *l = (td__lockstep){.shards = shards, .set = set, .ps = ps, .evaluate = evaluate};
    l->size = td__shards_ownership(shards)->ranks;
    l->rank = td__shards_rank(shards);
    return TD_OK;
}

void td__lockstep_destroy(td__lockstep *l)
{
    if (!l)
        return;
    for (int i = 0; i < TD__ROW_PLACES; i++)
        td__shard_script_fini(&l->scripts[i]);
    td__free(l);
}

static td_status make_script(td__lockstep *l, int64_t rows, td__shard_script *out)
{
    const td_program *p = NULL;
    if (rows)
        TD_TRY(td__micro_batch_program(l->set, rows, &p, NULL));
    return td__shard_script_init(out, td__shards_ownership(l->shards), p, l->ps,
                                 td__shards_of_params(l->shards), l->evaluate);
}

/* The script for micro-batches of `rows`; 0: the plain one. Valid until TD__ROW_PLACES - 1 others
 * have been asked for. */
static td_status find(td__lockstep *l, int64_t rows, const td__shard_script **out)
{
    bool found;
    int place = td__row_cache_find(&l->cache, rows, &found);
    td__shard_script *script = &l->scripts[place];
    *out = script;
    if (found)
        return TD_OK;
    td__shard_script_fini(script);
    td_status st = make_script(l, rows, script);
    if (st)
        td__row_cache_forget(&l->cache, place);
    return st;
}

static int64_t rows_of(const td__lockstep_round *r, int index)
{
    int64_t rows = r->batch->rows;
    return index < 0 ? 0
                     : td__micro_batch_begin(rows, r->micro_batches, index + 1) -
                           td__micro_batch_begin(rows, r->micro_batches, index);
}

/* The script that fits all micro-batches of the round. */
static td_status choose(td__lockstep *l, const td__lockstep_round *r)
{
    int64_t first = 0;
    TD_TRY(find(l, 0, &l->script));
    for (int k = 0; k < l->size; k++) {
        int64_t rows = rows_of(r, r->run[k]);
        const td__shard_script *other;
        if (!rows || rows == first)
            continue;
        TD_TRY(find(l, rows, &other));
        if (first && !td__shard_script_same(l->script, other))
            return find(l, 0, &l->script);
        l->script = first ? l->script : other;
        first = first ? first : rows;
    }
    return TD_OK;
}

static td_status act(td__lockstep *l, const td__shard_op *op)
{
    const td__ownership *m = td__shards_ownership(l->shards);
    switch (op->act) {
    case TD__SHARD_GATHER: return td__shards_gather(l->shards, op->bucket);
    case TD__SHARD_DROP: td__shards_drop(l->shards, op->bucket); return TD_OK;
    case TD__SHARD_REDUCE: break;
    }
    TD_TRY(l->round->reduce(l->round->user, op->bucket, l->grads));
    if (l->grads && op->bucket < m->params) /* statistics are still to be read */
        td__runner_discard(l->runner, m->begin[op->bucket],
                           m->begin[op->bucket + 1] - m->begin[op->bucket]);
    return TD_OK;
}

/* Everything that is to be done before step `step`. */
static td_status follow(void *user, int step)
{
    td__lockstep *l = user;
    while (l->next < l->script->n && l->script->ops[l->next].step <= step)
        TD_TRY(act(l, &l->script->ops[l->next++]));
    return TD_OK;
}

td_status td__lockstep_run(td__lockstep *l, const td__lockstep_round *round, td_runner **ran)
{
    int index = round->run[l->rank];
    int64_t rows = rows_of(round, index);
    bool shards = td__shards_of_params(l->shards);
    td_runner *r = NULL;
    uint64_t seed = 0;

    *ran = NULL;
    TD_TRY(choose(l, round));
    l->round = round;
    l->next = 0;
    l->grads = NULL;
    if (rows) {
        TD_TRY(td__micro_batch_ready(l->set, round->batch, round->at, rows, &r, &seed));
        td__runner_thin(r);
        l->runner = r;
        l->grads = l->evaluate ? NULL : td_runner_grads(r, NULL);
        td_run_key key = {.seed = seed, .step = round->step, .micro_batch = round->micro_batch};
        TD_TRY(td__runner_walk(r, key, shards, follow, l));
    }
    TD_TRY(follow(l, INT32_MAX));
    *ran = r;
    return TD_OK;
}
