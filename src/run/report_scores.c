/* report_scores.c -- how good the model is, class by class: precision, recall, F1, AUC and the
 * confusion matrix; of numbers, their errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_scores.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/human.h"
#include "run/report_chart.h"
#include "run/report_html.h"

enum { MOST_ROWS = 100, MOST_COLUMNS = 20, NAME = 24, MOST_PAIRS = 40 };

static const char *class_name(const td__report_opts *o, int64_t k, char buf[NAME])
{
    if (o->class_names)
        return o->class_names[k];
    snprintf(buf, NAME, "%" PRId64, k);
    return buf;
}

static void score_cell(td__text *t, double v)
{
    char value[TD__HUMAN];

    snprintf(value, sizeof value, "%.4f", v);
    td__html_cell(t, "n", isfinite(v) ? value : "");
}

static void print_row(td__text *t, const char *name, const td__class_score *c)
{
    char value[TD__HUMAN];

    td__text_add(t, "<tr>");
    td__html_cell(t, "name", name);
    score_cell(t, c->precision);
    score_cell(t, c->recall);
    score_cell(t, c->f1);
    score_cell(t, c->auc);
    td__html_cell(t, "n", td__human_count(c->samples, value));
    td__text_add(t, "</tr>\n");
}

static void print_classes(td__text *t, const td__report_opts *o)
{
    const td__scores *s = o->scores;
    const td__class_score mean = {.samples = s->samples,
                                  .precision = s->precision,
                                  .recall = s->recall,
                                  .f1 = s->f1,
                                  .auc = s->auc};
    char buf[NAME];

    td__text_printf(t,
                    "<h2>Classes of the %s part</h2>\n<div class=\"panel\"><table><tr><th>class"
                    "</th><th class=\"n\">precision</th><th class=\"n\">recall</th>"
                    "<th class=\"n\">F1</th><th class=\"n\">AUC</th><th class=\"n\">samples</th>"
                    "</tr>\n",
                    o->scores_part);
    for (int64_t k = 0; k < s->classes && k < MOST_ROWS; k++)
        print_row(t, class_name(o, k, buf), &s->by_class[k]);
    print_row(t, s->classes > MOST_ROWS ? "mean over all classes" : "mean over classes", &mean);
    td__text_add(t, "</table></div>\n");
}

/* Samples of class `truth` for which the model said `said`. */
typedef struct mistake {
    int64_t truth, said, count;
} mistake;

static int by_count(const void *a, const void *b)
{
    const mistake *x = a, *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->truth != y->truth)
        return x->truth < y->truth ? -1 : 1;
    return x->said < y->said ? -1 : x->said > y->said;
}

/* Of more classes than a matrix has room for: what is taken for what most often. */
static void print_mistakes(td__text *t, const td__report_opts *o)
{
    static const char *const HEAD[] = {"true", "predicted", "#samples", "#share of the true class",
                                       NULL};
    const td__scores *s = o->scores;
    int64_t n = 0, kinds = 0;
    char buf[NAME], value[TD__HUMAN];

    for (int64_t i = 0; i < s->classes * s->classes; i++)
        kinds += s->confusion[i] && i / s->classes != i % s->classes;
    mistake *all = kinds ? td__calloc((size_t)kinds, sizeof *all) : NULL;
    if (!all)
        return;
    for (int64_t i = 0; i < s->classes * s->classes; i++)
        if (s->confusion[i] && i / s->classes != i % s->classes)
            all[n++] = (mistake){i / s->classes, i % s->classes, s->confusion[i]};
    qsort(all, (size_t)n, sizeof *all, by_count);
    td__text_printf(t,
                    "<h2>Most confused classes</h2>\n<p class=\"sub\">%" PRId64 " of the %" PRId64
                    " pairs of classes that were confused.</p>\n<div class=\"panel\"><table "
                    "class=\"mistakes\">\n",
                    n < MOST_PAIRS ? n : MOST_PAIRS, n);
    td__html_head(t, HEAD);
    for (int64_t i = 0; i < n && i < MOST_PAIRS; i++) {
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", class_name(o, all[i].truth, buf));
        td__html_cell(t, "name", class_name(o, all[i].said, buf));
        td__html_cell(t, "n", td__human_count(all[i].count, value));
        snprintf(value, sizeof value, "%.1f %%",
                 100 * (double)all[i].count / (double)s->by_class[all[i].truth].samples);
        td__html_cell(t, "n", value);
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
    td__free(all);
}

/* A row is a true class, a column a predicted one; the darker, the larger its share of the row. */
static void print_confusion(td__text *t, const td__report_opts *o)
{
    const td__scores *s = o->scores;
    char buf[NAME], value[TD__HUMAN];

    if (s->classes > MOST_COLUMNS) {
        print_mistakes(t, o);
        return;
    }
    td__text_add(t,
                 "<h2>Confusion matrix</h2>\n<div class=\"panel\"><table class=\"confusion\"><tr>"
                 "<th>true \\ predicted</th>");
    for (int64_t k = 0; k < s->classes; k++) {
        td__text_add(t, "<th class=\"n\">");
        td__text_html(t, class_name(o, k, buf));
        td__text_add(t, "</th>");
    }
    td__text_add(t, "</tr>\n");
    for (int64_t k = 0; k < s->classes; k++) {
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", class_name(o, k, buf));
        for (int64_t i = 0; i < s->classes; i++) {
            int64_t n = s->confusion[k * s->classes + i], all = s->by_class[k].samples;
            double share = all ? (double)n / (double)all : 0;
            td__text_printf(t, "<td class=\"n\" style=\"background:rgba(%s,%.2f)\">%s</td>",
                            i == k ? "46,160,67" : "218,54,51", 0.6 * share,
                            td__human_count(n, value));
        }
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
}

static void print_numbers(td__text *t, const td__report_opts *o)
{
    const td__scores *s = o->scores;
    const struct {
        const char *name;
        double value;
    } rows[] = {{"mean absolute error", s->mae},
                {"root mean square error (RMSE)", s->rmse},
                {"share of the variance that is explained (R2)", s->r2}};
    char value[TD__HUMAN];

    td__text_printf(t, "<h2>Errors on the %s part</h2>\n<div class=\"panel\"><table>\n",
                    o->scores_part);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", rows[i].name);
        snprintf(value, sizeof value, "%.6g", rows[i].value);
        td__html_cell(t, "n", value);
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
}

/* ---- Single samples -------------------------------------------------------------------------- */

enum { SIDE = 420, MARGIN = 62, LOW = 42, TOP = 12 };

static void print_axis(td__text *t, double lo, double hi)
{
    for (int i = 0; i <= 4; i++) {
        double v = lo + (hi - lo) * i / 4, at = (double)(SIDE - MARGIN - TOP) * i / 4;
        char text[TD__CHART_TICK];
        td__text_printf(t,
                        "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"ty\" x=\"%d\" "
                        "y=\"%.1f\">%s</text><text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                        MARGIN, SIDE - LOW - at, SIDE - TOP, MARGIN - 8, SIDE - LOW - at + 4,
                        td__chart_tick(v, text), i < 4 ? "tx" : "ty", MARGIN + at, SIDE - LOW + 17,
                        text);
    }
    td__text_printf(t,
                    "<text class=\"ty\" x=\"%d\" y=\"%d\">true value</text><text x=\"%d\" "
                    "y=\"%d\">predicted</text>\n",
                    SIDE - TOP, SIDE - 5, MARGIN + 6, TOP + 22);
}

/* A point per sample; one on the diagonal is predicted exactly. */
static void print_points(td__text *t, const td__report_opts *o)
{
    const td__scores *s = o->scores;
    double lo = (double)INFINITY, hi = -(double)INFINITY;

    for (int i = 0; i < s->n_points; i++) {
        lo = fmin(lo, fmin(s->points[i].truth, s->points[i].said));
        hi = fmax(hi, fmax(s->points[i].truth, s->points[i].said));
    }
    if (!(hi > lo) || !isfinite(hi - lo))
        return;
    double side = SIDE - MARGIN - TOP;
    td__text_printf(t,
                    "<figure class=\"panel scatter\"><figcaption><b>Predicted against true</b>"
                    "<span class=\"unit\">%d of %" PRId64 " samples of the %s part</span>"
                    "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
                    "aria-label=\"Predicted against true values\">\n",
                    s->n_points, s->samples, o->scores_part, SIDE, SIDE);
    print_axis(t, lo, hi);
    td__text_printf(t, "<path class=\"axis\" d=\"M%d %dL%d %.1f\"/>\n", MARGIN, SIDE - LOW,
                    SIDE - TOP, SIDE - LOW - side);
    for (int i = 0; i < s->n_points; i++)
        td__text_printf(t, "<circle class=\"dot c0\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\"/>\n",
                        MARGIN + side * (s->points[i].truth - lo) / (hi - lo),
                        SIDE - LOW - side * (s->points[i].said - lo) / (hi - lo));
    td__text_add(t, "</svg></figure>\n");
}

static void print_worst(td__text *t, const td__report_opts *o)
{
    static const char *const CLASSES[] = {
        "#sample", "true", "predicted", "#probability of the true class", "file", NULL};
    static const char *const NUMBERS[] = {"#sample", "#true", "#predicted", "#error", "file", NULL};
    const td__scores *s = o->scores;
    const char *head[TD_LEN(CLASSES)];
    char buf[NAME], value[TD__HUMAN];
    bool named = s->n_worst && s->worst[0].name;

    if (!s->n_worst)
        return;
    td__text_printf(t,
                    "<div><h2>Worst samples of the %s part</h2>\n<div class=\"panel\"><table "
                    "class=\"worst\">\n",
                    o->scores_part);
    memcpy(head, s->classes ? CLASSES : NUMBERS, sizeof head);
    if (!named)
        head[TD_LEN(head) - 2] = NULL;
    td__html_head(t, head);
    for (int i = 0; i < s->n_worst; i++) {
        const td__scored_sample *x = &s->worst[i];
        td__text_printf(t, "<tr><td class=\"n\">%" PRId64 "</td>", x->index);
        if (s->classes) {
            td__html_cell(t, NULL, class_name(o, (int64_t)x->truth, buf));
            td__html_cell(t, NULL, class_name(o, (int64_t)x->said, buf));
            snprintf(value, sizeof value, "%.2g", x->score);
        } else {
            td__text_printf(t, "<td class=\"n\">%.5g</td><td class=\"n\">%.5g</td>", x->truth,
                            x->said);
            snprintf(value, sizeof value, "%.3g", x->said - x->truth);
        }
        td__html_cell(t, "n", value);
        if (named)
            td__html_cell(t, "sub", x->name ? x->name : "");
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div><p class=\"sub\">Samples are numbered from 0, in the order of "
                    "<code>tandem predict</code>.</p></div>\n");
}

void td__report_scores(td__text *t, const td__report_opts *o)
{
    if (!o->scores || !o->scores->samples)
        return;
    if (!o->scores->classes) {
        td__text_add(t, "<div class=\"two\"><div>\n");
        print_numbers(t, o);
        print_points(t, o);
        td__text_add(t, "</div>\n");
        print_worst(t, o);
        td__text_add(t, "</div>\n");
        return;
    }
    print_classes(t, o);
    print_confusion(t, o);
    print_worst(t, o);
}
