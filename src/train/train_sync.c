/* train_sync.c -- the sync rule of a run, or of a generation: made from the trainer's parts, and
 * made again when micro-batches are divided differently. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "base/log.h"
#include "train/trainer_impl.h"

enum { MOST_SPANS = 1 << 17 }; /* of a trace: 5 MB */

static const int *bounds_of(const td__trainer *t)
{
    return t->run.balance ? td__balance_bounds(t->run.balance) : NULL;
}

static td_status make_verify(td__trainer *t)
{
    td__loader_opts loader = td__trainer_loader_opts(t);
    td__verify_destroy(t->run.verify);
    t->run.verify = NULL;
    if (!(t->o.verify > 0) || td__trainer_ranks(t) < 2)
        return TD_OK;
    return td__verify_create(&(td__verify_opts){.share = t->o.verify,
                                                .micro_batches = t->o.micro_batches,
                                                .seed = t->o.seed,
                                                .set = t->run.train_set,
                                                .data = td__data_part(t->plan.data, TD_PART_TRAIN),
                                                .loader = &loader,
                                                .comm = t->world.comm,
                                                .bounds = bounds_of(t),
                                                .faults = t->o.faults},
                             &t->run.verify);
}

/* Params that the program reads in pieces. */
static td_status find_cuts(td__trainer *t)
{
    const td_program *p = td__trainer_program(t);
    td__param_cut cut;
    int n = 0;
    while (td__program_param_cut(p, n, &cut))
        n++;
    if (!n || t->run.cuts.at)
        return TD_OK;
    td__step_cut *at = td__arena_alloc(t->plan.arena, (size_t)n * sizeof *at);
    if (!at)
        return TD_FAIL(TD_ENOMEM, "no memory for %d params in pieces", n);
    for (int i = 0; i < n && td__program_param_cut(p, i, &cut); i++)
        at[i] = (td__step_cut){td_params_find(t->replica.params, cut.name), cut.pieces};
    t->run.cuts = (td__step_cuts){.at = at, .n = n};
    return TD_OK;
}

td_status td__train_sync(td__trainer *t)
{
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    TD_TRY(td__micro_batch_set_dataset(t->run.train_set, d, t->plan.micro_batch_rows));
    if (t->o.profile && !t->o.members && !t->report.spans)
        TD_TRY(td__span_log_create(MOST_SPANS, &t->report.spans));
    /* Of a run before: a rule whose ranks serve a leader has sent them home; others keep what they
     * have come to. */
    if (t->run.sync && t->run.sync->ended && t->run.sync->traits.leads) {
        td__sync_destroy(t->run.sync);
        t->run.sync = NULL;
    }
    if (t->run.sync)
        return TD_OK;
    TD_TRY(make_verify(t));
    TD_TRY(find_cuts(t));
    td__sync_ctx x = {.config = &t->o.sync,
                      .comm = t->world.comm,
                      .elastic = t->o.members != NULL,
                      .shards = t->replica.shards,
                      .data = d,
                      .batch = t->o.batch,
                      .samples = d->count,
                      .rows = t->plan.micro_batch_rows,
                      .steps = t->plan.total_steps,
                      .own_data = t->o.partition != NULL,
                      .weights = t->o.weights,
                      .n_weights = t->o.n_weights,
                      .done = t->replica.state.step,
                      .keep = t->o.members ? &t->run.rule_keep : NULL,
                      .optim = &t->o.optim,
                      .checkpoint_dir = t->o.checkpoint_dir,
                      .host = td__train_host(t)};
    x.step = (td__step_opts){.set = t->run.train_set,
                             .pool = t->run.pool,
                             .params = t->replica.params,
                             .optimizer = t->replica.optimizer,
                             .program = td__trainer_program(t),
                             .micro_batches = t->o.micro_batches,
                             .accumulate = t->o.accumulate,
                             .bounds = bounds_of(t),
                             .watch = t->run.verify ? td__verify_watch(t->run.verify) : NULL,
                             .spans = t->report.spans,
                             .weights = t->run.counted ? td__counted_weights(t->run.counted) : NULL,
                             .cuts = t->run.cuts.n ? &t->run.cuts : NULL,
                             .update_late = t->o.members != NULL};
    return td__sync_create(&x, &t->run.sync);
}

td_status td__train_rebalance(td__trainer *t)
{
    td__loader_destroy(t->run.loader); /* its threads have room for this rank's old share */
    t->run.loader = NULL;
    td__states_keep(t);
    TD_TRY(td__sync_leave(t->run.sync));
    td__sync_destroy(t->run.sync);
    t->run.sync = NULL;
    td__balance_change(t->run.balance);
    const int *b = bounds_of(t);
    for (int r = 0; r < td__trainer_ranks(t); r++)
        TD_LOG(DEBUG, TRAIN, "rank %d: %d of %d micro-batches from step %llu on", r,
               b[r + 1] - b[r], t->o.micro_batches, (unsigned long long)t->replica.state.step + 1);
    TD_TRY(td__train_sync(t));
    TD_TRY(td__sync_meet_for(t->run.sync, TD_MEET_BEGIN));
    TD_TRY(td__states_restore(t));
    TD_TRY(td__trainer_loader(t));
    td__loader_seek(t->run.loader, t->replica.state.epoch, t->replica.state.batch_in_epoch);
    return TD_OK;
}
