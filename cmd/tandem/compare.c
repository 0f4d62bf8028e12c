/* compare.c -- `tandem compare`: variants of one job, trained one after the other, in one table and
 * one picture.
 *
 * Each run is a `tandem train --json` of its own in a directory below the comparison's, so that
 * nothing of one variant is left for the next; its lines feed the progress line here, its
 * metrics.jsonl the table. With --repeat the variants take turns: what else the machine does hits
 * all of them alike. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/human.h"
#include "launch/spawn.h"
#include "session.h"
#include "step/heads.h"
#include "variants.h"

enum { POLL_MS = 200, READ = 4096, REDRAW_NS = 100000000, MOST_NOISE = 64 << 10, WIDTH = 80 };

static atomic_int stop; /* what signal handlers may reach is static */

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&stop, 1);
}

static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

typedef struct comparison {
    const td__args *args;
    td__arena *arena;
    const char *job_path;
    char name[128], dir[TD__PATH], self[TD__PATH];
    td__variants variants;
    td__compare_run *runs; /* those of a variant next to each other */
    int n, repeat;
    double target;    /* NaN: the worst of what all reach */
    bool live, quiet; /* live: a line is drawn on a terminal */
} comparison;

/* One run on its way. */
typedef struct child {
    td__child process;
    td__text out, err;
    uint64_t step, steps, drawn_ns;
    double loss;
    int told; /* signals passed on */
} child;

/* ---- Before anything runs -------------------------------------------------------------------- */

static td_status check_variants(comparison *c)
{
    td__job *job;

    for (int i = 0; i < c->variants.n; i++) {
        const td__variant *v = &c->variants.at[i];
        TD_TRY(td__job_load(c->job_path, v->sets, v->n_sets, &job));
        if (i == 0) {
            snprintf(c->name, sizeof c->name, "%s", td__job_name(job));
            td__session_warn_renamed(job);
        }
        td__job_destroy(job);
    }
    return TD_OK;
}

static td_status make_dir(comparison *c)
{
    const char *out = td__args_value(c->args, "out");
    const td__variant *v = &c->variants.at[0];
    char path[TD__PATH], name[160];
    td__job *job;

    if (out) {
        TD_TRY(td__run_dir_path(out, "compare.json", path));
        if (access(path, F_OK) == 0)
            return TD_FAIL(TD_EINVAL, "%s already has a comparison; give another --out", out);
        return td__run_dir_create(out, NULL, c->dir);
    }
    TD_TRY(td__job_load(c->job_path, v->sets, v->n_sets, &job));
    snprintf(name, sizeof name, "compare-%s", c->name);
    td_status st = td__run_dir_create(td__job_log_opts(job)->runs_dir, name, c->dir);
    td__job_destroy(job);
    return st;
}

static td_status prepare(comparison *c)
{
    const char *json = td__args_value(c->args, "json");

    TD_TRY(td__arena_create(&c->arena));
    TD_TRY(td__variants_make(c->arena, c->args, &c->variants));
    TD_TRY(check_variants(c));
    if (json)
        TD_TRY(td__output_check("json", json));
    ssize_t length = readlink("/proc/self/exe", c->self, sizeof c->self - 1);
    if (length <= 0)
        return TD_FAIL(TD_EIO, "cannot find the path of this program: %s", strerror(errno));
    c->n = c->variants.n * c->repeat;
    c->runs = td__arena_alloc(c->arena, (size_t)c->n * sizeof *c->runs);
    if (!c->runs)
        return TD_FAIL(TD_ENOMEM, "no memory for %d runs", c->n);
    TD_TRY(make_dir(c));
    for (int i = 0; i < c->n; i++) {
        const td__variant *v = &c->variants.at[i / c->repeat];
        int repeat = 1 + i % c->repeat;
        char *dir = td__arena_printf(c->arena, c->repeat > 1 ? "%s/%s.%d" : "%s/%s", c->dir,
                                     v->name, repeat);
        if (!dir)
            return TD_FAIL(TD_ENOMEM, "no memory for %d runs", c->n);
        c->runs[i] = (td__compare_run){.name = v->name,
                                       .what = v->what,
                                       .dir = dir,
                                       .failed = "not run",
                                       .ranks = v->ranks,
                                       .repeat = repeat};
    }
    return TD_OK;
}

/* ---- One run --------------------------------------------------------------------------------- */

static td_status start(comparison *c, const td__compare_run *r, child *k)
{
    const td__variant *v = &c->variants.at[(int)(r - c->runs) / c->repeat];
    const char *threads = td__args_value(c->args, "threads");
    const char *faults = td__args_value(c->args, "faults");
    const char **argv = td__arena_alloc(c->arena, (size_t)(v->n_sets + 11) * sizeof *argv);
    int n = 0;

    if (!argv)
        return TD_FAIL(TD_ENOMEM, "no memory for a command line");
    argv[n++] = c->self;
    argv[n++] = "train";
    argv[n++] = "--json";
    argv[n++] = td__arena_printf(c->arena, "--run-dir=%s", r->dir);
    if (v->ranks > 1)
        argv[n++] = td__arena_printf(c->arena, "--ranks=%d", v->ranks);
    if (threads)
        argv[n++] = td__arena_printf(c->arena, "--threads=%s", threads);
    if (faults)
        argv[n++] = td__arena_printf(c->arena, "--faults=%s", faults);
    for (int i = 0; i < v->n_sets; i++)
        argv[n++] = td__arena_printf(c->arena, "--set=%s", v->sets[i]);
    argv[n++] = "--";
    argv[n++] = c->job_path;
    for (int i = 0; i < n; i++)
        if (!argv[i])
            return TD_FAIL(TD_ENOMEM, "no memory for a command line");
    argv[n] = NULL;
    TD_TRY(td__spawn(argv, &(td__spawn_opts){.death_signal = SIGTERM}, &k->process));
    fcntl(k->process.out, F_SETFL, O_NONBLOCK);
    fcntl(k->process.err, F_SETFL, O_NONBLOCK);
    return TD_OK;
}

static void clear_line(const comparison *c)
{
    if (c->live) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
}

static void draw(const comparison *c, const td__compare_run *r, child *k)
{
    uint64_t now = td__clock_ns();
    struct winsize w;
    char line[256];

    if (!c->live || now - k->drawn_ns < REDRAW_NS)
        return;
    k->drawn_ns = now;
    int i = (int)(r - c->runs), variants = c->n / c->repeat;
    int turn = (r->repeat - 1) * variants + i / c->repeat + 1;
    int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : WIDTH;
    int n = snprintf(line, sizeof line, "[%d/%d] %s", turn, c->n, r->name);
    if (k->step && n < (int)sizeof line)
        snprintf(line + n, sizeof line - (size_t)n, "  step %" PRIu64 "/%" PRIu64 "  loss %.4f",
                 k->step, k->steps, k->loss);
    printf("\r\033[K%.*s", width - 1, line);
    fflush(stdout);
}

/* Our own lines: run/event_json.h. */
static void take_line(child *k, const char *line)
{
    const char *step = strstr(line, "\"step\": "), *loss = strstr(line, "\"loss\": ");
    const char *steps = strstr(line, "\"steps\": ");

    if (strstr(line, "\"kind\": \"begin\"") && steps)
        k->steps = strtoull(steps + strlen("\"steps\": "), NULL, 10);
    if (!strstr(line, "\"kind\": \"step\"") || !step || !loss)
        return;
    k->step = strtoull(step + strlen("\"step\": "), NULL, 10);
    k->loss = strtod(loss + strlen("\"loss\": "), NULL);
}

/* What is there of one stream; false at its end. */
static bool hear(int *fd, td__text *t)
{
    char buf[READ];

    if (*fd < 0)
        return false;
    for (;;) {
        ssize_t n = read(*fd, buf, sizeof buf);
        if (n > 0) {
            td__text_append(t, buf, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        close(*fd);
        *fd = -1;
        return false;
    }
}

static void take_lines(child *k)
{
    char *at = k->out.data, *end;

    if (!at)
        return;
    for (; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        take_line(k, at);
    }
    k->out.used -= (size_t)(at - k->out.data);
    memmove(k->out.data, at, k->out.used + 1);
}

/* The first cause is for the run to tell; a second signal is for those in a hurry. */
static void pass_on_signals(child *k)
{
    int got = atomic_load(&stop);

    for (; k->told < got; k->told++)
        kill(-k->process.pid, SIGINT);
}

/* To its end; the exit status. */
static int watch(const comparison *c, const td__compare_run *r, child *k)
{
    bool ended = false;

    while (!ended) {
        struct pollfd p[] = {{k->process.out, POLLIN, 0},
                             {k->process.err, POLLIN, 0},
                             {k->process.pidfd, POLLIN, 0}};
        if (poll(p, 3, POLL_MS) < 0 && errno != EINTR)
            break;
        ended = p[2].revents != 0;
        pass_on_signals(k);
        hear(&k->process.out, &k->out);
        hear(&k->process.err, &k->err);
        if (k->err.used > MOST_NOISE)
            td__text_clear(&k->err);
        take_lines(k);
        draw(c, r, k);
    }
    return td__child_reap(&k->process);
}

/* One line that says why. */
static const char *cause(comparison *c, const child *k, int status)
{
    static const char MARK[] = "tandem train: ";
    const char *text = k->err.data ? k->err.data : "", *mark = strstr(text, MARK);

    if (mark)
        text = mark + sizeof MARK - 1;
    size_t n = strcspn(text, "\n");
    const char *line =
        n ? td__arena_printf(c->arena, "%.*s", (int)(n < 400 ? n : 400), text)
          : td__arena_printf(c->arena,
                             status > 128 ? "killed by signal %d" : "ended with exit status %d",
                             status > 128 ? status - 128 : status);
    return line ? line : "failed";
}

static void say(const comparison *c, const td__compare_run *r)
{
    char b[TD__HUMAN];

    clear_line(c);
    if (c->quiet)
        return;
    if (r->failed)
        printf("%s: failed: %s\n", r->name, r->failed);
    else
        printf("%s: loss %.4f in %s%s\n", r->name, r->loss, td__human_seconds(r->seconds, b),
               r->interrupted ? ", interrupted" : "");
    fflush(stdout);
}

static td_status run_one(comparison *c, td__compare_run *r)
{
    child k = {.process = {0, -1, -1, -1, -1}};
    td_status st = start(c, r, &k);

    if (!st) {
        draw(c, r, &k);
        int status = watch(c, r, &k);
        r->interrupted = status == TD_EXIT_INTERRUPTED && atomic_load(&stop);
        r->failed = status && !r->interrupted ? cause(c, &k, status) : NULL;
        td_status read = td__compare_read(r); /* what there is of it, also if it failed */
        if (read && !r->failed)
            r->failed = r->interrupted ? "interrupted" : cause(c, &k, status);
        say(c, r);
    }
    td__child_close(&k.process);
    td__text_fini(&k.out);
    td__text_fini(&k.err);
    return st;
}

/* ---- The result ------------------------------------------------------------------------------ */

static td_status write_text(const td__text *t, const char *path)
{
    td__file_out f;

    TD_TRY(td__text_status(t));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, t->data, t->used);
    return td__file_out_commit(&f);
}

/* By the metric of the first run that has one. */
static double aim(comparison *c, bool *higher_is_better)
{
    const td__metric_def *m = NULL;
    for (int i = 0; i < c->n && !m; i++) {
        const char *space = strchr(c->runs[i].metric, ' ');
        m = space ? td__metric_find(space + 1) : NULL;
    }
    *higher_is_better = m && m->higher_is_better;
    return td__compare_aim(c->runs, c->n, c->target, *higher_is_better);
}

static td_status conclude(comparison *c)
{
    const char *json = td__args_value(c->args, "json");
    td__compare_opts o = {.title = c->name,
                          .job = c->job_path,
                          .at = c->runs,
                          .n = c->n,
                          .repeat = c->repeat,
                          .target = (double)NAN,
                          .absent = c->variants.left_out,
                          .n_absent = c->variants.n_left_out};
    o.target = aim(c, &o.higher_is_better);
    char path[TD__PATH];
    td__text t = {0};
    td_status st;

    td__compare_table(&t, &o);
    TD_TRY_OR(st, done, td__text_status(&t));
    printf("%s%s", c->quiet ? "" : "\n", t.data);
    td__text_clear(&t);
    td__compare_json(&t, &o);
    TD_TRY_OR(st, done, td__run_dir_path(c->dir, "compare.json", path));
    TD_TRY_OR(st, done, write_text(&t, path));
    if (json)
        TD_TRY_OR(st, done, write_text(&t, json));
    TD_TRY_OR(st, done, td__run_dir_path(c->dir, "compare.html", path));
    TD_TRY_OR(st, done, td__compare_page(&o, path));
    if (!c->quiet)
        printf("\npicture %s\n", path);
done:
    td__text_fini(&t);
    return st;
}

static int compare(comparison *c)
{
    int rc = TD_EXIT_OK;
    td_status st = prepare(c);

    if (st)
        return td__failure(c->args, st);
    catch_signals();
    if (!c->quiet)
        printf("%s: %d variant%s in %s\n", c->name, c->variants.n, c->variants.n == 1 ? "" : "s",
               c->dir);
    fflush(stdout);
    for (int repeat = 0; repeat < c->repeat; repeat++)
        for (int v = 0; v < c->variants.n && !st && !atomic_load(&stop); v++)
            st = run_one(c, &c->runs[v * c->repeat + repeat]);
    if (!st)
        st = conclude(c);
    for (int i = 0; i < c->n; i++) {
        rc = c->runs[i].failed ? TD_EXIT_FAILED : rc;
        td__compare_fini(&c->runs[i]);
    }
    if (st)
        return td__failure(c->args, st);
    return atomic_load(&stop) ? TD_EXIT_INTERRUPTED : rc;
}

static int run(const td__args *a)
{
    comparison c = {.args = a,
                    .job_path = td__args_at(a, 0),
                    .live = isatty(STDOUT_FILENO) && !td__args_has(a, "quiet"),
                    .quiet = td__args_has(a, "quiet")};
    long repeat;

    if (!td__args_int(a, "repeat", 1, 100, 1, &repeat))
        return TD_EXIT_USAGE;
    c.repeat = (int)repeat;
    const char *target = td__args_value(a, "target");
    char *end = NULL;
    c.target = target ? strtod(target, &end) : (double)NAN;
    if (target && (end == target || *end || !isfinite(c.target)))
        return td__usage_error(a, "--target: '%.60s' is not a number", target);
    int rc = compare(&c);
    td__arena_destroy(c.arena);
    return rc;
}

static const td__flag FLAGS[] = {
    {.name = "sync",
     .value = "NAME,...",
     .help = "the named variants above, or sync rules; all: every sync rule with its defaults",
     .words =
#define TD_VARIANT(name, sets, help) name " "
#include "variants.def"
#undef TD_VARIANT
         "all"},
    {.name = "parallel",
     .value = "MESH/...",
     .help = "arrangements of ranks, as data=2,pipeline=2/pipeline=4; each on as many ranks as it "
             "needs unless --ranks is given"},
    {.name = "runs",
     .value = "FILE,...",
     .help = "job files with keys that override the job's, one variant each",
     .words = "FILE"},
    {.name = "vary",
     .value = "KEY=V1,V2,...",
     .help = "a variant for each value of a key; given several times, for each combination"},
    {.name = "base", .help = "also run the unchanged job, as the first variant"},
    {.name = "ranks",
     .letter = 'n',
     .value = "N[,N...]",
     .help = "ranks on this host; several numbers: every variant with each of them (1)"},
    {.name = "repeat",
     .value = "N",
     .help = "runs of each variant, interleaved; the one with the median time is shown (1)"},
    {.name = "target",
     .value = "VALUE",
     .help = "target value of the metric for the time-to-target column (default: the worst value "
             "that all variants reach)"},
    {.name = "faults",
     .value = "SCHEDULE",
     .help = "faults in every run, as of tandem train: \"slow rank=2 times=10\" is a straggler"},
    {.name = "out",
     .value = "DIR",
     .help = "the comparison's directory (log.dir/compare-NAME-0001, the first number free)",
     .words = "FILE"},
    {.name = "json",
     .value = "FILE",
     .help = "also write the table as JSON to FILE",
     .words = "FILE"},
    {.name = "quiet", .letter = 'q', .help = "print the table only"},
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = NULL},
};

static const char STRAGGLER[] =
    "tandem compare job.yaml --sync all -n 4 --faults \"slow rank=2 times=10\"";
static const char *const EXAMPLES[] = {"tandem compare job.yaml --sync exact,bf16 -n 2",
                                       "two named variants on two ranks",
                                       "tandem compare job.yaml --sync all -n 4",
                                       "every sync rule with its defaults on four ranks",
                                       "tandem compare job.yaml --runs adam.yaml,lamb.yaml",
                                       "the job with the keys of two files",
                                       "tandem compare job.yaml --vary train.batch=32,64,128",
                                       "three batch sizes",
                                       "tandem compare job.yaml --ranks 1,2,4 --repeat 3",
                                       "how it scales: the same weights, less time",
                                       STRAGGLER,
                                       "what a straggler does to each rule",
                                       NULL};

const td__command td__command_compare = {
    .name = "compare",
    .args = "JOB.yaml",
    .summary = "train variants of a job and show them side by side",
    .text =
        "Trains the variants one after the other, each in its own run, and prints a table: "
        "loss (mean of the last twentieth of the steps), the best of the first metric, steps and "
        "samples per second, time of training, speed relative to the first variant, bytes that a "
        "rank sends in a step, peak memory of a rank, time of training to a value of that metric, "
        "age of what arrives from other ranks (mean and largest, of rules that are not in step), "
        "digest of the weights. compare.html has the "
        "curves of all, over steps and over time; compare.json the numbers.\n\n"
        "A variant that fails is shown as failed, the others still run, and the exit status is 1. "
        "Ctrl-C stops the current variant and prints the results so far.\n\n"
        "Named variants:"
#define TD_VARIANT(name, sets, help) "\n\n" name ": " help "."
#include "variants.def"
#undef TD_VARIANT
    ,
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
