/* lockstep.c -- see lockstep.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/lockstep.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/walk.h"
#include "parallel/round_script.h"

struct td__lockstep {
    td__shards *shards;
    td__micro_batch_set *set;
    bool evaluate;
    int rank;
    td__round_scripts scripts;
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
    *l = (td__lockstep){.shards = shards,
                        .set = set,
                        .evaluate = evaluate,
                        .rank = td__shards_rank(shards),
                        .scripts = {.map = td__shards_ownership(shards),
                                    .set = set,
                                    .ps = ps,
                                    .params = td__shards_of_params(shards),
                                    .evaluate = evaluate}};
    return TD_OK;
}

void td__lockstep_destroy(td__lockstep *l)
{
    if (!l)
        return;
    td__round_scripts_fini(&l->scripts);
    td__free(l);
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
    int64_t rows = td__round_rows(round->batch->rows, round->micro_batches, index);
    bool shards = td__shards_of_params(l->shards);
    td_runner *r = NULL;
    uint64_t seed = 0;

    *ran = NULL;
    TD_TRY(td__round_script(&l->scripts, round->batch->rows, round->micro_batches, round->run,
                            &l->script));
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
