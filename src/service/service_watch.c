/* service_watch.c -- subscriptions to events, output and metrics of jobs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "service/service_impl.h"

enum { REPLAY_MOST = 1000, PIECE = 64 << 10, MOST_BYTES = 1 << 20, METRIC_MOST = 8191 };

static void hand_over(td__subscription *u, const td__job_event *e)
{
    if (u->gone || (u->job && u->job != e->job) || (e->seq && e->seq <= u->after))
        return;
    if (e->seq)
        u->after = e->seq;
    u->fn(u->arg, e);
}

static void sweep(td__service *s)
{
    td__subscription **at = &s->subscriptions;

    while (!s->walking && *at) {
        td__subscription *u = *at;
        if (u->gone) {
            *at = u->next;
            td__free(u);
        } else {
            at = &u->next;
        }
    }
}

static bool replay_one(void *arg, const td__job_event *e)
{
    td__subscription *u = arg;

    hand_over(u, e);
    return !u->gone;
}

/* Events that were stored before the subscription, some in each turn. */
static void replay(td__service *s, td__subscription *u)
{
    int64_t before = u->after;

    if (td__job_store_events(s->store, u->job, u->after, REPLAY_MOST, replay_one, u) ||
        u->after == before) {
        u->replay = false;
        int64_t last = td__job_store_last_seq(s->store);
        u->after = u->after > last ? u->after : last;
    } else {
        td__service_touch(s);
    }
}

void td__service_tell(td__service *s)
{
    td__told *t = s->told;

    s->told = NULL;
    s->told_end = &s->told;
    s->walking++;
    for (td__subscription *u = s->subscriptions; u; u = u->next) {
        if (u->replay && !u->gone)
            replay(s, u);
        for (td__told *e = t; e && !u->replay; e = e->next)
            hand_over(u, &e->e);
    }
    s->walking--;
    sweep(s);
    for (td__told *next; t; t = next) {
        next = t->next;
        td__free((char *)(uintptr_t)t->e.text);
        td__free(t);
    }
}

void td__service_tell_now(td__service *s, const td__job_event *e)
{
    s->walking++;
    for (td__subscription *u = s->subscriptions; u; u = u->next)
        hand_over(u, e);
    s->walking--;
    sweep(s);
}

td_status td__service_subscribe(td__service *s, int32_t job, int64_t after,
                                void (*fn)(void *arg, const td__job_event *e), void *arg,
                                td__subscription **out)
{
    td__subscription *u = td__calloc(1, sizeof *u);

    *out = NULL;
    if (!u)
        return TD_FAIL(TD_ENOMEM, "service: out of memory for a subscription");
    *u = (td__subscription){.service = s,
                            .job = job,
                            .after = after < 0 ? td__job_store_last_seq(s->store) : after,
                            .replay = after >= 0,
                            .fn = fn,
                            .arg = arg,
                            .next = s->subscriptions};
    s->subscriptions = u;
    td__service_touch(s);
    *out = u;
    return TD_OK;
}

void td__service_unsubscribe(td__subscription *u)
{
    if (!u)
        return;
    u->gone = true;
    sweep(u->service);
}

/* At most a megabyte from an offset of a file; one that is not there is empty. */
static void read_file(const char *path, uint64_t from, const td__log_sink *sink)
{
    char buffer[PIECE];
    uint64_t end = from + MOST_BYTES;
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    ssize_t n = 0;

    while (fd >= 0 && from < end && (n = pread(fd, buffer, sizeof buffer, (off_t)from)) > 0) {
        sink->data(sink->arg, buffer, (size_t)n, from);
        from += (uint64_t)n;
    }
    td_status st = (fd < 0 && errno != ENOENT) || n < 0
                       ? TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno))
                       : TD_OK;
    if (fd >= 0)
        close(fd);
    sink->end(sink->arg, st);
}

/* The token of an attempt, 0: the last; "": there was none. */
typedef struct finding {
    int attempt;
    char token[TD__TOKEN];
} finding;

static bool find_attempt(void *arg, const td__job_event *e)
{
    finding *f = arg;
    int attempt;

    if (e->kind == TD_EVENT_ATTEMPT && sscanf(e->text, "job-%*d-%d-", &attempt) == 1 &&
        attempt == f->attempt)
        snprintf(f->token, sizeof f->token, "%s", e->text);
    return true;
}

void td__service_logs(td__service *s, int32_t job, int attempt, int member, uint64_t from,
                      const td__log_sink *sink)
{
    const td__job_record *r;
    td__tracker *tracker;
    char dir[TD__JOB_PATH];
    finding f = {.attempt = attempt};

    if (td__service_get(s, job, &r)) {
        sink->end(sink->arg, TD_EINVAL);
        return;
    }
    snprintf(f.token, sizeof f.token, "%s", attempt && attempt != r->attempt ? "" : r->token);
    td_status st = TD_OK;
    if (!*f.token && attempt)
        st = td__job_store_events(s->store, job, 0, 0, find_attempt, &f);
    if (!st)
        st = td__service_tracker(s, r->spec->tracker, &tracker);
    if (st || !*f.token) { /* it has not been launched: nothing was written */
        sink->end(sink->arg, st);
        return;
    }
    td__service_job_dir(s, job, dir, sizeof dir);
    tracker->ops->logs(tracker, f.token, dir, member, from, sink);
}

/* tandem train writes into the run's directory, other programs into TANDEM_METRICS_FILE. */
static void metrics_path(td__service *s, int32_t job, char *path, size_t nbytes)
{
    char dir[TD__JOB_PATH];

    td__service_job_dir(s, job, dir, sizeof dir);
    snprintf(path, nbytes, "%s/run/metrics.jsonl", dir);
    if (access(path, F_OK))
        snprintf(path, nbytes, "%s/metrics.jsonl", dir);
}

void td__service_metrics(td__service *s, int32_t job, uint64_t from, const td__log_sink *sink)
{
    char path[TD__JOB_PATH + 32];

    metrics_path(s, job, path, sizeof path);
    read_file(path, from, sink);
}

uint64_t td__service_metrics_bytes(td__service *s, int32_t job)
{
    char path[TD__JOB_PATH + 32];
    struct stat info;

    metrics_path(s, job, path, sizeof path);
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

size_t td__service_metrics_tail(td__service *s, int32_t job, char *out, size_t nbytes)
{
    char path[TD__JOB_PATH + 32];
    struct stat info;
    ssize_t n = 0;

    metrics_path(s, job, path, sizeof path);
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    if (fd >= 0 && !fstat(fd, &info)) {
        off_t from = info.st_size > (off_t)nbytes ? info.st_size - (off_t)nbytes : 0;
        n = pread(fd, out, nbytes, from);
    }
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* A line that readers of the file can take: an object, UTF-8, no newline. */
static td__answer check_metric(const char *json)
{
    json_error_t error;
    json_t *value = strlen(json) < METRIC_MOST && !strchr(json, '\n')
                        ? json_loads(json, JSON_REJECT_DUPLICATES, &error)
                        : NULL;
    bool object = json_is_object(value);

    json_decref(value);
    return object ? TD_ANSWER_OK
                  : td__answer_fail(TD_ANSWER_INVALID,
                                    "expected one line of JSON, an object of at most 8 KB");
}

/* Every line is one, and the last is whole. */
static td__answer check_lines(const char *lines, size_t nbytes)
{
    char line[METRIC_MOST + 1];
    td__answer a = TD_ANSWER_OK;

    for (const char *at = lines, *end = lines + nbytes; !a && at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) : 0;
        if (!stop || n >= sizeof line || memchr(at, '\0', n))
            return td__answer_fail(TD_ANSWER_INVALID, "expected whole lines of at most 8 KB");
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        a = check_metric(line);
        at = stop + 1;
    }
    return a;
}

static td__answer put_lines(int fd, uint64_t from, const char *lines, size_t nbytes)
{
    char have[PIECE];
    struct stat info;
    size_t same = 0;
    ssize_t n;

    if (fd < 0 || fstat(fd, &info))
        return td__answer_fail(TD_ANSWER_INTERNAL, "metrics: %s", strerror(errno));
    if ((uint64_t)info.st_size < from)
        return td__answer_fail(TD_ANSWER_STATE, "there are %lld bytes of metrics, not %llu",
                               (long long)info.st_size, (unsigned long long)from);
    while (same < nbytes) {
        size_t want = nbytes - same < sizeof have ? nbytes - same : sizeof have;
        n = pread(fd, have, want, (off_t)(from + same));
        if (n <= 0 || memcmp(have, lines + same, (size_t)n) != 0)
            break;
        same += (size_t)n;
    }
    if (same == nbytes) /* said before */
        return TD_ANSWER_OK;
    bool ok = ftruncate(fd, (off_t)(from + same)) == 0;
    for (; ok && same < nbytes; same += (size_t)n) {
        n = pwrite(fd, lines + same, nbytes - same, (off_t)(from + same));
        ok = n > 0;
    }
    return ok ? TD_ANSWER_OK : td__answer_fail(TD_ANSWER_INTERNAL, "metrics: %s", strerror(errno));
}

static void tell_metrics(td__service *s, int32_t job, td__job_state state)
{
    td__service_tell_now(s, &(td__job_event){.job = job,
                                             .kind = TD_EVENT_METRICS,
                                             .state = state,
                                             .time_ms = td__service_now_ms(s),
                                             .text = ""});
}

td__answer td__service_metrics_put(td__service *s, const td__caller *who, int32_t job,
                                   uint64_t from, const char *lines, size_t nbytes)
{
    const td__job_record *r;
    char path[TD__JOB_PATH + 32];
    td__answer a = td__service_find_own(s, who, job, &r);

    if (!a && td__job_state_final(r->state))
        a = td__answer_fail(TD_ANSWER_STATE, "job %d has ended: it is %s", job,
                            td__job_state_name(r->state));
    if (!a)
        a = check_lines(lines, nbytes);
    if (!a)
        a = td__answer_of(td__service_make_job_dir(s, job));
    if (a)
        return a;
    metrics_path(s, job, path, sizeof path);
    int fd = td__file_open_plain(path, O_RDWR | O_CREAT, 0600);
    a = put_lines(fd, from, lines, nbytes);
    if (fd >= 0)
        close(fd);
    if (!a)
        tell_metrics(s, job, r->state);
    return a;
}

td__answer td__service_metric_add(td__service *s, const td__caller *who, int32_t job,
                                  const char *json)
{
    const td__job_record *r;
    char path[TD__JOB_PATH + 32], line[METRIC_MOST + 1];
    td__answer a = td__service_find_own(s, who, job, &r);

    if (!a && td__job_state_final(r->state))
        a = td__answer_fail(TD_ANSWER_STATE, "job %d has ended: it is %s", job,
                            td__job_state_name(r->state));
    if (!a)
        a = check_metric(json);
    if (a)
        return a;
    int n = snprintf(line, sizeof line, "%s\n", json);
    if (td__service_make_job_dir(s, job))
        return td__answer_of(TD_EIO);
    metrics_path(s, job, path, sizeof path);
    int fd = td__file_open_plain(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    bool ok = fd >= 0 && write(fd, line, (size_t)n) == n;
    if (!ok)
        a = td__answer_fail(TD_ANSWER_INTERNAL, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    tell_metrics(s, job, r->state);
    return a;
}
