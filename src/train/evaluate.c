/* evaluate.c -- loss and metrics of a whole part.
 *
 * Samples are taken in order, in batches cut in micro-batches as in training. Each micro-batch
 * gives means over its rows (or over its counted targets, where some are ignored; its loss over
 * their weights, where targets weigh by their classes). The means, times these, are added in the
 * order of the samples in double, after the last batch. So the result does not depend on who ran
 * which micro-batch, and a short last batch counts by its rows. With several ranks each runs its
 * range of the micro-batches of every batch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "parallel/data_parallel.h"
#include "train/scores.h"
#include "train/trainer_impl.h"

typedef struct sums {
    int n; /* values of a micro-batch: its weight, that of its loss, the loss, then the metrics */
    int micro_batches; /* of a batch */
    int rank, ranks;
    /* ([stopped], batches, micro-batches, n): means times rows; 0 for those of other ranks */
    double *value;
    size_t count;
    double *at; /* of the batch being run */
    const td__batch *batch;
    const td__model_facts *facts;
    const td__field
        *ignoring; /* the field of targets, of which some do not count; NULL: rows count */
    int field;     /* its number */
} sums;

static td__row_range own_rows(const void *user, int64_t index, int64_t rows)
{
    const sums *s = user;
    (void)index;
    return td__rank_rows(rows, s->micro_batches, s->rank, s->ranks);
}

/* Rows, or the targets that count in them; and what they weigh in the loss. */
static double weight_of(const sums *s, const td__micro_batch *micro_batch, double *in_loss)
{
    *in_loss = (double)micro_batch->rows;
    if (!s->ignoring)
        return *in_loss;
    const char *targets = s->batch->field[s->field];
    targets += (size_t)(micro_batch->begin - s->batch->here.begin) * td__field_nbytes(s->ignoring);
    *in_loss = td__weigh_targets(s->ignoring, targets, micro_batch->rows, s->facts);
    return (double)td__count_targets(s->ignoring, targets, micro_batch->rows, s->facts);
}

static td_status note_micro_batch(void *user, const td__micro_batch *micro_batch)
{
    const sums *s = user;
    double *value = s->at + (size_t)micro_batch->index * (size_t)s->n;
    if (!micro_batch->runner)
        return TD_OK;
    double weight = value[0] = weight_of(s, micro_batch, &value[1]);
    value[2] = (double)td_runner_loss(micro_batch->runner) * value[1];
    for (int i = 3; i < s->n; i++) {
        float mean;
        memcpy(&mean, td_runner_output(micro_batch->runner, i - 3, NULL), sizeof mean);
        value[i] = (double)mean * weight;
    }
    return TD_OK;
}

static td_status run_batches(td__trainer *t, td__loader *l, const atomic_int *stop, sums *s)
{
    td__micro_batch_range own = td__rank_micro_batches(s->micro_batches, s->rank, s->ranks);
    td__micro_batch_cut cut = {s->micro_batches, own.begin, own.end};
    bool alone = td__sync_leads(t->run.sync);
    for (s->at = s->value + 1;; s->at += s->micro_batches * s->n) {
        const td__batch *b;
        if (!alone) /* the others train on meanwhile */
            td__train_heartbeat(t, TD_PHASE_DATA, "samples of an evaluation",
                                td__data_source(t->plan.data));
        TD_TRY(td__loader_next(l, &b));
        if (!b)
            return TD_OK;
        s->batch = b;
        if (!alone) {
            td__train_heartbeat(t, TD_PHASE_COMPUTE, "evaluation", NULL);
            atomic_store(&t->run.at, t->run.eval_set);
        }
        if (t->run.eval_walk) { /* ranks must stay together: nobody leaves early */
            TD_TRY(td__run_together(t, t->run.eval_walk, b, s->micro_batches,
                                    (td__micro_batch_calls){.after = note_micro_batch, .user = s}));
            continue;
        }
        if (stop && atomic_load(stop)) {
            s->value[0] = 1;
            return TD_OK;
        }
        TD_TRY(
            td__micro_batches_run(t->run.eval_set, b, cut, (uint32_t)t->replica.state.step, 0,
                                  (td__micro_batch_calls){.after = note_micro_batch, .user = s}));
    }
}

static td_status run_part(td__trainer *t, td__dataset *part, int64_t batch, const atomic_int *stop,
                          sums *s)
{
    td__loader *l;

    TD_TRY(td__micro_batch_set_dataset(t->run.eval_set, part,
                                       (batch + s->micro_batches - 1) / s->micro_batches));
    TD_TRY(td__loader_create(part,
                             &(td__loader_opts){.batch = batch,
                                                .epochs = 1,
                                                .prefetch = t->o.prefetch,
                                                .threads = t->o.data_threads,
                                                .rows = own_rows,
                                                .rows_user = s},
                             &l));
    td_status st = run_batches(t, l, stop, s);
    if (!td__sync_leads(t->run.sync))
        td__train_heartbeat(t, TD_PHASE_COMM, "metrics of an evaluation", NULL);
    td__loader_destroy(l);
    if (!st && s->ranks > 1)
        st = td_allreduce(t->world.comm, s->value, s->value, s->count, TD_F64, TD_REDUCE_SUM, NULL);
    return st;
}

td_status td__eval_set_make(td__trainer *t)
{
    if (t->run.eval_set)
        return td__together_walk(t, t->run.eval_set, &t->run.eval_walk);
    TD_TRY(td__micro_batch_set_create(&(td__micro_batch_set_opts){.model = t->plan.model,
                                                                  .pool = t->run.pool,
                                                                  .use = TD__USE_EVALUATE,
                                                                  .backend = td__trainer_backend(t),
                                                                  .precision = t->o.precision,
                                                                  .seed = t->o.seed},
                                      &t->run.eval_set));
    td__micro_batch_set_params(t->run.eval_set, t->replica.params);
    return td__together_walk(t, t->run.eval_set, &t->run.eval_walk);
}

static void fill_result(const td__trainer *t, const sums *s, int64_t samples, td__eval_result *out)
{
    double weight = 0, in_loss = 0;

    out->n = s->n - 2;
    out->samples = samples;
    for (size_t k = 1; k < s->count; k += (size_t)s->n) {
        weight += s->value[k];
        in_loss += s->value[k + 1];
        for (int i = 0; i < out->n; i++)
            out->value[i] += s->value[k + 2 + (size_t)i];
    }
    for (int i = 0; i < out->n; i++) {
        out->name[i] = i ? t->plan.facts.metric[i - 1] : "loss";
        out->higher_is_better[i] = i && t->plan.facts.higher_is_better[i - 1];
        double by = i ? weight : in_loss;
        out->value[i] = by > 0 ? out->value[i] / by : 0;
    }
}

/* Metrics that are no means: every rank computes them from all samples, so that all have the same
 * numbers. */
static td_status fill_whole(td__trainer *t, td__dataset *part, td__eval_result *out)
{
    const td__model_facts *f = &t->plan.facts;
    td__scores scores = {0};
    bool any = false;

    for (int i = 0; i < f->n_metrics; i++)
        any = any || f->whole[i];
    if (!any)
        return TD_OK;
    if (!td__sync_leads(t->run.sync))
        td__train_heartbeat(t, TD_PHASE_COMPUTE, "metrics over all predictions", NULL);
    TD_TRY(td__trainer_scores(t, part, &scores));
    for (int i = 0; i < f->n_metrics; i++)
        if (f->whole[i])
            out->value[i + 1] = td__scores_value(&scores, f->metric[i]);
    td__scores_fini(&scores);
    return TD_OK;
}

static td_status evaluate(td__trainer *t, td__dataset *part, const atomic_int *stop, bool *stopped,
                          td__eval_result *out)
{
    uint64_t begin = td__clock_ns();
    int64_t batch = t->o.eval_batch < part->count ? t->o.eval_batch : part->count;
    bool alone = td__sync_leads(t->run.sync);

    memset(out, 0, sizeof *out);
    if (part->count < 1)
        return TD_FAIL(TD_EINVAL, "there are no samples to evaluate");
    TD_TRY(td__eval_set_make(t));
    sums s = {.n = 3 + t->plan.facts.n_metrics,
              .facts = &t->plan.facts,
              .micro_batches = td__micro_batches_default(batch),
              .rank = alone ? 0 : td__trainer_rank(t), /* the others train on */
              .ranks = alone ? 1 : td__trainer_ranks(t)};
    if (*s.facts->ignoring) {
        s.field = td__dataset_field(part, s.facts->ignoring);
        s.ignoring = s.field < 0 ? NULL : &part->fields[s.field];
    }
    s.count = 1 + (size_t)((part->count + batch - 1) / batch) * (size_t)(s.micro_batches * s.n);
    s.value = td__calloc(s.count, sizeof *s.value);
    if (!s.value)
        return TD_FAIL(TD_ENOMEM, "no memory for the metrics of %zu micro-batches", s.count);
    td_status st = run_part(t, part, batch, stop, &s);
    bool left = s.value[0] > 0;
    if (!st && stopped)
        *stopped = left;
    if (!st && !left) {
        fill_result(t, &s, part->count, out);
        st = fill_whole(t, part, out);
    }
    if (!st)
        st = td__micro_batch_clear_rows(t->run.eval_set);
    td__free(s.value);
    out->seconds = 1e-9 * (double)(td__clock_ns() - begin);
    return st;
}

td_status td__trainer_evaluate_until(td__trainer *t, td__dataset *part, const atomic_int *stop,
                                     bool *stopped, td__eval_result *out)
{
    if (t->run.going)
        return td__replicas_failed(t, evaluate(t, part, stop, stopped, out));
    /* Of a program, between runs: watched as in one, but not before or after. */
    td__train_explains(t, true);
    td_status st = td__replicas_failed(t, evaluate(t, part, stop, stopped, out));
    td__train_explains(t, false);
    td__train_heartbeat(t, TD_PHASE_IDLE, NULL, NULL);
    return st;
}

td_status td__trainer_evaluate(td__trainer *t, td__dataset *part, td__eval_result *out)
{
    return td__trainer_evaluate_until(t, part, NULL, NULL, out);
}
