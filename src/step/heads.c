/* heads.c -- losses and metrics, one row each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/heads.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "tandem/ops.h"

static td_node *xent(const td__head *h, double smoothing)
{
    td_xent_opts o = {
        .use_ignore = h->opts.use_ignore, .ignore_index = h->opts.ignore, .smoothing = smoothing};

    return td_softmax_cross_entropy(h->g, h->y, h->target, &o);
}

/* ---- Class weights --------------------------------------------------------------------------- *
 *
 * Rows by what counts in them, with w the weights of classes, t the target of a row, K classes,
 * nll_k = ln sum exp z - z_k, and e the label smoothing:
 *
 *     keras      w[t] ((1 - e) nll_t + e/K sum_k nll_k)        over the number of rows that count
 *     pytorch    (1 - e) w[t] nll_t + e/K sum_k w[k] nll_k     over the sum of their w[t]
 *
 * A row whose target is ignored has no part in either. */

/* (...) 1 where the target counts; NULL: everywhere. */
static td_node *counting(const td__head *h)
{
    td_dtype dtype = td_node_dtype(h->target);
    int32_t narrow = (int32_t)h->opts.ignore;

    if (!h->opts.use_ignore || (dtype == TD_I32 && narrow != h->opts.ignore))
        return NULL;
    td_node *ignored = td_constant(h->g, dtype, TD_SCALAR,
                                   dtype == TD_I32 ? (const void *)&narrow : &h->opts.ignore);
    td_node *out = td_equal(h->g, h->target, ignored);
    return td_affine(h->g, td_cast(h->g, out, TD_F32), -1, 1);
}

/* sum / n, and 0 / 0 = 0. */
static td_node *over(const td__head *h, td_node *sum, td_node *n)
{
    static const float ZERO = 0;
    td_node *none = td_equal(h->g, n, td_constant(h->g, TD_F32, TD_SCALAR, &ZERO));

    return td_div(h->g, sum, td_add(h->g, n, td_cast(h->g, none, TD_F32)));
}

static td_node *weighted(const td__head *h)
{
    td_shape s = td_node_shape(h->y);
    int last = s.ndim - 1;
    int64_t classes = s.dim[last];
    double smoothing = h->opts.label_smoothing;
    float *w = td__calloc((size_t)classes + 1, sizeof *w);

    if (!w)
        return NULL;
    for (int64_t k = 0; k < classes; k++)
        w[k] = k < h->opts.n_class_weights ? (float)h->opts.class_weights[k] : 1;
    td_node *weights = td_constant(h->g, TD_F32, TD_SHAPE(classes), w);
    td__free(w);
    td_node *is = td_one_hot(h->g, h->target, classes, TD_F32);
    td_node *z = td_sub(h->g, h->y, td_max(h->g, h->y, &last, 1, true));
    td_node *all = td_log(h->g, td_sum(h->g, td_exp(h->g, z), &last, 1, false));
    td_node *own = td_sum(h->g, td_mul(h->g, is, z), &last, 1, false);
    td_node *weight = td_sum(h->g, td_mul(h->g, is, weights), &last, 1, false);
    td_node *counts = counting(h), *nll = td_sub(h->g, all, own);
    if (smoothing > 0) {
        td_shape row = s;
        row.dim[last] = 1;
        td_node *each = td_sub(h->g, td_reshape(h->g, all, row), z);
        each = h->opts.weighted_mean ? td_mul(h->g, each, weights) : each;
        td_node *spread =
            td_affine(h->g, td_sum(h->g, each, &last, 1, false), smoothing / (double)classes, 0);
        nll = td_affine(h->g, nll, 1 - smoothing, 0);
        if (h->opts.weighted_mean) {
            nll = td_add(h->g, td_mul(h->g, weight, nll), spread);
        } else {
            nll = td_mul(h->g, weight, td_add(h->g, nll, spread));
        }
    } else {
        nll = td_mul(h->g, weight, nll);
    }
    if (!counts && !h->opts.weighted_mean)
        return td_mean(h->g, nll, NULL, 0, false);
    nll = counts ? td_mul(h->g, counts, nll) : nll;
    td_node *n = counts && h->opts.weighted_mean ? td_mul(h->g, counts, weight)
                 : counts                        ? counts
                                                 : weight;
    return over(h, td_sum(h->g, nll, NULL, 0, false), td_sum(h->g, n, NULL, 0, false));
}

static td_node *cross_entropy(const td__head *h)
{
    return h->opts.n_class_weights ? weighted(h) : xent(h, h->opts.label_smoothing);
}

/* ---- The others ------------------------------------------------------------------------------ */

static td_node *mse(const td__head *h)
{
    return td_mse(h->g, h->y, h->target);
}
static td_node *mae(const td__head *h)
{
    return td_l1(h->g, h->y, h->target);
}
static td_node *huber(const td__head *h)
{
    return td_huber(h->g, h->y, h->target, h->opts.delta > 0 ? h->opts.delta : 1);
}
static td_node *bce(const td__head *h)
{
    return td_bce_with_logits(h->g, h->y, h->target);
}

static const td__loss_def LOSSES[] = {
    {"cross_entropy", TD_HEAD_CLASSES, "label_smoothing ignore class_weights weighted_as",
     cross_entropy},
    {"mse", TD_HEAD_NUMBERS, "", mse},
    {"mae", TD_HEAD_NUMBERS, "", mae},
    {"huber", TD_HEAD_NUMBERS, "delta", huber},
    {"bce", TD_HEAD_PROBABILITIES, "", bce},
};

const td__loss_def *td__loss_list(int i)
{
    return i >= 0 && i < TD_LEN(LOSSES) ? &LOSSES[i] : NULL;
}

const td__loss_def *td__loss_find(const char *name, const td__field *target)
{
    if (!strcmp(name, "auto"))
        name = target->classes > 0 || !td_dtype_is_float(target->dtype) ? "cross_entropy" : "mse";
    for (int i = 0; i < TD_LEN(LOSSES); i++)
        if (!strcmp(LOSSES[i].name, name))
            return &LOSSES[i];
    return NULL;
}

static td_node *accuracy(const td__head *h)
{
    return td_accuracy_of(h->g, h->y, h->target, 1, h->opts.use_ignore ? &h->opts.ignore : NULL);
}
/* More than there are classes are all of them. */
static td_node *top(const td__head *h, int64_t k)
{
    td_shape s = td_node_shape(h->y);
    int64_t classes = s.ndim ? s.dim[s.ndim - 1] : k;

    return td_accuracy_of(h->g, h->y, h->target, (int)(k < classes ? k : classes),
                          h->opts.use_ignore ? &h->opts.ignore : NULL);
}
static td_node *top3(const td__head *h)
{
    return top(h, 3);
}
static td_node *top5(const td__head *h)
{
    return td_accuracy_of(h->g, h->y, h->target, 5, h->opts.use_ignore ? &h->opts.ignore : NULL);
}
static td_node *top10(const td__head *h)
{
    return top(h, 10);
}
/* Of logits and chances of 0 or 1: is the sign right? */
static td_node *binary_accuracy(const td__head *h)
{
    static const float ZERO = 0, HALF = 0.5F;
    td_node *said = td_less(h->g, td_constant(h->g, TD_F32, TD_SCALAR, &ZERO), h->y);
    td_node *is = td_less(h->g, td_constant(h->g, TD_F32, TD_SCALAR, &HALF), h->target);

    return td_mean(h->g, td_cast(h->g, td_equal(h->g, said, is), TD_F32), NULL, 0, false);
}
/* The cross-entropy without smoothing. */
static td_node *nll(const td__head *h)
{
    return xent(h, 0);
}
static td_node *bits(const td__head *h)
{
    return td_affine(h->g, nll(h), 1 / log(2), 0);
}

static const td__metric_def METRICS[] = {
    {"accuracy", TD_HEAD_CLASSES, true, accuracy, false},
    {"top5", TD_HEAD_CLASSES, true, top5, false},
    {"nll", TD_HEAD_CLASSES, false, nll, false},
    {"bits", TD_HEAD_CLASSES, false, bits, false},
    {"mae", TD_HEAD_NUMBERS, false, mae, false},
    {"mse", TD_HEAD_NUMBERS, false, mse, false},
    {"binary_accuracy", TD_HEAD_PROBABILITIES, true, binary_accuracy, false},
    {"top3", TD_HEAD_CLASSES, true, top3, false},
    {"top10", TD_HEAD_CLASSES, true, top10, false},
    {"precision", TD_HEAD_CLASSES, true, accuracy, true},
    {"recall", TD_HEAD_CLASSES, true, accuracy, true},
    {"f1", TD_HEAD_CLASSES, true, accuracy, true},
    {"auc", TD_HEAD_CLASSES, true, accuracy, true},
    {"rmse", TD_HEAD_NUMBERS, false, mse, true},
    {"r2", TD_HEAD_NUMBERS, true, mse, true},
};

const td__metric_def *td__metric_list(int i)
{
    return i >= 0 && i < TD_LEN(METRICS) ? &METRICS[i] : NULL;
}

const td__metric_def *td__metric_find(const char *name)
{
    for (int i = 0; i < TD_LEN(METRICS); i++)
        if (!strcmp(METRICS[i].name, name))
            return &METRICS[i];
    return NULL;
}

const td__metric_def *td__metric_default(const td__loss_def *loss)
{
    for (int i = 0; i < TD_LEN(METRICS); i++)
        if (METRICS[i].kind == loss->kind && METRICS[i].build != loss->build && !METRICS[i].whole)
            return &METRICS[i];
    return NULL;
}

void td__head_note_targets(const td__head *h, const char *target, td__model_nodes *out)
{
    bool weighted = h->opts.n_class_weights && h->opts.weighted_mean;

    if (!h->opts.use_ignore && !weighted)
        return;
    out->ignoring = target;
    out->ignore = h->opts.ignore;
    out->none_ignored = !h->opts.use_ignore;
    out->class_weights = weighted ? h->opts.class_weights : NULL;
    out->n_class_weights = weighted ? h->opts.n_class_weights : 0;
}

void td__head_match_numbers(td__head *h)
{
    td_shape a = td_node_shape(h->y), t = td_node_shape(h->target);

    if (!td_dtype_is_float(td_node_dtype(h->target)))
        h->target = td_cast(h->g, h->target, TD_F32);
    if (!td_shape_equal(&a, &t) && td_shape_count(&a) == td_shape_count(&t))
        h->y = td_reshape(h->g, h->y, t);
}

/* ---- Units ----------------------------------------------------------------------------------- */

/* (rows, values of a target) * std + mean. */
static td_node *scale_back(const td__head *h, td_node *v)
{
    const td__units *u = h->units;
    td_shape row = td_node_shape(h->target);

    if (u->n == 1)
        return td_affine(h->g, v, u->std[0], u->mean[0]);
    for (int i = 1; i < row.ndim; i++)
        row.dim[i - 1] = row.dim[i];
    row.ndim--;
    size_t count = (size_t)td_shape_count(&row);
    float *std = td__calloc(2 * count + 1, sizeof *std), *mean = std + count;
    if (!std)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t g = i / (size_t)u->inner % (size_t)u->n;
        std[i] = (float)u->std[g];
        mean[i] = (float)u->mean[g];
    }
    v = td_mul(h->g, v, td_constant(h->g, TD_F32, row, std));
    v = td_add(h->g, v, td_constant(h->g, TD_F32, row, mean));
    td__free(std);
    return v;
}

td__head td__head_real(const td__head *h)
{
    td__head real = *h;

    if (h->units && h->units->n) {
        real.y = scale_back(h, h->y);
        real.target = scale_back(h, h->target);
    }
    return real;
}

td_node *td__head_output(const td__head *h, const td__loss_def *loss, td_node *output)
{
    td_shape as = td_node_shape(output), y = td_node_shape(h->y);

    if (loss->kind == TD_HEAD_PROBABILITIES)
        return td_sigmoid(h->g, output);
    if (!h->units || !h->units->n || loss->kind != TD_HEAD_NUMBERS)
        return output;
    td_node *real = scale_back(h, h->y);
    return td_shape_equal(&as, &y) ? real : td_reshape(h->g, real, as);
}
