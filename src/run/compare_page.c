/* compare_page.c -- compare.html: the table, and the curves of all variants over steps and over
 * seconds of training. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "run/compare_impl.h"
#include "run/report_chart.h"
#include "run/report_html.h"

enum { CHART_TITLE = 128 };

typedef struct page {
    td__text *t;
    const td__compare_opts *o;
    const char *path; /* of the page */
    int n;            /* variants */
    double **elapsed; /* by variant: seconds of training after each step; NULL: it failed */
} page;

static td_status add_times(page *p)
{
    p->elapsed = td__calloc((size_t)p->n + 1, sizeof *p->elapsed);
    if (!p->elapsed)
        return TD_FAIL(TD_ENOMEM, "no memory for the curves of %d variants", p->n);
    for (int v = 0; v < p->n; v++) {
        const td__compare_run *r = td__compare_variant(p->o, v);
        const td__column *c = &r->data.seconds;
        double at = 0;
        if (r->failed || !c->n)
            continue;
        p->elapsed[v] = td__calloc((size_t)c->n, sizeof **p->elapsed);
        if (!p->elapsed[v])
            return TD_FAIL(TD_ENOMEM, "no memory for a curve of %d steps", c->n);
        for (int i = 0; i < c->n; i++) {
            at += isfinite(c->v[i]) ? c->v[i] : 0;
            p->elapsed[v][i] = at;
        }
    }
    return TD_OK;
}

static void print_head(const page *p)
{
    td__text *t = p->t;

    td__text_add(t, "<header><h1>");
    td__text_html(t, p->o->title);
    td__text_printf(t, "</h1><span class=\"sub\">%d variant%s compared", p->n,
                    p->n == 1 ? "" : "s");
    if (p->o->repeat > 1)
        td__text_printf(t, " &middot; %d runs each, the median by time is shown", p->o->repeat);
    td__text_add(t, "</span></header>\n");
}

/* The longest is 1. */
static double speed_part(const page *p, const td__compare_run *r)
{
    double most = 0;
    for (int v = 0; v < p->n; v++) {
        const td__compare_run *k = td__compare_variant(p->o, v);
        if (!k->failed && k->samples_per_second > most)
            most = k->samples_per_second;
    }
    return most > 0 && r->samples_per_second > 0 ? r->samples_per_second / most : 0;
}

/* Is variant a to stand before b? The better one, then as they were given; those without a value
 * after them, failed ones last. */
static bool before(const page *p, int a, int b)
{
    const td__compare_run *x = td__compare_variant(p->o, a), *y = td__compare_variant(p->o, b);

    if (!x->failed != !y->failed)
        return !x->failed;
    if (x->failed || x->best == y->best || (isnan(x->best) && isnan(y->best)))
        return a < b;
    if (isnan(x->best) || isnan(y->best))
        return isnan(y->best);
    return (x->best > y->best) == p->o->higher_is_better;
}

/* The variant that stands at place k. */
static int ranked(const page *p, int k)
{
    for (int v = 0; v < p->n; v++) {
        int place = 0;
        for (int w = 0; w < p->n; w++)
            place += w != v && before(p, w, v);
        if (place == k)
            return v;
    }
    return k;
}

static void print_table(const page *p)
{
    td__compare_scale scale = td__compare_scale_of(p->o);
    char cell[TD__COMPARE_CELLS][TD__COMPARE_CELL];
    const char *names[TD__COMPARE_CELLS + 3];
    td__text *t = p->t;
    int speed = 0, n = 0;

    for (int i = 0; i < TD__COMPARE_CELLS; i++) {
        names[n++] = td__compare_columns[i];
        if (strcmp(td__compare_columns[i], "#speed") == 0) {
            speed = i;
            names[n++] = "";
        }
    }
    names[n] = NULL;
    td__text_add(t, "<div class=\"panel\"><table class=\"dense\">\n");
    td__html_head(t, names);
    for (int v = 0; v < p->n; v++) {
        const td__compare_run *r = td__compare_variant(p->o, ranked(p, v));
        td__compare_cells(r, &scale, cell);
        bool winner = v == 0 && p->n > 1 && *r->metric && !r->failed && !isnan(r->best);
        td__text_add(t, winner ? "<tr class=\"best\">" : "<tr>");
        td__html_cell(t, "name", cell[0]);
        if (r->failed) {
            td__text_printf(t, "<td class=\"sub\" colspan=\"%d\">failed: ", n - 1);
            td__text_html(t, r->failed);
            td__text_add(t, "</td></tr>\n");
            continue;
        }
        for (int i = 1; i < TD__COMPARE_CELLS; i++) {
            td__html_cell(t, *td__compare_columns[i] == '#' ? "n" : NULL, cell[i]);
            if (i == speed)
                td__html_bar(t, speed_part(p, r));
        }
        td__text_add(t, "</tr>\n");
    }
    for (int i = 0; i < p->o->n_absent; i++) {
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", p->o->absent[i].name);
        td__text_printf(t, "<td class=\"sub\" colspan=\"%d\">not run: ", n - 1);
        td__text_html(t, p->o->absent[i].why);
        td__text_add(t, "</td></tr>\n");
    }
    td__text_add(t, "</table></div>\n");
}

static td__series series(const td__compare_run *r, const double *x, const td__column *y, int colour)
{
    return (td__series){.name = r->name, .x = x, .y = y->v, .n = y->n, .colour = colour};
}

/* A chart has room for TD__CHART_SERIES curves: of more variants there are several charts, each of
 * neighbours in the order in which they were given. Those from `begin` on, before: */
static int end_of(const page *p, int begin)
{
    return begin + TD__CHART_SERIES < p->n ? begin + TD__CHART_SERIES : p->n;
}

/* "Loss", of several charts "Loss, variants 17 to 30 of 30". */
static const char *chart_title(const page *p, const char *what, int begin, char buf[CHART_TITLE])
{
    if (p->n <= TD__CHART_SERIES)
        return what;
    snprintf(buf, CHART_TITLE, "%.60s, variants %d to %d of %d", what, begin + 1, end_of(p, begin),
             p->n);
    return buf;
}

static void print_losses(const page *p, int begin)
{
    td__series s[TD__CHART_SERIES];
    char title[CHART_TITLE];

    for (int time = 0; time < 2; time++) {
        int n = 0;
        for (int v = begin; v < end_of(p, begin); v++) {
            const td__compare_run *r = td__compare_variant(p->o, v);
            if (!p->elapsed[v])
                continue;
            s[n] = series(r, time ? p->elapsed[v] : r->data.step.v, &r->data.loss, v);
            s[n].smooth = s[n].bare = s[n].wide = true;
            n++;
        }
        if (time)
            td__chart_time(p->t, chart_title(p, "Loss", begin, title), "over seconds", s, n);
        else
            td__chart(p->t, chart_title(p, "Loss", begin, title), "over steps", s, n);
    }
}

/* The metric that the table has as "best", over steps. */
static void print_metric(const page *p, int begin)
{
    const td__compare_run *first = td__compare_first(p->o);
    const char *space = first ? strchr(first->metric, ' ') : NULL;
    td__series s[TD__CHART_SERIES];
    char title[CHART_TITLE];
    int n = 0;

    for (int v = begin; space && v < end_of(p, begin); v++) {
        const td__compare_run *r = td__compare_variant(p->o, v);
        for (int i = 0; i < r->data.n_metrics && !r->failed; i++) {
            const td__report_metric *m = &r->data.metric[i];
            if (strcmp(m->name, space + 1) != 0 || strcmp(m->part, "test") == 0)
                continue;
            s[n] = series(r, m->step.v, &m->value, v);
            s[n++].dots = true;
            break;
        }
    }
    if (n)
        td__chart(p->t, chart_title(p, first->metric, begin, title), "over steps", s, n);
}

static void print_rates(const page *p, int begin)
{
    td__series s[TD__CHART_SERIES];
    char title[CHART_TITLE];
    int n = 0;

    for (int v = begin; v < end_of(p, begin); v++) {
        const td__compare_run *r = td__compare_variant(p->o, v);
        if (r->failed)
            continue;
        s[n] = series(r, r->data.step.v, &r->data.rate, v);
        s[n].smooth = s[n].bare = true;
        n++;
    }
    td__chart(p->t, chart_title(p, "Throughput", begin, title), "samples per second, over steps", s,
              n);
}

/* Its report, which lies beside or below the page. */
static void print_link(const page *p, const td__compare_run *r)
{
    const char *slash = strrchr(p->path, '/'), *dir = r->dir;
    size_t n = slash ? (size_t)(slash - p->path) + 1 : 0;

    td__text_add(p->t, "<td class=\"sub\"><a href=\"");
    td__text_html(p->t, strncmp(dir, p->path, n) == 0 ? dir + n : dir);
    td__text_add(p->t, "/report.html\">");
    td__text_html(p->t, r->dir);
    td__text_add(p->t, "</a></td>");
}

/* Of rules whose ranks are not in step: how old what arrives is. */
static void print_ages(const page *p)
{
    static const char *const NAMES[] = {"variant", "#0",     "", "#1",   "", "#2",
                                        "",        "#3-4",   "", "#5-8", "", "#9-16",
                                        "",        "#17-32", "", "#33-", "", NULL};
    bool any = false;
    for (int v = 0; v < p->n; v++)
        any = any || td__compare_variant(p->o, v)->data.ages > 0;
    if (!any)
        return;
    td__text_add(p->t, "<h2>Staleness</h2>\n<div class=\"panel\"><table class=\"dense\">\n");
    td__html_head(p->t, NAMES);
    for (int v = 0; v < p->n; v++) {
        const td__compare_run *r = td__compare_variant(p->o, v);
        if (!(r->data.ages > 0) || r->failed)
            continue;
        td__text_add(p->t, "<tr>");
        td__html_cell(p->t, "name", r->name);
        for (int k = 0; k < TD__AGE_BUCKETS; k++) {
            char share[16];
            double part = r->data.age_count[k] / r->data.ages;
            snprintf(share, sizeof share, "%.0f %%", 100 * part);
            td__html_cell(p->t, "n", share);
            td__html_bar(p->t, part);
        }
        td__text_add(p->t, "</tr>\n");
    }
    td__text_add(p->t, "</table></div>\n<p class=\"sub\">Share of the steps by the mean age, in "
                       "updates, of what arrived in them.</p>\n");
}

static void print_variants(const page *p)
{
    static const char *const NAMES[] = {"variant", "changes", "#ranks", "report", NULL};
    static const char *const SCALED[] = {"variant",     "changes", "#ranks",
                                         "#efficiency", "report",  NULL};
    char ranks[16], efficiency[24];
    bool any = false;

    for (int v = 0; v < p->n; v++)
        any = any || isfinite(td__compare_efficiency(p->o, v));
    td__text_add(p->t, "<h2>Variants</h2>\n<div class=\"panel\"><table class=\"ranks\">\n");
    td__html_head(p->t, any ? SCALED : NAMES);
    for (int v = 0; v < p->n; v++) {
        const td__compare_run *r = td__compare_variant(p->o, v);
        double part = td__compare_efficiency(p->o, v);
        snprintf(ranks, sizeof ranks, "%d", r->ranks);
        snprintf(efficiency, sizeof efficiency, "%.0f %%", 100 * part);
        td__text_add(p->t, "<tr>");
        td__html_cell(p->t, "name", r->name);
        td__html_cell(p->t, "sub", *r->what ? r->what : "the unchanged job");
        td__html_cell(p->t, "n", ranks);
        if (any)
            td__html_cell(p->t, "n", isfinite(part) ? efficiency : "");
        print_link(p, r);
        td__text_add(p->t, "</tr>\n");
    }
    td__text_add(p->t, "</table></div>\n");
    if (any)
        td__text_add(p->t,
                     "<p class=\"sub\">Efficiency: samples per second and compute thread, "
                     "relative to the variant with the same changes on the fewest ranks.</p>\n");
}

td_status td__compare_page(const td__compare_opts *o, const char *path)
{
    td__text t = {0};
    page p = {.t = &t, .o = o, .path = path, .n = o->n / o->repeat};
    td_status st = add_times(&p);

    if (!st) {
        td__html_begin(&t, o->title);
        print_head(&p);
        print_table(&p);
        td__text_add(&t, "<div class=\"charts\">\n");
        for (int begin = 0; begin < p.n; begin += TD__CHART_SERIES) {
            print_losses(&p, begin);
            print_metric(&p, begin);
            print_rates(&p, begin);
        }
        td__text_add(&t, "</div>\n");
        print_ages(&p);
        print_variants(&p);
        td__html_end(&t, o->job);
        st = td__html_write(&t, path);
    }
    for (int v = 0; p.elapsed && v < p.n; v++)
        td__free(p.elapsed[v]);
    td__free(p.elapsed);
    td__text_fini(&t);
    return st;
}
