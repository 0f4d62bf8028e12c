/* together.c -- forward runs of ranks that hold the params in shards: stages, pieces of layers,
 * even slices. Each rank runs its range of the micro-batches of every batch, one at a time and in
 * step with the others, so that the params of a layer are there while they are read, and no rank
 * ever has all of them (parallel/lockstep.h). What is run is the whole program: the bits are those
 * of one rank, however the ranks are arranged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "parallel/data_parallel.h"
#include "train/trainer_impl.h"

td_status td__together_walk(td__trainer *t, td__micro_batch_set *set, td__lockstep **walk)
{
    if (!td__trainer_traits(t).sharded_params || *walk)
        return TD_OK;
    return td__lockstep_create(t->replica.shards, set, t->replica.params, true, walk);
}

static td__micro_batch micro_batch_of(const td__batch *b, int micro_batches, int index)
{
    td__micro_batch m = {.index = index};
    if (index >= 0) {
        m.begin = td__micro_batch_begin(b->rows, micro_batches, index);
        m.rows = td__micro_batch_begin(b->rows, micro_batches, index + 1) - m.begin;
    }
    return m;
}

td_status td__run_together(td__trainer *t, td__lockstep *walk, const td__batch *b,
                           int micro_batches, td__micro_batch_calls calls)
{
    int rank = td__trainer_rank(t), ranks = td__trainer_ranks(t);
    int rounds = (micro_batches + ranks - 1) / ranks;
    td_status st = TD_OK;
    int *run = td__calloc((size_t)ranks, sizeof *run);
    if (!run)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", ranks);
    for (int j = 0; j < rounds && !st; j++) {
        for (int r = 0; r < ranks; r++) {
            td__micro_batch_range own = td__rank_micro_batches(micro_batches, r, ranks);
            run[r] = own.begin + j < own.end ? own.begin + j : -1;
        }
        td__micro_batch mine = micro_batch_of(b, micro_batches, run[rank]);
        td__lockstep_round round = {.batch = b,
                                    .micro_batches = micro_batches,
                                    .run = run,
                                    .at = mine.begin - b->here.begin,
                                    .step = (uint32_t)t->replica.state.step,
                                    .micro_batch = (uint32_t)mine.index};
        st = td__lockstep_run(walk, &round, &mine.runner);
        if (!st && mine.runner)
            st = calls.after(calls.user, &mine);
    }
    td__free(run);
    return st;
}

td__row_range td__rank_rows(int64_t rows, int micro_batches, int rank, int ranks)
{
    td__micro_batch_range own = td__rank_micro_batches(micro_batches, rank, ranks);
    return (td__row_range){td__micro_batch_begin(rows, micro_batches, own.begin),
                           td__micro_batch_begin(rows, micro_batches, own.end)};
}
