/* fault.c -- the schedule of faults, and the filter that carries it out on a stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/rng.h"

/* ---- the schedule ---- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit TIMES[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
static const unit STEPS[] = {{"steps", 1}, {"step", 1}};
static const unit RATES[] = {{"B/s", 1}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}};

/* A number with one of the units, and what is behind it. */
static bool with_unit(const char *text, const unit *units, int n, double *out, const char **rest)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || !(v >= 0) || v > 1e15)
        return false;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(units[i].name);
        if (strncmp(end, units[i].name, len) == 0) {
            *out = v * units[i].factor;
            *rest = end + len;
            return true;
        }
    }
    return false;
}

static bool probability(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && !*end && *out >= 0 && *out <= 1;
}

static bool parse_word(const char *name, const char *value, td__fault_plan *p)
{
    const struct {
        const char *name;
        double *to;
    } shares[] = {{"drop", &p->drop},
                  {"truncate", &p->truncate},
                  {"cut", &p->cut},
                  {"flip", &p->flip},
                  {"stop", &p->stop}};
    const char *rest;
    double v;

    for (int i = 0; i < TD_LEN(shares); i++)
        if (strcmp(name, shares[i].name) == 0)
            return probability(value, shares[i].to);
    if (strcmp(name, "seed") == 0) {
        char *end;
        p->seed = strtoull(value, &end, 10);
        return end != value && !*end && *value != '-';
    }
    if (strcmp(name, "delay") == 0 && with_unit(value, TIMES, TD_LEN(TIMES), &v, &rest)) {
        p->delay_ns = (uint64_t)v;
        p->delay_share = 1;
        return !*rest || (*rest == '@' && probability(rest + 1, &p->delay_share));
    }
    if (strcmp(name, "rate") == 0 && strncmp(value, "1/", 2) == 0) {
        bool good = with_unit(value + 2, TIMES, TD_LEN(TIMES), &v, &rest) && !*rest && v >= 1e6;
        p->every_ns = good ? (uint64_t)v : 0;
        if (!good && with_unit(value + 2, STEPS, TD_LEN(STEPS), &v, &rest) && !*rest && v >= 1)
            p->every_steps = (uint64_t)v;
        return good || p->every_steps;
    }
    if (strcmp(name, "trace") == 0)
        return (size_t)snprintf(p->trace, sizeof p->trace, "%s", value) < sizeof p->trace && *value;
    return strcmp(name, "rate") == 0 && with_unit(value, RATES, TD_LEN(RATES), &p->rate, &rest) &&
           !*rest && p->rate >= 1;
}

static bool whole(const char *text, char stop, uint64_t *out, const char **rest)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    *rest = end + (*end == stop && stop);
    return end != text && !errno && *text >= '0' && *text <= '9' && (*end == stop || !*end);
}

/* "step:17:allreduce:3" */
static bool parse_at(const char *text, td__fault_event *e)
{
    const char *rest;

    e->generation = strncmp(text, "generation:", 11) == 0;
    if (!e->generation && strncmp(text, "step:", 5) != 0)
        return false;
    if (!whole(text + (e->generation ? 11 : 5), ':', &e->number, &rest) || !e->number)
        return false; /* both count from 1 */
    e->count = 1;
    if (!*rest)
        return true;
    size_t length = strcspn(rest, ":");
    if (length == 0 || length >= sizeof e->op)
        return false;
    memcpy(e->op, rest, length);
    rest += length;
    return !*rest || (whole(rest + 1, 0, &e->count, &rest) && !*rest && e->count > 0);
}

/* Each word may be said once. */
static bool parse_event_word(const char *word, td__fault_event *e, bool *placed)
{
    const char *rest;
    uint64_t rank, peer;
    double v;

    if (strncmp(word, "at=", 3) == 0 && !*placed)
        return *placed = parse_at(word + 3, e);
    if (strncmp(word, "for=", 4) == 0 && !e->for_ns &&
        (e->act == TD_FAULT_STOP || e->act == TD_FAULT_SLOW || e->act == TD_FAULT_HANG)) {
        bool good = with_unit(word + 4, TIMES, TD_LEN(TIMES), &v, &rest) && !*rest;
        e->for_ns = good ? (uint64_t)v : 0;
        return good;
    }
    if (strncmp(word, "times=", 6) == 0 && e->act == TD_FAULT_SLOW && !(e->times > 0)) {
        char *end;
        e->times = strtod(word + 6, &end);
        return end != word + 6 && !*end && e->times >= 1 && e->times <= 1e6;
    }
    if (e->rank >= 0)
        return false;
    if (e->act == TD_FAULT_CUT) {
        bool good = whole(word, '-', &rank, &rest) && whole(rest, 0, &peer, &rest) && !*rest &&
                    rank != peer && rank < INT32_MAX && peer < INT32_MAX;
        e->rank = good ? (int)rank : 0;
        e->peer = good ? (int)peer : 0;
        return good;
    }
    if (strncmp(word, "rank=", 5) != 0 || !whole(word + 5, 0, &rank, &rest) || *rest ||
        rank >= INT32_MAX)
        return false;
    e->rank = (int)rank;
    return true;
}

static const char *const ACTS[] = {
#define X(id, name) name,
    TD_FAULT_ACT_MAP(X)
#undef X
};

/* "kill rank=2 at=step:17"; *is: the clause is of this kind. */
static td_status parse_event(const char *clause, td__fault_plan *p, bool *is)
{
    char copy[TD_FAULT_TEXT], *save = NULL;
    td__fault_event e = {.rank = -1};
    bool placed = false;

    while (*clause == ' ')
        clause++;
    size_t length = strcspn(clause, " ");
    while (e.act < TD_FAULT_COUNT &&
           (strlen(ACTS[e.act]) != length || strncmp(ACTS[e.act], clause, length) != 0))
        e.act++;
    *is = e.act < TD_FAULT_COUNT;
    if (!*is)
        return TD_OK;
    if (p->n_events == TD_FAULT_EVENTS)
        return TD_FAIL(TD_EINVAL, "faults: more than %d events", TD_FAULT_EVENTS);
    bool good = (size_t)snprintf(copy, sizeof copy, "%s", clause + length) < sizeof copy;
    for (char *w = strtok_r(copy, " ", &save); w && good; w = strtok_r(NULL, " ", &save))
        good = parse_event_word(w, &e, &placed);
    if (good && !placed && e.times > 0) /* from the first step on */
        placed = parse_at("step:1", &e);
    if (!good || !placed || e.rank < 0)
        return TD_FAIL(TD_EINVAL,
                       "faults: cannot use \"%s\"; expected kill rank=2 at=step:17:allreduce:3, "
                       "stop rank=1 for=3s at=step:20, cut 0-1 at=step:5 or flip rank=1 at=step:9",
                       clause);
    p->events[p->n_events++] = e;
    return TD_OK;
}

char *td__fault_text(const td__fault_event *e, char text[TD_FAULT_TEXT])
{
    char who[48], span[48] = "", op[48] = "";

    if (e->act == TD_FAULT_CUT)
        snprintf(who, sizeof who, "%d-%d", e->rank, e->peer);
    else
        snprintf(who, sizeof who, "rank=%d", e->rank);
    if (e->for_ns)
        snprintf(span, sizeof span, " for=%gs", 1e-9 * (double)e->for_ns);
    if (e->times > 0)
        snprintf(span + strlen(span), sizeof span - strlen(span), " times=%g", e->times);
    if (*e->op)
        snprintf(op, sizeof op, ":%s:%llu", e->op, (unsigned long long)e->count);
    snprintf(text, TD_FAULT_TEXT, "%s %s%s at=%s:%llu%s", ACTS[e->act], who, span,
             e->generation ? "generation" : "step", (unsigned long long)e->number, op);
    return text;
}

/* *asks: something besides the seed was said. */
static td_status parse_words(char *clause, td__fault_plan *out, bool *asks)
{
    char *save = NULL;

    for (char *word = strtok_r(clause, ", ", &save); word; word = strtok_r(NULL, ", ", &save)) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        if (!value || !parse_word(word, value, out))
            return TD_FAIL(TD_EINVAL,
                           "faults: cannot use \"%s%s%s\"; expected seed=N, drop|truncate|cut|flip|"
                           "stop=0..1, delay=5ms[@0..1], rate=125MB/s or, for ranks, rate=1/10s or "
                           "rate=1/50steps",
                           word, value ? "=" : "", value ? value : "");
        *asks |= strcmp(word, "seed") != 0;
    }
    return TD_OK;
}

td_status td__fault_parse(const char *text, td__fault_plan *out)
{
    char *copy = td__strdup(text), *save = NULL;
    bool event = false, asks = false;
    td_status st = copy ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a schedule of faults");

    *out = (td__fault_plan){0};
    for (char *clause = copy ? strtok_r(copy, ";\n", &save) : NULL; clause && !st;
         clause = strtok_r(NULL, ";\n", &save)) {
        st = parse_event(clause, out, &event);
        if (!st && !event)
            st = parse_words(clause, out, &asks);
        asks |= event;
    }
    td__free(copy);
    if (!st && !asks && *text)
        st = TD_FAIL(TD_EINVAL,
                     "faults: \"%s\" injects none; give a seed with rate=1/50steps, rate=1/10s or "
                     "a fraction of messages, as in drop=0.01",
                     text);
    return st;
}

void td__fault_decide(const td__fault_plan *p, int rank, int peer, uint32_t message,
                      uint64_t nbytes, td__fault *out)
{
    td__rng_key key = {
        .seed = p->seed, .stream = (uint32_t)rank, .step = (uint32_t)peer, .micro_batch = message};
    enum { DROP, TRUNCATE, CUT, FLIP, STOP, DELAY, HOW_LONG, WHERE };

    *out = (td__fault){.keep = UINT64_MAX, .flip = UINT64_MAX};
    double where = (double)td__rng_uniform(&key, WHERE);
    out->cut = (double)td__rng_uniform(&key, CUT) < p->cut;
    out->stop = (double)td__rng_uniform(&key, STOP) < p->stop;
    out->drop = (double)td__rng_uniform(&key, DROP) < p->drop;
    if ((double)td__rng_uniform(&key, TRUNCATE) < p->truncate)
        out->keep = (uint64_t)(where * (double)nbytes);
    if ((double)td__rng_uniform(&key, FLIP) < p->flip && nbytes > 0)
        out->flip = (uint64_t)(where * 8 * (double)nbytes);
    if ((double)td__rng_uniform(&key, DELAY) < p->delay_share)
        out->delay_ns = (uint64_t)((double)td__rng_uniform(&key, HOW_LONG) * (double)p->delay_ns);
    if (out->cut || out->drop)
        out->keep = 0;
}

/* ---- the filter ---- */

typedef struct fault_filter {
    td__filter base;
    const td__fault_plan *plan;
    int rank, peer;
    td__fault now;        /* for the message under way */
    uint64_t passed;      /* bytes of it */
    uint64_t not_before;  /* nothing is sent before this time */
    uint64_t credit_from; /* rate: bytes may be sent as time passes from here */
    bool held;            /* it was here, not at the socket, that the last bytes were refused */
    bool ended;           /* the rest vanishes */
} fault_filter;

enum { SLICE_NS = 1000000, STOP_POLL_NS = 100000000 };

static void fault_message(td__filter *f, uint32_t sequence, uint64_t nbytes)
{
    fault_filter *t = (fault_filter *)f;

    td__fault_decide(t->plan, t->rank, t->peer, sequence, nbytes, &t->now);
    t->passed = 0;
    t->not_before = t->now.delay_ns ? td__clock_ns() + t->now.delay_ns : 0;
}

static uint64_t fault_retry_ns(const td__filter *f)
{
    const fault_filter *t = (const fault_filter *)f;

    if (!t->held)
        return 0;
    return t->now.stop ? td__clock_ns() + STOP_POLL_NS : t->not_before;
}

static size_t iov_bytes(const struct iovec *iov, int n)
{
    size_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* At most `most` bytes, with the flipped bit where it is its turn. */
static ssize_t send_some(fault_filter *t, const struct iovec *iov, int n, uint64_t most)
{
    uint64_t flip_at = t->now.flip == UINT64_MAX ? UINT64_MAX : t->now.flip / 8;
    struct iovec one = iov[0];
    uint8_t byte;

    if (one.iov_len > most)
        one.iov_len = (size_t)most;
    if (flip_at == t->passed) {
        byte = *(const uint8_t *)one.iov_base ^ (uint8_t)(1u << (t->now.flip % 8));
        one = (struct iovec){.iov_base = &byte, .iov_len = 1};
    } else if (flip_at > t->passed && one.iov_len > flip_at - t->passed) {
        one.iov_len = (size_t)(flip_at - t->passed);
    }
    (void)n; /* the first part alone: the caller comes again with the rest */
    ssize_t sent = td__filter_send_below(&t->base, &one, 1);
    if (sent > 0)
        t->passed += (uint64_t)sent;
    return sent;
}

static void end_stream(fault_filter *t)
{
    t->ended = true;
    shutdown(t->base.fd, t->now.cut ? SHUT_RDWR : SHUT_WR);
}

static ssize_t fault_send(td__filter *f, const struct iovec *iov, int n)
{
    fault_filter *t = (fault_filter *)f;
    uint64_t now = td__clock_ns(), most = UINT64_MAX;

    while (n > 1 && iov->iov_len == 0) {
        iov++;
        n--;
    }
    t->held = t->now.stop || now < t->not_before;
    if (t->held) {
        errno = EAGAIN;
        return -1;
    }
    if (!t->ended && t->passed >= t->now.keep)
        end_stream(t);
    if (t->ended) { /* into the void, and the sender does not know */
        size_t lost = iov_bytes(iov, n);
        t->passed += lost;
        return (ssize_t)lost;
    }
    if (t->now.keep != UINT64_MAX)
        most = t->now.keep - t->passed;
    if (t->plan->rate > 0) { /* slices of a millisecond, each followed by its share of silence */
        uint64_t slice = (uint64_t)(t->plan->rate * 1e-9 * SLICE_NS) + 1;
        most = most < slice ? most : slice;
    }
    ssize_t sent = send_some(t, iov, n, most);
    if (sent > 0 && t->plan->rate > 0) {
        uint64_t from = t->credit_from > now ? t->credit_from : now;
        t->credit_from = from + (uint64_t)((double)sent * 1e9 / t->plan->rate);
        t->not_before = t->credit_from;
    }
    return sent;
}

static ssize_t fault_recv(td__filter *f, const struct iovec *iov, int n)
{
    return td__filter_recv_below(f, iov, n);
}

static void fault_destroy(td__filter *f)
{
    td__free(f);
}

static const td__filter_ops FAULT_OPS = {
    .name = "fault",
    .recv = fault_recv,
    .send = fault_send,
    .message = fault_message,
    .retry_ns = fault_retry_ns,
    .destroy = fault_destroy,
};

td_status td__fault_push(td__conn *c, const td__fault_plan *plan, int rank, int peer)
{
    fault_filter *t = td__calloc(1, sizeof *t);

    if (!t)
        return TD_FAIL(TD_ENOMEM, "the fault filter");
    t->base.ops = &FAULT_OPS;
    t->plan = plan;
    t->rank = rank;
    t->peer = peer;
    t->now = (td__fault){.keep = UINT64_MAX, .flip = UINT64_MAX};
    td__conn_push_take(c, &t->base);
    return TD_OK;
}
