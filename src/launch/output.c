/* output.c -- the ranks' output. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { TAIL_BYTES = 4096, TAIL_LINES = 10 };
static const char CLEAR[] = "\r\033[K"; /* of a terminal: to the start of the line, nothing on it */

typedef struct stream {
    int log;    /* -1: none */
    char *tail; /* (2 * TAIL_BYTES), from the first line on */
    size_t used;
} stream;

struct td__output {
    int size, out, err;
    int interrupt;  /* -1: none */
    bool hasty;     /* was interrupted while a reader did not read */
    int error;      /* why output could not be written; 0: it could */
    bool plain;     /* lines of rank 0 as they are */
    bool all_plain; /* of all: any process may be rank 0 at some time */
    bool clear;     /* err may have a line of the ranks' on it, which is taken away first */
    stream *rank;
    char *buffer;
    size_t max;
};

td_status td__output_room(td__output *o, int size, const td__launch_opts *opts)
{
    const char *log_dir = opts->log_dir;
    td_status st = TD_OK;
    if (size <= o->size)
        return TD_OK;
    stream *rank = td__realloc(o->rank, (size_t)size * sizeof *rank);
    if (!rank)
        return TD_FAIL(TD_ENOMEM, "no memory for the output of %d ranks", size);
    o->rank = rank;
    for (; o->size < size && !st; o->size++) {
        char path[4096];
        stream *s = &rank[o->size];
        *s = (stream){.log = -1};
        if (!log_dir)
            continue;
        int n = snprintf(path, sizeof path, "%s/rank-%d.log", log_dir, o->size);
        if (n < (int)sizeof path)
            s->log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (s->log < 0)
            st = TD_FAIL(TD_EINVAL, "cannot write %s: %s", path, strerror(errno));
    }
    return st;
}

td_status td__output_create(int size, const td__launch_opts *opts, td__output **ret)
{
    td__output *o = td__calloc(1, sizeof *o);
    td_status st = TD_OK;
    *ret = NULL;
    if (!o)
        return TD_FAIL(TD_ENOMEM, "no memory for the output of %d ranks", size);
    *o = (td__output){.out = opts->out,
                      .err = opts->err,
                      .interrupt = -1,
                      .plain = opts->plain,
                      .clear = opts->terminal && isatty(opts->err),
                      .all_plain = opts->plain && opts->most};
    if (opts->log_dir && mkdir(opts->log_dir, 0777) && errno != EEXIST)
        st =
            TD_FAIL(TD_EINVAL, "cannot make the log folder %s: %s", opts->log_dir, strerror(errno));
    st = st ? st : td__output_room(o, size, opts);
    if (st) {
        td__output_destroy(o);
        return st;
    }
    *ret = o;
    return TD_OK;
}

void td__output_destroy(td__output *o)
{
    if (!o)
        return;
    for (int r = 0; r < o->size; r++) {
        if (o->rank[r].log >= 0)
            close(o->rank[r].log);
        td__free(o->rank[r].tail);
    }
    td__free(o->rank);
    td__free(o->buffer);
    td__free(o);
}

static bool write_all(int fd, const char *data, size_t nbytes)
{
    while (nbytes) {
        ssize_t n = write(fd, data, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        nbytes -= (size_t)n;
    }
    return true;
}

void td__output_interrupt(td__output *o, int fd)
{
    o->interrupt = fd;
}

/* To a reader who may not read: a pipe that polls writable takes PIPE_BUF bytes without waiting. */
static bool write_out(td__output *o, int fd, const char *data, size_t nbytes)
{
    while (nbytes) {
        struct pollfd p[] = {{fd, POLLOUT, 0}, {o->interrupt, POLLIN, 0}};
        if (poll(p, 2, o->hasty ? 0 : -1) < 0 && errno != EINTR)
            return false;
        if (!p[0].revents && (o->hasty || p[1].revents)) {
            o->hasty = true;
            return true;
        }
        size_t n = nbytes < PIPE_BUF ? nbytes : PIPE_BUF;
        if (p[0].revents && !write_all(fd, data, n))
            return false;
        data += p[0].revents ? n : 0;
        nbytes -= p[0].revents ? n : 0;
    }
    return true;
}

static void keep_tail(stream *s, const char *text, size_t nbytes)
{
    if (!s->tail && !(s->tail = td__malloc(2 * (size_t)TAIL_BYTES)))
        return;
    if (nbytes > TAIL_BYTES) {
        text += nbytes - TAIL_BYTES;
        nbytes = TAIL_BYTES;
    }
    if (s->used + nbytes > 2 * TAIL_BYTES) {
        memmove(s->tail, s->tail + s->used - TAIL_BYTES, TAIL_BYTES);
        s->used = TAIL_BYTES;
    }
    memcpy(s->tail + s->used, text, nbytes);
    s->used += nbytes;
}

/* "[rank] " before every line, all in one write. */
static td_status write_lines(td__output *o, int fd, int rank, const char *text, size_t nbytes)
{
    char prefix[24];
    size_t p = (size_t)snprintf(prefix, sizeof prefix, "[%d] ", rank), lines = 1, used = 0;
    if ((o->plain && rank == 0) || o->all_plain)
        p = 0;
    for (size_t i = 0; i < nbytes; i++)
        lines += text[i] == '\n';
    size_t need = nbytes + lines * p + 1 + sizeof CLEAR;
    if (need > o->max) {
        char *more = td__realloc(o->buffer, need);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of output", need);
        o->buffer = more, o->max = need;
    }
    if (o->clear && fd == o->err) {
        memcpy(o->buffer, CLEAR, sizeof CLEAR - 1);
        used = sizeof CLEAR - 1;
    }
    for (const char *at = text, *stop = text + nbytes; at < stop;) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        size_t n = (size_t)((end ? end : stop) - at);
        memcpy(o->buffer + used, prefix, p);
        memcpy(o->buffer + used + p, at, n);
        used += p + n;
        o->buffer[used++] = '\n';
        at += n + 1;
    }
    if (write_out(o, fd, o->buffer, used))
        return TD_OK;
    if (errno == EPIPE && !o->plain)
        return TD_FAIL(TD_EPEER,
                       "standard output is closed: the output of the ranks cannot be passed on");
    if (errno != EPIPE && !o->error)
        o->error = errno;
    return TD_OK;
}

td_status td__output_status(const td__output *o)
{
    return o->error
               ? TD_FAIL(TD_EIO, "cannot write the output of the ranks: %s", strerror(o->error))
               : TD_OK;
}

td_status td__output_lines(td__output *o, int rank, bool is_err, const char *text, size_t nbytes)
{
    stream *s = &o->rank[rank];
    keep_tail(s, text, nbytes);
    if (s->log >= 0 && !write_all(s->log, text, nbytes)) {
        td__output_say(o, "the log file of rank %d ends here: %s", rank, strerror(errno));
        close(s->log);
        s->log = -1;
    }
    return write_lines(o, is_err ? o->err : o->out, rank, text, nbytes);
}

void td__output_tail(td__output *o, int rank)
{
    const stream *s = &o->rank[rank];
    size_t at = s->used;
    for (int lines = 0; at > 0; at--)
        if (s->tail[at - 1] == '\n' && lines++ == TAIL_LINES)
            break;
    if (!s->used)
        return;
    td__output_say(o, "last lines of rank %d:", rank);
    td_status st = write_lines(o, o->err, rank, s->tail + at, s->used - at);
    (void)st; /* there is nobody left to tell */
}

void td__output_say(td__output *o, const char *fmt, ...)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "%standem launch: ", o->clear ? CLEAR : "");
    va_list args;
    va_start(args, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    va_end(args);
    size_t used = m < 0 ? (size_t)n : (size_t)(n + m);
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used++] = '\n';
    write_out(o, o->err, line, used);
}
