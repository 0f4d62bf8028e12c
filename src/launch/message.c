/* message.c -- framed messages over a pair of pipes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { HEADER = 12, MAX_BODY = 16 << 20, MOST_QUEUED = 4 << 20, CHUNK = 64 << 10 };

void td__channel_init(td__channel *c, int in, int out)
{
    *c = (td__channel){.in = in, .out = out};
}

void td__channel_fini(td__channel *c)
{
    if (c->in >= 0)
        close(c->in);
    if (c->out >= 0 && c->out != c->in)
        close(c->out);
    td__free(c->buffer);
    td__free(c->queue);
    *c = (td__channel){.in = -1, .out = -1};
}

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(uint8_t)p[i] << (8 * i);
    return v;
}

td_status td__channel_queue(td__channel *c)
{
    int flags = fcntl(c->out, F_GETFL);
    if (flags < 0 || fcntl(c->out, F_SETFL, flags | O_NONBLOCK))
        return TD_FAIL(TD_EIO, "cannot talk to the launcher without waiting: %s", strerror(errno));
    c->queued = true;
    return TD_OK;
}

bool td__channel_full(const td__channel *c)
{
    return c->queue_used - c->queue_sent > MOST_QUEUED;
}

td_status td__channel_flush(td__channel *c)
{
    while (c->queue_sent < c->queue_used) {
        ssize_t n = write(c->out, c->queue + c->queue_sent, c->queue_used - c->queue_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return TD_OK;
        if (n < 0)
            return TD_FAIL(TD_EPEER, "connection between launcher and agent lost: %s",
                           strerror(errno));
        c->queue_sent += (size_t)n;
    }
    c->queue_sent = c->queue_used = 0;
    return TD_OK;
}

static td_status keep(td__channel *c, const void *header, const void *data, size_t nbytes)
{
    size_t need = c->queue_used + HEADER + nbytes;
    if (need > c->queue_max) {
        char *more = td__realloc(c->queue, 2 * need);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for messages of %zu bytes", need);
        c->queue = more, c->queue_max = 2 * need;
    }
    memcpy(c->queue + c->queue_used, header, HEADER);
    if (nbytes)
        memcpy(c->queue + c->queue_used + HEADER, data, nbytes);
    c->queue_used = need;
    return td__channel_flush(c);
}

td_status td__channel_send(td__channel *c, td__msg_kind kind, int rank, const void *data,
                           size_t nbytes)
{
    uint8_t header[HEADER];
    if (nbytes > MAX_BODY)
        return TD_FAIL(TD_EINVAL, "a message of %zu bytes is too long for an agent", nbytes);
    put_u32(header, (uint32_t)kind);
    put_u32(header + 4, (uint32_t)rank);
    put_u32(header + 8, (uint32_t)nbytes);
    if (c->queued)
        return keep(c, header, data, nbytes);
    struct iovec v[2] = {{header, HEADER}, {(void *)(uintptr_t)data, nbytes}};
    int at = 0;
    while (at < 2) {
        ssize_t n = writev(c->out, v + at, 2 - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return TD_FAIL(TD_EPEER, "connection between launcher and agent lost: %s",
                           strerror(errno));
        for (size_t left = (size_t)n; at < 2; at++) {
            if (left < v[at].iov_len) {
                v[at].iov_base = (char *)v[at].iov_base + left;
                v[at].iov_len -= left;
                break;
            }
            left -= v[at].iov_len;
        }
    }
    return TD_OK;
}

td_status td__channel_fill(td__channel *c, bool *eof)
{
    *eof = false;
    if (c->start) {
        memmove(c->buffer, c->buffer + c->start, c->used - c->start);
        c->used -= c->start;
        c->start = 0;
    }
    if (c->max - c->used < CHUNK) {
        size_t max = 2 * c->max + CHUNK;
        char *more = td__realloc(c->buffer, max);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for messages of %zu bytes", max);
        c->buffer = more, c->max = max;
    }
    ssize_t n;
    do
        n = read(c->in, c->buffer + c->used, c->max - c->used);
    while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        *eof = true;
    else if (n > 0)
        c->used += (size_t)n;
    return TD_OK;
}

td_status td__channel_next(td__channel *c, td__msg *m, bool *found)
{
    *found = false;
    size_t have = c->used - c->start;
    if (have < HEADER)
        return TD_OK;
    const char *p = c->buffer + c->start;
    uint32_t kind = get_u32(p), nbytes = get_u32(p + 8);
    if (kind >= TD_MSG_COUNT || nbytes > MAX_BODY)
        return TD_FAIL(TD_EPROTO, "expected a message of an agent, received other bytes; does a "
                                  "login script of the remote shell print text?");
    if (have - HEADER < nbytes)
        return TD_OK;
    *m = (td__msg){(td__msg_kind)kind, (int)get_u32(p + 4), p + HEADER, nbytes};
    c->start += HEADER + nbytes;
    *found = true;
    return TD_OK;
}

td_status td__channel_await(td__channel *c, td__msg_kind kind, td__msg *m)
{
    for (;;) {
        bool found, eof;
        TD_TRY(td__channel_next(c, m, &found));
        if (found && m->kind == kind)
            return TD_OK;
        if (found && m->kind != TD_MSG_STOP && m->kind != TD_MSG_KILL)
            return TD_FAIL(TD_EPROTO, "unexpected message %d, expected %d", (int)m->kind,
                           (int)kind);
        if (found)
            return TD_FAIL(TD_EABORTED, "stopped before the ranks were started");
        TD_TRY(td__channel_fill(c, &eof));
        if (eof)
            return TD_FAIL(TD_EPEER, "connection to the launcher closed");
    }
}

void td__texts_add(td__texts *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (t->failed || n < 0) {
        t->failed = true;
        return;
    }
    size_t need = t->used + (size_t)n + 1;
    if (need > t->max) {
        char *more = td__realloc(t->data, 2 * need);
        if (!more) {
            t->failed = true;
            return;
        }
        t->data = more, t->max = 2 * need;
    }
    va_start(args, fmt);
    vsnprintf(t->data + t->used, (size_t)n + 1, fmt, args);
    va_end(args);
    t->used = need;
}

void td__texts_fini(td__texts *t)
{
    if (t->data)
        explicit_bzero(t->data, t->used); /* one of them may be the secret */
    td__free(t->data);
    *t = (td__texts){0};
}

const char *td__texts_next(const char *data, size_t nbytes, size_t *at)
{
    if (*at >= nbytes)
        return NULL;
    const char *text = data + *at, *end = memchr(text, 0, nbytes - *at);
    if (!end)
        return NULL;
    *at += (size_t)(end - text) + 1;
    return text;
}
