/* feed.c -- feeds of logs and metrics; see feed.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/feed.h"

#include "base/fail.h"

struct td__feed {
    td__service *service;
    td__feed_opts o;
    td__subscription *sub;
    uint64_t at;  /* first byte that was not read */
    bool reading; /* a read is under way: its end() will come */
    bool more;    /* something happened since it began */
    bool got;     /* it gave something, which the reader must take first */
    bool taken;   /* the reader has taken it */
    bool final;   /* the job has ended: there is no more after the end of the file */
    bool stopped; /* by its reader, while reading */
    bool reached; /* metrics: they have had as many bytes as were read */
    bool turning; /* turn() goes on by itself */
    enum { WAIT, READ, FINISH, RELEASE } next; /* what it does then */
    td_status st;                              /* of FINISH */
};

static void read_on(td__feed *f);

static void release(td__feed *f)
{
    td__service_unsubscribe(f->sub);
    td__free(f);
}

static void finish(td__feed *f, td_status st)
{
    td__feed_opts o = f->o;

    release(f);
    o.end(o.arg, st);
}

static bool is_final(td__feed *f)
{
    const td__job_record *r;

    return td__service_get(f->service, f->o.job, &r) != TD_ANSWER_OK ||
           td__job_state_final(r->state);
}

static void on_event(void *arg, const td__job_event *e)
{
    td__feed *f = arg;

    if (e->kind == TD_EVENT_ATTEMPT && !f->o.metrics && !f->o.attempt)
        f->at = 0; /* the last launch is another one now: its log from the beginning */
    f->more = true;
    if (!f->reading && !f->got)
        read_on(f);
}

static void on_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    td__feed *f = arg;

    f->at = offset + nbytes;
    if (f->stopped || !nbytes)
        return;
    f->got = true;
    f->taken = false;
    f->o.data(f->o.arg, bytes, nbytes, offset);
}

static void turn(td__feed *f);

static void on_end(void *arg, td_status st)
{
    td__feed *f = arg;

    f->reading = false;
    f->st = st;
    if (f->stopped)
        f->next = RELEASE;
    else if (st)
        f->next = FINISH;
    else if (f->got && !f->taken)
        f->next = WAIT; /* on with td__feed_next */
    else if (f->got || f->more)
        f->next = READ;
    else if (!f->o.follow || f->final)
        f->next = FINISH;
    else if (is_final(f)) { /* it may have written until then: once more to the end */
        f->final = true;
        f->next = READ;
    }
    if (!f->turning)
        turn(f);
}

static void read_once(td__feed *f)
{
    td__log_sink sink = {.data = on_data, .end = on_end, .arg = f};

    uint64_t size = f->o.metrics ? td__service_metrics_bytes(f->service, f->o.job) : 0;

    f->next = WAIT;
    f->reading = true;
    f->got = f->more = false;
    if (f->o.metrics && f->reached && size < f->at)
        f->at = 0; /* made anew, by another attempt */
    f->reached = f->reached || size >= f->at;
    if (f->o.metrics)
        td__service_metrics(f->service, f->o.job, f->at, &sink);
    else
        td__service_logs(f->service, f->o.job, f->o.attempt, f->o.member, f->at, &sink);
}

/* A read may end within its call, and its reader take it at once: a loop, since a file has any
 * number of pieces and the stack has not. */
static void turn(td__feed *f)
{
    f->turning = true;
    while (f->next == READ)
        read_once(f);
    f->turning = false;
    if (f->next == FINISH)
        finish(f, f->st);
    else if (f->next == RELEASE)
        release(f);
}

static void read_on(td__feed *f)
{
    f->next = READ;
    if (!f->turning)
        turn(f);
}

td_status td__feed_create(td__service *s, const td__feed_opts *o, td__feed **out)
{
    td__feed *f = td__calloc(1, sizeof *f);
    td_status st;

    *out = NULL;
    if (!f)
        return TD_FAIL(TD_ENOMEM, "feed: out of memory");
    f->service = s;
    f->o = *o;
    f->at = o->from;
    if (o->tail) {
        uint64_t size = td__service_metrics_bytes(s, o->job);
        if (size > o->tail && size - o->tail > f->at)
            f->at = size - o->tail;
    }
    if (o->follow) {
        st = td__service_subscribe(s, o->job, -1, on_event, f, &f->sub);
        if (st) {
            td__free(f);
            return st;
        }
    }
    *out = f;
    return TD_OK;
}

void td__feed_next(td__feed *f)
{
    f->taken = true;
    if (!f->reading)
        read_on(f);
}

void td__feed_stop(td__feed *f)
{
    if (!f)
        return;
    if (f->reading)
        f->stopped = true; /* released by the end of the read */
    else
        release(f);
}
