/* api_streams.c -- what a client follows: events of jobs, logs, metrics. Logs and metrics are feeds
 * (service/feed.h): the next piece is read when the client has taken the one before (drained). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "service/feed.h"
#include "service/http/api_impl.h"

enum { HISTORY = 1000, LINE_MOST = 1 << 20 }; /* events in one answer; bytes of a line */

/* ---- events ---- */

typedef struct watcher {
    td__httpd_stream *out;
    td__subscription *sub;
} watcher;

static void watch_event(void *arg, const td__job_event *e)
{
    watcher *w = arg;
    td__text t = {0};
    char id[32];
    if (!w->out)
        return;
    snprintf(id, sizeof id, "%" PRId64, e->seq);
    td__event_json(e, &t);
    if (!t.failed)
        td__httpd_stream_event(w->out, e->seq ? id : NULL, td__event_kind_name(e->kind), t.data);
    td__text_fini(&t);
}

static void watch_closed(void *arg)
{
    watcher *w = arg;
    td__service_unsubscribe(w->sub);
    td__free(w);
}

static void watch(td__http_api *a, td__httpd_request *r, int32_t job)
{
    static const td__httpd_stream_ops OPS = {.closed = watch_closed};
    const char *last = td__httpd_header(r, "Last-Event-ID");
    int64_t after;
    if (!td__http_number(r, "after", -1, INT64_MAX, -1, &after))
        return;
    if (last && !td__httpd_query(r, "after"))
        (void)td__parse_int(last, &after);
    watcher *w = td__calloc(1, sizeof *w);
    if (!w) {
        td__httpd_fail(r, 503, "out of memory");
        return;
    }
    w->out = td__httpd_stream_open(r, TD_HTTPD_SSE, &OPS, w);
    if (!w->out) {
        td__free(w);
        return;
    }
    td__httpd_stream_write(w->out, ":\n\n", 3); /* the connection is up, whatever happens next */
    if (td__service_subscribe(a->o.service, job, after, watch_event, w, &w->sub))
        td__httpd_stream_end(w->out);
}

void td__http_watch_job(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    const td__job_record *j;
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(r, td__service_get(a->o.service, id, &j)))
        watch(a, r, id);
}

void td__http_watch_all(void *arg, td__httpd_request *r)
{
    watch(arg, r, 0);
}

typedef struct past {
    td__text out;
    int n;
} past;

static bool add_event(void *arg, const td__job_event *e)
{
    past *p = arg;
    td__text_add(&p->out, p->n++ ? ",\n" : "");
    td__event_json(e, &p->out);
    return !p->out.failed;
}

void td__http_history(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    const td__job_record *j;
    int64_t after, limit;
    past p = {0};
    int32_t id = td__http_job_id(r);
    if (!id || !td__http_number(r, "after", 0, INT64_MAX, 0, &after) ||
        !td__http_number(r, "limit", 1, HISTORY, HISTORY, &limit) ||
        td__http_api_refused(r, td__service_get(a->o.service, id, &j)))
        return;
    td__text_add(&p.out, "{\"events\":[");
    td_status st =
        td__job_store_events(td__service_store(a->o.service), id, after, (int)limit, add_event, &p);
    td__text_add(&p.out, "]}\n");
    if (!td__http_api_refused(r, st ? td__answer_of(st) : TD_ANSWER_OK))
        td__httpd_reply_json(r, 200, &p.out);
    td__text_fini(&p.out);
}

/* ---- logs and metrics ---- */

typedef struct follower {
    td__feed *feed; /* NULL: it has ended */
    td__httpd_stream *out;
    bool events;   /* a server-sent event for each line, else plain text */
    bool sending;  /* a piece that the client has not taken yet */
    td__text line; /* whose end was not read yet */
    bool skipping; /* until the end of a line that is too long */
} follower;

static void follow_lines(follower *f, const char *data, size_t nbytes, uint64_t offset)
{
    const char *at = data, *end = data + nbytes, *stop;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        char id[32]; /* where to go on after this line */
        snprintf(id, sizeof id, "%" PRIu64, offset + (uint64_t)(stop + 1 - data));
        td__text_append(&f->line, at, (size_t)(stop - at));
        if (!f->line.failed && f->line.used && !f->skipping && f->line.used <= LINE_MOST) {
            td__httpd_stream_event(f->out, id, NULL, f->line.data);
            f->sending = true;
        }
        td__text_clear(&f->line);
        f->skipping = false;
        at = stop + 1;
    }
    td__text_append(&f->line, at, (size_t)(end - at));
    if (f->line.used > LINE_MOST) { /* not a line that anybody sent: the rest of it is dropped */
        td__text_clear(&f->line);
        f->skipping = true;
    }
}

static void follow_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    follower *f = arg;
    if (f->events) {
        follow_lines(f, bytes, nbytes, offset);
    } else {
        td__httpd_stream_write(f->out, bytes, nbytes);
        f->sending = true;
    }
    if (!f->sending)
        td__feed_next(f->feed);
}

static void follow_end(void *arg, td_status st)
{
    follower *f = arg;
    (void)st; /* the answer has begun: its end is all that can be said */
    f->feed = NULL;
    td__httpd_stream_end(f->out);
}

static void follow_drained(void *arg)
{
    follower *f = arg;
    if (!f->sending)
        return;
    f->sending = false;
    if (f->feed)
        td__feed_next(f->feed);
}

static void follow_closed(void *arg)
{
    follower *f = arg;
    td__feed_stop(f->feed);
    td__text_fini(&f->line);
    td__free(f);
}

static void follow(td__http_api *a, td__httpd_request *r, td__feed_opts *o, bool events)
{
    static const td__httpd_stream_ops OPS = {.drained = follow_drained, .closed = follow_closed};
    const td__job_record *j;
    td_status st;
    if (td__http_api_refused(r, td__service_get(a->o.service, o->job, &j)))
        return;
    follower *f = td__calloc(1, sizeof *f);
    if (!f) {
        td__httpd_fail(r, 503, "out of memory");
        return;
    }
    f->events = events;
    o->data = follow_data;
    o->end = follow_end;
    o->arg = f;
    st = td__feed_create(a->o.service, o, &f->feed);
    if (st)
        td__http_api_refused(r, td__answer_of(st));
    else
        f->out = td__httpd_stream_open(r,
                                       events       ? TD_HTTPD_SSE
                                       : o->metrics ? "application/x-ndjson"
                                                    : "text/plain; charset=utf-8",
                                       &OPS, f);
    if (!f->out) {
        follow_closed(f);
        return;
    }
    if (events)
        td__httpd_stream_write(f->out, ":\n\n", 3);
    td__feed_next(f->feed);
}

void td__http_logs(void *arg, td__httpd_request *r)
{
    td__feed_opts o = {.job = td__http_job_id(r), .follow = td__http_flag(r, "follow")};
    int64_t member, attempt, from;
    if (!o.job || !td__http_number(r, "member", 0, INT32_MAX, 0, &member) ||
        !td__http_number(r, "attempt", 0, INT32_MAX, 0, &attempt) ||
        !td__http_number(r, "from", 0, INT64_MAX, 0, &from))
        return;
    o.member = (int)member;
    o.attempt = (int)attempt;
    o.from = (uint64_t)from;
    follow(arg, r, &o, false);
}

/* ---- the last bytes of the metrics ---- */

typedef struct tail {
    td__httpd_request *r;
    td__feed *feed;
    size_t most;
    td__text kept;
} tail;

static void tail_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    tail *t = arg;
    (void)offset;
    td__text_append(&t->kept, bytes, nbytes);
    if (t->kept.used > 4 * t->most) { /* now and then, not for every piece */
        memmove(t->kept.data, t->kept.data + t->kept.used - t->most, t->most);
        t->kept.used = t->most;
    }
    td__feed_next(t->feed);
}

static void tail_end(void *arg, td_status st)
{
    tail *t = arg;
    td__text out = {0};
    const char *at = t->kept.data ? t->kept.data : "", *end = at + t->kept.used;
    if (t->kept.used > t->most) { /* from the beginning of a line */
        at = end - t->most;
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line ? line + 1 : end;
    }
    td__text_append(&out, at, (size_t)(end - at));
    if (st)
        td__http_api_refused(t->r, td__answer_of(st));
    else
        td__httpd_reply(t->r, 200, "application/x-ndjson", &out);
    td__text_fini(&out);
    td__text_fini(&t->kept);
    td__free(t);
}

static void send_tail(td__http_api *a, td__httpd_request *r, td__feed_opts *o, size_t most)
{
    const td__job_record *j;
    if (td__http_api_refused(r, td__service_get(a->o.service, o->job, &j)))
        return;
    tail *t = td__calloc(1, sizeof *t);
    if (!t) {
        td__httpd_fail(r, 503, "out of memory");
        return;
    }
    *t = (tail){.r = r, .most = most};
    o->follow = false;
    o->tail = most + 1; /* tells a beginning that is cut off */
    o->data = tail_data;
    o->end = tail_end;
    o->arg = t;
    td_status st = td__feed_create(a->o.service, o, &t->feed);
    if (st)
        tail_end(t, st);
    else
        td__feed_next(t->feed);
}

void td__http_metrics(void *arg, td__httpd_request *r)
{
    td__feed_opts o = {
        .job = td__http_job_id(r), .metrics = true, .follow = td__http_flag(r, "follow")};
    int64_t from, most;
    if (!o.job || !td__http_number(r, "from", 0, INT64_MAX, 0, &from) ||
        !td__http_number(r, "tail", 1, 1 << 20, 0, &most))
        return;
    o.from = (uint64_t)from;
    if (most)
        send_tail(arg, r, &o, (size_t)most);
    else
        follow(arg, r, &o, o.follow);
}

void td__http_add_metric(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(r, td__service_metric_add(a->o.service, &who, id, body)))
        td__http_done(r, 201, id);
}

void td__http_put_metrics(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    int64_t from;
    if (id && td__http_number(r, "from", 0, INT64_MAX, 0, &from) &&
        !td__http_api_refused(
            r, td__service_metrics_put(a->o.service, &who, id, (uint64_t)from, body, nbytes)))
        td__http_done(r, 200, id);
}
