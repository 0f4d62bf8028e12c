/* jobs.c -- `tandem jobs`: the jobs of a training service, or one of them; and what changes them:
 * cancel, pause, resume, retry, delete. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/human.h"
#include "client/client.h"

static void cell(const char *text, int width)
{
    td__text t = {0};
    td__text_printable(&t, text);
    printf("%-*.*s  ", width, width, t.data ? t.data : "");
    td__text_fini(&t);
}

static const char *since(int64_t from_ms, int64_t to_ms, char buf[TD__HUMAN])
{
    return from_ms && to_ms >= from_ms ? td__human_seconds((double)(to_ms - from_ms) / 1000, buf)
                                       : "";
}

static void print_row(const json_t *j, int64_t now)
{
    char age[TD__HUMAN], time[TD__HUMAN];
    int64_t started = td__json_whole(j, "started_ms"), end = td__json_whole(j, "finished_ms");
    const char *name = td__client_text(j, "name");
    printf("%6lld  ", (long long)td__json_whole(j, "id"));
    cell(td__client_text(j, "state"), 9);
    cell(*name ? name : td__client_text(j, "algorithm"), 24);
    cell(td__client_text(j, "user"), 10);
    printf("%12s  %12s  ", since(td__json_whole(j, "submitted_ms"), now, age),
           since(started, end ? end : now, time));
    td__text message = {0};
    td__text_printable(&message, td__client_text(j, "message"));
    printf("%s\n", message.data ? message.data : "");
    td__text_fini(&message);
}

static int list(td__client *c)
{
    const td__args *a = c->args;
    const char *states = td__args_value(a, "state");
    td__text path = {0};
    json_t *answer = NULL;
    long most;
    if (!td__args_int(a, "limit", 1, 10000, 50, &most))
        return TD_EXIT_USAGE;
    td__text_printf(&path, "/v1/jobs?page_size=%ld&filter=", most);
    for (int i = 0; i < td__args_count(a); i++) {
        td__url_append(&path, td__args_at(a, i), false);
        td__text_add(&path, "%20");
    }
    if (states || !(td__args_has(a, "all") || td__args_count(a)))
        td__text_printf(&path, "state%%3D%s",
                        states ? states : "queued,paused,launching,pending,running");
    int rc = td__client_call(c, "GET", path.data, NULL, &answer);
    td__text_fini(&path);
    if (rc)
        return rc;
    json_t *jobs = json_object_get(answer, "jobs"), *j;
    size_t i;
    if (td__args_has(a, "json")) {
        json_dumpf(jobs, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        int64_t now = (int64_t)time(NULL) * 1000;
        printf("%6s  %-9s  %-24s  %-10s  %12s  %12s  %s\n", "job", "state", "name", "user",
               "submitted", "time", "message");
        json_array_foreach(jobs, i, j) print_row(j, now);
        if (!json_array_size(jobs) && !td__args_has(a, "all") && !td__args_count(a))
            puts("no job is queued or running; --all shows those that have ended");
    }
    json_decref(answer);
    return TD_EXIT_OK;
}

static int show(td__client *c, const char *id)
{
    char path[64];
    json_t *j = NULL;
    int job = td__client_job(c->args, id);
    if (!job)
        return TD_EXIT_USAGE;
    snprintf(path, sizeof path, "/v1/jobs/%d", job);
    int rc = td__client_call(c, "GET", path, NULL, &j);
    if (!rc) {
        json_dumpf(j, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(j);
    return rc;
}

static int run_jobs(const td__args *a)
{
    td__client c = {0};
    int rc = td__client_open(a, &c);
    bool one = td__args_count(a) == 1 &&
               strspn(td__args_at(a, 0), "0123456789") == strlen(td__args_at(a, 0));
    if (!rc)
        rc = one ? show(&c, td__args_at(a, 0)) : list(&c);
    td__client_close(&c);
    return rc;
}

static const td__flag JOBS_FLAGS[] = {
    {"all", 'a', NULL, "also jobs that have ended", NULL},
    {"state", 0, "STATES", "jobs in these states, separated by commas",
     "queued paused launching pending running succeeded failed cancelled"},
    {"limit", 0, "N", "at most so many; 50", NULL},
    {"json", 0, NULL, "print JSON", NULL},
    TD_CLIENT_FLAGS,
    {0},
};
static const char *const JOBS_EXAMPLES[] = {"tandem jobs",
                                            "jobs that wait or run",
                                            "tandem jobs --all user=ann label.team=nlp",
                                            "all jobs of a user with a label",
                                            "tandem jobs 12",
                                            "everything about one job",
                                            NULL};

const td__command td__command_jobs = {
    .name = "jobs",
    .args = "[JOB | FILTER ...]",
    .summary = "list the jobs of a training service, or show one",
    .text =
        "A filter is KEY=VALUE: state, user, name (may end with *), algorithm, sweep, label.NAME. "
        "A number shows that job with all that was submitted, without secrets.",
    .examples = JOBS_EXAMPLES,
    .flags = JOBS_FLAGS,
    .max_args = -1,
    .run = run_jobs,
};

/* ---- changes ---- */

typedef struct change {
    const char *method, *path, *done; /* path and text take the job's number */
} change;

static int change_jobs(const td__args *a, const change *what)
{
    td__client c = {0};
    int rc = TD_EXIT_OK;
    for (int i = 0; i < td__args_count(a); i++)
        if (!td__client_job(a, td__args_at(a, i)))
            return TD_EXIT_USAGE;
    rc = td__client_open(a, &c);
    for (int i = 0; !rc && i < td__args_count(a); i++) {
        td__text path = {0};
        json_t *answer = NULL, *body = strcmp(what->method, "POST") == 0 ? json_object() : NULL;
        int job = td__client_job(a, td__args_at(a, i));
        td__text_printf(&path, "/v1/jobs/%d%s", job, what->path);
        rc = td__client_call(&c, what->method, path.data, body, &answer);
        int id = (int)td__json_whole(answer, "id");
        if (!rc && id != job)
            printf("job %d: %s as job %d\n", job, what->done, id);
        else if (!rc)
            printf("job %d: %s\n", job, what->done);
        td__text_fini(&path);
        json_decref(body);
        json_decref(answer);
    }
    td__client_close(&c);
    return rc;
}

static const td__flag CHANGE_FLAGS[] = {TD_CLIENT_FLAGS, {0}};

/* A command that does one thing to each of the jobs named. */
#define CHANGE(id, method_, path_, done_, summary_, text_)                            \
    static int run_##id(const td__args *a)                                            \
    {                                                                                 \
        return change_jobs(a, &(change){method_, path_, done_});                      \
    }                                                                                 \
    static const char *const EXAMPLES_##id[] = {"tandem " #id " 12", summary_, NULL}; \
    const td__command td__command_##id = {.name = #id,                                \
                                          .args = "JOB ...",                          \
                                          .summary = summary_,                        \
                                          .text = text_,                              \
                                          .examples = EXAMPLES_##id,                  \
                                          .flags = CHANGE_FLAGS,                      \
                                          .min_args = 1,                              \
                                          .max_args = -1,                             \
                                          .run = run_##id}

CHANGE(
    cancel, "POST", "/cancel", "cancelled", "cancel jobs of a training service",
    "A queued job is taken out of the queue; a running one is stopped, after it had time to write "
    "a checkpoint.");
CHANGE(pause, "POST", "/pause", "paused", "pause jobs of a training service",
       "A queued job waits until it is resumed; a running one is stopped at a checkpoint, and then "
       "waits.");
CHANGE(resume, "POST", "/resume", "resumed", "resume paused jobs of a training service",
       "The job is queued again; one that had run goes on from its checkpoint.");
CHANGE(retry, "POST", "/retry", "submitted again", "submit jobs of a training service again",
       "Another job with all that was submitted for this one; the old one stays.");
CHANGE(delete, "DELETE", "", "deleted", "delete finished jobs of a training service",
       "The job, its log, metrics and artifacts are removed. A job that has not ended is refused.");
