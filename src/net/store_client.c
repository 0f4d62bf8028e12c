/* store_client.c -- a client of the store: any thread asks, one thread listens.
 *
 * A request has a number; its caller sleeps on a condition until the listener has put the reply
 * with that number in its place, or its own deadline passes. Events of groups are delivered by the
 * listener.
 *
 * Locks     send_lock (a whole frame goes out) before lock (calls, subscriptions, io on TLS, which
 *           is not for two threads at once). Callbacks are called without locks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "net/greet.h"
#include "net/poison.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_wire.h"

typedef struct call {
    struct call *next;
    uint32_t id;
    bool done;
    pthread_cond_t answered;
    td__store_reply reply;
    void *value; /* owned: the rest of the reply */
    size_t nbytes;
} call;

typedef struct subscription {
    struct subscription *next;
    td__store_event event;
    void *user;
    char group[TD_STORE_KEY_BYTES + 1];
} subscription;

struct td__store {
    td__conn conn;
    td__tls *tls;
    char address[TD_ADDRESS_BYTES];
    int wake; /* an eventfd: the listener is to end */
    pthread_t listener;
    bool listening;
    atomic_bool closing;
    bool hurry; /* closing does not wait */
    pthread_mutex_t send_lock, lock;
    td__poison poison;
    call *calls;
    uint32_t last_id;
    td_status stop; /* of waits; TD_OK: they may go on */
    char stop_text[400];
    subscription *subscriptions; /* only grows; a listener may read it without lock */
    _Atomic(subscription *) first;
};

/* ---- the listener ---- */

static void answer(td__store *s, uint32_t id, const uint8_t *payload, size_t nbytes)
{
    call *c;

    pthread_mutex_lock(&s->lock);
    for (c = s->calls; c && c->id != id; c = c->next) {
    }
    if (c && nbytes >= sizeof c->reply) {
        memcpy(&c->reply, payload, sizeof c->reply);
        c->nbytes = nbytes - sizeof c->reply;
        c->value = td__malloc(c->nbytes + 1);
        if (c->value) {
            memcpy(c->value, payload + sizeof c->reply, c->nbytes);
            ((char *)c->value)[c->nbytes] = 0; /* error texts end here */
        } else {
            c->reply.status = TD_ENOMEM;
        }
        c->done = true;
        pthread_cond_signal(&c->answered);
    }
    pthread_mutex_unlock(&s->lock);
}

static td_status deliver(td__store *s, const td__frame *f, const uint8_t *payload)
{
    td__store_parts p;
    char what[TD_STORE_TEXT_BYTES + 1];

    TD_TRY(td__store_parse(f, payload, &p));
    snprintf(what, sizeof what, "%.*s", (int)(p.nbytes < sizeof what ? p.nbytes : sizeof what - 1),
             (const char *)p.value);
    for (const subscription *b = atomic_load(&s->first); b; b = b->next)
        if (strcmp(b->group, p.key) == 0)
            b->event(b->user, p.key, (int)p.number, what);
    return TD_OK;
}

/* Wait until the socket is readable; *ended: the listener is to end. */
static td_status await_readable(const td__store *s, bool *ended)
{
    struct pollfd p[2] = {{.fd = s->conn.fd, .events = POLLIN}, {.fd = s->wake, .events = POLLIN}};
    int n;

    while ((n = poll(p, 2, TD_SOCKET_LOOK_MS)) == 0 || (n < 0 && errno == EINTR))
        if (td__socket_silence_ms(s->conn.fd) >= TD_SOCKET_SILENCE_MS)
            return TD_FAIL(TD_EPEER, "the store at %s is gone: its host does not answer",
                           s->address);
    *ended = p[1].revents;
    return TD_OK;
}

static td_status listen_all(td__store *s, void *data, size_t nbytes, bool *ended)
{
    struct iovec one = {.iov_base = data, .iov_len = nbytes};

    *ended = false;
    while (one.iov_len > 0) {
        pthread_mutex_lock(&s->lock);
        ssize_t n = td__conn_recv(&s->conn, &one, 1);
        int error = errno;
        pthread_mutex_unlock(&s->lock);
        if (n > 0) {
            one.iov_base = (char *)one.iov_base + n;
            one.iov_len -= (size_t)n;
        } else if (n < 0 && (error == EAGAIN || error == EINTR)) {
            TD_TRY(await_readable(s, ended));
            if (*ended)
                return TD_OK;
        } else {
            return TD_FAIL(TD_EPEER, "the store at %s is gone: %s", s->address,
                           n < 0 ? strerror(error) : "it closed the connection");
        }
    }
    return TD_OK;
}

static td_status listen_once(td__store *s, bool *ended)
{
    uint8_t head[TD_FRAME_BYTES];
    td__frame f;

    TD_TRY(listen_all(s, head, sizeof head, ended));
    if (*ended)
        return TD_OK;
    TD_TRY(td__frame_open(head, TD_STORE_REPLY_BYTES, &f));
    uint8_t *payload = td__malloc((size_t)f.length + 1);
    if (!payload)
        return TD_FAIL(TD_ENOMEM, "store: a reply of %llu bytes", (unsigned long long)f.length);
    td_status st = listen_all(s, payload, (size_t)f.length, ended);
    if (!st && !*ended) {
        if (f.kind == TD_STORE_REPLY)
            answer(s, f.tag, payload, (size_t)f.length);
        else if (f.kind == TD_STORE_EVENT)
            st = deliver(s, &f, payload);
    }
    td__free(payload);
    return st;
}

static void *listen_main(void *p)
{
    td__store *s = p;
    bool ended = false;
    td_status st = TD_OK;

    while (!st && !ended)
        st = listen_once(s, &ended);
    pthread_mutex_lock(&s->lock);
    td__poison_set(&s->poison, st ? st : TD_EABORTED,
                   st ? td_last_error() : "the store was closed");
    for (call *c = s->calls; c; c = c->next)
        pthread_cond_signal(&c->answered);
    pthread_mutex_unlock(&s->lock);
    bool lost = st && !atomic_load(&s->closing);
    for (const subscription *b = lost ? atomic_load(&s->first) : NULL; b; b = b->next)
        b->event(b->user, b->group, -1, "dead");
    return NULL;
}

/* ---- asking ---- */

static td_status send_parts(td__store *s, const td__store_parts *p, td__deadline until)
{
    td__store_request head = {.key_nbytes = (uint16_t)strlen(p->key),
                              .flags = p->expect ? TD_STORE_HAS_EXPECT : 0,
                              .expect_nbytes = (uint32_t)p->expect_nbytes,
                              .number = p->number};
    td__frame f = {.kind = (uint8_t)p->op,
                   .tag = p->id,
                   .length = sizeof head + head.key_nbytes + p->expect_nbytes + p->nbytes};
    struct iovec iov[] = {
        {.iov_base = &f, .iov_len = sizeof f},
        {.iov_base = &head, .iov_len = sizeof head},
        {.iov_base = (void *)(uintptr_t)p->key, .iov_len = head.key_nbytes},
        {.iov_base = (void *)(uintptr_t)p->expect, .iov_len = p->expect_nbytes},
        {.iov_base = (void *)(uintptr_t)p->value, .iov_len = p->nbytes},
    };
    struct iovec *at = iov;
    int n = 5;
    td_status st = TD_OK;

    f.total = f.length;
    td__frame_seal(&f);
    pthread_mutex_lock(&s->send_lock);
    while (!st && n > 0) {
        pthread_mutex_lock(&s->lock);
        st = td__poison_check(&s->poison);
        ssize_t sent = st ? -1 : td__conn_send(&s->conn, at, n);
        int error = errno;
        pthread_mutex_unlock(&s->lock);
        if (st)
            break;
        if (sent >= 0) {
            td__iov_advance(&at, &n, (size_t)sent);
        } else if (error != EAGAIN && error != EINTR) {
            st = TD_FAIL(TD_EPEER, "the store at %s is gone: %s", s->address, strerror(error));
        } else if (td__deadline_passed(until)) {
            /* A frame that stops in the middle ends the connection. */
            st = TD_FAIL(TD_ETIMEDOUT, "timed out sending to the store at %s: it does not read",
                         s->address);
            td__poison_set(&s->poison, st, td_last_error());
        } else {
            td__socket_poll(s->conn.fd, true, until);
        }
    }
    pthread_mutex_unlock(&s->send_lock);
    return st;
}

static void forget_call(td__store *s, const call *c)
{
    call **at = &s->calls;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

/* Is a question to be given up? Of those that are answered at once only if nobody wants to know any
 * more: the server may be stopped. */
static bool ends(const td__store *s, td__store_op op)
{
    return s->stop == TD_EABORTED || (s->stop && (op == TD_STORE_WAIT || op == TD_STORE_WAIT_ALL));
}

/* Sleep until the answer, the deadline, or the end of the connection. */
static td_status await(td__store *s, call *c, const td__store_parts *p, td__deadline until)
{
    struct timespec end = {.tv_sec = (time_t)(until / 1000000000u),
                           .tv_nsec = (long)(until % 1000000000u)};
    td_status st = TD_OK;
    uint64_t begin = td__clock_ns();

    pthread_mutex_lock(&s->lock);
    while (!c->done && !st) {
        st = td__poison_check(&s->poison);
        if (!st && ends(s, p->op))
            st = TD_FAIL(s->stop, "%s", s->stop_text);
        if (st)
            break;
        if (until == TD_DEADLINE_NEVER)
            pthread_cond_wait(&c->answered, &s->lock);
        else if (pthread_cond_timedwait(&c->answered, &s->lock, &end) == ETIMEDOUT && !c->done)
            st = TD_FAIL(TD_ETIMEDOUT, "store at %s: timed out after %.1f s waiting for key %s%s",
                         s->address, 1e-9 * (double)(td__clock_ns() - begin), p->key,
                         p->op == TD_STORE_WAIT_ALL ? "0 and on" : "");
    }
    forget_call(s, c);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void call_init(td__store *s, call *c)
{
    pthread_condattr_t attr;

    *c = (call){0};
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->answered, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&s->lock);
    c->id = ++s->last_id;
    c->next = s->calls;
    s->calls = c;
    pthread_mutex_unlock(&s->lock);
}

static td_status check_parts(const td__store_parts *p, const char *key)
{
    if (strlen(key) > TD_STORE_KEY_BYTES)
        return TD_FAIL(TD_EINVAL, "store: a key of %zu bytes; at most %d", strlen(key),
                       TD_STORE_KEY_BYTES);
    if (p->nbytes > TD_STORE_VALUE_BYTES || p->expect_nbytes > TD_STORE_VALUE_BYTES)
        return TD_FAIL(TD_EINVAL, "store: key %s: a value of %zu bytes; at most %d", key,
                       p->nbytes > p->expect_nbytes ? p->nbytes : p->expect_nbytes,
                       TD_STORE_VALUE_BYTES);
    return TD_OK;
}

/* A request and its reply; the reply's value is in c->value, the caller's to free. */
static td_status ask(td__store *s, const char *key, td__store_parts *p, td__deadline until, call *c)
{
    TD_TRY(check_parts(p, key));
    snprintf(p->key, sizeof p->key, "%s", key);
    call_init(s, c);
    p->id = c->id;
    td_status st = send_parts(s, p, until);
    if (st) {
        pthread_mutex_lock(&s->lock);
        forget_call(s, c);
        pthread_mutex_unlock(&s->lock);
    } else {
        st = await(s, c, p, until);
        if (st && !c->done) {
            td__store_parts cancel = {.op = TD_STORE_CANCEL, .id = c->id};
            char text[sizeof s->stop_text];
            snprintf(text, sizeof text, "%s", td_last_error());
            if (send_parts(s, &cancel, td__deadline_in_ms(100)))
                TD_LOG(DEBUG, NET, "store: cannot cancel a wait");
            st = TD_FAIL(st, "%s", text);
        }
    }
    pthread_cond_destroy(&c->answered);
    if (!st && c->reply.status)
        st = TD_FAIL((td_status)c->reply.status, "%s",
                     c->value ? (const char *)c->value : "store: out of memory");
    if (st) {
        td__free(c->value);
        c->value = NULL;
    }
    return st;
}

static td_status ask_value(td__store *s, const char *key, td__store_parts p, td__deadline until,
                           void **value, size_t *nbytes)
{
    call c;

    *value = NULL;
    *nbytes = 0;
    TD_TRY(ask(s, key, &p, until, &c));
    if (c.reply.flags & TD_STORE_HAS_VALUE) {
        *value = c.value;
        *nbytes = c.nbytes;
    } else {
        td__free(c.value);
    }
    return TD_OK;
}

static td_status ask_number(td__store *s, const char *key, td__store_parts p, td__deadline until,
                            int64_t *number)
{
    call c;

    TD_TRY(ask(s, key, &p, until, &c));
    td__free(c.value);
    if (number)
        *number = c.reply.number;
    return TD_OK;
}

td_status td__store_set(td__store *s, const char *key, const void *value, size_t nbytes,
                        td__deadline until)
{
    return ask_number(s, key,
                      (td__store_parts){.op = TD_STORE_SET, .value = value, .nbytes = nbytes},
                      until, NULL);
}

td_status td__store_wait(td__store *s, const char *key, td__deadline until, void **value,
                         size_t *nbytes)
{
    return ask_value(s, key, (td__store_parts){.op = TD_STORE_WAIT}, until, value, nbytes);
}

td_status td__store_get(td__store *s, const char *key, td__deadline until, void **value,
                        size_t *nbytes)
{
    return ask_value(s, key, (td__store_parts){.op = TD_STORE_GET}, until, value, nbytes);
}

/* News come in order, and before answers to later questions. What another client has said may be
 * there, and the server not know it: it answers the first question in a round that began before;
 * the second in the next one, perhaps just before it looks at that client; not the third. */
void td__store_settle(td__store *s, const char *key, td__deadline until)
{
    td_status st = TD_OK;

    for (int i = 0; i < 3 && !st; i++) {
        void *value = NULL;
        size_t nbytes;
        st = td__store_get(s, key, until, &value, &nbytes);
        td__free(value);
    }
}

td_status td__store_add(td__store *s, const char *key, int64_t delta, td__deadline until,
                        int64_t *out)
{
    return ask_number(s, key, (td__store_parts){.op = TD_STORE_ADD, .number = delta}, until, out);
}

td_status td__store_compare_set(td__store *s, const char *key, const void *expect,
                                size_t expect_nbytes, const void *value, size_t nbytes,
                                td__deadline until, bool *swapped)
{
    int64_t number = 0;
    td__store_parts p = {.op = TD_STORE_COMPARE_SET,
                         .expect = expect,
                         .expect_nbytes = expect ? expect_nbytes : 0,
                         .value = value,
                         .nbytes = nbytes};

    TD_TRY(ask_number(s, key, p, until, &number));
    *swapped = number != 0;
    return TD_OK;
}

td_status td__store_delete(td__store *s, const char *key, td__deadline until)
{
    return ask_number(s, key, (td__store_parts){.op = TD_STORE_DELETE}, until, NULL);
}

td_status td__store_wait_all(td__store *s, const char *prefix, int n, td__deadline until,
                             void **value, size_t *nbytes)
{
    return ask_value(s, prefix, (td__store_parts){.op = TD_STORE_WAIT_ALL, .number = n}, until,
                     value, nbytes);
}

td_status td__store_join(td__store *s, const char *group, int rank, td__store_event event,
                         void *user, td__deadline until)
{
    /* Before asking: events may come right behind the answer. */
    subscription *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "store: joining group %s", group);
    snprintf(b->group, sizeof b->group, "%s", group);
    b->event = event;
    b->user = user;
    pthread_mutex_lock(&s->lock);
    b->next = s->subscriptions;
    s->subscriptions = b;
    atomic_store(&s->first, b);
    pthread_mutex_unlock(&s->lock);
    return ask_number(s, group, (td__store_parts){.op = TD_STORE_JOIN, .number = rank}, until,
                      NULL);
}

void td__store_tell(td__store *s, const char *group, int rank, const char *what)
{
    size_t nbytes = strnlen(what, TD_STORE_TEXT_BYTES);
    td__store_parts p = {.op = TD_STORE_TELL, .number = rank, .value = what, .nbytes = nbytes};

    snprintf(p.key, sizeof p.key, "%s", group);
    if (send_parts(s, &p, td__deadline_in_ms(1000)))
        TD_LOG(DEBUG, NET, "store: telling group %s: %s", group, td_last_error());
}

void td__store_stop_waits(td__store *s, td_status st, const char *text)
{
    pthread_mutex_lock(&s->lock);
    s->stop = st;
    snprintf(s->stop_text, sizeof s->stop_text, "%s", text);
    for (call *c = s->calls; c && st; c = c->next)
        pthread_cond_signal(&c->answered);
    pthread_mutex_unlock(&s->lock);
}

td_status td__store_may_wait(td__store *s)
{
    pthread_mutex_lock(&s->lock);
    td_status st = td__poison_check(&s->poison);
    if (!st && s->stop)
        st = TD_FAIL(s->stop, "%s", s->stop_text);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- coming and going ---- */

static td_status start(td__store *s, const char *address, const td__secret *secret,
                       const td__store_opts *o, td__deadline until)
{
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        return TD_FAIL(TD_EIO, "store: %s", strerror(errno));
    if (o && o->tls_dir)
        TD_TRY(td__tls_create(o->tls_dir, &s->tls));
    TD_TRY(td__greet_connect(address, TD_HS_STORE, secret, s->tls, until, &s->conn));
    td__socket_keep(s->conn.fd);
    int rc = pthread_create(&s->listener, NULL, listen_main, s);
    if (rc)
        return TD_FAIL(TD_ENOMEM, "store: no thread: %s", strerror(rc));
    s->listening = true;
    return TD_OK;
}

td_status td__store_connect(const char *address, const td__secret *secret, const td__store_opts *o,
                            td__deadline until, td__store **out)
{
    td__store *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "store: a client");
    s->conn = td__conn_of(-1);
    s->wake = -1;
    pthread_mutex_init(&s->send_lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    snprintf(s->address, sizeof s->address, "%s", address);
    td_status st = start(s, address, secret, o, until);
    if (st) {
        td__store_close(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

/* A socket that is closed with unread events resets the connection, and the goodbye may be lost
 * with it. So the listener reads on until the server has closed its end, for a while. */
static void say_goodbye(td__store *s)
{
    enum { PATIENCE_S = 2, SEND_MS = 1000 };
    td__store_parts bye = {.op = TD_STORE_BYE};
    uint64_t one = 1;
    struct timespec until;

    atomic_store(&s->closing, true);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (send_parts(s, &bye, s->hurry ? 0 : td__deadline_in_ms(SEND_MS)))
        TD_LOG(DEBUG, NET, "store: %s", td_last_error());
    else if (!s->hurry && !shutdown(s->conn.fd, SHUT_WR) &&
             !pthread_timedjoin_np(s->listener, NULL, &until))
        return;
    ssize_t n = write(s->wake, &one, sizeof one);
    TD_ASSERT(n == (ssize_t)sizeof one, "eventfd: %zd", n);
    pthread_join(s->listener, NULL);
}

void td__store_close(td__store *s)
{
    if (!s)
        return;
    if (s->listening) {
        say_goodbye(s);
    }
    while (s->subscriptions) {
        subscription *b = s->subscriptions;
        s->subscriptions = b->next;
        td__free(b);
    }
    td__conn_close(&s->conn);
    td__tls_destroy(s->tls);
    if (s->wake >= 0)
        close(s->wake);
    pthread_mutex_destroy(&s->send_lock);
    pthread_mutex_destroy(&s->lock);
    td__free(s);
}

void td__store_hurry(td__store *s)
{
    s->hurry = true;
}

const char *td__store_address(const td__store *s)
{
    return s->address;
}
