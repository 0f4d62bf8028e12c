/* agree.c -- do all ranks train the same thing? Ranks agree on every call that they make together
 * without asking, because all of them decide by the same numbers; these are compared before the
 * first of those calls, so that a rank with another job is told so, rather than that it makes other
 * calls, or waits for ever. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "train/trainer_impl.h"

typedef struct number {
    const char *name;
    int64_t value;
} number;

enum { MOST = 20, NAMES = 2 };

typedef struct answer {
    char name[NAMES][72]; /* digest of the job; compressor */
    int64_t value[MOST];
} answer;

static int64_t count_of(const td__trainer *t, td__part part)
{
    const td__dataset *d = td__data_part(t->data, part);
    return d ? d->count : -1;
}

static int numbers_of(const td__trainer *t, number out[MOST])
{
    const td__train_opts *o = &t->o;
    const number all[] = {
        {"batch", o->batch},
        {"shards", o->micro_batches},
        {"accumulate", o->accumulate},
        {"number of weights", (int64_t)td_params_trainable(t->params)},
        {"number of training samples", count_of(t, TD_PART_TRAIN)},
        {"number of validation samples", count_of(t, TD_PART_VALID)},
        {"seed", (int64_t)o->seed},
        {"number of steps", (int64_t)t->total_steps},
        {"eval.every", o->valid_every},
        {"eval.batch", o->eval_batch},
        {"early_stop.patience", o->patience},
        {"parallel.zero", o->zero},
        {"checkpoint.every", o->zero ? o->checkpoint_every : 0},
        {"parallel.bucket_mb, in bytes,", (int64_t)o->bucket_nbytes},
        {"parallel.backup", o->backup},
        {"time of update (update_late)", o->update_late},
        {"choice about --profile", o->profile},
    };
    int n = (int)(sizeof all / sizeof *all);
    memcpy(out, all, sizeof all);
    return n;
}

td_status td__trainer_agree(td__trainer *t)
{
    number mine[MOST];
    int n = numbers_of(t, mine), rank = td__trainer_rank(t);
    const char *names[NAMES] = {t->state.job_digest, t->o.compressor ? t->o.compressor : "none"};
    answer a;

    if (td__trainer_ranks(t) == 1)
        return TD_OK;
    memset(&a, 0, sizeof a);
    for (int i = 0; i < NAMES; i++)
        snprintf(a.name[i], sizeof a.name[i], "%s", names[i]);
    for (int i = 0; i < n; i++)
        a.value[i] = mine[i].value;
    TD_TRY(td_broadcast(t->o.comm, &a, sizeof a, TD_U8, 0, NULL));
    if (strcmp(a.name[0], names[0]) != 0)
        return TD_FAIL(TD_EINVAL,
                       "rank %d has another job than rank 0 (digest %.16s..., not %.16s...)", rank,
                       names[0], a.name[0]);
    if (strcmp(a.name[1], names[1]) != 0)
        return TD_FAIL(TD_EINVAL, "rank %d adds up gradients by '%s', rank 0 by '%s'", rank,
                       names[1], a.name[1]);
    for (int i = 0; i < n; i++)
        if (a.value[i] != mine[i].value)
            return TD_FAIL(TD_EINVAL,
                           "rank %d has another %s than rank 0 (%lld, not %lld): all ranks need "
                           "the same job, options and data",
                           rank, mine[i].name, (long long)mine[i].value, (long long)a.value[i]);
    return TD_OK;
}
