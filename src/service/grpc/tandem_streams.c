/* tandem_streams.c -- what a client of tandem.v1 follows: events, logs, metrics, and files that it
 * reads piece by piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "service/feed.h"
#include "service/grpc/api_impl.h"
#include "tandem.pb-c.h"

/* ---- events ---- */

typedef struct watcher {
    td__call *call; /* NULL once it is finished */
    td__subscription *sub;
    bool until_final;
    bool starting; /* events of the past are being told: the subscription is not made yet */
} watcher;

static void watcher_free(watcher *w)
{
    td__service_unsubscribe(w->sub);
    td__free(w);
}

static void watch_ended(void *data, td__call *c)
{
    (void)c;
    watcher_free(data);
}

static void watch_event(void *arg, const td__job_event *e)
{
    watcher *w = arg;
    Tandem__V1__Event m = TANDEM__V1__EVENT__INIT;

    if (!w->call)
        return;
    m.seq = e->seq;
    m.job_id = e->job;
    m.kind = td__grpc_text(td__event_kind_name(e->kind));
    m.state = (Tandem__V1__State)e->state;
    m.member = e->member;
    m.time_ms = e->time_ms;
    m.text = td__grpc_text(e->text);
    td__call_send(w->call, &m.base);
    if (w->until_final && e->kind == TD_EVENT_STATE && td__job_state_final(e->state)) {
        td__call_finish(w->call, TD_GRPC_OK, "%s", "");
        w->call = NULL;
        if (!w->starting)
            watcher_free(w);
    }
}

static const td__call_events WATCH_EVENTS = {.ended = watch_ended};

void td__tandem_watch(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__WatchRequest *q = request;
    const td__job_record *r;
    watcher *w;

    if (q->job_id && td__grpc_refused(c, td__service_get(a->o.service, q->job_id, &r)))
        return;
    w = td__calloc(1, sizeof *w);
    if (!w) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    w->call = c;
    w->until_final = q->until_final && q->job_id;
    w->starting = true;
    td__call_follow(c, &WATCH_EVENTS, w);
    td_status st = td__service_subscribe(a->o.service, q->job_id, q->only_new ? -1 : q->after_seq,
                                         watch_event, w, &w->sub);
    w->starting = false;
    if (st && w->call) {
        td__grpc_refused(c, td__answer_of(st));
        w->call = NULL;
    }
    if (!w->call)
        watcher_free(w);
}

/* ---- logs and metrics ---- */

enum { LINE_MOST = 1 << 20 }; /* bytes of a line of metrics */

typedef struct follower {
    td__call *call;
    td__feed *feed;
    bool metrics;
    uint64_t line_at; /* metrics: where the line in `line` begins */
    td__text line;    /* metrics: the beginning of a line whose end was not read */
    bool skipping;    /* metrics: until the end of a line that is too long */
} follower;

static void follower_free(follower *f)
{
    td__text_fini(&f->line);
    td__free(f);
}

static void send_log(follower *f, const void *bytes, size_t nbytes, uint64_t offset)
{
    Tandem__V1__LogChunk m = TANDEM__V1__LOG_CHUNK__INIT;

    m.offset = offset;
    m.data = (ProtobufCBinaryData){nbytes, (uint8_t *)(uintptr_t)bytes};
    td__call_send(f->call, &m.base);
}

/* Whole lines only: what follows the last newline waits for the next piece. */
static void send_metrics(follower *f, const char *bytes, size_t nbytes, uint64_t offset)
{
    Tandem__V1__MetricsChunk m = TANDEM__V1__METRICS_CHUNK__INIT;
    const char *last = memrchr(bytes, '\n', nbytes);
    size_t whole = last ? (size_t)(last + 1 - bytes) : 0;

    if (f->skipping && last) {
        const char *first = memchr(bytes, '\n', nbytes);
        size_t rest = (size_t)(first + 1 - bytes);
        f->skipping = false;
        send_metrics(f, bytes + rest, nbytes - rest, offset + rest);
        return;
    }
    if (f->skipping)
        return;
    if (!f->line.used)
        f->line_at = offset;
    td__text_append(&f->line, bytes, whole);
    if (last && !f->line.failed) {
        td__utf8_clean(f->line.data);
        m.offset = f->line_at;
        m.lines = f->line.data;
        td__call_send(f->call, &m.base);
        td__text_clear(&f->line);
        f->line_at = offset + whole;
    }
    td__text_append(&f->line, bytes + whole, nbytes - whole);
    if (f->line.used > LINE_MOST) { /* not a line that anybody sent: the rest of it is dropped */
        td__text_clear(&f->line);
        f->skipping = true;
    }
}

static void feed_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    follower *f = arg;

    if (f->metrics)
        send_metrics(f, bytes, nbytes, offset);
    else
        send_log(f, bytes, nbytes, offset);
    if (td__call_room(f->call))
        td__feed_next(f->feed);
}

static void feed_end(void *arg, td_status st)
{
    follower *f = arg;

    td__call_finish(f->call, (td__grpc_code)td__answer_grpc(td__answer_of(st)), "%s",
                    st ? td_last_error() : "");
    follower_free(f);
}

static void follow_drained(void *data, td__call *c)
{
    (void)c;
    td__feed_next(((follower *)data)->feed);
}

static void follow_ended(void *data, td__call *c)
{
    follower *f = data;

    (void)c;
    td__feed_stop(f->feed);
    follower_free(f);
}

static const td__call_events FOLLOW_EVENTS = {.ended = follow_ended, .drained = follow_drained};

static void follow(td__call *c, td__service *s, td__feed_opts *o)
{
    const td__job_record *r;
    follower *f;

    if (td__grpc_refused(c, td__service_get(s, o->job, &r)))
        return;
    f = td__calloc(1, sizeof *f);
    if (!f) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    f->call = c;
    f->metrics = o->metrics;
    o->data = feed_data;
    o->end = feed_end;
    o->arg = f;
    if (td__grpc_refused(c, td__answer_of(td__feed_create(s, o, &f->feed)))) {
        follower_free(f);
        return;
    }
    td__call_follow(c, &FOLLOW_EVENTS, f);
    td__feed_next(f->feed);
}

void td__tandem_logs(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__LogsRequest *q = request;

    follow(c, a->o.service,
           &(td__feed_opts){.job = q->job_id,
                            .attempt = q->attempt,
                            .member = q->member,
                            .from = q->from,
                            .follow = q->follow});
}

void td__tandem_metrics(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__MetricsRequest *q = request;

    follow(
        c, a->o.service,
        &(td__feed_opts){.job = q->job_id, .metrics = true, .from = q->from, .follow = q->follow});
}

/* ---- artifacts ---- */

typedef struct reader {
    td__call *call;
    int fd;
    uint64_t at;
} reader;

enum { PIECE = 64 << 10 };

/* Pieces until the client has enough for now, or the file ends. Files are local and whole. */
static void read_pieces(reader *r)
{
    Tandem__V1__ArtifactChunk m = TANDEM__V1__ARTIFACT_CHUNK__INIT;
    uint8_t piece[PIECE];
    ssize_t n = 1;

    while (td__call_room(r->call)) {
        n = pread(r->fd, piece, sizeof piece, (off_t)r->at);
        if (n <= 0)
            break;
        m.offset = r->at;
        m.data = (ProtobufCBinaryData){(size_t)n, piece};
        td__call_send(r->call, &m.base);
        r->at += (uint64_t)n;
    }
    if (n > 0)
        return; /* on with drained */
    td__call_finish(r->call, n < 0 ? TD_GRPC_DATA_LOSS : TD_GRPC_OK, "%s",
                    n < 0 ? strerror(errno) : "");
    close(r->fd);
    td__free(r);
}

static void reader_drained(void *data, td__call *c)
{
    (void)c;
    read_pieces(data);
}

static void reader_ended(void *data, td__call *c)
{
    reader *r = data;

    (void)c;
    close(r->fd);
    td__free(r);
}

static const td__call_events READER_EVENTS = {.ended = reader_ended, .drained = reader_drained};

void td__tandem_read_artifact(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__ReadArtifactRequest *q = request;
    uint64_t nbytes;
    reader *r;
    int fd;

    if (td__grpc_refused(c,
                         td__service_artifact_open(a->o.service, q->job_id, q->name, &fd, &nbytes)))
        return;
    r = td__calloc(1, sizeof *r);
    if (!r) {
        close(fd);
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    r->call = c;
    r->fd = fd;
    td__call_follow(c, &READER_EVENTS, r);
    read_pieces(r);
}
