/* report.c -- report.html: what happened in a run, for people. One file, no links to elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/date.h"
#include "base/fail.h"
#include "base/human.h"
#include "base/text.h"
#include "run/report_chart.h"
#include "run/report_data.h"
#include "run/report_html.h"
#include "run/report_scaling.h"
#include "run/report_scores.h"
#include "run/report_timeline.h"
#include "run/run_dir.h"

enum { MOST_EVALS = 12, MOST_NODES = 20 };

/* The metric's value at a step; NaN if it was not measured there. */
static double value_at(const td__report_metric *m, double step)
{
    for (int i = m ? m->step.n - 1 : -1; i >= 0; i--)
        if (m->step.v[i] == step)
            return m->value.v[i];
    return NAN;
}

static void print_state(td__text *t, const td__report_opts *o, const td__report_data *d)
{
    static const struct {
        const char *end, *text, *class;
    } STATES[] = {{"done", "finished", "state"},
                  {"early", "stopped early", "state"},
                  {"interrupted", "interrupted", "state warn"},
                  {"", "not finished", "state warn"}};

    if (o->failed)
        td__text_add(t, "<span class=\"state bad\">failed</span>");
    else if (o->every_s > 0 && !*d->end)
        td__text_add(t, "<span class=\"state live\">running</span>");
    for (int i = 0; i < TD_LEN(STATES) && !o->failed && (!(o->every_s > 0) || *d->end); i++)
        if (strcmp(STATES[i].end, d->end) == 0)
            td__text_printf(t, "<span class=\"%s\">%s</span>", STATES[i].class, STATES[i].text);
    if (o->every_s > 0)
        td__text_printf(t, "<time id=\"live\" data-written=\"%.3f\" data-every=\"%.3f\"></time>",
                        td__unix_time(), o->every_s);
}

/* Of a run that goes on, or has stopped before its last step: how far it is. */
static void print_far(td__text *t, const td__report_data *d)
{
    double last = d->step.n ? d->step.v[d->step.n - 1] : 0;

    if (!*d->end && d->steps > last)
        td__text_printf(t, "step %.0f of %.0f", last, d->steps);
    else
        td__text_printf(t, "%d steps", d->step.n);
}

static void print_head(td__text *t, const td__report_opts *o, const td__report_data *d)
{

    td__text_add(t, "<header><h1>");
    td__text_html(t, o->title);
    td__text_add(t, "</h1>");
    print_state(t, o, d);
    td__text_add(t, "<span class=\"sub\">");
    print_far(t, d);
    if (d->batch > 0)
        td__text_printf(t, ", %.0f samples", d->batch);
    if (d->micro_batches > 1)
        td__text_printf(t, " in %.0f micro-batches", d->micro_batches);
    if (d->batch > 0)
        td__text_add(t, " each");
    if (*d->precision)
        td__text_printf(t, " &middot; %s", d->precision);
    if (d->ranks > 1)
        td__text_printf(t, " &middot; %.0f ranks", d->ranks);
    if (d->threads > 0)
        td__text_printf(t, " &middot; %.0f thread%s", d->threads, d->threads > 1 ? "s" : "");
    if (d->n_begins > 1)
        td__text_printf(t, " &middot; resumed %d time%s", d->n_begins - 1,
                        d->n_begins > 2 ? "s" : "");
    td__text_add(t, "</span>");
    if (*d->digest) {
        td__text_add(t, "<div class=\"digest\">digest ");
        td__text_html(t, d->digest);
        td__text_add(t, "</div>");
    }
    td__text_add(t, "</header>\n");
    if (o->failed) {
        td__text_add(t, "<p class=\"why\">");
        td__text_html(t, o->failed);
        td__text_add(t, "</p>\n");
    }
}

static double sum(const td__column *c)
{
    double s = 0;
    for (int i = 0; i < c->n; i++)
        s += isfinite(c->v[i]) ? c->v[i] : 0;
    return s;
}

static void print_cards(td__text *t, const td__report_data *d)
{
    char value[TD__HUMAN], label[128];
    double seconds = sum(&d->seconds);

    td__text_add(t, "<div class=\"cards\">\n");
    for (int i = 0; i < d->n_metrics; i++) {
        const td__report_metric *m = &d->metric[i];
        double v = value_at(m, d->best_step);
        bool best = !isnan(v) && strcmp(m->part, "test") != 0;
        if (!best)
            v = m->value.v[m->value.n - 1];
        snprintf(label, sizeof label, "%s %s, %s", m->part, m->name, best ? "best" : "last");
        td__html_card(t, td__human_metric(m->name, v, value), label);
    }
    if (d->loss.n) {
        td__html_card(t, td__human_metric("loss", d->loss.v[d->loss.n - 1], value),
                      "last train loss");
    }
    if (seconds > 0) {
        td__html_card(t, td__human_si(d->samples / seconds, value), "samples per second");
        td__html_card(t, td__human_seconds(seconds, value), "of training");
    }
    if (d->params > 0)
        td__html_card(t, td__human_count((int64_t)d->params, value), "trained parameters");
    if (*d->dropped)
        td__html_card(t, d->dropped, "late and dropped (backup workers)");
    td__text_add(t, "</div>\n");
}

static td__series series(const char *name, const td__column *x, const td__column *y, int colour)
{
    return (td__series){.name = name, .x = x->v, .y = y->v, .n = y->n, .colour = colour};
}

static void print_charts(td__text *t, const td__report_data *d)
{
    td__series s[4];
    int n = 0;

    td__text_add(t, "<div class=\"charts\">\n");
    s[n] = series("train", &d->step, &d->loss, 0);
    s[n].wide = true;
    s[n++].smooth = true;
    for (int i = 0; i < d->n_metrics && n < 4; i++)
        if (strcmp(d->metric[i].name, "loss") == 0) {
            s[n] = series(d->metric[i].part, &d->metric[i].step, &d->metric[i].value, n);
            s[n++].dots = true;
        }
    td__chart(t, "Loss", "", s, n);
    for (int i = 0; i < d->n_metrics; i++) {
        const td__report_metric *m = &d->metric[i];
        bool first = strcmp(m->name, "loss") != 0;
        for (int k = 0; k < i; k++)
            first = first && strcmp(d->metric[k].name, m->name) != 0;
        if (!first)
            continue;
        n = 0;
        for (int k = i; k < d->n_metrics && n < 3; k++)
            if (strcmp(d->metric[k].name, m->name) == 0) {
                s[n] = series(d->metric[k].part, &d->metric[k].step, &d->metric[k].value, n + 1);
                s[n++].dots = true;
            }
        char title[64];
        snprintf(title, sizeof title, "%c%s",
                 m->name[0] >= 'a' && m->name[0] <= 'z' ? m->name[0] - 'a' + 'A' : m->name[0],
                 m->name + 1);
        td__chart(t, title, n == 1 ? m->part : "", s, n);
    }
    s[0] = series("learning rate", &d->step, &d->lr, 3);
    td__chart(t, "Learning rate", "", s, 1);
    s[0] = series("samples/s", &d->step, &d->rate, 2);
    s[0].smooth = true;
    td__chart(t, "Throughput", "samples per second", s, 1);
    s[0] = series("norm", &d->step, &d->grad_norm, 0);
    s[0].smooth = s[0].wide = true;
    td__chart(t, "Gradient norm", "", s, 1);
    td__text_add(t, "</div>\n");
}

static void print_evals(td__text *t, const td__report_data *d)
{
    const td__report_metric *first = d->n_metrics ? &d->metric[0] : NULL;
    char value[TD__HUMAN];

    if (!first || first->step.n < 2)
        return;
    int from = first->step.n > MOST_EVALS ? first->step.n - MOST_EVALS : 0;
    td__text_printf(t,
                    "<h2>%s</h2>\n<div class=\"panel\"><table><tr><th class=\"n\">step"
                    "</th>",
                    from ? "Latest validations" : "Validation");
    for (int k = 0; k < d->n_metrics; k++)
        if (strcmp(d->metric[k].part, first->part) == 0) {
            td__text_add(t, "<th class=\"n\">");
            td__text_html(t, d->metric[k].name);
            td__text_add(t, "</th>");
        }
    td__text_add(t, "<th></th></tr>\n");
    for (int i = from; i < first->step.n; i++) {
        double step = first->step.v[i];
        td__text_printf(t, "<tr%s><td class=\"n\">%.0f</td>",
                        step == d->best_step ? " class=\"best\"" : "", step);
        for (int k = 0; k < d->n_metrics; k++)
            if (strcmp(d->metric[k].part, first->part) == 0)
                td__html_cell(
                    t, "n",
                    td__human_metric(d->metric[k].name, value_at(&d->metric[k], step), value));
        td__text_printf(t, "<td>%s</td></tr>\n", step == d->best_step ? "best" : "");
    }
    td__text_add(t, "</table></div>\n");
}

static void print_layers(td__text *t, const td__report_opts *o)
{
    char buf[128], value[TD__HUMAN];
    int64_t params = 0, most = 1;
    double flops = 0;

    if (!o->n_layers)
        return;
    for (int i = 0; i < o->n_layers; i++) {
        params += o->layers[i].params;
        flops += o->layers[i].flops;
        most = o->layers[i].params > most ? o->layers[i].params : most;
    }
    td__text_add(
        t, "<h2>Layers</h2>\n<div class=\"panel\"><table><tr><th>layer</th><th>kind</th>"
           "<th>output of one sample</th><th class=\"n\">parameters</th><th class=\"bar\"></th>"
           "<th class=\"n\">FLOP forward</th></tr>\n");
    for (int i = 0; i < o->n_layers; i++) {
        const td__layer_row *r = &o->layers[i];
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", r->name);
        td__html_cell(t, NULL, r->kind);
        td__html_cell(t, NULL, td_shape_text(&r->out, buf, sizeof buf));
        td__html_cell(t, "n", td__human_count(r->params, value));
        td__html_bar(t, (double)r->params / (double)most);
        td__html_cell(t, "n", r->flops > 0 ? td__human_si(r->flops, value) : "");
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "<tr class=\"sum\"><td>total</td><td></td><td></td>");
    td__html_cell(t, "n", td__human_count(params, value));
    td__text_add(t, "<td class=\"bar\"></td>");
    td__html_cell(t, "n", flops > 0 ? td__human_si(flops, value) : "");
    td__text_add(t, "</tr></table></div>\n");
}

/* How often memory was asked for, and how often that cost a call to the system. */
static void print_pool(td__text *t, const td__report_data *d, td__unit unit)
{
    char value[TD__HUMAN], note[160];
    snprintf(note, sizeof note, "of device %s at most", d->device);
    td__text_add(t, "<tr>");
    td__html_cell(t, "name", note);
    td__html_cell(t, "n", td__unit_text(unit, d->device_peak, value));
    snprintf(note, sizeof note,
             "%.0f blocks requested, %.0f of them reused; %.0f released, %s idle",
             d->device_requests, d->device_reused, d->device_released,
             td__unit_text(unit, d->device_idle, value));
    td__html_cell(t, "sub", note);
    td__text_add(t, "</tr>\n");
}

/* Where samples were found that are kept for the next epoch. */
static void print_samples(td__text *t, const td__block_counters *c)
{
    char value[TD__HUMAN], note[160];
    double most = 0;
    for (int l = 0; l < TD_BLOCK_LEVELS; l++)
        most = fmax(most, (double)c->used[l]);
    td__unit unit = td__unit_bytes(most);
    for (int l = 0; l < TD_BLOCK_LEVELS; l++) {
        snprintf(note, sizeof note, "samples kept, %s level",
                 td__block_level_name((td__block_level)l));
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", note);
        td__html_cell(t, "n", td__unit_text(unit, (double)c->used[l], value));
        snprintf(note, sizeof note, "%.1f %% of the samples were found here",
                 100 * td__block_hit_rate(c, (td__block_level)l));
        td__html_cell(t, "sub", note);
        td__text_add(t, "</tr>\n");
    }
}

static void print_memory(td__text *t, const td_memory_plan *m, const td__report_data *d)
{
    const struct {
        const char *name;
        size_t nbytes;
    } rows[] = {{"activations (after reuse)", m->activations},
                {"parameters", m->params},
                {"gradients", m->grads},
                {"running averages", m->states},
                {"packed weights", m->packed},
                {"kernel workspace", m->scratch},
                {"constants", m->constants},
                {"inputs", m->inputs}};
    char value[TD__HUMAN];

    if (!m->total)
        return;
    td__unit unit = td__unit_bytes(fmax(fmax((double)m->total, (double)m->activations_unshared),
                                        fmax(d->memory_peak, d->device_peak)));
    td__text_add(t, "<div><h2>Memory of one compute thread</h2>\n<div class=\"panel\"><table>\n");
    for (int i = 0; i < TD_LEN(rows); i++) {
        if (!rows[i].nbytes)
            continue;
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", rows[i].name);
        td__html_cell(t, "n", td__unit_text(unit, (double)rows[i].nbytes, value));
        td__html_bar(t, (double)rows[i].nbytes / (double)m->total);
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "<tr class=\"sum\"><td>total</td>");
    td__html_cell(t, "n", td__unit_text(unit, (double)m->total, value));
    td__text_add(t, "<td></td></tr>\n<tr><td class=\"sub\">activations without reuse</td>");
    td__html_cell(t, "n", td__unit_text(unit, (double)m->activations_unshared, value));
    td__text_add(t, "<td></td></tr>\n");
    if (d->memory_peak > 0) {
        td__text_printf(t, "<tr><td class=\"sub\">peak of the process of rank %.0f</td>",
                        d->memory_rank);
        td__html_cell(t, "n", td__unit_text(unit, d->memory_peak, value));
        td__text_printf(t, "<td class=\"sub\">planned %s</td></tr>\n",
                        td__unit_text(unit, d->memory_planned, value));
    }
    if (d->device[0])
        print_pool(t, d, unit);
    if (d->keeps_samples)
        print_samples(t, &d->kept);
    td__text_add(t, "</table></div></div>\n");
}

static void time_row(td__text *t, const char *name, const char *value, const char *note)
{
    td__text_add(t, "<tr>");
    td__html_cell(t, "name", name);
    td__html_cell(t, "n", value);
    td__html_cell(t, "sub", note);
    td__text_add(t, "</tr>\n");
}

static td_status print_times(td__text *t, const td__report_data *d)
{
    char value[TD__HUMAN], other[TD__HUMAN], note[96];
    double seconds = sum(&d->seconds), wait = sum(&d->data_wait), q[2];
    static const double Q[] = {0.5, 0.95};

    if (!d->seconds.n)
        return TD_OK;
    TD_TRY(td__column_quantiles(&d->seconds, Q, 2, q));
    td__unit unit = td__unit_seconds(fmax(seconds, fmax(d->eval_seconds, d->checkpoint_seconds)));
    td__text_add(t, "<div><h2>Times</h2>\n<div class=\"panel\"><table>\n");
    snprintf(note, sizeof note, "%d steps", d->step.n);
    time_row(t, "training", td__unit_text(unit, seconds, value), note);
    if (isfinite(q[0])) {
        td__unit step = td__unit_seconds(q[1]); /* another quantity than sums over the run */
        snprintf(note, sizeof note, "95 %% take at most %s", td__unit_text(step, q[1], other));
        time_row(t, "step, median", td__unit_text(step, q[0], value), note);
    }
    snprintf(note, sizeof note, "%.1f %% of training", seconds > 0 ? 100 * wait / seconds : 0);
    time_row(t, "waiting for data", td__unit_text(unit, wait, value), note);
    if (d->n_evals) {
        snprintf(note, sizeof note, "%d time%s", d->n_evals, d->n_evals > 1 ? "s" : "");
        time_row(t, "validation", td__unit_text(unit, d->eval_seconds, value), note);
    }
    if (d->n_checkpoints) {
        snprintf(note, sizeof note, "%d of %s, in the background", d->n_checkpoints,
                 td__human_bytes(d->checkpoint_bytes, other));
        time_row(t, "checkpoints", td__unit_text(unit, d->checkpoint_seconds, value), note);
        time_row(t, "training paused for checkpoints",
                 td__unit_text(unit, d->checkpoint_stalled, value), "");
    }
    td__text_add(t, "</table></div></div>\n");
    return TD_OK;
}

static int by_total(const void *a, const void *b)
{
    const td_node_time *x = *(const td_node_time *const *)a, *y = *(const td_node_time *const *)b;
    return x->total_ns < y->total_ns ? 1 : x->total_ns > y->total_ns ? -1 : x > y ? 1 : -1;
}

static double mean_seconds(const td_node_time *r)
{
    return (double)r->total_ns * 1e-9 / (double)(r->calls ? r->calls : 1);
}

static td_status print_profile(td__text *t, const td__report_opts *o)
{
    char value[TD__HUMAN];
    uint64_t total = 0;

    for (int i = 0; i < o->n_profile; i++)
        total += o->profile[i].total_ns;
    if (!total)
        return TD_OK;
    const td_node_time **rows = td__calloc((size_t)o->n_profile, sizeof *rows);
    if (!rows)
        return TD_FAIL(TD_ENOMEM, "no memory for %d nodes of the report", o->n_profile);
    for (int i = 0; i < o->n_profile; i++)
        rows[i] = &o->profile[i];
    qsort(rows, (size_t)o->n_profile, sizeof(td_node_time *), by_total);
    double most = 0;
    for (int i = 0; i < o->n_profile && i < MOST_NODES; i++)
        most = fmax(most, mean_seconds(rows[i]));
    td__unit unit = td__unit_seconds(most);
    td__text_add(
        t, "<h2>Where the time goes</h2>\n<div class=\"panel\"><table><tr><th>node</th>"
           "<th>operator</th><th>kernel</th><th class=\"n\">calls</th>"
           "<th class=\"n\">mean</th><th class=\"n\">share</th><th class=\"bar\"></th></tr>\n");
    for (int i = 0; i < o->n_profile && i < MOST_NODES && rows[i]->total_ns; i++) {
        const td_node_time *r = rows[i];
        double part = (double)r->total_ns / (double)total;
        td__text_add(t, "<tr>");
        td__html_cell(t, "name", r->name ? r->name : "");
        td__html_cell(t, NULL, r->op);
        td__html_cell(t, NULL, r->impl ? r->impl : "");
        td__html_cell(t, "n", td__human_count((int64_t)r->calls, value));
        td__html_cell(t, "n", td__unit_text(unit, mean_seconds(r), value));
        snprintf(value, sizeof value, "%.1f %%", 100 * part);
        td__html_cell(t, "n", value);
        td__html_bar(t, part);
        td__text_add(t, "</tr>\n");
    }
    td__text_add(t, "</table></div>\n");
    td__free(rows);
    return TD_OK;
}

static td_status print_page(td__text *t, const td__report_opts *o, const td__report_data *d)
{
    td__html_begin(t, o->title);
    print_head(t, o, d);
    print_cards(t, d);
    print_charts(t, d);
    TD_TRY(td__report_timeline(t, o->dir, d));
    TD_TRY(td__report_scaling(t, o->dir, d));
    if (d->pipeline.stages)
        td__html_pipeline(t, &d->pipeline);
    print_evals(t, d);
    td__report_scores(t, o);
    print_layers(t, o);
    td__text_add(t, "<div class=\"two\">\n");
    TD_TRY(print_times(t, d));
    print_memory(t, &o->memory, d);
    td__text_add(t, "</div>\n");
    TD_TRY(print_profile(t, o));
    if (o->job_text) {
        td__text_add(t, "<details class=\"panel\"><summary>Job</summary><pre>");
        td__text_html(t, o->job_text);
        td__text_add(t, "</pre></details>\n");
    }
    td__html_end(t, o->dir);
    return td__text_status(t);
}

/* passing: it is about to be written again. */
static td_status write_page(const td__report_opts *o, const td__report_data *d, bool passing)
{
    char path[TD__PATH];
    td__text t = {0};

    TD_TRY(td__run_dir_path(o->dir, "report.html", path));
    td_status st = print_page(&t, o, d);
    if (!st)
        st = passing ? td__html_write_passing(&t, path) : td__html_write(&t, path);
    td__text_fini(&t);
    return st;
}

td_status td__report_write_live(const td__report_opts *o, const td__report_data *d)
{
    return write_page(o, d, true);
}

td_status td__report_write(const td__report_opts *o)
{
    td__report_data d;

    TD_TRY(td__report_data_read(o->dir, &d));
    td_status st = write_page(o, &d, false);
    td__report_data_fini(&d);
    return st;
}
