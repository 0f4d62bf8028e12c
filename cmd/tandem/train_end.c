/* train_end.c -- the end of `tandem train`: what is said, and its exit status.
 *
 * A training that is finished and could not write everything down (the disk is full) says what it
 * has come to like any other, and fails with one line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/human.h"
#include "run/event_json.h"
#include "terminal_text.h"
#include "train_impl.h"

static void row(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void row(const char *name, const char *fmt, ...)
{
    va_list ap;
    printf("  %-14s ", name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

/* Only where they were compressed. */
static void print_bytes(const td__train_result *r)
{
    char b[TD__HUMAN];
    double sent = (double)r->sent_nbytes;

    if (sent > 0 && !r->plain_nbytes) /* by a rule that sends no gradients as they are */
        row("gradients", "%s sent by each rank", td__human_bytes(sent, b));
    else if (sent > 0 && r->sent_nbytes != r->plain_nbytes)
        row("gradients",
            "%s sent by each rank, %.3g times less than uncompressed (last step: %.3g)",
            td__human_bytes(sent, b), (double)r->plain_nbytes / sent, r->last_ratio);
}

static void print_memory(const td__training *t)
{
    const td__train_result *r = &t->run.result;
    char b[TD__HUMAN], c[TD__HUMAN], of[32] = "";

    if (t->run.session.comm)
        snprintf(of, sizeof of, " on rank %d", r->memory_rank);
    row("memory", "peak %s%s, planned %s", td__human_bytes((double)r->memory_peak, b), of,
        td__human_bytes((double)r->memory_planned, c));
}

/* Of backup workers: whose work was late. */
static void print_dropped(const td__train_result *r)
{
    char text[256] = "";
    int used = 0;
    uint64_t all = 0;

    for (int i = 0; i < r->n_dropped; i++) {
        all += r->dropped[i];
        if (r->dropped[i] && used < (int)sizeof text - 32)
            used += snprintf(text + used, sizeof text - (size_t)used, "%srank %d %" PRIu64,
                             used ? ", " : ": ", i, r->dropped[i]);
    }
    row("dropped", "gradients of %" PRIu64 " late ranks in %" PRIu64 " steps%s", all, r->step,
        text);
}

static void print_table(const td__training *t)
{
    static const char *const ENDS[] = {[TD_TRAIN_DONE] = "finished",
                                       [TD_TRAIN_EARLY] = "stopped early",
                                       [TD_TRAIN_INTERRUPTED] = "interrupted"};
    const td__train_result *r = &t->run.result;
    const char *watch = t->run.session.opts.watch ? t->run.session.opts.watch : "loss";
    char b[TD__HUMAN], name[64];

    printf("\n%s: %s%s at step %" PRIu64 "%s\n", td__job_name(t->run.session.job),
           td__colour_text(r->end == TD_TRAIN_INTERRUPTED ? TD_WARN : TD_GOOD), ENDS[r->end],
           r->step, td__colour_text(TD_PLAIN));
    if (isfinite(r->train_loss)) /* else no step was left to do */
        row("train loss", "%.4f", r->train_loss);
    if (isfinite(r->best))
        row("best", "valid %s %s at step %" PRIu64, watch, td__human_metric(watch, r->best, b),
            r->best_step);
    for (int i = 0; i < t->run.test.n; i++) {
        snprintf(name, sizeof name, "test %s", t->run.test.name[i]);
        row(name, "%s", td__human_metric(t->run.test.name[i], t->run.test.value[i], b));
    }
    char rate[TD__HUMAN]; /* as in the report */
    row("time", "%s of training, %s samples/s", td__human_seconds(r->seconds, b),
        td__human_si(r->samples_per_second, rate));
    print_bytes(r);
    if (r->memory_peak)
        print_memory(t);
    if (r->keeps_samples)
        row("samples",
            "%.1f %% from device memory, %.1f %% from pinned memory, %.1f %% from the file, "
            "%" PRIu64 " prepared",
            100 * td__block_hit_rate(&r->kept, TD_BLOCK_DEVICE),
            100 * td__block_hit_rate(&r->kept, TD_BLOCK_HOST),
            100 * td__block_hit_rate(&r->kept, TD_BLOCK_FILE), r->kept.misses);
    if (r->dropped)
        print_dropped(r);
    if (r->pipeline)
        row("pipeline",
            "idle %.1f %% of the stages' time, %.1f %% expected of the chunks' times, %.1f %% if "
            "all phases took the same",
            100 * r->pipeline->measured, 100 * r->pipeline->expected, 100 * r->pipeline->even);
    row("run", "%s", t->run.dir);
}

/* One line for everything, for --quiet. */
static void print_line(const td__training *t)
{
    const td__train_result *r = &t->run.result;
    const char *watch = t->run.session.opts.watch ? t->run.session.opts.watch : "loss";
    char b[TD__HUMAN];

    printf("%s %s step %" PRIu64, t->run.dir, td__train_end_name(r->end), r->step);
    if (isfinite(r->train_loss))
        printf(" loss %.4f", r->train_loss);
    if (isfinite(r->best))
        printf(" best %s %s", watch, td__human_metric(watch, r->best, b));
    for (int i = 1; i < t->run.test.n; i++)
        printf(" test %s %s", t->run.test.name[i],
               td__human_metric(t->run.test.name[i], t->run.test.value[i], b));
    printf(" digest sha256:%s\n", r->digest);
}

int td__training_failed(td__training *t, td_status st)
{
    td__progress_clear(&t->progress);
    if (!td__job_run_leads(&t->run))
        return TD_EXIT_FAILED;
    char why[512];
    snprintf(why, sizeof why, "%s", td_last_error());
    if (st != TD_EABORTED)
        td__job_run_failed(&t->run, why);
    st = TD_FAIL(st, "%s", why);
    return td__failure(t->args, st) == TD_EXIT_INTERRUPTED ? TD_EXIT_INTERRUPTED : TD_EXIT_FAILED;
}

/* The training is over and its result known, but not all of it is on disk. */
static int unsaved(const td__training *t)
{
    char job[TD__PATH];

    fprintf(stderr,
            "tandem train: step %" PRIu64 " is done but its checkpoint could not be written: ",
            t->run.result.step);
    if (!td__run_dir_path(t->run.dir, "job.yaml", job) && access(job, F_OK) != 0 &&
        errno == ENOENT) {
        fprintf(stderr, "%s was removed during the run: train again\n", t->run.dir);
        return TD_EXIT_FAILED;
    }
    td__run_dir_failed(t->run.dir, t->run.result.unsaved);
    fprintf(stderr, "%s; free disk space, then: tandem train --resume=%s\n", t->run.result.unsaved,
            t->run.dir);
    return TD_EXIT_FAILED;
}

int td__training_conclude(td__training *t, const atomic_int *stop)
{
    bool json = td__args_has(t->args, "json"), quiet = td__args_has(t->args, "quiet");
    td__job_run *r = &t->run;
    td_status st = td__job_run_conclude(r, stop);

    if (st)
        return td__training_failed(t, st);
    if (!td__job_run_leads(r))
        return r->result.end == TD_TRAIN_INTERRUPTED || r->untested ? TD_EXIT_INTERRUPTED
                                                                    : TD_EXIT_OK;
    if (quiet && !json)
        print_line(t);
    if (!quiet && !json) {
        print_table(t);
        printf("digest sha256:%s\n", t->run.result.digest);
        if (r->reported)
            printf("report %s/report.html\n", t->run.dir);
    }
    td__progress_flush(&t->progress);
    if (t->progress.error) {
        fprintf(stderr, "tandem train: cannot write to standard output: %s; the run is in %s\n",
                strerror(t->progress.error), t->run.dir);
        return TD_EXIT_FAILED;
    }
    if (*t->run.result.unsaved)
        return unsaved(t);
    if (t->run.result.end != TD_TRAIN_INTERRUPTED && !t->run.untested)
        return TD_EXIT_OK;
    fprintf(stderr,
            "tandem train: interrupted after step %" PRIu64 "; to continue: tandem train "
            "--resume=%s\n",
            t->run.result.step, t->run.dir);
    return TD_EXIT_INTERRUPTED;
}
