/* heads.c -- losses and metrics, one row each. Both are means over rows (tokens count as rows), so
 * that parts of a batch can be averaged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/build.h"

typedef struct head {
    td_graph *g;
    td_node *y, *target;
    const td__tree *loss; /* options */
} head;

/* What a loss or metric compares. */
enum { CLASSES = 1, NUMBERS = 2, CHANCES = 3 };

typedef struct loss_def {
    const char *name;
    int kind;
    const char *reads;
    td_node *(*build)(const head *h);
} loss_def;

static td_node *xent(const head *h, double smoothing)
{
    td_xent_opts o = {.use_ignore = td__tree_get(h->loss, "ignore") != NULL,
                      .ignore_index = (int64_t)td__keys_real(h->loss, "ignore"),
                      .smoothing = smoothing};

    return td_softmax_cross_entropy(h->g, h->y, h->target, &o);
}
static td_node *cross_entropy(const head *h)
{
    return xent(h, td__keys_real(h->loss, "label_smoothing"));
}
static td_node *mse(const head *h)
{
    return td_mse(h->g, h->y, h->target);
}
static td_node *mae(const head *h)
{
    return td_l1(h->g, h->y, h->target);
}
static td_node *huber(const head *h)
{
    double delta = td__keys_real(h->loss, "delta");

    return td_huber(h->g, h->y, h->target, delta > 0 ? delta : 1);
}
static td_node *bce(const head *h)
{
    return td_bce_with_logits(h->g, h->y, h->target);
}

static const loss_def LOSSES[] = {
    {"cross_entropy", CLASSES, "label_smoothing ignore", cross_entropy},
    {"mse", NUMBERS, "", mse},
    {"mae", NUMBERS, "", mae},
    {"huber", NUMBERS, "delta", huber},
    {"bce", CHANCES, "", bce},
};

const char *td__loss_word(int i)
{
    return i == 0 ? "auto" : i <= TD_LEN(LOSSES) ? LOSSES[i - 1].name : NULL;
}

typedef struct metric_def {
    const char *name;
    unsigned kinds; /* bit per kind */
    bool higher_is_better;
    td_node *(*build)(const head *h);
} metric_def;

static td_node *accuracy(const head *h)
{
    return td_accuracy(h->g, h->y, h->target, 1);
}
static td_node *top5(const head *h)
{
    return td_accuracy(h->g, h->y, h->target, 5);
}
/* Of logits and chances of 0 or 1: is the sign right? */
static td_node *binary_accuracy(const head *h)
{
    static const float ZERO = 0, HALF = 0.5F;
    td_node *said = td_less(h->g, td_constant(h->g, TD_F32, TD_SCALAR, &ZERO), h->y);
    td_node *is = td_less(h->g, td_constant(h->g, TD_F32, TD_SCALAR, &HALF), h->target);

    return td_mean(h->g, td_cast(h->g, td_equal(h->g, said, is), TD_F32), NULL, 0, false);
}
/* The cross-entropy without smoothing. */
static td_node *nll(const head *h)
{
    return xent(h, 0);
}
static td_node *bits(const head *h)
{
    return td_affine(h->g, nll(h), 1 / log(2), 0);
}

static const metric_def METRICS[] = {
    {"accuracy", 1U << CLASSES, true, accuracy},
    {"top5", 1U << CLASSES, true, top5},
    {"nll", 1U << CLASSES, false, nll},
    {"bits", 1U << CLASSES, false, bits},
    {"mae", 1U << NUMBERS, false, mae},
    {"mse", 1U << NUMBERS, false, mse},
    {"binary_accuracy", 1U << CHANCES, true, binary_accuracy},
};

const char *td__metric_word(int i)
{
    return i < TD_LEN(METRICS) ? METRICS[i].name : NULL;
}

static const loss_def *find_loss(const char *name, const td__field *target)
{
    if (!strcmp(name, "auto"))
        name = target->classes > 0 || !td_dtype_is_float(target->dtype) ? "cross_entropy" : "mse";
    for (int i = 0; i < TD_LEN(LOSSES); i++)
        if (!strcmp(LOSSES[i].name, name))
            return &LOSSES[i];
    return NULL;
}

static td_status add_metric(td__build *b, const head *h, const metric_def *m)
{
    td__model_nodes *o = b->out;

    if (o->n_metrics == TD__MAX_METRICS)
        return TD_FAIL(TD_EINVAL, "%s: metrics: more than %d", b->job->file, TD__MAX_METRICS);
    td_node *node = m->build(h);
    o->metrics[o->n_metrics++] =
        (td__metric_node){.name = m->name, .node = node, .higher_is_better = m->higher_is_better};
    return TD_OK;
}

static td_status add_metrics(td__build *b, const head *h, const loss_def *loss)
{
    const td__tree *list = td__tree_get(b->job->root, "metrics");

    for (int i = 0; !list && i < TD_LEN(METRICS); i++)
        if (METRICS[i].kinds & 1U << loss->kind && METRICS[i].build != loss->build)
            return add_metric(b, h, &METRICS[i]);
    for (const td__tree *t = list ? list->first : NULL; t; t = t->next)
        for (int i = 0; i < TD_LEN(METRICS); i++) {
            if (strcmp(METRICS[i].name, t->text) != 0)
                continue;
            if (!(METRICS[i].kinds & 1U << loss->kind))
                return TD_FAIL(TD_EINVAL, "%s: metrics: %s does not go with the loss %s",
                               td__tree_where(t).text, t->text, loss->name);
            for (int k = 0; k < b->out->n_metrics; k++)
                if (!strcmp(b->out->metrics[k].name, t->text))
                    return TD_FAIL(TD_EINVAL, "%s: metrics: %s is there twice",
                                   td__tree_where(t).text, t->text);
            TD_TRY(add_metric(b, h, &METRICS[i]));
        }
    return TD_OK;
}

/* Numbers: (rows, 1) beside (rows) is the same thing, and integers are numbers too. */
static void match_numbers(head *h)
{
    td_shape a = td_node_shape(h->y), t = td_node_shape(h->target);

    if (!td_dtype_is_float(td_node_dtype(h->target)))
        h->target = td_cast(h->g, h->target, TD_F32);
    if (!td_shape_equal(&a, &t) && td_shape_count(&a) == td_shape_count(&t))
        h->y = td_reshape(h->g, h->y, t);
}

/* Options that the loss does not read, and classes that do not fit. */
static td_status check_loss(td__build *b, const loss_def *d, const head *h)
{
    td_shape s = td_node_shape(h->y);
    int64_t last = s.ndim > 0 ? s.dim[s.ndim - 1] : 0;

    for (const td__tree *t = h->loss->first; t; t = t->next) {
        if (!td__has_word("name target", t->key) && !td__has_word(d->reads, t->key))
            return TD_FAIL(TD_EINVAL, "%s: loss.%s: %s has no such option",
                           td__tree_where_key(t).text, t->key, d->name);
    }
    if (d->kind == CLASSES && b->target->classes > last)
        return TD_FAIL(TD_EINVAL,
                       "%s: model: the last layer gives %lld values, but %s has %lld classes",
                       td__tree_where(td__tree_get(b->job->root, "model")).text, (long long)last,
                       b->target->name, (long long)b->target->classes);
    return TD_OK;
}

td_status td__build_heads(td__build *b, td_node *y)
{
    head h = {.g = b->g, .y = y, .loss = td__tree_get(b->job->root, "loss")};
    const td__tree *at = h.loss;

    h.target = td__build_input(b, b->target->name);
    const loss_def *d = find_loss(td__keys_text(h.loss, "name"), b->target);
    if (!h.target || !d)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
    if (b->target->classes == 0 && d->kind == CLASSES && td_dtype_is_float(b->target->dtype))
        return TD_FAIL(TD_EINVAL, "%s: loss: %s wants classes, but %s has numbers",
                       td__tree_where(at).text, d->name, b->target->name);
    TD_TRY(check_loss(b, d, &h));
    b->out->output = y;
    if (d->kind != CLASSES)
        match_numbers(&h);
    b->out->loss = d->build(&h);
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "%s: loss: %s", td__tree_where(at).text,
                       td_graph_error(b->g));
    TD_TRY(add_metrics(b, &h, d));
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "%s: metrics: %s", td__tree_where(at).text,
                       td_graph_error(b->g));
    return TD_OK;
}
