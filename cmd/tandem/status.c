/* status.c -- `tandem status`: what a run is doing, or how it ended.
 *
 * A running job of tandem launch or train -n is asked through its control socket (launch/control.h)
 * and answers with what its processes said last. Of any run, metrics.jsonl tells how far it is;
 * whether somebody writes there is seen by the lock on its directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/human.h"
#include "command.h"
#include "launch/control.h"
#include "run/report_data.h"
#include "run/run_lock.h"
#include "terminal_text.h"

enum { ANSWER_MS = 3000, LATELY = 100 /* steps */, SHOWN_EVENTS = 3 };
static const double STALLED = 3; /* seconds in one call: as long as until ranks log a stall */

typedef struct status {
    char dir[TD__PATH]; /* or the control file of a launch */
    json_t *job;        /* what a running job says; NULL: nothing */
    bool running, has_data;
    td__report_data data;
    char failed[512];
    /* From either. */
    double step, steps, loss, rate, left; /* NaN: not known; rate: samples/s */
} status;

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- Finding out ----------------------------------------------------------------------------- */

/* The folder in `runs` whose metrics changed last. */
static td_status find_newest(char dir[TD__PATH])
{
    struct timespec best = {0};
    DIR *d = opendir("runs");
    dir[0] = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[TD__PATH];
        struct stat st;
        int n = snprintf(path, sizeof path, "runs/%s/job.yaml", e->d_name);
        if (e->d_name[0] == '.' || n >= (int)sizeof path || stat(path, &st) != 0)
            continue;
        struct timespec t = st.st_mtim;
        snprintf(path, sizeof path, "runs/%s/metrics.jsonl", e->d_name);
        if (stat(path, &st) == 0)
            t = st.st_mtim;
        if (t.tv_sec > best.tv_sec || (t.tv_sec == best.tv_sec && t.tv_nsec > best.tv_nsec)) {
            best = t;
            snprintf(dir, TD__PATH, "runs/%s", e->d_name);
        }
    }
    if (d)
        closedir(d);
    return *dir ? TD_OK : TD_FAIL(TD_EINVAL, "no run in ./runs; give the directory of one");
}

static void ask_job(status *s)
{
    td__text answer = {0};
    char file[TD__PATH];
    struct stat info;
    bool folder = stat(s->dir, &info) == 0 && S_ISDIR(info.st_mode);
    if (folder && (td__run_dir_path(s->dir, "control", file) || access(file, R_OK) != 0))
        return; /* ranks of mpirun and the like, or one process */
    if (!td__control_ask(s->dir, "status", td__deadline_in_ms(ANSWER_MS), &answer) &&
        strncmp(answer.data, "ok ", 3) == 0)
        s->job = json_loads(answer.data + 3, 0, NULL);
    td__text_fini(&answer);
}

static void read_failed(status *s)
{
    char path[TD__PATH];
    FILE *f = td__run_dir_path(s->dir, "failed.txt", path) ? NULL : fopen(path, "re");
    if (f && fgets(s->failed, sizeof s->failed, f))
        s->failed[strcspn(s->failed, "\n")] = 0;
    if (f)
        fclose(f);
}

static double last_of(const td__column *c)
{
    return c->n ? c->v[c->n - 1] : (double)NAN;
}

/* Means over the last steps; of a run that has ended over all, as its summary and report have. */
static void look_at_steps(status *s)
{
    const td__report_data *d = &s->data;
    double seconds = 0, samples = 0;
    int n = d->end[0] || d->seconds.n < LATELY ? d->seconds.n : LATELY;
    s->step = last_of(&d->step);
    s->loss = last_of(&d->loss);
    s->steps = d->steps > 0 ? d->steps : (double)NAN;
    for (int i = d->seconds.n - n; i < d->seconds.n; i++) {
        if (!isfinite(d->seconds.v[i]) || !isfinite(d->rate.v[i]))
            continue;
        seconds += d->seconds.v[i];
        samples += d->rate.v[i] * d->seconds.v[i];
    }
    if (seconds > 0) {
        s->rate = samples / seconds;
        s->left = (s->steps - s->step) * seconds / n;
    }
}

static void look_at_processes(status *s)
{
    size_t i, k;
    const json_t *host, *p;
    json_array_foreach(json_object_get(s->job, "hosts"), i, host)
    {
        json_array_foreach(json_object_get(json_object_get(host, "says"), "processes"), k, p)
        {
            double step = number(p, "step"), steps = number(p, "steps");
            if (!(step > s->step) && isfinite(s->step))
                continue;
            s->step = step;
            s->loss = step > 0 ? number(p, "loss") : (double)NAN;
            s->steps = steps > 0 ? steps : s->steps;
        }
    }
}

static td_status gather(const char *run, status *s)
{
    struct stat info;
    char job[TD__PATH];
    *s = (status){.step = NAN, .steps = NAN, .loss = NAN, .rate = NAN, .left = NAN};
    if (!run)
        TD_TRY(find_newest(s->dir));
    else if (snprintf(s->dir, sizeof s->dir, "%s", run) >= (int)sizeof s->dir)
        return TD_FAIL(TD_EINVAL, "the path %.60s... is too long", run);
    if (stat(s->dir, &info) != 0)
        return TD_FAIL(TD_EINVAL, "%s: no such run", s->dir);
    ask_job(s);
    s->running = s->job != NULL;
    if (!S_ISDIR(info.st_mode))
        return s->job ? TD_OK : TD_FAIL(TD_EINVAL, "%s: no running job answers there", s->dir);
    TD_TRY(td__run_dir_path(s->dir, "job.yaml", job));
    /* Not where a run is just being made; and before its files are read: if nobody writes them any
     * more, they tell of its end. */
    if (!s->running && access(job, R_OK) == 0)
        s->running = td__run_lock_held(s->dir);
    s->has_data = !td__report_data_read(s->dir, &s->data);
    if (!s->has_data && !s->running && access(job, R_OK) != 0)
        return TD_FAIL(TD_EINVAL, "%s is not a run's directory", s->dir);
    if (s->has_data)
        look_at_steps(s);
    if (s->job)
        look_at_processes(s);
    if (!s->running)
        read_failed(s);
    return TD_OK;
}

static void release(status *s)
{
    json_decref(s->job);
    if (s->has_data)
        td__report_data_fini(&s->data);
}

/* ---- For people ------------------------------------------------------------------------------ */

static const char *end_of(const status *s)
{
    if (s->running)
        return "running";
    if (s->has_data && s->data.end[0])
        return s->data.end;
    return s->failed[0] ? "failed" : "dead";
}

static void print_progress(const status *s)
{
    char b[TD__HUMAN], line[512];
    td__text t = {0};

    if (!isfinite(s->step))
        td__text_add(&t, "no step is finished yet");
    else if (isfinite(s->steps))
        td__text_printf(&t, "step %.0f of %.0f", s->step, s->steps);
    else
        td__text_printf(&t, "step %.0f", s->step);
    if (isfinite(s->loss))
        td__text_printf(&t, ", loss %.4f", s->loss);
    if (isfinite(s->rate))
        td__text_printf(&t, ", %s samples/s", td__human_si(s->rate, b));
    if (isfinite(s->left))
        td__text_printf(&t, ", %s left", td__human_seconds(fmax(0, s->left), b));
    if (s->has_data && isfinite(s->data.checkpoint_step))
        td__text_printf(&t, "; checkpoint of step %.0f", s->data.checkpoint_step);
    snprintf(line, sizeof line, "%s", td__text_status(&t) ? "" : t.data);
    td__text_fini(&t);
    td__print_wrapped(2, "%s", line);
}

/* A process that should have moved on: it has been silent, or in one call, for long. */
static void print_stall(const json_t *p, double age)
{
    char b[TD__HUMAN];
    const char *hang = text(p, "hang");
    double since = number(p, "since") + age, beat = number(p, "heartbeat") + age;

    if (!*hang && !(since >= STALLED && strcmp(text(p, "phase"), "network") == 0))
        return;
    fputs(td__colour_text(TD_WARN), stdout);
    if (*hang && beat >= STALLED)
        td__print_wrapped(7, "stalled: %s; no heartbeat for %s", hang, td__human_seconds(beat, b));
    else if (*hang)
        td__print_wrapped(7, "stalled: %s", hang);
    else
        td__print_wrapped(7, "stalled: has waited for other ranks for %s",
                          td__human_seconds(since, b));
    fputs(td__colour_text(TD_PLAIN), stdout);
}

static void print_process(const json_t *host, const json_t *p)
{
    char rank[16], doing[64], since[TD__HUMAN], speed[TD__HUMAN] = "-";
    const char *state = text(p, "state"), *what = text(p, "what"), *about = text(p, "about");
    double r = number(p, "rank"), v = number(p, "speed"), age = number(host, "age");
    if (r >= 0)
        snprintf(rank, sizeof rank, "%.0f", r);
    else
        snprintf(rank, sizeof rank, "-");
    if (r < 0)
        snprintf(doing, sizeof doing, "%s", strcmp(state, "waiting") == 0 ? "spare" : state);
    else
        snprintf(doing, sizeof doing, "%s%s%.24s%s%.24s", text(p, "phase"), *what ? ": " : "", what,
                 *about ? ", " : "", about);
    if (v > 0)
        td__human_si(v, speed);
    printf("  %4s %-10.10s %7.0f %8.0f  %-21.21s %8s %8s %3.0f%%\n", rank, text(host, "name"),
           number(p, "pid"), number(p, "step"), doing,
           td__human_seconds(number(p, "since") + age, since), speed, 100 * number(p, "wait"));
    print_stall(p, age);
}

/* Those of this rank; -1: all that have none. */
static void print_processes(const status *s, double rank)
{
    const json_t *host, *p;
    size_t i, k;
    json_array_foreach(json_object_get(s->job, "hosts"), i, host)
    {
        if (rank < 0 && !json_is_true(json_object_get(host, "up")))
            printf("     - %-10.10s lost\n", text(host, "name"));
        json_array_foreach(json_object_get(json_object_get(host, "says"), "processes"), k, p)
        {
            double r = number(p, "rank");
            if (r == rank || (r < 0 && rank < 0))
                print_process(host, p);
        }
    }
}

static void print_job(const status *s)
{
    const json_t *host, *p, *e, *events = json_object_get(s->job, "events");
    size_t i, k, n = json_array_size(events);
    double started = 0, waiting = 0, faults = 0, wanted = NAN;
    char b[TD__HUMAN];
    json_array_foreach(json_object_get(s->job, "hosts"), i, host)
    {
        const json_t *says = json_object_get(host, "says");
        started += says ? number(says, "started") : 0;
        wanted = says ? number(says, "wanted") : wanted;
        json_array_foreach(json_object_get(says, "processes"), k, p)
        {
            waiting += number(p, "rank") < 0 && strcmp(text(p, "state"), "waiting") == 0;
            faults = fmax(faults, number(p, "faults"));
        }
    }
    const char *why = text(s->job, "why");
    double ranks = number(s->job, "ranks"), generation = number(s->job, "generation");
    if (json_is_true(json_object_get(s->job, "elastic"))) {
        td__print_wrapped(2, "now %.0f ranks (generation %.0f)%s%s; %.0f wanted, %.0f at least",
                          ranks, generation, *why ? ": " : "", why, wanted,
                          number(s->job, "min_ranks"));
        td__print_wrapped(
            2, "%.0f processes started, %.0f failed; %.0f of %.0f spares; %.0f faults injected",
            started, number(s->job, "failures"), waiting, number(s->job, "spares"), faults);
    } else {
        td__print_wrapped(2, "now %.0f ranks (generation %.0f)%s%s; fixed, %.0f of %.0f restarts",
                          ranks, generation, *why ? ": " : "", why, number(s->job, "failures"),
                          number(s->job, "restarts"));
    }
    printf("%s  rank %-10s %7s %8s  %-21s %8s %8s %4s%s\n", td__colour_text(TD_DIM), "host", "pid",
           "step", "doing", "for", "/s", "wait", td__colour_text(TD_PLAIN));
    for (int rank = 0; rank < (int)fmin(ranks, 1e6); rank++)
        print_processes(s, rank);
    print_processes(s, -1);
    json_array_foreach(events, i, e) if (i + SHOWN_EVENTS >= n)
        td__print_wrapped(2, "%s ago: %s", td__human_seconds(number(e, "ago"), b), text(e, "text"));
}

/* Of ranks that no agent hears, as those of mpirun: what metrics.jsonl says of them. */
static void print_ranks(const status *s)
{
    const td__report_data *d = &s->data;
    if (d->n_ranks < 2)
        return;
    printf("  rank   compute  network    waits     data\n");
    for (int r = 0; r < d->n_ranks; r++) {
        const td__rank_times *t = &d->rank[r].times;
        double all = t->seconds > 0 ? t->seconds / 100 : 1;
        printf("  %4d   %5.0f %%  %5.0f %%  %5.0f %%  %5.0f %%\n", r, t->compute / all,
               t->comm / all, t->wait / all, t->data / all);
    }
}

static void print_end(const status *s)
{
    char b[TD__HUMAN];
    printf("%s: ", s->dir);
    const char *end = end_of(s);
    if (strcmp(end, "dead") == 0)
        printf("%sended without a message; it was probably killed", td__colour_text(TD_BAD));
    else
        printf("%s%s", td__colour_text(strcmp(end, "failed") == 0 ? TD_BAD : TD_GOOD), end);
    fputs(td__colour_text(TD_PLAIN), stdout);
    if (isfinite(s->step))
        printf(" after step %.0f", s->step);
    else
        printf(" before its first step");
    if (strcmp(end, "done") != 0 && strcmp(end, "early") != 0 && isfinite(s->steps))
        printf(" of %.0f", s->steps);
    if (isfinite(s->loss))
        printf(", loss %.4f", s->loss);
    if (s->has_data && s->data.end[0] && isfinite(s->data.end_seconds))
        printf(", %s", td__human_seconds(s->data.end_seconds, b));
    if (s->has_data && s->data.end[0])
        printf(", digest %s", s->data.digest);
    else if (s->has_data && isfinite(s->data.checkpoint_step))
        printf("; to continue from step %.0f: tandem train --resume=%s", s->data.checkpoint_step,
               s->dir);
    if (strcmp(end, "failed") == 0)
        printf(": %s", s->failed);
    putchar('\n');
}

static void print_status(const status *s)
{
    char b[TD__HUMAN];
    if (!s->running) {
        print_end(s);
        return;
    }
    printf("%s: %srunning%s", s->dir, td__colour_text(TD_GOOD), td__colour_text(TD_PLAIN));
    if (s->job)
        printf(" for %s", td__human_seconds(number(s->job, "seconds"), b));
    putchar('\n');
    print_progress(s);
    if (s->job)
        print_job(s);
    else if (s->has_data)
        print_ranks(s);
}

/* ---- For machines ---------------------------------------------------------------------------- */

static void add_number(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static int print_json(const status *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "run", json_string(s->dir));
    json_object_set_new(o, "state", json_string(end_of(s)));
    add_number(o, "step", s->step);
    add_number(o, "steps", s->steps);
    add_number(o, "loss", s->loss);
    add_number(o, "samples_per_second", s->rate);
    add_number(o, "seconds_left", s->running ? s->left : (double)NAN);
    add_number(o, "checkpoint_step", s->has_data ? s->data.checkpoint_step : (double)NAN);
    if (s->failed[0] && !s->running)
        json_object_set_new(o, "why", json_string(s->failed));
    if (s->has_data && s->data.end[0] && !s->running)
        json_object_set_new(o, "digest", json_string(s->data.digest));
    if (s->job)
        json_object_set(o, "job", s->job);
    char *line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (line)
        puts(line);
    free(line);
    json_decref(o);
    return fflush(stdout) ? TD_EXIT_FAILED : TD_EXIT_OK;
}

static int show(const td__args *a, bool again, bool *running)
{
    status s;
    td_status st = gather(td__args_count(a) ? td__args_at(a, 0) : NULL, &s);
    *running = !st && s.running;
    int rc = *running ? TD_EXIT_OK : TD_EXIT_FAILED;
    if (st) {
        fprintf(stderr, "tandem status: %s\n", td_last_error());
    } else if (td__args_has(a, "json")) {
        if (print_json(&s))
            rc = TD_EXIT_FAILED;
    } else {
        if (isatty(STDOUT_FILENO) && td__args_has(a, "watch") && s.running)
            fputs("\033[H\033[J", stdout);
        else if (again)
            putchar('\n');
        print_status(&s);
        if (fflush(stdout))
            *running = false;
    }
    release(&s);
    return rc;
}

static int run(const td__args *a)
{
    bool running, watch = td__args_has(a, "watch");
    int rc = show(a, false, &running);
    struct pollfd reader = {.fd = STDOUT_FILENO}; /* told of only when nobody reads any more */
    while (watch && running && poll(&reader, 1, 1000) == 0) {
        rc = show(a, true, &running);
        if (!running)
            rc = TD_EXIT_OK; /* its end was what it waited for */
    }
    return rc;
}

static const td__flag FLAGS[] = {
    {.name = "json", .help = "one JSON object"},
    {.name = "watch", .letter = 'w', .help = "refresh every second until the run ends"},
    {.name = NULL},
};

static const char *const EXAMPLES[] = {"tandem status", "the newest run in ./runs",
                                       "tandem status runs/digits-0003 --watch",
                                       "refresh until the run ends", NULL};

const td__command td__command_status = {
    .name = "status",
    .args = "[RUN]",
    .summary = "what a run is doing, or how it ended",
    .text = "RUN is the directory of a run (the newest in ./runs), or the file that `tandem launch "
            "--control FILE` writes. Shows the progress; for ranks that tandem started also the "
            "generation, what each process does, its speed and how long it waits for others, and "
            "recent events.\n\n"
            "Exit status 0: the run is active; 1: it is not, and one line says how it ended.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 0,
    .max_args = 1,
    .run = run,
};
