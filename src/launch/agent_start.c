/* agent_start.c -- see agent_start.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/agent_start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "coll/comm_setup.h"
#include "launch/agent_spec.h"

td_status td__agent_tell_spec(td__agent_link *a, const td__launch_opts *o, const td__job_secrets *s,
                              const td__hosts *hosts, int index, const char *const *argv)
{
    char hex[TD_SECRET_HEX], cwd[4096];
    td__texts t = {0};
    td__secret_hex(&s->secret, hex);
    td__texts_add(&t, "secret=%s", hex);
    explicit_bzero(hex, sizeof hex);
    td__texts_add(&t, "job=%s", s->job);
    td__texts_add(&t, "index=%d", index);
    for (int i = 0; i < hosts->n; i++)
        td__texts_add(&t, "entry=%s:%d", hosts->host[i].name, hosts->host[i].count);
#define TELL(key, member) td__texts_add(&t, key "=%u", (unsigned)o->member);
    TD_SPEC_NUMBERS(TELL)
#undef TELL
    td__texts_add(&t, "cwd=%s", getcwd(cwd, sizeof cwd) ? cwd : "/");
    if (o->listen)
        td__texts_add(&t, "listen=%s", o->listen);
    if (s->cert && s->key) {
        td__texts_add(&t, "cert=%s", s->cert);
        td__texts_add(&t, "key=%s", s->key);
    }
    if (o->terminal && hosts->host[index].local)
        td__texts_add(&t, "terminal=");
    if (o->most)
        td__texts_add(&t, "elastic=%d:%d", o->min_ranks, o->most);
    if (o->most && o->hosts_file)
        td__texts_add(&t, "grows=1");
    if (o->roles)
        td__texts_add(&t, "roles=%s", o->roles);
    if (o->framework)
        td__texts_add(&t, "framework=%s", o->framework);
    if (!o->most && *o->resume)
        td__texts_add(&t, "env=%s=%s", td__env_name(TD_ENV_RESUME), o->resume);
    for (int i = 0; i < o->n_env; i++)
        td__texts_add(&t, "env=%s", o->env[i]);
    for (int i = 0; argv[i]; i++)
        td__texts_add(&t, "arg=%s", argv[i]);
    td_status st = t.failed ? TD_FAIL(TD_ENOMEM, "no memory for the command line")
                            : td__channel_send(&a->down, TD_MSG_SPEC, -1, t.data, t.used);
    td__texts_fini(&t);
    return st;
}

/* The agent of this host: a copy of this process, with none of its descriptors. */
static td_status start_local(td__agent_link *a, const td__foreign_http *http)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return TD_FAIL(TD_EIO, "cannot make a socket pair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* Ctrl-C is for the launcher */
        if (dup2(pair[1], STDERR_FILENO + 1) != STDERR_FILENO + 1)
            _exit(1);
        fcntl(STDERR_FILENO + 1, F_SETFD, FD_CLOEXEC);
        syscall(SYS_close_range, STDERR_FILENO + 2, ~0u, 0);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        _exit(td__agent_run(STDERR_FILENO + 1, STDERR_FILENO + 1, http) ? 1 : 0);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return TD_FAIL(TD_EIO, "cannot start an agent: %s", strerror(errno));
    }
    setpgid(pid, pid);
    a->child = (td__child){pid, (int)syscall(SYS_pidfd_open, pid, 0), -1, -1, -1};
    td__channel_init(&a->down, pair[0], pair[0]);
    return TD_OK;
}

/* What ssh is given as command goes through the shell of the other side: quoted where that would
 * see more than a word. */
static td_status quote(const char *ssh, const char *text, char *out, size_t max)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./+:=@%,";
    const char *slash = strrchr(ssh, '/');
    bool shell = !strcmp(slash ? slash + 1 : ssh, "ssh") && text[strspn(text, PLAIN)];
    size_t n = 0;
    if (shell)
        out[n++] = '\'';
    for (; *text && n + 8 < max; text++)
        if (shell && *text == '\'')
            n += (size_t)snprintf(out + n, max - n, "'\\''");
        else
            out[n++] = *text;
    if (shell)
        out[n++] = '\'';
    out[n] = 0;
    return *text ? TD_FAIL(TD_EINVAL, "the path of the agent is too long") : TD_OK;
}

/* Through ssh, or what was given in its place: WORDS... HOST PROGRAM agent. */
static td_status start_remote(const td__launch_opts *o, const char *host, td__agent_link *a)
{
    const char *words = o->ssh ? o->ssh
                               : "ssh -T -o BatchMode=yes -o ConnectTimeout=10 "
                                 "-o ServerAliveInterval=5 -o ServerAliveCountMax=2";
    char *copy = td__strdup(words), *rest = copy, self[4200];
    const char *argv[64];
    int n = 0;
    if (!copy)
        return TD_FAIL(TD_ENOMEM, "no memory for the command of a remote shell");
    for (char *word; n < 60 && (word = strsep(&rest, " "));)
        if (*word)
            argv[n++] = word;
    td_status st = n ? quote(argv[0], o->self, self, sizeof self)
                     : TD_FAIL(TD_EINVAL, "the command of the remote shell is empty");
    argv[n++] = host;
    argv[n++] = self;
    argv[n++] = "agent";
    argv[n] = NULL;
    if (!st)
        st =
            td__spawn(argv, &(td__spawn_opts){.pipe_in = true, .death_signal = SIGTERM}, &a->child);
    td__free(copy);
    if (st)
        return st;
    td__channel_init(&a->down, a->child.out, a->child.in);
    a->child.in = a->child.out = -1;
    fcntl(a->child.err, F_SETFL, O_NONBLOCK);
    return TD_OK;
}

td_status td__agent_start(const td__launch_opts *o, const td__host *host, td__agent_link *a)
{
    return host->local ? start_local(a, o->http) : start_remote(o, host->name, a);
}

void td__agent_noise(td__agent_link *a)
{
    char text[512];
    ssize_t n = read(a->child.err, text, sizeof text);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close(a->child.err);
        a->child.err = -1;
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        bool line_end = text[i] == '\n' || text[i] == '\r';
        if (!line_end && a->noise_whole)
            a->noise_used = 0;
        if (!line_end && a->noise_used < sizeof a->noise - 1)
            a->noise[a->noise_used++] = text[i];
        a->noise[a->noise_used] = 0;
        a->noise_whole = line_end;
    }
}

td_status td__agent_hear(td__agent_link *a, td__agent_take *take, void *user, int index, bool *eof,
                         bool *unread)
{
    bool found = true;
    td__msg m;
    td_status st = td__channel_fill(&a->down, eof);
    *unread = false;
    while (!st && found) {
        st = td__channel_next(&a->down, &m, &found);
        if (!st && found)
            st = take(user, index, &m);
        if (st == TD_EPEER && found) {
            *unread = true;
            st = TD_OK;
        }
    }
    *eof = *eof || st == TD_EPROTO;
    return st;
}

void td__agent_release(td__agent_link *a, int patience_ms)
{
    td__channel_fini(&a->down);
    struct pollfd p = {a->child.pidfd, POLLIN, 0};
    if (a->child.pidfd >= 0 && poll(&p, 1, patience_ms) == 0)
        kill(-a->child.pid, SIGKILL);
    if (a->child.pidfd >= 0)
        td__child_reap(&a->child);
    td__child_close(&a->child);
}
