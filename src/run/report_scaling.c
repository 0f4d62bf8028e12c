/* report_scaling.c -- see report_scaling.h.
 *
 * Speed-up is the median step of one rank over the median step of this run. Where no run of the
 * same job on one rank is found, its step is estimated: one rank would have computed the
 * micro-batches of all ranks, one after the other, and updated once. Efficiency is the speed-up
 * over the number of compute threads relative to the one rank's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_scaling.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/human.h"
#include "run/report_html.h"

enum { LINE = 4096, MOST_ENTRIES = 4096, MOST_RANKS = 64 };

/* ---- A run on one rank ----------------------------------------------------------------------- */

/* The number after "key": in a line of our own; NaN if there is none. */
static double number_in(const char *line, const char *key)
{
    char want[48];
    double v;

    snprintf(want, sizeof want, "\"%s\": ", key);
    const char *at = strstr(line, want);
    return at && sscanf(at + strlen(want), "%lf", &v) == 1 ? v : (double)NAN;
}

/* Is it a whole run of this job on one rank? Its first and its last line say so. */
static bool is_candidate(const char *run, const td__report_data *d, int *threads, int64_t *when)
{
    char path[TD__PATH], head[LINE + 1], tail[LINE + 1], job[128];
    struct stat info;

    if (td__run_dir_path(run, "metrics.jsonl", path) || stat(path, &info) != 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, head, LINE, 0);
    ssize_t m = pread(fd, tail, LINE, info.st_size > LINE ? info.st_size - LINE : 0);
    close(fd);
    if (n <= 0 || m <= 0)
        return false;
    head[n] = tail[m] = 0;
    head[strcspn(head, "\n")] = 0;
    snprintf(job, sizeof job, "\"job\": \"%s\"", d->job);
    *threads = (int)fmax(0, number_in(head, "threads"));
    *when = info.st_mtime;
    return strstr(head, job) && number_in(head, "ranks") == 1 && strstr(tail, "\"end\": \"done\"");
}

static td_status measure(const char *run, td__baseline *out)
{
    static const double HALF[] = {0.5};
    td__report_data d;
    double median;

    if (td__report_data_read(run, &d))
        return TD_OK; /* it has gone meanwhile */
    bool whole = strcmp(d.end, "done") == 0 && d.seconds.n && d.ranks == 1;
    td_status st = whole ? td__column_quantiles(&d.seconds, HALF, 1, &median) : TD_OK;
    if (!st && whole && median > 0) {
        snprintf(out->dir, sizeof out->dir, "%s", run);
        out->threads = (int)d.threads;
        out->step_s = median;
    }
    td__report_data_fini(&d);
    return st;
}

td_status td__baseline_find(const char *dir, const td__report_data *d, td__baseline *out)
{
    char parent[TD__PATH], run[TD__PATH], best[TD__PATH] = "";
    int64_t newest = 0;
    bool same = false;

    *out = (td__baseline){.step_s = NAN};
    if (!*d->job)
        return TD_OK;
    snprintf(parent, sizeof parent, "%s", dir);
    for (size_t n = strlen(parent); n > 1 && parent[n - 1] == '/'; n--)
        parent[n - 1] = 0;
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    else
        snprintf(parent, sizeof parent, ".");
    DIR *all = opendir(parent);
    for (int i = 0; all && i < MOST_ENTRIES; i++) {
        const struct dirent *e = readdir(all);
        int threads;
        int64_t when;
        if (!e)
            break;
        if (e->d_name[0] == '.' || td__run_dir_path(parent, e->d_name, run) ||
            !is_candidate(run, d, &threads, &when))
            continue;
        bool alike = threads == (int)d->threads;
        if (*best && (alike == same ? when < newest : !alike))
            continue;
        snprintf(best, sizeof best, "%s", run);
        newest = when;
        same = alike;
    }
    if (all)
        closedir(all);
    return *best ? measure(best, out) : TD_OK;
}

/* ---- The numbers ----------------------------------------------------------------------------- */

/* Of a rank's seconds, communication that nothing was beside. */
static double exposed(const td__rank_times *t)
{
    double rest = t->seconds - t->compute - t->update - t->wait - t->data;
    return fmax(0, fmin(rest, t->comm));
}

td_status td__scaling_of(const td__report_data *d, const td__baseline *b, td__scaling *out)
{
    static const double Q[] = {0.5, 0.95};
    double q[2] = {NAN, NAN}, nbytes = 0, plain = 0, comm = 0, hidden = 0, compute = 0, update = 0;
    double steps = fmax(1, d->ranked_steps), threads = fmax(1, d->threads), n = d->n_ranks;

    if (d->seconds.n)
        TD_TRY(td__column_quantiles(&d->seconds, Q, 2, q));
    for (int r = 0; r < d->n_ranks; r++) {
        const td__rank_times *t = &d->rank[r].times;
        nbytes += t->nbytes;
        plain += t->plain;
        compute += t->compute;
        update = fmax(update, t->update);
        comm += t->comm;
        hidden += fmax(0, t->comm - exposed(t) - t->wait);
    }
    *out = (td__scaling){.step_s = q[0],
                         .p95_s = q[1],
                         .samples_per_second = d->batch / q[0],
                         .estimated = !*b->dir,
                         .step_nbytes = nbytes / n / steps,
                         .saved = nbytes > 0 ? plain / nbytes : 1,
                         .hidden = comm > 0 ? hidden / comm : (double)NAN};
    double one = *b->dir ? b->step_s : (compute + update) / steps;
    out->speedup = one / q[0];
    out->efficiency = out->speedup / n * (*b->dir ? fmax(1, b->threads) / threads : 1);
    return TD_OK;
}

/* ---- The page -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int colour;
} PARTS[] = {{"compute", 0}, {"update", 2}, {"communication", 1}, {"waiting", 4}, {"data", 6}};

static void part_seconds(const td__rank_times *t, double part[TD_LEN(PARTS)])
{
    part[0] = t->compute;
    part[1] = t->update;
    part[2] = exposed(t);
    part[3] = t->wait;
    part[4] = t->data;
}

static void print_cards(td__text *t, const td__report_data *d, const td__scaling *s)
{
    char value[TD__HUMAN], other[TD__HUMAN], label[96];

    td__unit unit = td__unit_seconds(s->p95_s);
    td__text_add(t, "<div class=\"cards\">\n");
    snprintf(label, sizeof label, "step, median (95 %% within %s)",
             td__unit_text(unit, s->p95_s, other));
    td__html_card(t, td__unit_text(unit, s->step_s, value), label);
    td__html_card(t, td__human_si(s->samples_per_second, value),
                  "samples per second at the median step");
    snprintf(value, sizeof value, "%.2fx", s->speedup);
    snprintf(label, sizeof label, "speed-up on %d ranks%s", d->n_ranks,
             s->estimated ? ", an estimate" : "");
    td__html_card(t, value, label);
    snprintf(value, sizeof value, "%.0f %%", 100 * s->efficiency);
    td__html_card(t, value, s->estimated ? "efficiency, an estimate" : "efficiency per thread");
    snprintf(label, sizeof label, "sent by a rank in a step");
    if (s->saved > 1.05)
        snprintf(label, sizeof label, "sent by a rank in a step, 1/%.3g of f32", s->saved);
    td__html_card(t, td__human_bytes(s->step_nbytes, value), label);
    if (s->hidden > 0) { /* else it was done after compute, as in shared memory */
        snprintf(value, sizeof value, "%.0f %%", 100 * s->hidden);
        td__html_card(t, value, "of communication overlaps with compute");
    }
    td__text_add(t, "</div>\n");
}

static void print_source(td__text *t, const td__report_data *d, const td__baseline *b)
{
    char value[TD__HUMAN];

    td__text_add(t, "<p class=\"sub\">");
    if (*b->dir) {
        td__text_add(t, "Measured against ");
        td__text_html(t, b->dir);
        td__text_printf(t, ": one rank with %d thread%s, %s a step; here %.0f thread%s a rank.",
                        b->threads, b->threads == 1 ? "" : "s", td__human_seconds(b->step_s, value),
                        d->threads, d->threads > 1 ? "s" : "");
    } else {
        td__text_add(t, "Speed-up and efficiency are estimates from the compute times of all "
                        "ranks: there is no run of the same job on one rank next to this run.");
    }
    td__text_add(t, "</p>\n");
}

/* Of the last three columns. */
typedef struct units {
    td__unit sent, memory, delay;
} units;

static double sent_by(const td__report_data *d, int r)
{
    return d->rank[r].times.nbytes / fmax(1, d->ranked_steps);
}

static units units_of(const td__report_data *d)
{
    double sent = 0, memory = 0, delay = 0;

    for (int r = 0; r < d->n_ranks && r < MOST_RANKS; r++) {
        sent = fmax(sent, sent_by(d, r));
        memory = fmax(memory, d->rank[r].times.memory);
        delay = fmax(delay, d->rank[r].blame);
    }
    return (units){td__unit_bytes(sent), td__unit_bytes(memory), td__unit_seconds(delay)};
}

static void print_rank(td__text *t, const td__report_data *d, const units *u, int r)
{
    const td__rank_times *k = &d->rank[r].times;
    double part[TD_LEN(PARTS)], seconds = k->seconds > 0 ? k->seconds : 1;
    char value[TD__HUMAN];

    part_seconds(k, part);
    td__text_printf(t, "<tr><td class=\"n\">%d</td><td class=\"stack\">", r);
    for (int i = 0; i < TD_LEN(PARTS); i++)
        if (part[i] > 0)
            td__text_printf(t, "<i class=\"part c%d\" style=\"width:%.2f%%\"></i>", PARTS[i].colour,
                            fmin(100, 100 * part[i] / seconds));
    td__text_add(t, "</td>");
    for (int i = 0; i < TD_LEN(PARTS); i++) {
        snprintf(value, sizeof value, "%.1f %%", 100 * part[i] / seconds);
        td__html_cell(t, "n", value);
    }
    td__html_cell(t, "n", td__unit_text(u->sent, sent_by(d, r), value));
    td__html_cell(t, "n", td__unit_text(u->memory, k->memory, value));
    td__html_cell(t, "n", td__unit_text(u->delay, d->rank[r].blame, value));
    td__text_add(t, "</tr>\n");
}

static void print_ranks(td__text *t, const td__report_data *d)
{
    static const char *const NAMES[] = {"#rank",   "time by phase", "#compute", "#update",
                                        "#comm",   "#waiting",      "#data",    "#sent/step",
                                        "#memory", "#delay caused", NULL};

    td__text_add(t, "<p class=\"legend\">");
    for (int i = 0; i < TD_LEN(PARTS); i++)
        td__text_printf(t, "<span><i class=\"key c%d\"></i>%s</span>", PARTS[i].colour,
                        PARTS[i].name);
    td__text_add(t, "</p>\n<div class=\"panel\"><table class=\"ranks\">\n");
    td__html_head(t, NAMES);
    units u = units_of(d);
    for (int r = 0; r < d->n_ranks && r < MOST_RANKS; r++)
        print_rank(t, d, &u, r);
    if (d->n_ranks > MOST_RANKS)
        td__text_printf(t, "<tr><td colspan=\"10\" class=\"sub\">and %d more</td></tr>\n",
                        d->n_ranks - MOST_RANKS);
    td__text_add(t, "</table></div>\n<p class=\"sub\">Delay caused: the total time that all ranks "
                    "waited for this rank.</p>\n");
}

td_status td__report_scaling(td__text *t, const char *dir, const td__report_data *d)
{
    td__baseline b;
    td__scaling s;

    if (d->n_ranks < 2 || !d->seconds.n)
        return TD_OK;
    TD_TRY(td__baseline_find(dir, d, &b));
    TD_TRY(td__scaling_of(d, &b, &s));
    td__text_add(t, "<h2>Ranks</h2>\n");
    print_cards(t, d, &s);
    print_source(t, d, &b);
    print_ranks(t, d);
    return TD_OK;
}
