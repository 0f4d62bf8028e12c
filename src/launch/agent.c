/* agent.c -- one host's part of a launch: a store, the ranks of this host, their output.
 *
 * Conversation with the launcher (message.h): SPEC, PARENT; READY; GO; then output and exits; END
 * when the last rank of the last host has ended. An elastic launch goes another way after SPEC:
 * agent_elastic.h.
 *
 * When the launcher's end of the pipe closes, everything here is killed at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/comm_setup.h"
#include "coll/hang.h"
#include "launch/agent_spec.h"
#include "launch/agent_elastic.h"
#include "launch/launch.h"
#include "launch/lines.h"
#include "launch/rank_env.h"
#include "launch/spawn.h"
#include "net/socket.h"

extern char **environ;

enum { POLL_MS = 60000, LOOK_MS = 1000 };

typedef struct rank {
    td__child child;
    td__lines out, err;
    bool ending; /* it was when all were told to end */
} rank;

typedef struct agent {
    td__agent_spec s;
    td__store_server *store;
    int *ports;  /* one per own rank, then the master's */
    rank *ranks; /* (count) */
    int n_running;
    bool stopping, ending;
    bool lost; /* the launcher is gone */
    td__deadline kill_at;
} agent;

static const td__host *own_host(const agent *a)
{
    return td__agent_spec_host(&a->s);
}

/* Free ports of this host: held all at once so that none comes twice. */
static td_status pick_ports(agent *a, int n)
{
    int *fd = td__calloc((size_t)n, sizeof *fd);
    a->ports = td__calloc((size_t)n, sizeof *a->ports);
    if (!fd || !a->ports) {
        td__free(fd);
        return TD_FAIL(TD_ENOMEM, "no memory for %d ports", n);
    }
    td_status st = TD_OK;
    int i = 0;
    for (; i < n && !st; i++) {
        struct sockaddr_in where = {.sin_family = AF_INET};
        socklen_t length = sizeof where;
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd[i] < 0 || inet_pton(AF_INET, a->s.address, &where.sin_addr) != 1 ||
            bind(fd[i], (struct sockaddr *)&where, sizeof where) ||
            getsockname(fd[i], (struct sockaddr *)&where, &length))
            st = TD_FAIL(TD_EIO, "cannot pick a port at %s: %s", a->s.address, strerror(errno));
        a->ports[i] = ntohs(where.sin_port);
    }
    while (i-- > 0)
        if (fd[i] >= 0)
            close(fd[i]);
    td__free(fd);
    return st;
}

static td_status make_ready(agent *a)
{
    td__msg m;
    TD_TRY(td__channel_await(&a->s.up, TD_MSG_PARENT, &m));
    char parent[256] = "", listen[80];
    if (m.nbytes >= sizeof parent)
        return TD_FAIL(TD_EPROTO, "the address of the store above is too long");
    memcpy(parent, m.data, m.nbytes);
    TD_TRY(td__agent_spec_offer(&a->s, parent));
    snprintf(listen, sizeof listen, "%s:0", a->s.address);
    TD_TRY(td__store_server_create(&a->s.secret,
                                   &(td__store_opts){.listen = listen,
                                                     .parent = parent[0] ? parent : NULL,
                                                     .tls_dir = td__agent_spec_tls(&a->s)},
                                   &a->store));
    int n = own_host(a)->count + (a->s.index == 0);
    TD_TRY(pick_ports(a, n));
    td__texts t = {0};
    td__texts_add(&t, "%s", td__store_server_address(a->store));
    for (int i = 0; i < n; i++)
        td__texts_add(&t, "%s:%d", a->s.address, a->ports[i]);
    td_status st = t.failed ? TD_FAIL(TD_ENOMEM, "no memory for %d addresses", n)
                            : td__channel_send(&a->s.up, TD_MSG_READY, -1, t.data, t.used);
    td__texts_fini(&t);
    return st;
}

static td_status start_rank(agent *a, td__rank_plan *plan, int i)
{
    rank *r = &a->ranks[i];
    td__texts t = {0};
    td__rank_env(plan, own_host(a)->first + i, &t);
    char **env = td__rank_environ(environ, &t);
    td_status st = TD_OK;
    if (!env)
        TD_TRY_OR(st, done, TD_FAIL(TD_ENOMEM, "no memory for the environment of a rank"));
    TD_TRY_OR(st, done, td__lines_init(&r->out, &r->child.out, TD_MSG_OUT));
    TD_TRY_OR(st, done, td__lines_init(&r->err, &r->child.err, TD_MSG_ERR));
    td__spawn_opts o = {
        .env = env, .share_out = a->s.terminal, .death_signal = SIGKILL, .files = &a->s.files};
    TD_TRY_OR(st, done, td__spawn(a->s.argv, &o, &r->child));
    if (r->child.out >= 0)
        fcntl(r->child.out, F_SETFL, O_NONBLOCK);
    fcntl(r->child.err, F_SETFL, O_NONBLOCK);
    a->n_running++;
done:
    td__free(env);
    td__texts_fini(&t);
    return st;
}

static td_status start_ranks(agent *a)
{
    td__msg m;
    TD_TRY(td__channel_await(&a->s.up, TD_MSG_GO, &m));
    int n = own_host(a)->count, size = a->s.hosts.size;
    const char **worker = td__calloc((size_t)size + 1, sizeof *worker);
    a->ranks = td__calloc((size_t)n, sizeof *a->ranks);
    td_status st = TD_OK;
    if (!worker || !a->ranks)
        TD_TRY_OR(st, done, TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n));
    for (int i = 0; i < n; i++)
        a->ranks[i].child = (td__child){0, -1, -1, -1, -1};
    size_t at = 0;
    for (int r = 0; r <= size; r++)
        if (!(worker[r] = td__texts_next(m.data, m.nbytes, &at)))
            TD_TRY_OR(st, done, TD_FAIL(TD_EPROTO, "the launcher's list of ranks is incomplete"));
    if (chdir(a->s.cwd))
        TD_TRY_OR(st, done, TD_FAIL(TD_EINVAL, "cannot enter %s: %s", a->s.cwd, strerror(errno)));
    td__rank_plan plan = {.hosts = &a->s.hosts,
                          .host = a->s.index,
                          .job = a->s.job,
                          .store = td__store_server_address(a->store),
                          .secret_file = a->s.secret_file,
                          .tls_dir = td__agent_spec_tls(&a->s),
                          .address = a->s.address,
                          .worker = worker,
                          .master = worker[size],
                          .extra = a->s.env};
    for (int i = 0; i < n; i++)
        TD_TRY_OR(st, done, start_rank(a, &plan, i));
done:
    td__free(worker);
    return st;
}

static void send_up(agent *a, td__msg_kind kind, int who, const void *data, size_t nbytes)
{
    if (!a->lost && td__channel_send(&a->s.up, kind, who, data, nbytes))
        a->lost = true;
}

static void pump(agent *a, td__lines *l, int who, bool last)
{
    td__lines_pump(l, &a->s.up, &a->lost, who, last);
}

static void end_rank(agent *a, int i)
{
    rank *r = &a->ranks[i];
    int who = own_host(a)->first + i;
    char text[24];
    bool first = (!a->stopping || r->ending) && td__child_killed(&r->child);
    int status = td__child_reap(&r->child); /* its helpers are gone too: the pipes end */
    pump(a, &r->out, who, true);
    pump(a, &r->err, who, true);
    td__child_close(&r->child);
    int n = snprintf(text, sizeof text, "%d%s", status, first ? " killed" : "");
    send_up(a, TD_MSG_EXIT, who, text, (size_t)n + 1);
    a->n_running--;
}

static void signal_ranks(agent *a, int sig)
{
    for (int i = 0; a->ranks && i < own_host(a)->count; i++)
        if (a->ranks[i].child.pidfd >= 0) {
            kill(-a->ranks[i].child.pid, sig);
            if (sig == SIGTERM) /* a stopped rank would not hear it */
                kill(-a->ranks[i].child.pid, SIGCONT);
        }
}

/* From now on ranks end because they were told to. */
static void begin_to_stop(agent *a)
{
    for (int i = 0; a->ranks && !a->stopping && i < own_host(a)->count; i++)
        if (a->ranks[i].child.pidfd >= 0)
            a->ranks[i].ending = td__process_ends(a->ranks[i].child.pid);
    a->stopping = true;
}

static void stop_ranks(agent *a)
{
    begin_to_stop(a);
    a->kill_at = td__deadline_in_ms(a->s.grace_ms);
    signal_ranks(a, SIGTERM);
}

/* What has been read already. */
static td_status obey(agent *a)
{
    bool found;
    td__msg m;
    for (;;) {
        TD_TRY(td__channel_next(&a->s.up, &m, &found));
        if (!found)
            return TD_OK;
        if (m.kind == TD_MSG_KILL) {
            begin_to_stop(a);
            signal_ranks(a, SIGKILL);
        } else if (m.kind == TD_MSG_END) {
            a->ending = true;
        } else if (m.kind == TD_MSG_STOP && !a->stopping) {
            stop_ranks(a);
        }
    }
}

static td_status hear(agent *a)
{
    bool eof;
    TD_TRY(td__channel_fill(&a->s.up, &eof));
    a->lost |= eof;
    return obey(a);
}

/* One look at everything. Of ranks that ended since the last look, those killed by a signal are
 * named first: they are the likelier cause of the others' end. One whose connections are closed may
 * be still on its way to its end when others have left because of that: see begin_to_stop. */
static td_status look(agent *a, struct pollfd *p)
{
    int n = own_host(a)->count;
    p[0] = (struct pollfd){a->s.up.in, POLLIN, 0};
    for (int i = 0; i < n; i++) {
        const td__child *c = &a->ranks[i].child;
        p[1 + 3 * i] = (struct pollfd){c->pidfd, POLLIN, 0};
        p[2 + 3 * i] = (struct pollfd){c->out, POLLIN, 0};
        p[3 + 3 * i] = (struct pollfd){c->err, POLLIN, 0};
    }
    /* Nobody else ends the ranks of a host that was cut off from the launcher's. */
    if (!a->stopping && td__store_server_lost(a->store))
        stop_ranks(a);
    int most = a->s.index ? LOOK_MS : POLL_MS;
    int ms = a->kill_at ? td__deadline_left_ms(a->kill_at, most) : most;
    if (poll(p, 1 + 3 * (nfds_t)n, ms) < 0 && errno != EINTR)
        return TD_FAIL(TD_EIO, "cannot wait for ranks: %s", strerror(errno));
    if (p[0].revents)
        TD_TRY(hear(a));
    if (a->kill_at && td__deadline_passed(a->kill_at)) {
        a->kill_at = 0;
        signal_ranks(a, SIGKILL);
    }
    for (int i = 0; i < n; i++) {
        int who = own_host(a)->first + i;
        if (p[2 + 3 * i].revents)
            pump(a, &a->ranks[i].out, who, false);
        if (p[3 + 3 * i].revents)
            pump(a, &a->ranks[i].err, who, false);
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++)
            if (p[1 + 3 * i].revents && a->ranks[i].child.pidfd >= 0 &&
                (pass || td__child_killed(&a->ranks[i].child)))
                end_rank(a, i);
    return TD_OK;
}

static td_status watch_ranks(agent *a)
{
    size_t n = 1 + 3 * (size_t)own_host(a)->count;
    struct pollfd *p = td__calloc(n, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory to watch ranks");
    td_status st = obey(a); /* where others failed at once, it came together with GO */
    /* One that is cut off will hear nothing more. */
    while (!a->lost && !st && (a->n_running || !(a->ending || td__store_server_lost(a->store))))
        st = look(a, p);
    td__free(p);
    return st;
}

static void clean_up(agent *a)
{
    bool unclean = a->lost || a->stopping || a->n_running;
    signal_ranks(a, SIGKILL);
    for (int i = 0; a->ranks && i < own_host(a)->count; i++) {
        if (a->ranks[i].child.pidfd >= 0)
            td__child_reap(&a->ranks[i].child);
        td__child_close(&a->ranks[i].child);
        td__lines_fini(&a->ranks[i].out);
        td__lines_fini(&a->ranks[i].err);
    }
    if (unclean && a->s.job && a->ranks)
        td__kill_marked(a->s.job, TD_ENV_STORE, td__store_server_address(a->store));
    td__store_server_destroy(a->store);
    td__free(a->ranks);
    td__free(a->ports);
}

static td_status run_fixed(agent *a)
{
    TD_TRY(make_ready(a));
    TD_TRY(start_ranks(a));
    return watch_ranks(a);
}

td_status td__agent_run(int in, int out)
{
    agent a = {.s = {.secret_fd = -1, .tls_fd = -1}};
    td_status st = TD_OK;
    td__channel_init(&a.s.up, in, out);
    signal(SIGPIPE, SIG_IGN);
    TD_TRY_OR(st, done, td__agent_spec_read(&a.s));
    if (a.s.most)
        TD_TRY_OR(st, done, td__agent_elastic(&a.s, &a.lost));
    else
        TD_TRY_OR(st, done, run_fixed(&a));
done:
    if (st && !a.lost) {
        const char *why = td_last_error();
        send_up(&a, TD_MSG_FAILED, -1, why, strlen(why) + 1);
    }
    clean_up(&a);
    td__agent_spec_fini(&a.s);
    td__channel_fini(&a.s.up);
    return st;
}
