/* foreign_mpich.c -- PMI-1 for the ranks of one host: how MPICH, and what is built like it, finds
 * its world.
 *
 * A rank inherits one end of a socket pair (PMI_FD) and writes lines of words "key=value"; each is
 * answered by one line:
 *
 *     cmd=init pmi_version=1 ...        cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
 *     cmd=get_maxes                     cmd=maxes kvsname_max=.. keylen_max=.. vallen_max=..
 *     cmd=get_appnum                    cmd=appnum appnum=0
 *     cmd=get_my_kvsname                cmd=my_kvsname kvsname=NAME
 *     cmd=get_universe_size             cmd=universe_size size=N
 *     cmd=put kvsname=N key=K value=V   cmd=put_result rc=0 msg=success
 *     cmd=get kvsname=N key=K           cmd=get_result rc=0 msg=success value=V
 *     cmd=barrier_in                    cmd=barrier_out, when the ranks of all hosts are in it
 *     cmd=finalize                      cmd=finalize_ack
 *     cmd=abort exitcode=N              (none: the rank is killed, as it expects)
 *
 * What ranks put is in the store at once, so that a barrier carries no values. While all ranks of
 * the host are in one, none asks for anything: the thread may wait for the other hosts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "launch/foreign/foreign_impl.h"

enum { NAME_BYTES = 256, KEY_BYTES = 64, VALUE_BYTES = 1024, LINE_BYTES = 4096 };

static const char MAPPING[] = "PMI_process_mapping"; /* which ranks share a host; never put */

typedef struct client {
    int fd; /* ours; -1: gone */
    bool in_barrier;
    size_t used;
    char line[LINE_BYTES];
} client;

typedef struct server {
    td__foreign *f;
    pthread_t thread;
    bool running;
    int wake; /* readable: end */
    int n, n_barriers;
    client *clients;           /* (n) */
    int *theirs;               /* (n) descriptors of ranks that were not started yet; -1 */
    struct pollfd *p;          /* (n + 1) */
    char mapping[VALUE_BYTES]; /* "": too long to be told */
} server;

/* "(vector,(first host,hosts,ranks on each),...)": ranks are numbered host by host. */
static void write_mapping(const td__hosts *h, char out[VALUE_BYTES])
{
    size_t n = (size_t)snprintf(out, VALUE_BYTES, "(vector");
    for (int i = 0, end; i < h->n && n < VALUE_BYTES; i = end) {
        for (end = i + 1; end < h->n && h->host[end].count == h->host[i].count; end++)
            ;
        n +=
            (size_t)snprintf(out + n, VALUE_BYTES - n, ",(%d,%d,%d)", i, end - i, h->host[i].count);
    }
    if (n + 1 < VALUE_BYTES)
        snprintf(out + n, VALUE_BYTES - n, ")");
    else
        out[0] = 0;
}

/* The value of a word of the line, in `out`; NULL: there is none, or it is too long. */
static const char *word(const char *line, const char *key, char *out, size_t max)
{
    size_t n = strlen(key);
    for (const char *at = line; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, key, n) && at[n] == '=') {
            size_t length = strcspn(at + n + 1, " ");
            if (length >= max)
                return NULL;
            memcpy(out, at + n + 1, length);
            out[length] = 0;
            return out;
        }
    return NULL;
}

static void leave(client *c)
{
    close(c->fd);
    c->fd = -1;
}

__attribute__((format(printf, 2, 3))) static void answer(client *c, const char *fmt, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* One answer to one question: it fits into the socket. One that does not read is no client. */
    if (n < (int)sizeof text && send(c->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
        return;
    leave(c);
}

static void put(server *s, client *c, const char *line)
{
    char name[KEY_BYTES], key[KEY_BYTES + 16];
    const char *value = strstr(line, " value="); /* all the rest */
    if (!word(line, "key", name, sizeof name) || !value || strlen(value + 7) >= VALUE_BYTES) {
        answer(c, "cmd=put_result rc=-1 msg=bad_key_or_value\n");
        return;
    }
    snprintf(key, sizeof key, "foreign/pmi/%s", name);
    td_status st = td__store_set(s->f->exchange.store, key, value + 7, strlen(value + 7),
                                 td__deadline_in_ms(TD_EXCHANGE_ASK_MS));
    answer(c, "cmd=put_result rc=%d msg=%s\n", st ? -1 : 0, st ? "store_failed" : "success");
}

static void get(server *s, client *c, const char *line)
{
    char name[KEY_BYTES], key[KEY_BYTES + 16];
    void *value = NULL;
    size_t nbytes = 0;
    if (!word(line, "key", name, sizeof name)) {
        answer(c, "cmd=get_result rc=-1 msg=bad_key value=unknown\n");
        return;
    }
    if (!strcmp(name, MAPPING) && s->mapping[0]) {
        answer(c, "cmd=get_result rc=0 msg=success value=%s\n", s->mapping);
        return;
    }
    snprintf(key, sizeof key, "foreign/pmi/%s", name);
    td_status st = td__store_get(s->f->exchange.store, key, td__deadline_in_ms(TD_EXCHANGE_ASK_MS),
                                 &value, &nbytes);
    if (st || !value)
        answer(c, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", name);
    else
        answer(c, "cmd=get_result rc=0 msg=success value=%.*s\n", (int)nbytes, (const char *)value);
    td__free(value);
}

static void enter_barrier(server *s, client *c)
{
    char name[32];
    void *none;
    size_t nbytes;
    c->in_barrier = true;
    for (int i = 0; i < s->n; i++)
        if (!s->clients[i].in_barrier)
            return;
    snprintf(name, sizeof name, "pmi-barrier-%d", ++s->n_barriers);
    td_status st = td__exchange_all(&s->f->exchange, name, NULL, 0, "", 0, &none, &nbytes);
    td__free(none);
    if (st && st != TD_EABORTED)
        TD_LOG(WARN, LAUNCH, "PMI barrier %d: %s", s->n_barriers, td_last_error());
    for (int i = 0; i < s->n; i++) {
        s->clients[i].in_barrier = false;
        if (s->clients[i].fd >= 0)
            answer(&s->clients[i], "cmd=barrier_out rc=%d\n", st ? -1 : 0);
    }
}

static void obey(server *s, client *c, const char *line)
{
    char cmd[32] = "", name[NAME_BYTES];
    const td__agent_spec *spec = s->f->s;
    if (!word(line, "cmd", cmd, sizeof cmd))
        cmd[0] = 0;
    snprintf(name, sizeof name, "%s-%u", spec->job, s->f->plan->generation);
    if (!strcmp(cmd, "init"))
        answer(c, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
               strstr(line, "pmi_version=1") ? 0 : -1);
    else if (!strcmp(cmd, "get_maxes"))
        answer(c, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", NAME_BYTES, KEY_BYTES,
               VALUE_BYTES);
    else if (!strcmp(cmd, "get_appnum"))
        answer(c, "cmd=appnum appnum=0\n");
    else if (!strcmp(cmd, "get_my_kvsname"))
        answer(c, "cmd=my_kvsname kvsname=%s\n", name);
    else if (!strcmp(cmd, "get_universe_size"))
        answer(c, "cmd=universe_size size=%d\n", spec->hosts.size);
    else if (!strcmp(cmd, "put"))
        put(s, c, line);
    else if (!strcmp(cmd, "get"))
        get(s, c, line);
    else if (!strcmp(cmd, "barrier_in"))
        enter_barrier(s, c);
    else if (!strcmp(cmd, "finalize"))
        answer(c, "cmd=finalize_ack\n");
    else if (!strcmp(cmd, "abort"))
        td__foreign_abort(s->f, (int)(c - s->clients),
                          word(line, "exitcode", name, sizeof name) ? (int)strtol(name, NULL, 10)
                                                                    : 1);
    else /* spawn, names: not offered */
        answer(c, "cmd=%s_result rc=-1 msg=not_supported\n", cmd[0] ? cmd : "unknown");
}

static void hear(server *s, client *c)
{
    ssize_t n = read(c->fd, c->line + c->used, sizeof c->line - 1 - c->used);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->used += n > 0 ? (size_t)n : 0;
    c->line[c->used] = 0;
    for (char *end; c->fd >= 0 && (end = memchr(c->line, '\n', c->used));) {
        *end = 0;
        obey(s, c, c->line);
        size_t done = (size_t)(end - c->line) + 1;
        memmove(c->line, c->line + done, c->used -= done);
        c->line[c->used] = 0;
    }
    if (c->fd >= 0 && (n <= 0 || c->used == sizeof c->line - 1)) /* gone, or no line of PMI */
        leave(c);
}

static void *serve(void *arg)
{
    server *s = arg;
    for (;;) {
        for (int i = 0; i < s->n; i++)
            s->p[i] = (struct pollfd){s->clients[i].fd, POLLIN, 0};
        s->p[s->n] = (struct pollfd){s->wake, POLLIN, 0};
        if (poll(s->p, (nfds_t)s->n + 1, -1) < 0 && errno != EINTR)
            break;
        if (s->p[s->n].revents)
            break;
        for (int i = 0; i < s->n; i++)
            if (s->clients[i].fd >= 0 && s->p[i].revents)
                hear(s, &s->clients[i]);
    }
    return NULL;
}

static td_status create(td__foreign *f)
{
    server *s = f->server = td__calloc(1, sizeof *s);
    int n = td__agent_spec_host(f->s)->count;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a PMI server");
    *s = (server){.f = f, .wake = -1};
    s->clients = td__calloc((size_t)n, sizeof *s->clients);
    s->theirs = td__calloc((size_t)n, sizeof *s->theirs);
    s->p = td__calloc((size_t)n + 1, sizeof *s->p);
    if (!s->clients || !s->theirs || !s->p)
        return TD_FAIL(TD_ENOMEM, "no memory for a PMI server of %d ranks", n);
    write_mapping(&f->s->hosts, s->mapping);
    for (; s->n < n; s->n++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            return TD_FAIL(TD_EIO, "cannot make a socket pair for PMI: %s", strerror(errno));
        s->clients[s->n].fd = pair[0];
        s->theirs[s->n] = pair[1];
    }
    s->wake = eventfd(0, EFD_CLOEXEC);
    int rc = s->wake < 0 ? errno : pthread_create(&s->thread, NULL, serve, s);
    s->running = !rc;
    return rc ? TD_FAIL(TD_EIO, "cannot start a PMI server: %s", strerror(rc)) : TD_OK;
}

static td_status rank_env(td__foreign *f, int rank, td__texts *env, int *fd)
{
    server *s = f->server;
    int local = rank - td__agent_spec_host(f->s)->first;
    *fd = s->theirs[local];
    s->theirs[local] = -1;
    td__texts_add(env, "PMI_FD=%d", *fd);
    td__texts_add(env, "PMI_RANK=%d", rank);
    td__texts_add(env, "PMI_SIZE=%d", f->s->hosts.size);
    td__texts_add(env, "MPI_LOCALRANKID=%d", local);
    td__texts_add(env, "MPI_LOCALNRANKS=%d", s->n);
    return TD_OK;
}

static void destroy(td__foreign *f)
{
    server *s = f->server;
    if (s->running) {
        ssize_t ignored = write(s->wake, &(uint64_t){1}, sizeof(uint64_t));
        (void)ignored;
        pthread_join(s->thread, NULL);
    }
    if (s->wake >= 0)
        close(s->wake);
    for (int i = 0; i < s->n; i++) {
        if (s->clients[i].fd >= 0)
            close(s->clients[i].fd);
        if (s->theirs[i] >= 0)
            close(s->theirs[i]);
    }
    td__free(s->clients);
    td__free(s->theirs);
    td__free(s->p);
    td__free(s);
}

const td__foreign_ops td__foreign_mpich = {.create = create, .rank = rank_env, .destroy = destroy};
