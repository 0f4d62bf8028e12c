/* compare.c -- numbers of a run from its directory, and the table of several. The page is in
 * compare_page.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "run/compare_impl.h"

enum { DIGEST_SHOWN = 12, NAME_MOST = 32 };
static const double LESS = 1.05; /* times fewer bytes than the first variant: worth a word */

/* The loss at the end: the mean of the last twentieth of the steps, since one batch says little. */
static double last_loss(const td__report_data *d)
{
    int n = d->loss.n, from = n - (n + 19) / 20;
    double sum = 0;

    for (int i = from; i < n; i++)
        sum += d->loss.v[i];
    return n ? sum / (n - from) : (double)NAN;
}

/* The first metric of the validation part besides the loss; NULL: there is none. */
static const td__report_metric *metric_of(const td__compare_run *r)
{
    const td__report_metric *m = NULL;

    for (int i = 0; i < r->data.n_metrics; i++) {
        const td__report_metric *k = &r->data.metric[i];
        if (strcmp(k->part, "test") != 0 && (!m || strcmp(m->name, "loss") == 0) && k->value.n)
            m = k;
    }
    return m;
}

/* That metric, at the best step. */
static void find_best(td__compare_run *r)
{
    const td__report_metric *m = metric_of(r);

    r->best = NAN;
    if (!m)
        return;
    snprintf(r->metric, sizeof r->metric, "%s %s", m->part, m->name);
    r->best = m->value.v[m->value.n - 1];
    for (int i = 0; i < m->value.n; i++)
        if (m->step.v[i] == r->data.best_step)
            r->best = m->value.v[i];
}

static void sum_ranks(td__compare_run *r)
{
    const td__report_data *d = &r->data;
    double nbytes = 0;

    r->step_nbytes = r->memory = NAN;
    for (int k = 0; k < d->n_ranks; k++) {
        nbytes += d->rank[k].times.nbytes;
        r->memory = fmax(r->memory, d->rank[k].times.memory);
    }
    if (d->n_ranks && d->ranked_steps > 0)
        r->step_nbytes = nbytes / d->n_ranks / d->ranked_steps;
}

static double seconds_to(const td__compare_run *r, double target, bool higher)
{
    const td__report_metric *m = metric_of(r);
    const td__report_data *d = &r->data;
    double sum = 0;
    int k = 0;

    for (int i = 0; m && i < m->value.n; i++) {
        for (; k < d->step.n && d->step.v[k] <= m->step.v[i]; k++)
            sum += isfinite(d->seconds.v[k]) ? d->seconds.v[k] : 0;
        if (higher ? m->value.v[i] >= target : m->value.v[i] <= target)
            return sum;
    }
    return (double)NAN;
}

double td__compare_aim(td__compare_run *runs, int n, double target, bool higher_is_better)
{
    bool given = !isnan(target);

    for (int i = 0; i < n; i++)
        if (!given && !runs[i].failed && isfinite(runs[i].best))
            target = isnan(target)      ? runs[i].best
                     : higher_is_better ? fmin(target, runs[i].best)
                                        : fmax(target, runs[i].best);
    for (int i = 0; i < n; i++)
        runs[i].to_target = isnan(target) || runs[i].failed
                                ? (double)NAN
                                : seconds_to(&runs[i], target, higher_is_better);
    return target;
}

td_status td__compare_read(td__compare_run *r)
{
    td_status st = td__report_data_read(r->dir, &r->data);

    r->steps = r->seconds = r->loss = r->samples_per_second = NAN;
    r->step_nbytes = r->memory = r->best = r->age = r->age_most = r->to_target = NAN;
    if (st)
        return st;
    const td__report_data *d = &r->data;
    r->steps = d->step.n;
    r->seconds = 0;
    for (int i = 0; i < d->seconds.n; i++)
        r->seconds += isfinite(d->seconds.v[i]) ? d->seconds.v[i] : 0;
    r->samples_per_second = r->seconds > 0 ? d->samples / r->seconds : (double)NAN;
    r->loss = last_loss(d);
    if (d->ages > 0) {
        r->age = d->age_sum / d->ages;
        r->age_most = d->age_most;
    }
    find_best(r);
    sum_ranks(r);
    const char *hex = strchr(d->digest, ':');
    snprintf(r->digest, sizeof r->digest, "%.64s", hex ? hex + 1 : d->digest);
    return TD_OK;
}

void td__compare_fini(td__compare_run *r)
{
    td__report_data_fini(&r->data);
}

/* Of several runs of a variant the one with the median time stands for it. runs: those of one
 * variant, next to each other; the index of that one, or of the first if none went well. */
static int median_of(const td__compare_run *runs, int n)
{
    int good = 0, best = 0;

    for (int i = 0; i < n; i++)
        good += !runs[i].failed;
    for (int i = 0; i < n; i++) {
        int rank = 0; /* among those that went well */
        for (int k = 0; k < n && !runs[i].failed; k++)
            rank += !runs[k].failed && (runs[k].seconds < runs[i].seconds ||
                                        (runs[k].seconds == runs[i].seconds && k < i));
        if (!runs[i].failed && rank == (good - 1) / 2)
            best = i;
    }
    return best;
}

const td__compare_run *td__compare_variant(const td__compare_opts *o, int v)
{
    const td__compare_run *runs = o->at + v * o->repeat;
    return runs + median_of(runs, o->repeat);
}

const td__compare_run *td__compare_first(const td__compare_opts *o)
{
    for (int v = 0; v < o->n / o->repeat; v++)
        if (!td__compare_variant(o, v)->failed)
            return td__compare_variant(o, v);
    return NULL;
}

const char *const td__compare_columns[] = {"variant", "#loss",  "#best",   "#steps/s", "#samples/s",
                                           "#time",   "#speed", "#B/step", "#memory",  "#to target",
                                           "#age",    "digest", NULL};
_Static_assert(TD_LEN(td__compare_columns) == TD__COMPARE_CELLS + 1, "as many as cells");

static void ratio(char *cell, double a, double b)
{
    if (isfinite(a) && b > 0)
        snprintf(cell, TD__COMPARE_CELL, "%.2fx", a / b);
}

/* The larger one; NaN is none. */
static void widen(double *largest, double v)
{
    if (isfinite(v) && v > *largest)
        *largest = v;
}

td__compare_scale td__compare_scale_of(const td__compare_opts *o)
{
    double steps = 0, samples = 0, seconds = 0, nbytes = 0, memory = 0;

    for (int v = 0; v < o->n / o->repeat; v++) {
        const td__compare_run *r = td__compare_variant(o, v);
        if (r->failed)
            continue;
        if (r->seconds > 0)
            widen(&steps, r->steps / r->seconds);
        widen(&samples, r->samples_per_second);
        widen(&seconds, r->seconds); /* to a target is a part of them */
        widen(&nbytes, r->step_nbytes);
        widen(&memory, r->memory);
    }
    return (td__compare_scale){.first = td__compare_first(o),
                               .steps = td__unit_si(steps),
                               .samples = td__unit_si(samples),
                               .seconds = td__unit_seconds(seconds),
                               .step_nbytes = td__unit_bytes(nbytes),
                               .memory = td__unit_bytes(memory)};
}

static double per_thread(const td__compare_run *r)
{
    return r->samples_per_second / (r->ranks * fmax(1, r->data.threads));
}

double td__compare_efficiency(const td__compare_opts *o, int v)
{
    const td__compare_run *r = td__compare_variant(o, v), *base = r;
    bool several = false;

    for (int k = 0; k < o->n / o->repeat; k++) {
        const td__compare_run *other = td__compare_variant(o, k);
        if (other->failed || !(other->samples_per_second > 0) || strcmp(other->what, r->what) != 0)
            continue;
        several = several || other->ranks != r->ranks;
        if (other->ranks < base->ranks)
            base = other;
    }
    return several && !r->failed ? per_thread(r) / per_thread(base) : (double)NAN;
}

/* A number in the unit of its column, if it is known. */
static void number(char *cell, td__unit u, double v)
{
    char b[TD__HUMAN];
    if (isfinite(v))
        snprintf(cell, TD__COMPARE_CELL, "%s", td__unit_text(u, v, b));
}

void td__compare_cells(const td__compare_run *r, const td__compare_scale *s,
                       char cell[TD__COMPARE_CELLS][TD__COMPARE_CELL])
{
    char b[TD__HUMAN];

    for (int i = 0; i < TD__COMPARE_CELLS; i++)
        snprintf(cell[i], TD__COMPARE_CELL, "-");
    snprintf(cell[0], TD__COMPARE_CELL, "%s", r->name);
    if (r->failed)
        return;
    if (isfinite(r->loss))
        snprintf(cell[1], TD__COMPARE_CELL, "%.4f", r->loss);
    if (isfinite(r->best)) {
        const char *space = strchr(r->metric, ' ');
        snprintf(cell[2], TD__COMPARE_CELL, "%s",
                 td__human_metric(space ? space + 1 : "", r->best, b));
    }
    if (r->seconds > 0)
        number(cell[3], s->steps, r->steps / r->seconds);
    number(cell[4], s->samples, r->samples_per_second);
    number(cell[5], s->seconds, r->seconds);
    ratio(cell[6], r->samples_per_second, s->first->samples_per_second);
    number(cell[7], s->step_nbytes, r->step_nbytes);
    if (r->step_nbytes > 0 && s->first->step_nbytes > LESS * r->step_nbytes) {
        size_t n = strlen(cell[7]);
        snprintf(cell[7] + n, TD__COMPARE_CELL - n, " (1/%.3g)",
                 s->first->step_nbytes / r->step_nbytes);
    }
    number(cell[8], s->memory, r->memory);
    number(cell[9], s->seconds, r->to_target);
    if (isfinite(r->age))
        snprintf(cell[10], TD__COMPARE_CELL, "%.1f (%.0f)", r->age, r->age_most);
    if (*r->digest)
        snprintf(cell[11], TD__COMPARE_CELL, "%.*s", DIGEST_SHOWN, r->digest);
}

static void print_row(td__text *t, char cell[TD__COMPARE_CELLS][TD__COMPARE_CELL], const int *width,
                      const char *failed)
{
    td__text_printf(t, "%-*s", width[0], cell[0]);
    if (failed) {
        td__text_printf(t, "  failed: %s\n", failed);
        return;
    }
    for (int i = 1; i < TD__COMPARE_CELLS; i++) {
        bool number = *td__compare_columns[i] == '#';
        td__text_printf(t, "  %*s", number ? width[i] : -width[i], cell[i]);
    }
    td__text_add(t, "\n");
}

void td__compare_table(td__text *t, const td__compare_opts *o)
{
    td__compare_scale scale = td__compare_scale_of(o);
    char cell[TD__COMPARE_CELLS][TD__COMPARE_CELL];
    int width[TD__COMPARE_CELLS];

    for (int i = 0; i < TD__COMPARE_CELLS; i++)
        width[i] = (int)strlen(td__compare_columns[i]) - (*td__compare_columns[i] == '#');
    for (int i = 0; i < o->n_absent; i++) {
        int n = (int)strlen(o->absent[i].name);
        width[0] = n > width[0] ? n : width[0];
    }
    for (int v = 0; v < o->n / o->repeat; v++) {
        td__compare_cells(td__compare_variant(o, v), &scale, cell);
        for (int i = 0; i < TD__COMPARE_CELLS; i++) {
            int n = (int)strlen(cell[i]);
            width[i] = n > width[i] && (i || n <= NAME_MOST) ? n : width[i];
        }
    }
    for (int i = 0; i < TD__COMPARE_CELLS; i++)
        snprintf(cell[i], TD__COMPARE_CELL, "%s",
                 td__compare_columns[i] + (*td__compare_columns[i] == '#'));
    print_row(t, cell, width, NULL);
    for (int v = 0; v < o->n / o->repeat; v++) {
        const td__compare_run *r = td__compare_variant(o, v);
        td__compare_cells(r, &scale, cell);
        print_row(t, cell, width, r->failed);
    }
    for (int i = 0; i < o->n_absent; i++)
        td__text_printf(t, "%-*s  -  %s\n", width[0], o->absent[i].name, o->absent[i].why);
}

enum { DIGITS = 9 };

void td__compare_json(td__text *t, const td__compare_opts *o)
{
    td__text_add(t, "{\"name\": ");
    td__text_json(t, o->title);
    td__text_member(t, "job", o->job);
    td__text_printf(t, ", \"repeat\": %d", o->repeat);
    td__text_member_number(t, "target", o->target, DIGITS);
    td__text_add(t, ", \"runs\": [");
    for (int i = 0; i < o->n; i++) {
        const td__compare_run *r = &o->at[i];
        td__text_printf(t, "%s\n  {\"variant\": ", i ? "," : "");
        td__text_json(t, r->name);
        td__text_member(t, "sets", r->what);
        td__text_printf(t, ", \"ranks\": %d, \"repeat\": %d", r->ranks, r->repeat);
        td__text_member(t, "dir", r->dir);
        if (r->failed) {
            td__text_member(t, "failed", r->failed);
        } else {
            td__text_printf(t, ", \"interrupted\": %s", r->interrupted ? "true" : "false");
            td__text_member_number(t, "steps", r->steps, DIGITS);
            td__text_member_number(t, "seconds", r->seconds, DIGITS);
            td__text_member_number(t, "samples_per_second", r->samples_per_second, DIGITS);
            td__text_member_number(t, "loss", r->loss, DIGITS);
            td__text_member(t, "metric", r->metric);
            td__text_member_number(t, "best", r->best, DIGITS);
            td__text_member_number(t, "nbytes_per_step", r->step_nbytes, DIGITS);
            td__text_member_number(t, "memory", r->memory, DIGITS);
            td__text_member_number(t, "seconds_to_target", r->to_target, DIGITS);
            td__text_member_number(t, "age", r->age, DIGITS);
            td__text_member_number(t, "age_max", r->age_most, DIGITS);
            for (int k = 0; k < TD__AGE_BUCKETS && r->data.ages > 0; k++)
                td__text_printf(t, k ? ", %.0f" : ", \"ages\": [%.0f", r->data.age_count[k]);
            td__text_add(t, r->data.ages > 0 ? "]" : "");
            td__text_member(t, "digest", r->digest);
        }
        td__text_add(t, "}");
    }
    td__text_add(t, "\n], \"left_out\": [");
    for (int i = 0; i < o->n_absent; i++) {
        td__text_printf(t, "%s\n  {\"variant\": ", i ? "," : "");
        td__text_json(t, o->absent[i].name);
        td__text_member(t, "why", o->absent[i].why);
        td__text_add(t, "}");
    }
    td__text_add(t, "]}\n");
}
