/* train_end.c -- the end of `tandem train`: the test part, what is written then, and what is said.
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

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/human.h"
#include "run/event_json.h"
#include "train_impl.h"

/* After the last step: the test part with the weights as they are, for all who keep records. If it
 * is interrupted there is no report, and --resume makes up for both. */
static td_status test(td__training *t, const atomic_int *stop)
{
    td__dataset *part = td__data_part(t->session.data, TD_PART_TEST);
    td__observer *const watchers[] = {t->metrics, t->tensorboard, t->trace, &t->progress.observer};
    td__eval_result *r = &t->test;

    if (!part || t->result.end == TD_TRAIN_INTERRUPTED)
        return TD_OK;
    TD_TRY(td__trainer_evaluate_until(t->session.trainer, part, stop, &t->untested, r));
    if (t->untested)
        return TD_OK;
    td__eval_event e = {.step = t->result.step,
                        .epoch = t->result.epoch,
                        .part = td__part_name(TD_PART_TEST),
                        .n = r->n,
                        .name = r->name,
                        .value = r->value,
                        .seconds = r->seconds};
    for (size_t i = 0; i < sizeof watchers / sizeof watchers[0]; i++)
        if (watchers[i] && watchers[i]->eval)
            TD_TRY(watchers[i]->eval(watchers[i], &e));
    return TD_OK;
}

static td_status write_profile(td__training *t)
{
    td__trainer *trainer = t->session.trainer;
    int n = td__trainer_profile_count(trainer);

    t->times = td__calloc((size_t)n + 1, sizeof *t->times);
    if (!t->times)
        return TD_FAIL(TD_ENOMEM, "no memory for the times of %d nodes", n);
    for (int i = 0; i < n; i++)
        t->times[i] = td__trainer_profile(trainer, i);
    t->n_times = n;
    TD_TRY(td__profile_write(t->dir, t->times, n));
    TD_TRY(td__trace_nodes(t->trace, t->times, n));
    return td__trace_finish(t->trace);
}

static td_status write_report(td__training *t)
{
    td__session *s = &t->session;
    const td__layer_row *layers;
    char path[TD__PATH];
    td__file_map job;
    int n = td__job_layers(s->job, &layers);

    TD_TRY(td__run_dir_path(t->dir, "job.yaml", path));
    TD_TRY(td__file_map_open(&job, path));
    char *text = td__calloc(job.nbytes + 1, 1);
    if (text)
        memcpy(text, job.data, job.nbytes);
    td__file_map_close(&job);
    td__report_opts o = {.dir = t->dir,
                         .title = td__job_name(s->job),
                         .job_text = text,
                         .layers = layers,
                         .n_layers = n,
                         .memory = td_program_memory(td__trainer_program(s->trainer)),
                         .profile = t->times,
                         .n_profile = t->n_times};
    td_status st = td__report_write(&o);
    td__free(text);
    return st;
}

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

    if (sent > 0 && r->sent_nbytes != r->plain_nbytes)
        row("gradients", "%s sent by each rank, %.3g times less than plain (last step: %.3g)",
            td__human_bytes(sent, b), (double)r->plain_nbytes / sent, r->last_ratio);
}

static void print_memory(const td__training *t)
{
    const td__train_result *r = &t->result;
    char b[TD__HUMAN], c[TD__HUMAN], of[32] = "";

    if (t->session.comm)
        snprintf(of, sizeof of, " on rank %d", r->memory_rank);
    row("memory", "%s at most%s, planned %s", td__human_bytes((double)r->memory_peak, b), of,
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
    row("dropped", "%" PRIu64 " shares in %" PRIu64 " steps%s", all, r->step, text);
}

static void print_table(const td__training *t)
{
    static const char *const ENDS[] = {[TD_TRAIN_DONE] = "finished",
                                       [TD_TRAIN_EARLY] = "stopped early",
                                       [TD_TRAIN_INTERRUPTED] = "interrupted"};
    const td__train_result *r = &t->result;
    const char *watch = t->session.opts.watch ? t->session.opts.watch : "loss";
    char b[TD__HUMAN], name[64];

    printf("\n%s: %s at step %" PRIu64 "\n", td__job_name(t->session.job), ENDS[r->end], r->step);
    if (isfinite(r->train_loss)) /* else no step was left to do */
        row("train loss", "%.4f", r->train_loss);
    if (isfinite(r->best))
        row("best", "valid %s %s at step %" PRIu64, watch, td__human_metric(watch, r->best, b),
            r->best_step);
    for (int i = 0; i < t->test.n; i++) {
        snprintf(name, sizeof name, "test %s", t->test.name[i]);
        row(name, "%s", td__human_metric(t->test.name[i], t->test.value[i], b));
    }
    row("time", "%s of training, %.0f samples/s", td__human_seconds(r->seconds, b),
        r->samples_per_second);
    print_bytes(r);
    if (r->memory_peak)
        print_memory(t);
    if (r->dropped)
        print_dropped(r);
    row("run", "%s", t->dir);
}

/* One line for everything, for --quiet. */
static void print_line(const td__training *t)
{
    const td__train_result *r = &t->result;
    const char *watch = t->session.opts.watch ? t->session.opts.watch : "loss";
    char b[TD__HUMAN];

    printf("%s %s step %" PRIu64, t->dir, td__train_end_name(r->end), r->step);
    if (isfinite(r->train_loss))
        printf(" loss %.4f", r->train_loss);
    if (isfinite(r->best))
        printf(" best %s %s", watch, td__human_metric(watch, r->best, b));
    for (int i = 1; i < t->test.n; i++)
        printf(" test %s %s", t->test.name[i],
               td__human_metric(t->test.name[i], t->test.value[i], b));
    printf(" digest sha256:%s\n", r->digest);
}

int td__training_failed(td__training *t, td_status st)
{
    td__progress_clear(&t->progress);
    if (!td__training_leads(t))
        return TD_EXIT_FAILED;
    if (st != TD_EABORTED)
        td__run_dir_failed(t->dir, td_last_error());
    return td__failure(t->args, st) == TD_EXIT_INTERRUPTED ? TD_EXIT_INTERRUPTED : TD_EXIT_FAILED;
}

/* The training is over and its result known, but not all of it is on disk. */
static int unsaved(const td__training *t)
{
    char job[TD__PATH];

    fprintf(stderr,
            "tandem train: step %" PRIu64 " is done but could not be saved: ", t->result.step);
    if (!td__run_dir_path(t->dir, "job.yaml", job) && access(job, F_OK) != 0 && errno == ENOENT) {
        fprintf(stderr, "%s was removed during the run: train again\n", t->dir);
        return TD_EXIT_FAILED;
    }
    td__run_dir_failed(t->dir, t->result.unsaved);
    fprintf(stderr, "%s; make room there, then: tandem train --resume=%s\n", t->result.unsaved,
            t->dir);
    return TD_EXIT_FAILED;
}

int td__training_conclude(td__training *t, const atomic_int *stop)
{
    const td__job_log *log = td__job_log_opts(t->session.job);
    bool json = td__args_has(t->args, "json"), quiet = td__args_has(t->args, "quiet");
    td_status st = t->session.members ? TD_OK : test(t, stop);

    if (!st && t->profile && td__training_leads(t))
        st = write_profile(t);
    bool report = log->report && !t->untested && td__training_leads(t);
    if (!st && report && !*t->result.unsaved)
        st = write_report(t);
    if (st == TD_EIO && td__training_leads(t)) { /* the result is there, nonetheless */
        snprintf(t->result.unsaved, sizeof t->result.unsaved, "%s", td_last_error());
        st = TD_OK;
    }
    report = report && !*t->result.unsaved;
    if (st)
        return td__training_failed(t, st);
    if (!td__training_leads(t))
        return t->result.end == TD_TRAIN_INTERRUPTED || t->untested ? TD_EXIT_INTERRUPTED
                                                                    : TD_EXIT_OK;
    if (quiet && !json)
        print_line(t);
    if (!quiet && !json) {
        print_table(t);
        printf("digest sha256:%s\n", t->result.digest);
        if (report)
            printf("report %s/report.html\n", t->dir);
    }
    td__progress_flush(&t->progress);
    if (t->progress.error) {
        fprintf(stderr, "tandem train: cannot write to standard output: %s; the run is in %s\n",
                strerror(t->progress.error), t->dir);
        return TD_EXIT_FAILED;
    }
    if (*t->result.unsaved)
        return unsaved(t);
    if (t->result.end != TD_TRAIN_INTERRUPTED && !t->untested)
        return TD_EXIT_OK;
    fprintf(stderr,
            "tandem train: interrupted after step %" PRIu64 "; to go on: tandem train "
            "--resume=%s\n",
            t->result.step, t->dir);
    return TD_EXIT_INTERRUPTED;
}
