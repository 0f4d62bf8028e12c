/* supervise.c -- the supervisor of one attempt; see supervise.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/message.h"
#include "launch/rank_env.h"
#include "launch/spawn.h"
#include "service/track/artifact_list.h"
#include "service/track/memory_groups.h"
#include "service/track/results.h"
#include "service/track/tree_memory.h"

extern char **environ;

enum {
    PATH_BYTES = 4300,
    STATUS_BYTES = 512,
    LATEST_MS = 3600 * 1000,
    BEAT_CHECKS = 4,
    MEMORY_MS = 500, /* between looks at the members' memory */
    STOPPED = 128 + SIGTERM,
    KILLED = 128 + SIGKILL,
};

typedef struct process {
    int rank, member;
    td__child child;   /* pid 0: it does not run */
    bool ended, late;  /* for good; killed for its step deadline */
    uint64_t too_much; /* killed for its memory, bytes; 0: it was not */
} process;

typedef struct supervisor {
    const char *dir;
    json_t *spec;
    int n, each; /* processes; of each member */
    process *p;
    int restarts_left;
    int64_t grace_ms, step_ms;
    uint64_t memory;           /* of a member, bytes; 0: no limit */
    td__memory_groups *groups; /* NULL: the kernel does not limit it */
    int control, events, signals;
    bool stopping, killed;
    td__deadline kill_at, beat_at, memory_at;
    int exit_status; /* of the first that failed */
    int failed_member;
    char left_out[400]; /* of its artifacts; "": nothing */
    char trouble[300];  /* instead of its last line, "": none */
} supervisor;

static const char *path_of(const supervisor *s, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", s->dir, name);
    return path;
}

static int64_t number(const supervisor *s, const char *key)
{
    return json_integer_value(json_object_get(s->spec, key));
}

static td_status read_spec(supervisor *s)
{
    char path[PATH_BYTES];
    json_error_t e;

    s->spec = json_load_file(path_of(s, "spec", path), 0, &e);
    if (!s->spec)
        return TD_FAIL(TD_EPROTO, "%s: %s", path, e.text);
    s->n = (int)json_array_size(json_object_get(s->spec, "processes"));
    s->each = (int)number(s, "each");
    if (s->n < 1 || s->each < 1 || !json_array_size(json_object_get(s->spec, "argv")))
        return TD_FAIL(TD_EPROTO, "%s: nothing to run", path);
    s->restarts_left = (int)number(s, "restarts");
    s->grace_ms = number(s, "grace_ms");
    s->step_ms = number(s, "step_deadline_ms");
    s->memory = (uint64_t)number(s, "memory_mb") << 20;
    s->p = td__calloc((size_t)s->n, sizeof *s->p);
    return s->p ? TD_OK : TD_FAIL(TD_ENOMEM, "supervisor: out of memory");
}

/* Of our own environment only what programs need to find their files: the service's may hold
 * secrets. */
static bool inherited(const char *variable)
{
    static const char *const NAMES[] = {
        "PATH=",         "HOME=",         "USER=",         "LOGNAME=",         "LANG=",
        "LC_",           "TZ=",           "TMPDIR=",       "LD_LIBRARY_PATH=", "TANDEM_ISA=",
        "ASAN_OPTIONS=", "TSAN_OPTIONS=", "UBSAN_OPTIONS="};

    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strncmp(variable, NAMES[i], strlen(NAMES[i])))
            return true;
    return false;
}

static void add_list(td__texts *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        td__texts_add(out, "%s", json_string_value(json_array_get(list, i)));
}

static td_status start(supervisor *s, process *p)
{
    char path[PATH_BYTES], name[32];
    const json_t *argv = json_object_get(s->spec, "argv");
    char *base[32] = {NULL};
    td__texts env = {0};
    size_t n_base = 0;

    for (char **e = environ; *e && n_base < 31; e++)
        if (inherited(*e))
            base[n_base++] = *e;
    add_list(&env, json_object_get(s->spec, "env"));
    add_list(&env, json_array_get(json_object_get(s->spec, "processes"), (size_t)p->rank));
    snprintf(name, sizeof name, "beat-%d", p->rank);
    td__texts_add(&env, "TANDEM_HEARTBEAT_FILE=%s", path_of(s, name, path));
    int beat = td__file_open_plain(path, O_WRONLY | O_CREAT, 0600);
    if (beat >= 0) {
        futimens(beat, NULL);
        close(beat);
    }
    snprintf(name, sizeof name, "log-%d", p->member);
    int log = td__file_open_plain(path_of(s, name, path), O_WRONLY | O_CREAT | O_APPEND, 0600);
    char **full = td__rank_environ(base, &env);
    const char **args = td__calloc(json_array_size(argv) + 1, sizeof *args);
    td_status st =
        log >= 0 && full && args ? TD_OK : TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    for (size_t i = 0; !st && i < json_array_size(argv); i++)
        args[i] = json_string_value(json_array_get(argv, i));
    td__spawn_opts o = {.env = full,
                        .log = log,
                        .dir = json_string_value(json_object_get(s->spec, "work")),
                        .death_signal = SIGKILL};
    td__memory_groups_enter(s->groups, p->member);
    if (!st)
        st = td__spawn(args, &o, &p->child);
    td__memory_groups_leave(s->groups);
    if (log >= 0)
        close(log);
    td__free(args);
    td__free(full);
    td__texts_fini(&env);
    return st;
}

static void signal_all(supervisor *s, int signal)
{
    for (int i = 0; i < s->n; i++)
        if (s->p[i].child.pid && !s->p[i].ended)
            kill(-s->p[i].child.pid, signal);
}

static void stop_all(supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->kill_at = td__deadline_in_ms((uint64_t)s->grace_ms);
    signal_all(s, SIGTERM);
}

static void kill_all(supervisor *s)
{
    s->stopping = s->killed = true;
    s->kill_at = TD_DEADLINE_NEVER;
    signal_all(s, SIGKILL);
}

static void say_event(supervisor *s, const char *text)
{
    ssize_t n = write(s->events, text, strlen(text));
    (void)n; /* the job does not depend on it */
}

static void kill_member(supervisor *s, int member, uint64_t too_much)
{
    for (int i = member * s->each; i < (member + 1) * s->each && i < s->n; i++) {
        s->p[i].too_much = too_much;
        if (s->p[i].child.pid)
            kill(-s->p[i].child.pid, SIGKILL);
    }
}

static bool member_ended(const supervisor *s, int member)
{
    for (int i = member * s->each; i < (member + 1) * s->each && i < s->n; i++)
        if (!s->p[i].ended)
            return false;
    return true;
}

/* A process has ended: is it started again, has the group failed, or is it done? */
static void on_exit_of(supervisor *s, process *p)
{
    int status = td__child_reap(&p->child);
    char text[200];

    td__child_close(&p->child);
    p->child.pid = 0;
    uint64_t had = td__memory_groups_killed(s->groups, p->member);
    if (had)
        kill_member(s, p->member, had);
    if (p->too_much && !status)
        status = KILLED; /* not all of it was killed: what is left cannot call that a success */
    if (status && !s->stopping && s->restarts_left > 0) {
        s->restarts_left--;
        snprintf(text, sizeof text, "restart %d rank %d %s (exit code %d), started again\n",
                 p->member, p->rank,
                 p->late       ? "made no step in time"
                 : p->too_much ? "used more than its memory"
                               : "failed",
                 status);
        say_event(s, text);
        p->late = false;
        p->too_much = 0;
        if (!start(s, p))
            return;
    }
    p->ended = true;
    if (member_ended(s, p->member)) {
        snprintf(text, sizeof text, "end %d %d\n", p->member, status);
        say_event(s, text);
    }
    if (status && !s->exit_status) {
        s->exit_status = status;
        s->failed_member = p->member;
        if (p->too_much)
            snprintf(s->trouble, sizeof s->trouble,
                     "it used %llu MiB of memory%s, its resources.memory_mb is %llu",
                     (unsigned long long)(p->too_much >> 20),
                     p->too_much > s->memory ? "" : " and wanted more",
                     (unsigned long long)(s->memory >> 20));
    }
    if (status)
        stop_all(s);
}

static void on_control(supervisor *s)
{
    char text[256];
    ssize_t n = read(s->control, text, sizeof text - 1);
    int rank;

    text[n > 0 ? n : 0] = '\0';
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end ? (*end = '\0', 1) : 0;
        if (!strcmp(line, "stop"))
            stop_all(s);
        else if (!strcmp(line, "kill"))
            kill_all(s);
        else if (sscanf(line, "restart %d", &rank) == 1 && rank >= 0 && rank < s->n &&
                 s->p[rank].child.pid) {
            s->restarts_left++; /* this one was asked for */
            kill(-s->p[rank].child.pid, SIGKILL);
        }
    }
}

/* Processes that have not touched their file for the step deadline are killed. */
static void check_beats(supervisor *s)
{
    struct timespec now;
    struct stat info;
    char path[PATH_BYTES], name[32];

    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < s->n; i++) {
        snprintf(name, sizeof name, "beat-%d", i);
        if (!s->p[i].child.pid || stat(path_of(s, name, path), &info))
            continue;
        int64_t ms = (now.tv_sec - info.st_mtim.tv_sec) * 1000 +
                     (now.tv_nsec - info.st_mtim.tv_nsec) / 1000000;
        if (ms > s->step_ms && !s->p[i].late) {
            s->p[i].late = true;
            kill(-s->p[i].child.pid, SIGKILL);
        }
    }
    s->beat_at = td__deadline_in_ms((uint64_t)(s->step_ms / BEAT_CHECKS + 1));
}

/* Members that have more than their share are killed, all of their processes. Where the kernel does
 * not see to it, it is looked at now and then: what grows and ends in between is not seen. A limit
 * on address space would be exact, but GPU drivers and sanitizers reserve far more than they use.
 */
static void check_memory(supervisor *s)
{
    pid_t *roots = td__calloc((size_t)s->n, sizeof *roots);
    uint64_t *nbytes = td__calloc((size_t)s->n, sizeof *nbytes);

    for (int i = 0; roots && i < s->n; i++)
        roots[i] = s->p[i].child.pid;
    bool known = roots && nbytes && !td__tree_memory(roots, s->n, nbytes);
    for (int first = 0; known && first < s->n; first += s->each) {
        uint64_t all = 0;
        for (int i = first; i < first + s->each && i < s->n; i++)
            all += nbytes[i];
        uint64_t had = td__memory_groups_killed(s->groups, first / s->each);
        if (had || all > s->memory)
            kill_member(s, first / s->each, had ? had : all);
    }
    td__free(roots);
    td__free(nbytes);
    s->memory_at = td__deadline_in_ms(MEMORY_MS);
}

static bool all_ended(const supervisor *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->p[i].ended)
            return false;
    return true;
}

static void on_signal(supervisor *s)
{
    struct signalfd_siginfo signal;

    if (read(s->signals, &signal, sizeof signal) > 0)
        stop_all(s); /* the machine goes down: a last checkpoint */
}

static td_status watch(supervisor *s)
{
    struct pollfd *fds = td__calloc((size_t)s->n + 2, sizeof *fds);

    if (!fds)
        return TD_FAIL(TD_ENOMEM, "supervisor: out of memory");
    while (!all_ended(s)) {
        int wait = td__deadline_left_ms(s->kill_at, LATEST_MS);
        int beat = td__deadline_left_ms(s->beat_at, LATEST_MS);
        int look = td__deadline_left_ms(s->memory_at, LATEST_MS);
        beat = look < beat ? look : beat;
        fds[s->n] = (struct pollfd){.fd = s->control, .events = POLLIN};
        fds[s->n + 1] = (struct pollfd){.fd = s->signals, .events = POLLIN};
        for (int i = 0; i < s->n; i++)
            fds[i] = (struct pollfd){.fd = s->p[i].child.pid ? s->p[i].child.pidfd : -1,
                                     .events = POLLIN};
        if (poll(fds, (nfds_t)s->n + 2, wait < beat ? wait : beat) < 0 && errno != EINTR)
            break;
        if (fds[s->n].revents)
            on_control(s);
        if (fds[s->n + 1].revents)
            on_signal(s);
        for (int i = 0; i < s->n; i++)
            if (fds[i].revents)
                on_exit_of(s, &s->p[i]);
        if (td__deadline_passed(s->kill_at))
            kill_all(s);
        if (td__deadline_passed(s->beat_at))
            check_beats(s);
        if (td__deadline_passed(s->memory_at))
            check_memory(s);
    }
    td__free(fds);
    return TD_OK;
}

/* Processes that left their group have become children of ours: none outlives the attempt. */
static void end_orphans(void)
{
    td__deadline until = td__deadline_in_ms(5000);

    while (!td__deadline_passed(until)) {
        char path[64], text[4096];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        if (fd >= 0)
            close(fd);
        if (n <= 0)
            return;
        text[n] = '\0';
        for (char *p = text, *end; strtol(p, &end, 10) > 0; p = end)
            kill((pid_t)strtol(p, NULL, 10), SIGKILL);
        siginfo_t info;
        waitid(P_ALL, 0, &info, WEXITED);
    }
}

/* The last line of a member's output that says something: why it failed, in most programs. */
static void last_line(const supervisor *s, int member, char *out, size_t nbytes)
{
    char path[PATH_BYTES], name[32], text[2048];
    struct stat info;

    out[0] = '\0';
    snprintf(name, sizeof name, "log-%d", member);
    int fd = td__file_open_plain(path_of(s, name, path), O_RDONLY, 0);
    if (fd < 0)
        return;
    off_t size = fstat(fd, &info) ? 0 : info.st_size;
    off_t from = size > (off_t)sizeof text - 1 ? size - ((off_t)sizeof text - 1) : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    close(fd);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    text[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(text, '\n');
    td__text printable = {0};
    td__text_printable(&printable, line ? line + 1 : text);
    if (printable.data)
        snprintf(out, nbytes, "%.300s", printable.data);
    td__text_fini(&printable);
}

static td_status write_status(supervisor *s)
{
    char path[PATH_BYTES], line[400], text[STATUS_BYTES];
    td__file_out f;

    snprintf(line, sizeof line, "%s", s->trouble);
    if (s->exit_status && !*line)
        last_line(s, s->failed_member, line, sizeof line);
    if (s->exit_status && s->n > 1)
        snprintf(text, sizeof text, "%d Exit code %d of member %d: %s\n", s->exit_status,
                 s->exit_status, s->failed_member, line);
    else if (s->exit_status)
        snprintf(text, sizeof text, "%d Exit code %d: %s\n", s->exit_status, s->exit_status, line);
    else
        snprintf(text, sizeof text, "0 Exit code 0%s%s\n", *s->left_out ? "; " : "", s->left_out);
    TD_TRY(td__file_out_open(&f, path_of(s, "status", path)));
    td__file_out_write(&f, text, strlen(text));
    return td__file_out_commit(&f);
}

static td_status mark_started(const supervisor *s)
{
    char path[PATH_BYTES];
    int fd = open(path_of(s, "started", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    close(fd);
    return TD_OK;
}

static td_status run(supervisor *s)
{
    td_status st = TD_OK;

    for (int i = 0; i < s->n && !st; i++) {
        s->p[i].rank = i;
        s->p[i].member = i / s->each;
        st = start(s, &s->p[i]);
    }
    if (st) { /* all or none */
        s->exit_status = 127;
        for (int i = 0; i < s->n; i++)
            s->p[i].ended = !s->p[i].child.pid;
        kill_all(s);
    } else {
        TD_TRY(mark_started(s));
    }
    TD_TRY(watch(s));
    end_orphans();
    return TD_OK;
}

/* What was asked meanwhile: between files, as sending many takes its time. */
static bool is_stopping(void *arg)
{
    supervisor *s = arg;
    struct pollfd fds[] = {{.fd = s->control, .events = POLLIN},
                           {.fd = s->signals, .events = POLLIN}};

    if (poll(fds, 2, 0) > 0) {
        if (fds[0].revents)
            on_control(s);
        if (fds[1].revents)
            on_signal(s);
    }
    return s->stopping;
}

/* Results of a success, whole and with their sha256, before it is said to be one. */
static td_status publish(supervisor *s)
{
    const json_t *list = json_object_get(s->spec, "env");
    const char *artifacts = json_string_value(json_object_get(s->spec, "artifacts"));
    const char **env = td__calloc(json_array_size(list) + 1, sizeof *env);
    char path[PATH_BYTES];
    td__left_out left_out = {0};

    for (size_t i = 0; env && i < json_array_size(list); i++)
        env[i] = json_string_value(json_array_get(list, i));
    td__results r = {.run = json_string_value(json_object_get(s->spec, "run")),
                     .artifacts = artifacts,
                     .list = path_of(s, TD__ARTIFACT_LIST, path),
                     .env = env,
                     .stop = is_stopping,
                     .left_out = &left_out,
                     .arg = s};
    td_status st = !env        ? TD_FAIL(TD_ENOMEM, "supervisor: out of memory")
                   : artifacts ? td__results_publish(&r)
                               : TD_OK;
    td__left_out_show(&left_out, s->left_out, sizeof s->left_out);
    td__free(env);
    return st;
}

static td_status record_end(supervisor *s)
{
    if (!s->exit_status && publish(s)) {
        s->exit_status = s->stopping ? STOPPED : 1; /* a success without its results is none */
        snprintf(s->trouble, sizeof s->trouble, "its artifacts: %s", td_last_error());
    }
    return write_status(s);
}

td_status td__supervise(const char *dir)
{
    supervisor s = {.dir = dir,
                    .control = -1,
                    .events = -1,
                    .signals = -1,
                    .kill_at = TD_DEADLINE_NEVER,
                    .beat_at = TD_DEADLINE_NEVER,
                    .memory_at = TD_DEADLINE_NEVER};
    char path[PATH_BYTES];
    bool won = false;
    td_status st = TD_OK;

    TD_TRY_OR(st, done, read_spec(&s));
    TD_TRY_OR(st, done, td__claim_take(dir, getpid(), &won));
    if (!won)
        goto done;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* of the service's terminal */
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    s.signals = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
    s.events = open(path_of(&s, "events", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* For reading and writing: it never reads an end of file. */
    s.control = open(path_of(&s, "control", path), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (s.control < 0 || s.events < 0 || s.signals < 0) {
        st = TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
        goto done;
    }
    const char *slash = strrchr(dir, '/');
    if (s.memory && td__memory_groups_create(slash ? slash + 1 : dir, (s.n + s.each - 1) / s.each,
                                             s.memory, &s.groups))
        TD_LOG(DEBUG, SERVICE, "memory is looked at now and then: %s", td_last_error());
    if (s.memory)
        s.memory_at = td__deadline_in_ms(MEMORY_MS);
    if (s.step_ms)
        s.beat_at = td__deadline_in_ms((uint64_t)s.step_ms);
    TD_TRY_OR(st, done, run(&s));
    td__memory_groups_destroy(s.groups);
    s.groups = NULL;
    TD_TRY_OR(st, done, record_end(&s));
done:
    for (int i = 0; i < 3; i++) {
        int fd = (int[]){s.control, s.events, s.signals}[i];
        if (fd >= 0)
            close(fd);
    }
    td__memory_groups_destroy(s.groups);
    td__free(s.p);
    json_decref(s.spec);
    return st;
}
