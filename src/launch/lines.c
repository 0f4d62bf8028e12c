/* lines.c -- see lines.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { MAX_LINE = 1 << 20, READ = 16 << 10 };

static bool have_room(td__lines *l)
{
    size_t max = l->max + 2 * READ;
    if (l->max - l->used >= READ + 1)
        return true;
    char *more = td__realloc(l->data, max);
    if (more)
        l->data = more, l->max = max;
    return more;
}

td_status td__lines_init(td__lines *l, int *fd, td__msg_kind kind)
{
    *l = (td__lines){.fd = fd, .kind = kind};
    return have_room(l) ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the output of a process");
}

void td__lines_fini(td__lines *l)
{
    td__free(l->data);
    l->data = NULL;
    l->used = l->max = 0;
}

/* data[0..nbytes) ends with a newline. */
static void pass_on(td__lines *l, td__channel *up, bool *lost, int who, size_t nbytes)
{
    const char *last = memrchr(l->data, '\n', nbytes - 1);
    last = last ? last + 1 : l->data;
    int n = (int)(l->data + nbytes - 1 - last);
    if (n > 0)
        snprintf(l->recent, sizeof l->recent, "%.*s", n, last);
    if (!*lost && td__channel_send(up, l->kind, who, l->data, nbytes))
        *lost = true;
}

static void flush_line(td__lines *l, td__channel *up, bool *lost, int who)
{
    if (l->used) {
        l->data[l->used++] = '\n'; /* there is room: see pump */
        pass_on(l, up, lost, who, l->used);
    }
    l->used = 0;
}

static size_t left_in(int fd)
{
    int n = 0;
    return fd >= 0 && !ioctl(fd, FIONREAD, &n) && n > 0 ? (size_t)n : 0;
}

void td__lines_pump(td__lines *l, td__channel *up, bool *lost, int who, bool last)
{
    /* At the last all that is there, also where the launcher is slow; not what others may go on
     * writing to the same pipe. */
    size_t rest = last ? left_in(*l->fd) : SIZE_MAX;
    while (*l->fd >= 0 && rest) {
        if (!have_room(l)) /* of a very long line this is the end */
            flush_line(l, up, lost, who);
        ssize_t n = read(*l->fd, l->data + l->used, READ);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            close(*l->fd);
            *l->fd = -1;
            last = true;
            break;
        }
        l->used += (size_t)n;
        rest -= (size_t)n < rest ? (size_t)n : rest;
        char *end = memrchr(l->data + l->used - n, '\n', (size_t)n);
        if (end) {
            size_t whole = (size_t)(end - l->data) + 1;
            pass_on(l, up, lost, who, whole);
            memmove(l->data, l->data + whole, l->used - whole);
            l->used -= whole;
        } else if (l->used > MAX_LINE) {
            flush_line(l, up, lost, who);
        }
        if (!last && td__channel_full(up))
            break;
    }
    if (last)
        flush_line(l, up, lost, who);
}
