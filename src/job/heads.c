/* heads.c -- `loss` and `metrics` of a job, as nodes of its model (step/heads.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/build.h"
#include "job/plugin.h"
#include "step/heads.h"

const char *td__loss_word(int i)
{
    return i == 0 ? "auto" : td__loss_list(i - 1) ? td__loss_list(i - 1)->name : NULL;
}

const char *td__metric_word(int i)
{
    return td__metric_list(i) ? td__metric_list(i)->name : NULL;
}

static td_status add_metric(td__build *b, const td__head *h, const td__metric_def *m)
{
    td__model_nodes *o = b->out;

    if (o->n_metrics == TD__MAX_METRICS)
        return TD_FAIL(TD_EINVAL, "%s: metrics: at most %d are possible", b->job->file,
                       TD__MAX_METRICS);
    td_node *node = m->build(h);
    o->metrics[o->n_metrics++] = (td__metric_node){
        .name = m->name, .node = node, .higher_is_better = m->higher_is_better, .whole = m->whole};
    return TD_OK;
}

static td_status add_metrics(td__build *b, const td__head *h, const td__loss_def *loss)
{
    const td__tree *list = b->job->metrics;
    const td__metric_def *m = td__metric_default(loss);

    if (!list)
        return m ? add_metric(b, h, m) : TD_OK;
    for (const td__tree *t = list->first; t; t = t->next) {
        m = td__metric_find(t->text);
        if (!m)
            continue;
        if (m->kind != loss->kind)
            return TD_FAIL(TD_EINVAL, "%s: metrics: %s cannot be computed with the loss %s",
                           td__tree_where(t).text, t->text, loss->name);
        for (int k = 0; k < b->out->n_metrics; k++)
            if (!strcmp(b->out->metrics[k].name, t->text))
                return TD_FAIL(TD_EINVAL, "%s: metrics: %s is given twice", td__tree_where(t).text,
                               t->text);
        TD_TRY(add_metric(b, h, m));
    }
    return TD_OK;
}

/* plugin.metrics, of the output as the model gives it. */
static td_status add_own_metrics(td__build *b, const td__head *h)
{
    const td__tree *list = b->job->plugin.metrics;
    td__model_nodes *o = b->out;

    for (const td__tree *t = list ? list->first : NULL; t; t = t->next) {
        const td_plugin_metric *m = td__plugin_metric(b->job, t->text);
        if (!m)
            return td__plugin_missing(b->job, "metric", t);
        if (o->n_metrics == TD__MAX_METRICS)
            return TD_FAIL(TD_EINVAL, "%s: metrics: at most %d are possible", b->job->file,
                           TD__MAX_METRICS);
        o->metrics[o->n_metrics++] = (td__metric_node){.name = m->name,
                                                       .node = m->build(h->g, h->y, h->target),
                                                       .higher_is_better = m->higher_is_better};
    }
    return TD_OK;
}

/* plugin.loss; NULL: there is none. */
static td_status find_own_loss(const td__build *b, const td_plugin_loss **out)
{
    const td__tree *name = b->job->plugin.loss;

    *out = name ? td__plugin_loss(b->job, name->text) : NULL;
    return name && !*out ? td__plugin_missing(b->job, "loss", name) : TD_OK;
}

static td_status check_options(const td__loss_def *d, const td__tree *options)
{
    for (const td__tree *t = options->first; t; t = t->next) {
        if (!td__has_word("name target", t->key) && !td__has_word(d->reads, t->key))
            return TD_FAIL(TD_EINVAL, "%s: loss.%s: %s has no such option",
                           td__tree_where_key(t).text, t->key, d->name);
    }
    return TD_OK;
}

static td_status check_classes(const td__build *b, const td__loss_def *d, const td__head *h)
{
    td_shape s = td_node_shape(h->y);
    int64_t last = s.ndim > 0 ? s.dim[s.ndim - 1] : 0;

    if (d->kind == TD_HEAD_CLASSES && b->target->classes > last)
        return TD_FAIL(TD_EINVAL,
                       "%s: model: the last layer gives %lld values, but %s has %lld classes",
                       td__tree_where(b->job->model).text, (long long)last, b->target->name,
                       (long long)b->target->classes);
    return TD_OK;
}

/* Where the model ends, for messages: "job.yaml:9:5: model: linear2", or the ready-made model. */
static td__tree_place place_of_end(const td__build *b)
{
    td__tree_place p = td__tree_where(b->last ? b->last : b->job->model);
    size_t n = strlen(p.text);
    snprintf(p.text + n, sizeof p.text - n, ": model: %s", b->last ? b->last_name : "it");
    return p;
}

/* One target for each value, or one class for each row of values, as the loss wants it. */
static td_status check_shapes(td__build *b, const td__loss_def *d, const td__head *h)
{
    td_shape y = td_node_shape(h->y), t = td_node_shape(h->target), want = t;
    bool classes = d->kind == TD_HEAD_CLASSES, linear;
    char given[128], target[128 + 16], remedy[128];

    if (classes && want.ndim < TD_MAX_DIMS)
        want.dim[want.ndim++] = y.ndim > 0 ? y.dim[y.ndim - 1] : 0;
    if (td_shape_equal(&y, &want))
        return TD_OK;
    linear = b->last && !strcmp(td__keys_text(b->last, "layer"), "linear");
    int64_t each = td_shape_count(&t) / b->rows;
    if (!classes) /* windows of a series come as rows on end */
        snprintf(remedy, sizeof remedy, "%send with a layer of %lld value%s",
                 y.ndim > want.ndim && y.ndim > 2 ? "begin with `flatten`, and " : "",
                 (long long)each, each == 1 ? "" : "s");
    else if (y.ndim > want.ndim)
        snprintf(remedy, sizeof remedy, "%s",
                 linear ? "add `flatten` before it" : "add `flatten` and `linear` after it");
    else if (y.ndim < want.ndim)
        snprintf(remedy, sizeof remedy, "keep the axes of the positions up to the last layer");
    else
        snprintf(remedy, sizeof remedy, "the axes before the last one must be the same");
    td__build_shape_text(&t, target, 128);
    if (classes) /* "(N, classes)" */
        snprintf(strrchr(target, ')'), 16, ", classes)");
    return TD_FAIL(TD_EINVAL, "%s gives %s, but the loss %s needs %s for the target %s: %s",
                   place_of_end(b).text, td__build_shape_text(&y, given, sizeof given), d->name,
                   target, b->target->name, remedy);
}

/* cross_entropy takes logits: after a softmax it still trains, but slowly and badly. */
static td_status note_softmax(td__build *b, const td__loss_def *d)
{
    const char *kind = b->last ? td__keys_text(b->last, "layer") : NULL,
               *act = b->last ? td__keys_text(b->last, "act") : NULL;
    if (!b->record || d->kind != TD_HEAD_CLASSES || !kind ||
        (strcmp(kind, "softmax") != 0 && (!act || strcmp(act, "softmax") != 0)))
        return TD_OK;
    b->job->hint = td__arena_printf(b->job->model_arena,
                                    "%s is a softmax, which the loss %s applies itself: remove it",
                                    place_of_end(b).text, d->name);
    return b->job->hint ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
}

/* loss.class_weights: a number for each class, in their order. */
static td_status fill_weights(const td__build *b, const td__tree *at, td_loss_opts *o)
{
    const td__tree *list = b->job->loss.class_weights;
    int64_t n = 0;
    char *end;

    for (const td__tree *t = list ? list->first : NULL; t; t = t->next)
        n++;
    if (!list && td__tree_get(at, "weighted_as"))
        return TD_FAIL(TD_EINVAL, "%s: loss.weighted_as: needs loss.class_weights",
                       td__tree_where_key(td__tree_get(at, "weighted_as")).text);
    if (!list)
        return TD_OK;
    if (n != b->target->classes)
        return TD_FAIL(TD_EINVAL, "%s: loss.class_weights: %lld numbers, but %s has %lld classes",
                       td__tree_where(list).text, (long long)n, b->target->name,
                       (long long)b->target->classes);
    double *w = td__arena_alloc(b->job->model_arena, (size_t)n * sizeof *w);
    if (!w)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
    for (const td__tree *t = list->first; t; t = t->next) {
        double v = strtod(t->text, &end);
        if (end == t->text || *end || !(v >= 0 && v < 1e30))
            return TD_FAIL(TD_EINVAL,
                           "%s: loss.class_weights: expected numbers of at least 0, found %s",
                           td__tree_where(t).text, td__tree_found(t).text);
        w[o->n_class_weights++] = v;
    }
    o->class_weights = w;
    return TD_OK;
}

td_status td__build_heads(td__build *b, td_node *y)
{
    const td__tree *at = td__tree_get(b->job->root, "loss");
    td__head h = {.g = b->g, .y = y, .units = &b->target->units, .opts = b->job->loss.opts};

    h.target = td__build_input(b, b->target->name);
    const td_plugin_loss *own;
    TD_TRY(find_own_loss(b, &own));
    /* A loss of a plug-in is checked, and its output shown, as one of ours that takes the same. */
    const char *name = !own ? b->job->loss.name : own->classes ? "cross_entropy" : "mse";
    const td__loss_def *d = td__loss_find(name, b->target);
    if (!h.target || !d)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->job->file);
    if (b->target->classes == 0 && d->kind == TD_HEAD_CLASSES &&
        td_dtype_is_float(b->target->dtype))
        return TD_FAIL(TD_EINVAL, "%s: loss: %s needs class targets, but %s has numbers",
                       td__tree_where(at).text, d->name, b->target->name);
    TD_TRY(check_options(d, at));
    TD_TRY(fill_weights(b, at, &h.opts));
    if (d->kind != TD_HEAD_CLASSES)
        td__head_match_numbers(&h);
    TD_TRY(check_shapes(b, d, &h));
    TD_TRY(check_classes(b, d, &h));
    TD_TRY(note_softmax(b, d));
    b->out->loss = own ? own->build(h.g, h.y, h.target) : d->build(&h);
    if (!b->out->loss && !td_graph_status(b->g))
        return TD_FAIL(TD_EINVAL, "plugin.loss: %s gives no loss", own ? own->name : d->name);
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "%s: loss: %s", td__tree_where(at).text,
                       td_graph_error(b->g));
    td__head real = td__head_real(&h);
    TD_TRY(add_metrics(b, &real, d));
    TD_TRY(add_own_metrics(b, &h));
    b->out->output = td__head_output(&h, d, y);
    b->out->target = b->target->name;
    h.opts.n_class_weights = own ? 0 : h.opts.n_class_weights;
    if (d->kind == TD_HEAD_CLASSES)
        td__head_note_targets(&h, b->target->name, b->out);
    if (td_graph_status(b->g))
        return TD_FAIL(td_graph_status(b->g), "%s: metrics: %s", td__tree_where(at).text,
                       td_graph_error(b->g));
    return TD_OK;
}
