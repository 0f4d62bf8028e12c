/* evaluate.c -- loss and metrics of a whole part.
 *
 * Samples are taken in order, in batches cut in shards as in training. Each shard gives means over
 * its rows; the means, times their rows, are added in the order of the samples in double. So the
 * result does not depend on who ran which shard, and a short last batch counts by its rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "train/trainer_impl.h"

enum { MAX_SHARDS = 64 };

typedef struct sums {
    int n;                                         /* values: the loss, then the metrics */
    double value[MAX_SHARDS][TD__MAX_METRICS + 1]; /* of the batch: by shard, times its rows */
    double total[TD__MAX_METRICS + 1];
    int64_t samples;
} sums;

static td_status note_shard(void *user, const td__shard *shard)
{
    sums *s = user;
    double *value = s->value[shard->index];
    memset(value, 0, sizeof s->value[0]);
    if (!shard->runner)
        return TD_OK;
    value[0] = (double)td_runner_loss(shard->runner) * (double)shard->rows;
    for (int i = 1; i < s->n; i++) {
        float mean;
        memcpy(&mean, td_runner_output(shard->runner, i - 1, NULL), sizeof mean);
        value[i] = (double)mean * (double)shard->rows;
    }
    return TD_OK;
}

static td_status add_batches(td__trainer *t, td__loader *l, int shards, const atomic_int *stop,
                             bool *stopped, sums *s)
{
    for (;;) {
        const td__batch *b;
        TD_TRY(td__loader_next(l, &b));
        if (!b)
            return TD_OK;
        if (stop && atomic_load(stop)) {
            *stopped = true;
            return TD_OK;
        }
        TD_TRY(td__shards_run(t->eval_set, b, shards, (uint32_t)t->state.step, 0, note_shard, s));
        for (int k = 0; k < shards; k++)
            for (int i = 0; i < s->n; i++)
                s->total[i] += s->value[k][i];
        s->samples += b->rows;
    }
}

static td_status make_set(td__trainer *t)
{
    if (t->eval_set)
        return TD_OK;
    TD_TRY(td__shard_set_create(&(td__shard_set_opts){.model = t->model,
                                                      .pool = t->pool,
                                                      .use = TD__USE_EVALUATE,
                                                      .backend = t->o.backend,
                                                      .precision = t->o.precision,
                                                      .seed = t->o.seed},
                                &t->eval_set));
    td__shard_set_params(t->eval_set, t->params);
    return TD_OK;
}

static void fill_result(const td__trainer *t, const sums *s, td__eval_result *out)
{
    out->n = s->n;
    out->samples = s->samples;
    for (int i = 0; i < s->n; i++) {
        out->name[i] = i ? t->facts.metric[i - 1] : "loss";
        out->higher_is_better[i] = i && t->facts.higher_is_better[i - 1];
        out->value[i] = s->total[i] / (double)s->samples;
    }
}

td_status td__trainer_evaluate_until(td__trainer *t, td__dataset *part, const atomic_int *stop,
                                     bool *stopped, td__eval_result *out)
{
    uint64_t begin = td__clock_ns();
    int64_t batch = t->o.eval_batch < part->count ? t->o.eval_batch : part->count;
    int shards = td__shards_default(batch);
    sums s = {.n = 1 + t->facts.n_metrics};
    bool left = false;
    td__loader *l;

    memset(out, 0, sizeof *out);
    if (part->count < 1)
        return TD_FAIL(TD_EINVAL, "there are no samples to evaluate");
    TD_TRY(make_set(t));
    TD_TRY(td__shard_set_dataset(t->eval_set, part, (batch + shards - 1) / shards));
    TD_TRY(td__loader_create(
        part,
        &(td__loader_opts){
            .batch = batch, .once = true, .prefetch = t->o.prefetch, .threads = t->o.data_threads},
        &l));
    td_status st = add_batches(t, l, shards, stop, &left, &s);
    td__loader_destroy(l);
    if (st)
        return st;
    if (stopped)
        *stopped = left;
    if (!left)
        fill_result(t, &s, out);
    out->seconds = 1e-9 * (double)(td__clock_ns() - begin);
    return TD_OK;
}

td_status td__trainer_evaluate(td__trainer *t, td__dataset *part, td__eval_result *out)
{
    return td__trainer_evaluate_until(t, part, NULL, NULL, out);
}
