/* progress.c -- the progress line, plain lines, or JSON.
 *
 * The line is drawn at most ten times a second and cut to the width that the terminal has at that
 * moment; what matters most stands first. Results of validation stay on the screen above it, and so
 * do lines of the log: they may come from any thread, so standard output's lock is held while the
 * line is drawn or taken away. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/human.h"
#include "tandem/log.h"
#include "run/event_json.h"
#include "terminal_text.h"

enum { REDRAW_NS = 100000000, DEFAULT_WIDTH = 80, BAR = 20 };
static const double RATE_SECONDS = 0.2; /* samples per second are measured over this */
static const double LEAST_BLAME = 0.01; /* share of waiting that is worth a word */

static int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return DEFAULT_WIDTH;
}

/* Neither a reader that went away nor a full disk behind standard output is a reason to stop
 * training; the latter is told at the end. */
void td__progress_flush(td__progress *p)
{
    if (fflush(stdout) != 0 && errno != EPIPE)
        p->error = errno;
    clearerr(stdout);
}

void td__progress_clear(td__progress *p)
{
    flockfile(stdout);
    if (atomic_exchange(&p->shown, false)) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
    funlockfile(stdout);
}

static void write_log(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)level;
    (void)part;
    flockfile(stdout);
    td__progress_clear(user);
    fprintf(stderr, "%s\n", line);
    funlockfile(stdout);
}

static double seconds_left(const td__progress *p, uint64_t step)
{
    double spent = (double)(td__clock_ns() - p->began_ns) * 1e-9;
    if (!p->steps || p->info.steps < step)
        return (double)NAN;
    return spent / (double)p->steps * (double)(p->info.steps - step);
}

/* The parts of the line, most important first; those that do not fit are left out. */
static void draw(td__progress *p, const td__step_event *e)
{
    char part[7][80], left[TD__HUMAN], rate[TD__HUMAN];
    int n = 0, width = terminal_width() - 1, used = 0;
    uint64_t steps = p->info.steps, per_epoch = p->info.steps_per_epoch;

    if (steps)
        snprintf(part[n++], sizeof part[0], "step %" PRIu64 "/%" PRIu64, e->step, steps);
    else
        snprintf(part[n++], sizeof part[0], "step %" PRIu64, e->step);
    snprintf(part[n++], sizeof part[0], "loss %.4f", p->loss);
    if (*p->metric)
        snprintf(part[n++], sizeof part[0], "%s", p->metric);
    double s = seconds_left(p, e->step);
    if (isfinite(s))
        snprintf(part[n++], sizeof part[0], "%s left", td__human_seconds(s, left));
    if (p->rate > 0)
        snprintf(part[n++], sizeof part[0], "%s samples/s", td__human_si(p->rate, rate));
    if (*p->blame)
        snprintf(part[n++], sizeof part[0], "%s", p->blame);
    if (per_epoch && steps)
        snprintf(part[n++], sizeof part[0], "epoch %" PRIu64 "/%" PRIu64, e->epoch + 1,
                 (steps + per_epoch - 1) / per_epoch);

    flockfile(stdout);
    fputs("\r\033[K", stdout);
    for (int i = 0; i < n; i++) {
        int need = (int)strlen(part[i]) + (used ? 2 : 0);
        if (used + need > width)
            break;
        printf("%s%s", used ? "  " : "", part[i]);
        used += need;
    }
    if (steps && used + BAR + 4 <= width) {
        int full = (int)((double)BAR * (double)e->step / (double)steps + 0.5);
        fputs("  [", stdout);
        for (int i = 0; i < BAR; i++)
            putchar(i < full ? '=' : i == full ? '>' : ' ');
        putchar(']');
    }
    atomic_store(&p->shown, true);
    td__progress_flush(p);
    funlockfile(stdout);
}

static void print_plain(const td__progress *p, const td__step_event *e)
{
    char rate[TD__HUMAN], left[TD__HUMAN];
    double s = seconds_left(p, e->step);

    printf("step %" PRIu64, e->step);
    if (p->info.steps)
        printf("/%" PRIu64, p->info.steps);
    printf("  epoch %" PRIu64 "  loss %.4f  lr %.3g", e->epoch + 1, e->loss, e->lr);
    if (p->rate > 0)
        printf("  %s samples/s", td__human_si(p->rate, rate));
    if (isfinite(s))
        printf("  %s left", td__human_seconds(s, left));
    if (*p->blame)
        printf("  %s", p->blame);
    putchar('\n');
}

static td_status print_json(td__progress *p)
{
    td_status st = td__text_status(&p->text);
    if (!st) {
        fwrite(p->text.data, 1, p->text.used, stdout);
        td__progress_flush(p);
    }
    td__text_clear(&p->text);
    return st;
}

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    td__progress *p = (td__progress *)o;

    p->info = *info;
    p->began_ns = td__clock_ns();
    if (p->mode != TD_PROGRESS_JSON)
        return TD_OK;
    td__json_begin(&p->text, info);
    return print_json(p);
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    td__progress *p = (td__progress *)o;

    p->steps++;
    p->loss = p->steps == 1 ? e->loss : 0.95 * p->loss + 0.05 * e->loss;
    p->samples += (double)e->samples;
    p->seconds += e->seconds;
    if (p->seconds >= RATE_SECONDS || !p->settled) {
        p->rate = p->seconds > 0 ? p->samples / p->seconds : 0;
        if (p->seconds >= RATE_SECONDS) {
            p->samples = p->seconds = 0;
            p->settled = true;
        }
    }
    if (p->mode == TD_PROGRESS_JSON) {
        td__json_step(&p->text, e);
        return print_json(p);
    }
    if (p->mode == TD_PROGRESS_PLAIN && (int64_t)e->step % p->every == 0) {
        print_plain(p, e);
        td__progress_flush(p);
        return TD_OK;
    }
    uint64_t now = td__clock_ns();
    if (p->mode == TD_PROGRESS_LINE && now - p->drawn_ns >= REDRAW_NS) {
        p->drawn_ns = now;
        draw(p, e);
    }
    return TD_OK;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    td__progress *p = (td__progress *)o;
    char value[TD__HUMAN], took[TD__HUMAN];

    if (p->mode == TD_PROGRESS_JSON) {
        td__json_eval(&p->text, e);
        return print_json(p);
    }
    if (e->n) { /* the first metric besides the loss, if there is one */
        int i = e->n > 1 ? 1 : 0;
        snprintf(p->metric, sizeof p->metric, "%s%s %s", e->n > 1 ? "" : "valid ", e->name[i],
                 td__human_metric(e->name[i], e->value[i], value));
    }
    if (p->mode == TD_PROGRESS_QUIET)
        return TD_OK;
    td__progress_clear(p);
    if (strcmp(e->part, "test") == 0) /* once, after the last step */
        printf("%s:", e->part);
    else
        printf("step %" PRIu64 "  epoch %" PRIu64 "  %s:", e->step, e->epoch + 1, e->part);
    for (int i = 0; i < e->n; i++)
        printf("  %s %s", e->name[i], td__human_metric(e->name[i], e->value[i], value));
    printf("  (%s)%s%s%s\n", td__human_seconds(e->seconds, took),
           e->best ? td__colour_text(TD_GOOD) : "", e->best ? "  best" : "",
           e->best ? td__colour_text(TD_PLAIN) : "");
    td__progress_flush(p);
    return TD_OK;
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    td__progress *p = (td__progress *)o;

    if (p->mode != TD_PROGRESS_JSON)
        return TD_OK;
    td__json_checkpoint(&p->text, e);
    return print_json(p);
}

/* Who makes the others wait the most: the share of the time of all ranks that went that way. */
static td_status on_ranks(td__observer *o, const td__ranks_event *e)
{
    td__progress *p = (td__progress *)o;
    double seconds = 0;
    int worst = 0;

    if (p->mode == TD_PROGRESS_JSON) {
        td__json_ranks(&p->text, e);
        return print_json(p);
    }
    *p->blame = 0;
    for (int r = 0; r < e->n && e->blame; r++) {
        seconds += e->rank[r].seconds;
        worst = e->blame[r] > e->blame[worst] ? r : worst;
    }
    if (seconds > 0 && e->blame[worst] >= LEAST_BLAME * seconds)
        snprintf(p->blame, sizeof p->blame, "%.0f %% waiting for rank %d",
                 100 * fmin(1, e->blame[worst] / seconds), worst);
    return TD_OK;
}

static td_status on_end(td__observer *o, const td__train_result *r)
{
    td__progress *p = (td__progress *)o;

    td__progress_clear(p);
    if (p->mode != TD_PROGRESS_JSON)
        return TD_OK;
    td__json_end(&p->text, r);
    return print_json(p);
}

void td__progress_init(td__progress *p, td__progress_mode mode, int64_t every)
{
    const char *term = getenv("TERM");

    *p = (td__progress){
        .observer = {.begin = on_begin,
                     .step = on_step,
                     .eval = on_eval,
                     .checkpoint = on_checkpoint,
                     .end = on_end,
                     .ranks = on_ranks},
        .mode = mode,
        .every = every > 0 ? every : 1,
    };
    bool dumb = !term || !*term || strcmp(term, "dumb") == 0;
    if (mode == TD_PROGRESS_LINE && (!isatty(STDOUT_FILENO) || dumb))
        p->mode = TD_PROGRESS_PLAIN;
    if (p->mode == TD_PROGRESS_LINE)
        td_log_set_sink(write_log, p);
}

void td__progress_fini(td__progress *p)
{
    if (p->mode == TD_PROGRESS_LINE)
        td_log_set_sink(NULL, NULL);
    td__progress_clear(p);
    td__text_fini(&p->text);
}
