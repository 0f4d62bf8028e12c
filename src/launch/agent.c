/* agent.c -- one host's part of a launch: a store, the ranks of this host, their output.
 *
 * Conversation with the launcher (message.h): SPEC, PARENT; READY; GO; then output and exits; END
 * when the last rank of the last host has ended. SPEC holds "key=value" texts:
 *
 *     secret=HEX job=NAME index=N entry=HOST:COUNT... grace=MS cwd=PATH arg=TEXT...
 *     [listen=ADDRESS] [env=K=V...] [cert=PEM key=PEM] [terminal=]
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
#include "launch/launch.h"
#include "launch/rank_env.h"
#include "launch/spawn.h"
#include "net/socket.h"

extern char **environ;

enum { MAX_LINE = 1 << 20, READ = 64 << 10, POLL_MS = 60000, LOOK_MS = 1000 };

/* Output of one rank that is not yet a whole line. */
typedef struct lines {
    int *fd;
    td__msg_kind kind;
    char *data;
    size_t used, max;
} lines;

typedef struct rank {
    td__child child;
    lines out, err;
} rank;

typedef struct agent {
    td__channel up;
    td__msg spec; /* a copy; texts below point into it */
    td__secret secret;
    const char *job, *cwd, *listen, *cert, *key; /* cert, key: NULL without TLS */
    const char **argv, **env;                    /* NULL-terminated */
    int n_argv, n_env, index;
    uint32_t grace_ms;
    td__hosts hosts;
    td__store_server *store;
    char address[64], secret_file[64], tls_dir[64];
    int secret_fd;
    struct rlimit files; /* of the ranks: as it was before ours was raised */
    int *ports;          /* one per own rank, then the master's */
    rank *ranks;         /* (count) */
    int n_running;
    bool terminal; /* ranks write to our standard output */
    bool stopping, ending;
    bool lost; /* the launcher is gone */
    td__deadline kill_at;
} agent;

static const td__host *own_host(const agent *a)
{
    return &a->hosts.host[a->index];
}

static bool take(const char *text, const char *key, const char **value)
{
    size_t n = strlen(key);
    if (strncmp(text, key, n) != 0 || text[n] != '=')
        return false;
    *value = text + n + 1;
    return true;
}

static td_status read_spec(agent *a)
{
    td__msg m;
    TD_TRY(td__channel_await(&a->up, TD_MSG_SPEC, &m));
    char *copy = td__malloc(m.nbytes + 1);
    size_t n = 0, at = 0;
    if (copy)
        memcpy(copy, m.data, m.nbytes);
    a->spec = (td__msg){.data = copy, .nbytes = copy ? m.nbytes : 0};
    while (td__texts_next(a->spec.data, a->spec.nbytes, &at))
        n++;
    a->argv = td__calloc(n + 1, sizeof *a->argv);
    a->env = td__calloc(n + 1, sizeof *a->env);
    td__texts entries = {0};
    const char *text, *v;
    td_status st = TD_OK;
    if (!copy || !a->argv || !a->env)
        TD_TRY_OR(st, done, TD_FAIL(TD_ENOMEM, "no memory for an agent"));
    for (at = 0; (text = td__texts_next(copy, m.nbytes, &at));) {
        if (take(text, "secret", &v) && strlen(v) == TD_SECRET_HEX - 1)
            TD_TRY_OR(st, done, td__secret_parse(v, &a->secret));
        else if (take(text, "job", &v))
            a->job = v;
        else if (take(text, "index", &v))
            a->index = (int)strtol(v, NULL, 10);
        else if (take(text, "entry", &v)) {
            if (entries.used)
                entries.data[entries.used - 1] = ',';
            td__texts_add(&entries, "%s", v);
        } else if (take(text, "grace", &v))
            a->grace_ms = (uint32_t)strtoul(v, NULL, 10);
        else if (take(text, "cwd", &v))
            a->cwd = v;
        else if (take(text, "arg", &v))
            a->argv[a->n_argv++] = v;
        else if (take(text, "env", &v))
            a->env[a->n_env++] = v;
        else if (take(text, "listen", &v))
            a->listen = v;
        else if (take(text, "terminal", &v))
            a->terminal = true;
        else if (take(text, "cert", &v))
            a->cert = v;
        else if (take(text, "key", &v))
            a->key = v;
        else
            TD_TRY_OR(st, done,
                      TD_FAIL(TD_EPROTO,
                              "unknown word of the launcher: %.20s; is the "
                              "same version of tandem on all hosts?",
                              text));
    }
    if (!a->job || !a->cwd || !a->n_argv || !entries.used || entries.failed)
        TD_TRY_OR(st, done, TD_FAIL(TD_EPROTO, "the launcher's description is incomplete"));
    TD_TRY_OR(st, done, td__hosts_parse(entries.data, 0, &a->hosts));
    if (a->index < 0 || a->index >= a->hosts.n)
        st = TD_FAIL(TD_EPROTO, "host %d of %d does not exist", a->index, a->hosts.n);
done:
    td__texts_fini(&entries);
    return st;
}

/* The secret as a file of this process alone: it is gone when we are. */
static td_status offer_secret(agent *a)
{
    char hex[TD_SECRET_HEX];
    a->secret_fd = memfd_create("tandem-secret", MFD_CLOEXEC);
    td__secret_hex(&a->secret, hex);
    if (a->secret_fd < 0 || fchmod(a->secret_fd, 0600) ||
        write(a->secret_fd, hex, TD_SECRET_HEX - 1) != TD_SECRET_HEX - 1)
        return TD_FAIL(TD_EIO, "cannot keep the secret for the ranks: %s", strerror(errno));
    explicit_bzero(hex, sizeof hex);
    snprintf(a->secret_file, sizeof a->secret_file, "/proc/%d/fd/%d", (int)getpid(), a->secret_fd);
    return TD_OK;
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
        if (fd[i] < 0 || inet_pton(AF_INET, a->address, &where.sin_addr) != 1 ||
            bind(fd[i], (struct sockaddr *)&where, sizeof where) ||
            getsockname(fd[i], (struct sockaddr *)&where, &length))
            st = TD_FAIL(TD_EIO, "cannot pick a port at %s: %s", a->address, strerror(errno));
        a->ports[i] = ntohs(where.sin_port);
    }
    while (i-- > 0)
        if (fd[i] >= 0)
            close(fd[i]);
    td__free(fd);
    return st;
}

static td_status write_pem(const agent *a, const char *name, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", a->tls_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    bool good = fd >= 0 && write(fd, text, n) == (ssize_t)n;
    if (fd >= 0)
        close(fd);
    if (!good)
        return TD_FAIL(TD_EIO, "cannot write %s: %s", path, strerror(errno));
    return TD_OK;
}

static td_status write_tls(agent *a)
{
    if (!a->cert || !a->key)
        return TD_OK;
    snprintf(a->tls_dir, sizeof a->tls_dir, "/tmp/tandem-tls-XXXXXX");
    if (!mkdtemp(a->tls_dir)) { /* mode 0700 */
        a->tls_dir[0] = 0;
        return TD_FAIL(TD_EIO, "cannot make a folder for the TLS key: %s", strerror(errno));
    }
    TD_TRY(write_pem(a, "cert.pem", a->cert));
    return write_pem(a, "key.pem", a->key);
}

static void remove_tls(agent *a)
{
    char path[96];
    if (!a->tls_dir[0])
        return;
    snprintf(path, sizeof path, "%s/cert.pem", a->tls_dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/key.pem", a->tls_dir);
    unlink(path);
    rmdir(a->tls_dir);
}

/* Where the others reach this host. */
static td_status find_address(agent *a, const char *parent)
{
    if (a->hosts.n == 1) {
        snprintf(a->address, sizeof a->address, "127.0.0.1");
        return TD_OK;
    }
    if (a->index == 0 && a->listen) {
        snprintf(a->address, sizeof a->address, "%s", a->listen);
        return TD_OK;
    }
    char peer[TD_ADDRESS_BYTES], host[TD_ADDRESS_BYTES];
    if (a->index)
        snprintf(peer, sizeof peer, "%s", parent);
    else
        TD_TRY(td__socket_join(a->hosts.host[1].name, "9", peer));
    TD_TRY(td__socket_route(peer, host));
    if (strlen(host) >= sizeof a->address)
        return TD_FAIL(TD_EINVAL, "the address %s is too long", host);
    memcpy(a->address, host, strlen(host) + 1);
    return TD_OK;
}

static td_status make_ready(agent *a)
{
    td__msg m;
    TD_TRY(td__channel_await(&a->up, TD_MSG_PARENT, &m));
    char parent[256] = "", listen[80];
    if (m.nbytes >= sizeof parent)
        return TD_FAIL(TD_EPROTO, "the address of the store above is too long");
    memcpy(parent, m.data, m.nbytes);
    TD_TRY(find_address(a, parent));
    TD_TRY(write_tls(a));
    snprintf(listen, sizeof listen, "%s:0", a->address);
    TD_TRY(td__store_server_create(&a->secret,
                                   &(td__store_opts){.listen = listen,
                                                     .parent = parent[0] ? parent : NULL,
                                                     .tls_dir = a->tls_dir[0] ? a->tls_dir : NULL},
                                   &a->store));
    TD_TRY(offer_secret(a));
    int n = own_host(a)->count + (a->index == 0);
    TD_TRY(pick_ports(a, n));
    td__texts t = {0};
    td__texts_add(&t, "%s", td__store_server_address(a->store));
    for (int i = 0; i < n; i++)
        td__texts_add(&t, "%s:%d", a->address, a->ports[i]);
    td_status st = t.failed ? TD_FAIL(TD_ENOMEM, "no memory for %d addresses", n)
                            : td__channel_send(&a->up, TD_MSG_READY, -1, t.data, t.used);
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
    td__spawn_opts o = {
        .env = env, .share_out = a->terminal, .death_signal = SIGKILL, .files = &a->files};
    TD_TRY_OR(st, done, td__spawn(a->argv, &o, &r->child));
    r->out = (lines){.fd = &r->child.out, .kind = TD_MSG_OUT};
    r->err = (lines){.fd = &r->child.err, .kind = TD_MSG_ERR};
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
    TD_TRY(td__channel_await(&a->up, TD_MSG_GO, &m));
    int n = own_host(a)->count, size = a->hosts.size;
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
    if (chdir(a->cwd))
        TD_TRY_OR(st, done, TD_FAIL(TD_EINVAL, "cannot enter %s: %s", a->cwd, strerror(errno)));
    td__rank_plan plan = {.hosts = &a->hosts,
                          .host = a->index,
                          .job = a->job,
                          .store = td__store_server_address(a->store),
                          .secret_file = a->secret_file,
                          .tls_dir = a->tls_dir[0] ? a->tls_dir : NULL,
                          .address = a->address,
                          .worker = worker,
                          .master = worker[size],
                          .extra = a->env};
    for (int i = 0; i < n; i++)
        TD_TRY_OR(st, done, start_rank(a, &plan, i));
done:
    td__free(worker);
    return st;
}

static void send_up(agent *a, td__msg_kind kind, int who, const void *data, size_t nbytes)
{
    if (!a->lost && td__channel_send(&a->up, kind, who, data, nbytes))
        a->lost = true;
}

static void flush_line(agent *a, lines *l, int who)
{
    if (l->used) {
        l->data[l->used++] = '\n'; /* there is room: see pump */
        send_up(a, l->kind, who, l->data, l->used);
    }
    l->used = 0;
}

/* Read what is there and pass on the whole lines. At the end of the stream, or `last`, the rest. */
static void pump(agent *a, lines *l, int who, bool last)
{
    while (*l->fd >= 0) {
        if (l->max - l->used < READ + 1) {
            size_t max = l->max + 2 * READ;
            char *more = td__realloc(l->data, max);
            if (!more)
                return; /* the rank waits; memory may come back */
            l->data = more, l->max = max;
        }
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
        char *end = memrchr(l->data + l->used - n, '\n', (size_t)n);
        if (end) {
            size_t whole = (size_t)(end - l->data) + 1;
            send_up(a, l->kind, who, l->data, whole);
            memmove(l->data, l->data + whole, l->used - whole);
            l->used -= whole;
        } else if (l->used > MAX_LINE) {
            flush_line(a, l, who);
        }
    }
    if (last)
        flush_line(a, l, who);
}

static void end_rank(agent *a, int i)
{
    rank *r = &a->ranks[i];
    int who = own_host(a)->first + i;
    char text[16];
    int status = td__child_reap(&r->child); /* its helpers are gone too: the pipes end */
    pump(a, &r->out, who, true);
    pump(a, &r->err, who, true);
    td__child_close(&r->child);
    int n = snprintf(text, sizeof text, "%d", status);
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

static void stop_ranks(agent *a)
{
    a->stopping = true;
    a->kill_at = td__deadline_in_ms(a->grace_ms);
    signal_ranks(a, SIGTERM);
}

static td_status hear(agent *a)
{
    bool eof, found;
    td__msg m;
    TD_TRY(td__channel_fill(&a->up, &eof));
    a->lost |= eof;
    for (;;) {
        TD_TRY(td__channel_next(&a->up, &m, &found));
        if (!found)
            return TD_OK;
        if (m.kind == TD_MSG_KILL) {
            a->stopping = true;
            signal_ranks(a, SIGKILL);
        } else if (m.kind == TD_MSG_END) {
            a->ending = true;
        } else if (m.kind == TD_MSG_STOP && !a->stopping) {
            stop_ranks(a);
        }
    }
}

static bool was_killed(pid_t pid)
{
    siginfo_t info = {0};
    return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) && info.si_pid &&
           info.si_code != CLD_EXITED;
}

/* One look at everything. Of ranks that ended since the last look, those killed by a signal are
 * named first: they are the likelier cause of the others' end. */
static td_status look(agent *a, struct pollfd *p)
{
    int n = own_host(a)->count;
    p[0] = (struct pollfd){a->up.in, POLLIN, 0};
    for (int i = 0; i < n; i++) {
        const td__child *c = &a->ranks[i].child;
        p[1 + 3 * i] = (struct pollfd){c->pidfd, POLLIN, 0};
        p[2 + 3 * i] = (struct pollfd){c->out, POLLIN, 0};
        p[3 + 3 * i] = (struct pollfd){c->err, POLLIN, 0};
    }
    /* Nobody else ends the ranks of a host that was cut off from the launcher's. */
    if (!a->stopping && td__store_server_lost(a->store))
        stop_ranks(a);
    int most = a->index ? LOOK_MS : POLL_MS;
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
                (pass || was_killed(a->ranks[i].child.pid)))
                end_rank(a, i);
    return TD_OK;
}

static td_status watch_ranks(agent *a)
{
    size_t n = 1 + 3 * (size_t)own_host(a)->count;
    struct pollfd *p = td__calloc(n, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory to watch ranks");
    td_status st = TD_OK;
    /* One that is cut off will hear nothing more. */
    while (!a->lost && !st && (a->n_running || !(a->ending || td__store_server_lost(a->store))))
        st = look(a, p);
    td__free(p);
    return st;
}

/* Each rank costs three descriptors here, and one of the store. */
static void raise_limits(agent *a)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return;
    a->files = r;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static void clean_up(agent *a)
{
    bool unclean = a->lost || a->stopping || a->n_running;
    signal_ranks(a, SIGKILL);
    for (int i = 0; a->ranks && i < own_host(a)->count; i++) {
        if (a->ranks[i].child.pidfd >= 0)
            td__child_reap(&a->ranks[i].child);
        td__child_close(&a->ranks[i].child);
        td__free(a->ranks[i].out.data);
        td__free(a->ranks[i].err.data);
    }
    if (unclean && a->job && a->ranks)
        td__kill_marked(a->job, td__store_server_address(a->store));
    td__store_server_destroy(a->store);
    remove_tls(a);
    if (a->secret_fd >= 0)
        close(a->secret_fd);
    td__hosts_fini(&a->hosts);
    td__free(a->ranks);
    td__free(a->ports);
    td__free(a->argv);
    td__free(a->env);
    if (a->spec.data)
        explicit_bzero((void *)(uintptr_t)a->spec.data, a->spec.nbytes);
    td__free((void *)(uintptr_t)a->spec.data);
}

td_status td__agent_run(int in, int out)
{
    agent a = {.index = 0, .secret_fd = -1};
    td_status st = TD_OK;
    td__channel_init(&a.up, in, out);
    signal(SIGPIPE, SIG_IGN);
    raise_limits(&a);
    TD_TRY_OR(st, done, read_spec(&a));
    TD_TRY_OR(st, done, make_ready(&a));
    TD_TRY_OR(st, done, start_ranks(&a));
    TD_TRY_OR(st, done, watch_ranks(&a));
done:
    if (st && !a.lost) {
        const char *why = td_last_error();
        send_up(&a, TD_MSG_FAILED, -1, why, strlen(why) + 1);
    }
    clean_up(&a);
    td__channel_fini(&a.up);
    return st;
}
