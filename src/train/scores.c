/* scores.c -- how good predictions are; see scores.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

typedef struct ranked {
    float score;
    bool hit; /* the sample is of the class */
} ranked;

static int by_score(const void *a, const void *b)
{
    float x = ((const ranked *)a)->score, y = ((const ranked *)b)->score;
    return x < y ? -1 : x > y;
}

/* The share of pairs (one of the class, one not) that are in the right order; ties count half:
 * Mann and Whitney's U over the number of pairs. */
static double area(ranked *r, int64_t n)
{
    double below = 0, pairs = 0, others = 0;
    int64_t hits = 0;

    qsort(r, (size_t)n, sizeof *r, by_score);
    for (int64_t i = 0; i < n;) {
        int64_t end = i, tied_hits = 0;
        while (end < n && r[end].score == r[i].score)
            tied_hits += r[end++].hit;
        int64_t tied_others = end - i - tied_hits;
        below += (double)tied_hits * (others + 0.5 * (double)tied_others);
        others += (double)tied_others;
        hits += tied_hits;
        i = end;
    }
    pairs = (double)hits * others;
    return pairs > 0 ? below / pairs : (double)NAN;
}

/* How wrong: any order of badness, the larger the worse. */
static double badness(const td__scores *s, const td__scored_sample *x)
{
    return s->classes ? -x->score : fabs(x->said - x->truth);
}

/* One sample more to hold against the worst so far. */
static void note_sample(td__scores *s, td__scored_sample x)
{
    int at = s->n_worst;

    while (at > 0 && badness(s, &s->worst[at - 1]) < badness(s, &x))
        at--;
    if (at == TD__WORST_SAMPLES || isnan(badness(s, &x)))
        return;
    if (s->n_worst < TD__WORST_SAMPLES)
        s->n_worst++;
    memmove(s->worst + at + 1, s->worst + at, (size_t)(s->n_worst - at - 1) * sizeof x);
    s->worst[at] = x;
}

static void count(const float *p, const int64_t *class, int64_t n, td__scores *s)
{
    const float *row = p;

    for (int64_t i = 0; i < n; i++, p += s->classes) {
        int64_t best = 0;
        for (int64_t k = 1; k < s->classes; k++)
            best = p[k] > p[best] ? k : best;
        if (class[i] < 0 || class[i] >= s->classes)
            continue;
        s->confusion[class[i] * s -> classes + best]++;
        s->samples++;
        if (best != class[i])
            note_sample(s, (td__scored_sample){.index = i,
                                               .truth = (double)class[i],
                                               .said = (double)best,
                                               .score = (double)row[i * s->classes + class[i]]});
    }
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void judge_class(td__scores *s, int64_t k)
{
    td__class_score *c = &s->by_class[k];
    double right = (double)s->confusion[k * s->classes + k], said = 0;

    for (int64_t i = 0; i < s->classes; i++) {
        said += (double)s->confusion[i * s->classes + k];
        c->samples += s->confusion[k * s->classes + i];
    }
    c->precision = ratio(right, said);
    c->recall = ratio(right, (double)c->samples);
    c->f1 = ratio(2 * right, said + (double)c->samples);
    s->accuracy += right;
    s->precision += c->precision / (double)s->classes;
    s->recall += c->recall / (double)s->classes;
    s->f1 += c->f1 / (double)s->classes;
}

td_status td__scores_classes(const float *probabilities, const int64_t *class, int64_t n,
                             int64_t classes, td__scores *out)
{
    ranked *r = td__calloc((size_t)n + 1, sizeof *r);

    *out = (td__scores){.classes = classes,
                        .confusion = td__calloc((size_t)(classes * classes), sizeof(int64_t)),
                        .by_class = td__calloc((size_t)classes, sizeof(td__class_score))};
    if (!r || !out->confusion || !out->by_class) {
        td__free(r);
        td__scores_fini(out);
        return TD_FAIL(TD_ENOMEM, "no memory for the scores of %lld classes", (long long)classes);
    }
    count(probabilities, class, n, out);
    for (int64_t k = 0; k < classes; k++) {
        int64_t m = 0;
        judge_class(out, k);
        for (int64_t i = 0; i < n; i++)
            if (class[i] >= 0 && class[i] < classes)
                r[m++] = (ranked){probabilities[i * classes + k], class[i] == k};
        out->by_class[k].auc = area(r, m);
        out->auc += out->by_class[k].auc / (double)classes;
    }
    out->accuracy = ratio(out->accuracy, (double)out->samples);
    td__free(r);
    return TD_OK;
}

void td__scores_numbers(const double *predicted, const double *true_values, int64_t n,
                        td__scores *out)
{
    double mean = 0, squares = 0, spread = 0, absolute = 0;
    bool varies = false; /* else the spread is rounding */

    for (int64_t i = 0; i < n; i++) {
        mean += true_values[i] / (double)n;
        varies = varies || true_values[i] != true_values[0];
    }
    for (int64_t i = 0; i < n; i++) {
        double error = predicted[i] - true_values[i], d = true_values[i] - mean;
        squares += error * error;
        absolute += fabs(error);
        spread += varies ? d * d : 0;
    }
    *out = (td__scores){.samples = n,
                        .mae = absolute / (double)n,
                        .rmse = sqrt(squares / (double)n),
                        .r2 = spread > 0    ? 1 - squares / spread
                              : squares > 0 ? 0
                                            : 1};
}

td_status td__scores_points(td__scores *s, const double *predicted, const double *true_values,
                            int64_t n)
{
    int64_t m = n < TD__SCORE_POINTS ? n : TD__SCORE_POINTS;

    s->points = td__calloc((size_t)m + 1, sizeof *s->points);
    if (!s->points)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld points", (long long)m);
    for (int64_t i = 0; i < m; i++) {
        int64_t k = m < n ? i * n / m : i;
        s->points[i] =
            (td__scored_sample){.index = k, .truth = true_values[k], .said = predicted[k]};
    }
    s->n_points = (int)m;
    for (int64_t i = 0; i < n; i++)
        note_sample(s,
                    (td__scored_sample){.index = i, .truth = true_values[i], .said = predicted[i]});
    return TD_OK;
}

double td__scores_value(const td__scores *s, const char *name)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {{"accuracy", s->accuracy}, {"precision", s->precision},
                {"recall", s->recall},     {"f1", s->f1},
                {"auc", s->auc},           {"mae", s->mae},
                {"rmse", s->rmse},         {"r2", s->r2}};

    for (int i = 0; i < TD_LEN(rows); i++)
        if (!strcmp(rows[i].name, name))
            return rows[i].value;
    return (double)NAN;
}

void td__scores_fini(td__scores *s)
{
    td__free(s->confusion);
    td__free(s->by_class);
    td__free(s->points);
    *s = (td__scores){0};
}
