/* scores_part.c -- the scores of a model on all samples of a dataset. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "data/map.h"
#include "tandem/tensor.h"
#include "base/fail.h"
#include "train/scores.h"
#include "train/trainer_impl.h"

/* Outputs and targets of all samples. */
typedef struct collected {
    td_dtype dtype;
    td_shape row;
    int64_t rows, width; /* samples; values of one */
    float *output;       /* (rows, width); NULL before the first */
} collected;

static td_status collect(void *user, int64_t first, int64_t rows, const void *output,
                         size_t row_nbytes)
{
    collected *c = user;
    td_tensor from, to;

    (void)row_nbytes;
    c->width = td_shape_count(&c->row);
    if (!c->output)
        c->output = td__calloc((size_t)(c->rows * c->width) + 1, sizeof *c->output);
    if (!c->output)
        return TD_FAIL(TD_ENOMEM, "no memory for the outputs of %lld samples", (long long)c->rows);
    TD_TRY(td_tensor_wrap(&from, c->dtype, TD_SHAPE(rows, c->width), (void *)(uintptr_t)output));
    TD_TRY(td_tensor_wrap(&to, TD_F32, TD_SHAPE(rows, c->width), c->output + first * c->width));
    return td_tensor_copy(&from, &to);
}

static void softmax(float *x, int64_t n)
{
    double most = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++)
        most = (double)x[i] > most ? (double)x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(exp((double)x[i] - most) / sum);
}

/* Targets are read while they are seen. */
typedef struct targets {
    const td__field *field;
    int64_t each, at;
    double *value; /* (rows, each) */
} targets;

static td_status see_targets(void *user, int64_t begin, int64_t n, const void *x)
{
    targets *t = user;
    const td__units *u = &t->field->units;

    (void)begin;
    for (int64_t i = 0; i < n * t->each; i++) {
        double v = td__element(x, t->field->dtype, i);
        int64_t g = u->n ? i % t->each / u->inner % u->n : 0;
        t->value[t->at++] = u->n ? v * u->std[g] + u->mean[g] : v;
    }
    return TD_OK;
}

static td_status judge_classes(collected *c, const targets *t, td__scores *out)
{
    int64_t n = c->rows * t->each, classes = t->field->classes;
    int64_t *class = td__calloc((size_t)n + 1, sizeof *class);

    if (!class)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld classes", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        class[i] = (int64_t)t->value[i];
        softmax(c->output + i * classes, classes);
    }
    td_status st = td__scores_classes(c->output, class, n, classes, out);
    td__free(class);
    return st;
}

static td_status judge_numbers(const collected *c, const targets *t, td__scores *out)
{
    int64_t n = c->rows * t->each;
    double *said = td__calloc((size_t)n + 1, sizeof *said);

    if (!said)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; i++)
        said[i] = (double)c->output[i];
    td__scores_numbers(said, t->value, n, out);
    td_status st = t->each == 1 ? td__scores_points(out, said, t->value, n) : TD_OK;
    td__free(said);
    return st;
}

td_status td__trainer_scores(td__trainer *t, td__dataset *d, td__scores *out)
{
    int f = td__dataset_field(d, t->plan.facts.target);
    collected c = {.rows = d->count};
    td_status st = TD_OK;

    *out = (td__scores){0};
    if (f < 0)
        return TD_FAIL(TD_EINVAL, "scores: samples have no field '%s'", t->plan.facts.target);
    targets y = {.field = &d->fields[f], .each = td_shape_count(&d->fields[f].shape)};
    y.value = td__calloc((size_t)(d->count * y.each) + 1, sizeof *y.value);
    if (!y.value)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld targets", (long long)d->count);
    TD_TRY_OR(st, done, td__map_walk(d, f, INT64_MAX, see_targets, &y));
    TD_TRY_OR(st, done, td__trainer_predict(t, d, collect, &c, &c.dtype, &c.row));
    if (y.field->classes > 1 && c.width == y.each * y.field->classes)
        st = judge_classes(&c, &y, out);
    else if (y.field->classes == 0 && c.width == y.each)
        st = judge_numbers(&c, &y, out);
    else
        st = TD_FAIL(TD_EINVAL, "scores: %lld outputs and %lld targets of a sample do not fit",
                     (long long)c.width, (long long)y.each);
    for (int i = 0; i < out->n_worst && !st; i++) {
        out->worst[i].index /= y.each; /* it was a place in a sequence */
        out->worst[i].name = td__dataset_name(d, out->worst[i].index);
    }
done:
    td__free(y.value);
    td__free(c.output);
    return st;
}

bool td__trainer_scores_alone(const td__trainer *t)
{
    return *t->plan.facts.target && !td__trainer_traits(t).sharded_params &&
           !td__sync_division_of(&t->o.sync).stages;
}

const char *td__trainer_target(const td__trainer *t)
{
    return t->plan.facts.target;
}
