/* track_process.c -- the tracker `process`: groups are processes of this host, each under a
 * supervisor of its own (supervise.h), which outlives the service.
 *
 * Files in the attempt's directory say what happens; inotify tells when. Nothing is polled. The
 * supervisor's descriptor (pidfd) tells of its death. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "base/log.h"
#include "launch/spawn.h"
#include "rpc/loop.h"
#include "service/config.h"
#include "service/track/attempt_spec.h"
#include "service/track/gpus.h"
#include "service/track/memory_groups.h"
#include "service/track/supervise.h"
#include "service/track/tracker.h"

enum { PATH_BYTES = 4300, PIECE = 64 << 10, MOST_BYTES = 1 << 20 };

extern const td__tracker_ops td__tracker_process;

typedef struct tracker tracker;
typedef struct group group;

struct group {
    tracker *t;
    char token[TD__TOKEN];
    char dir[PATH_BYTES];   /* of the attempt */
    int wd, run_wd, job_wd; /* of inotify: the attempt, the run's directory, the job's; -1: none */
    td__watch supervisor;   /* its pidfd; fd -1: it is not watched */
    int control;
    bool started, ours; /* reported; the supervisor is a child of this process */
    size_t events_read;
    group *next;
};

struct tracker {
    td__tracker head;
    td__watch notify;
    group *groups;
    td__gpus *gpus, own_gpus;
};

static const char *path_of(const group *g, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%.4200s/%s", g->dir, name);
    return path;
}

static bool exists(const group *g, const char *name)
{
    char path[PATH_BYTES];

    return access(path_of(g, name, path), F_OK) == 0;
}

static void tell(tracker *t, const td__track_event *e)
{
    t->head.c.event(t->head.c.arg, e);
}

static group *find(tracker *t, const char *token)
{
    group *g = t->groups;

    while (g && strcmp(g->token, token) != 0)
        g = g->next;
    return g;
}

static void unwatch_supervisor(group *g)
{
    if (g->supervisor.fd < 0)
        return;
    td__loop_unwatch(g->t->head.c.loop, &g->supervisor);
    close(g->supervisor.fd);
    g->supervisor.fd = -1;
}

static void drop(group *g)
{
    tracker *t = g->t;
    const int wds[] = {g->wd, g->run_wd, g->job_wd};

    unwatch_supervisor(g);
    td__gpus_release(t->gpus, g->token);
    for (int i = 0; i < 3; i++)
        if (wds[i] >= 0)
            inotify_rm_watch(t->notify.fd, wds[i]);
    if (g->control >= 0)
        close(g->control);
    for (group **at = &t->groups; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    td__free(g);
}

/* The end, from the status file; lost without one. The group is gone afterwards. */
static void finish(group *g)
{
    char path[PATH_BYTES], token[TD__TOKEN], text[600] = "";
    tracker *t = g->t;
    td__track_event e = {.kind = TD_TRACK_EXITED, .exit_status = -1};

    int fd = td__file_open_plain(path_of(g, "status", path), O_RDONLY, 0);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    char *said = strchr(text, ' ');
    if (said) {
        e.exit_status = (int)strtol(text, NULL, 10);
        e.text = said + 1;
    } else {
        e.exit_class = TD_EXIT_CLASS_LOST;
        e.text = "lost: its supervisor died";
    }
    snprintf(token, sizeof token, "%s", g->token);
    e.token = token;
    drop(g);
    tell(t, &e);
}

static void say_started(group *g)
{
    if (g->started)
        return;
    g->started = true;
    tell(g->t, &(td__track_event){.kind = TD_TRACK_STARTED, .token = g->token});
}

/* Lines of the events file that have not been told. */
static void say_events(group *g)
{
    char path[PATH_BYTES], line[256];
    int fd = td__file_open_plain(path_of(g, "events", path), O_RDONLY, 0);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

    if (!f && fd >= 0)
        close(fd);
    if (!f)
        return;
    fseek(f, (long)g->events_read, SEEK_SET);
    while (fgets(line, sizeof line, f) && strchr(line, '\n')) {
        int member, at = 0;
        g->events_read += strlen(line);
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "restart %d %n", &member, &at) == 1 && at)
            tell(g->t, &(td__track_event){.kind = TD_TRACK_MEMBER_RESTARTED,
                                          .token = g->token,
                                          .member = member,
                                          .text = line + at});
    }
    fclose(f);
}

static void on_supervisor(void *arg, uint32_t events);

static bool watch_supervisor(group *g, int pidfd, bool ours)
{
    g->supervisor = (td__watch){.fd = pidfd, .ready = on_supervisor, .arg = g};
    g->ours = ours;
    if (td__loop_watch(g->t->head.c.loop, &g->supervisor, EPOLLIN)) {
        TD_LOG(ERROR, SERVICE, "%s: %s", g->token, td_last_error());
        close(pidfd);
        g->supervisor.fd = -1;
        return false;
    }
    return true;
}

/* This host cannot watch it now, for want of descriptors or memory: it may run all the same. */
static void unknown(group *g)
{
    tracker *t = g->t;
    char token[TD__TOKEN];

    snprintf(token, sizeof token, "%s", g->token);
    drop(g);
    tell(t, &(td__track_event){.kind = TD_TRACK_AGAIN,
                               .token = token,
                               .text = "its supervisor cannot be watched now"});
}

/* The supervisor that has the attempt is watched from now on; or it is over. */
static void follow_claim(group *g)
{
    td__claim claim;

    if (exists(g, "started"))
        say_started(g);
    errno = ESRCH;
    int pidfd = td__claim_read(g->dir, &claim) ? td__claim_open(&claim) : -1;
    bool over = pidfd < 0 && errno == ESRCH;
    /* Looked at after the descriptor was opened: whatever comes later is told by inotify. */
    if (exists(g, "status") || over) {
        if (pidfd >= 0)
            close(pidfd);
        finish(g);
    } else if (pidfd < 0 || !watch_supervisor(g, pidfd, false)) {
        unknown(g);
    }
}

/* Our child has ended before it took the attempt: the program cannot be run, or memory is short. */
static void never_started(group *g, int status)
{
    tracker *t = g->t;
    char token[TD__TOKEN], text[128];
    bool given_up;

    snprintf(token, sizeof token, "%s", g->token);
    snprintf(text, sizeof text, "the supervisor did not start (status %d)", status);
    if (!td__claim_take(g->dir, 0, &given_up) && !given_up) {
        follow_claim(g); /* another one has it */
        return;
    }
    drop(g);
    tell(t, &(td__track_event){.kind = TD_TRACK_FAILED, .token = token, .text = text});
}

static void on_supervisor(void *arg, uint32_t events)
{
    group *g = arg;
    siginfo_t info = {0};
    td__claim claim;

    (void)events;
    if (g->ours) /* else it is init's to reap */
        waitid(P_PIDFD, (id_t)g->supervisor.fd, &info, WEXITED);
    unwatch_supervisor(g);
    if (td__claim_read(g->dir,
                       &claim)) /* it may be another one's, started by a service before us */
        follow_claim(g);
    else
        never_started(g, info.si_status);
}

/* inotify. */

static void on_file(group *g, int wd, const char *name)
{
    int member;

    if (wd == g->wd) {
        if (!strcmp(name, "started"))
            say_started(g);
        else if (!strcmp(name, "events"))
            say_events(g);
        else if (sscanf(name, "log-%d", &member) == 1)
            tell(g->t,
                 &(td__track_event){.kind = TD_TRACK_LOG, .token = g->token, .member = member});
        else if (!strcmp(name, "status")) {
            say_started(g); /* it may have been quicker than we are */
            finish(g);
        }
    } else if (!strcmp(name, "metrics.jsonl")) {
        tell(g->t, &(td__track_event){.kind = TD_TRACK_METRICS, .token = g->token});
    }
}

static void on_notify(void *arg, uint32_t ready)
{
    tracker *t = arg;
    _Alignas(struct inotify_event) char buffer[16 << 10];
    ssize_t n;

    (void)ready;
    while ((n = read(t->notify.fd, buffer, sizeof buffer)) > 0)
        for (char *p = buffer; p < buffer + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(void *)p;
            p += sizeof *e + e->len;
            for (group *g = t->groups, *next; g && e->len; g = next) {
                next = g->next;
                if (e->wd == g->wd || e->wd == g->run_wd || e->wd == g->job_wd) {
                    on_file(g, e->wd, e->name);
                    break;
                }
            }
        }
}

/* Groups. */

static td_status add_group(tracker *t, const td__group *given, group **out)
{
    char path[PATH_BYTES];
    group *g = td__calloc(1, sizeof *g);

    *out = NULL;
    if (!g)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", given->token);
    *g = (group){.t = t, .wd = -1, .run_wd = -1, .job_wd = -1, .control = -1};
    g->supervisor.fd = -1;
    snprintf(g->token, sizeof g->token, "%s", given->token);
    snprintf(g->dir, sizeof g->dir, "%.4100s/attempts/%s", given->dir, given->token);
    if (mkdir(g->dir, 0700) && errno != EEXIST) {
        td_status st = TD_FAIL(TD_EIO, "%s: %s", g->dir, strerror(errno));
        td__free(g);
        return st;
    }
    g->next = t->groups;
    t->groups = g;
    uint32_t mask = IN_CREATE | IN_MODIFY | IN_MOVED_TO;
    g->wd = inotify_add_watch(t->notify.fd, g->dir, mask);
    g->job_wd = inotify_add_watch(t->notify.fd, given->dir, mask);
    snprintf(path, sizeof path, "%.4200s/run", given->dir);
    if (given->own_ranks && (!mkdir(path, 0700) || errno == EEXIST))
        g->run_wd = inotify_add_watch(t->notify.fd, path, mask);
    if (g->wd < 0) {
        td_status st = TD_FAIL(TD_EIO, "%s: inotify: %s", g->dir, strerror(errno));
        drop(g);
        return st;
    }
    *out = g;
    return TD_OK;
}

/* GPUs that an attempt of before has, as its spec says. */
static void mark_gpus(group *g)
{
    char path[PATH_BYTES];
    int fd = td__file_open_plain(path_of(g, "spec", path), O_RDONLY, 0);
    json_t *spec = fd >= 0 ? json_loadfd(fd, 0, NULL) : NULL;
    const json_t *list = json_object_get(spec, "gpus");

    for (size_t i = 0; i < json_array_size(list); i++)
        td__gpus_mark(g->t->gpus, g->token, (int)json_integer_value(json_array_get(list, i)));
    json_decref(spec);
    if (fd >= 0)
        close(fd);
}

/* *spawned: a supervisor may run, whatever is returned. */
static td_status launch(group *g, const td__group *given, bool *spawned)
{
    td__points *points = g->t->head.c.points;
    char path[PATH_BYTES];

    int gpus[TD__MOST_GPUS], n_gpus = given->spec->members * given->spec->gpus;

    if (n_gpus > TD__MOST_GPUS || !td__gpus_take(g->t->gpus, g->token, n_gpus, gpus))
        return TD_FAIL(TD_EINVAL, "%s: this host has no %d free GPUs", g->token, n_gpus);
    TD_TRY(td__point(points, TD_POINT_FILE, "spec"));
    TD_TRY(td__attempt_write(path_of(g, "spec", path), given, gpus));
    /* Held open here, so that what is written before the supervisor reads it is kept. */
    if (mkfifo(path_of(g, "control", path), 0600) && errno != EEXIST)
        return TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    g->control = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const char *argv[] = {g->t->head.c.self, "supervise", g->dir, NULL};
    int pidfd;
    TD_TRY(td__point(points, TD_POINT_COMM, "spawn"));
    TD_TRY(td__spawn_detached(argv, path_of(g, "supervisor.log", path), &pidfd));
    *spawned = true;
    TD_TRY(td__point(points, TD_POINT_COMM, "spawned"));
    if (!watch_supervisor(g, pidfd, true))
        return TD_FAIL(TD_EIO, "the supervisor of %s cannot be watched", g->token);
    return TD_OK;
}

/* An attempt that was begun by a service before this one. */
static void take_over(group *g)
{
    char path[PATH_BYTES];

    g->control = open(path_of(g, "control", path), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    mark_gpus(g);
    say_events(g);
    follow_claim(g);
}

/* Nothing was started, or nobody knows: FAILED, AGAIN. */
static void give_up(tracker *t, const td__group *given, td__track_event_kind kind)
{
    char text[600];

    snprintf(text, sizeof text, "%s", td_last_error());
    group *g = find(t, given->token);
    if (g)
        drop(g);
    tell(t, &(td__track_event){.kind = kind, .token = given->token, .text = text});
}

static void process_start(td__tracker *tr, const td__group *given)
{
    tracker *t = (tracker *)tr;
    td__claim claim;
    bool spawned = false;
    group *g;

    if (find(t, given->token))
        return;
    if (add_group(t, given, &g)) { /* it may run since an earlier start() */
        give_up(t, given, TD_TRACK_AGAIN);
        return;
    }
    if (td__claim_read(g->dir, &claim))
        take_over(g);
    else if (launch(g, given, &spawned))
        give_up(t, given, spawned ? TD_TRACK_AGAIN : TD_TRACK_FAILED);
}

static void process_adopt(td__tracker *tr, const td__group *given)
{
    tracker *t = (tracker *)tr;
    group *g;
    bool given_up = false;

    if (find(t, given->token))
        return;
    /* If nobody has taken it, nobody shall: a supervisor that is just starting finds it taken. */
    if (add_group(t, given, &g) || td__claim_take(g->dir, 0, &given_up)) {
        give_up(t, given, TD_TRACK_AGAIN);
    } else if (given_up) {
        drop(g);
        tell(t, &(td__track_event){.kind = TD_TRACK_UNKNOWN, .token = given->token});
    } else {
        take_over(g);
    }
}

static void process_signal(td__tracker *tr, const char *token, int member, td__track_signal what)
{
    group *g = find((tracker *)tr, token);
    char text[32] = "stop\n";

    if (!g || g->control < 0)
        return;
    if (what == TD_TRACK_KILL)
        snprintf(text, sizeof text, "kill\n");
    if (what == TD_TRACK_RESTART)
        snprintf(text, sizeof text, "restart %d\n", member);
    if (write(g->control, text, strlen(text)) < 0)
        TD_LOG(WARN, SERVICE, "%s: %s", g->token, strerror(errno));
}

static void process_logs(td__tracker *tr, const char *token, const char *dir, int member,
                         uint64_t from, const td__log_sink *sink)
{
    char path[PATH_BYTES], buffer[PIECE];
    uint64_t end = from + MOST_BYTES;
    ssize_t n = 0;

    (void)tr;
    snprintf(path, sizeof path, "%.4100s/attempts/%s/log-%d", dir, token, member);
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    while (fd >= 0 && from < end && (n = pread(fd, buffer, sizeof buffer, (off_t)from)) > 0) {
        sink->data(sink->arg, buffer, (size_t)n, from);
        from += (uint64_t)n;
    }
    td_status st = (fd < 0 && errno != ENOENT) || n < 0
                       ? TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno))
                       : TD_OK;
    if (fd >= 0)
        close(fd);
    sink->end(sink->arg, st);
}

/* All are running until the supervisor has written down the end of all their processes. */
static void process_members(td__tracker *tr, const char *token, td__track_member *out, int n)
{
    const group *g = find((tracker *)tr, token);
    char path[PATH_BYTES], line[256];
    int member, status;

    for (int i = 0; g && i < n; i++) {
        out[i].state = g->started ? TD_MEMBER_RUNNING : TD_MEMBER_WAITING;
        gethostname(out[i].host, sizeof out[i].host - 1);
    }
    int fd = g ? td__file_open_plain(path_of(g, "events", path), O_RDONLY, 0) : -1;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0)
        close(fd);
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "end %d %d", &member, &status) == 2 && member >= 0 && member < n) {
            out[member].state = TD_MEMBER_ENDED;
            out[member].exit_status = status;
        }
    if (f)
        fclose(f);
}

static void process_forget(td__tracker *tr, const char *token)
{
    group *g = find((tracker *)tr, token);

    if (g) /* its files go with the job's directory */
        drop(g);
    td__memory_groups_sweep(token); /* of a supervisor that was killed */
}

static void process_destroy(td__tracker *tr)
{
    tracker *t = (tracker *)tr;

    while (t->groups)
        drop(t->groups);
    if (t->notify.fd >= 0) {
        td__loop_unwatch(t->head.c.loop, &t->notify);
        close(t->notify.fd);
    }
    td__free(t);
}

static td_status process_create(const td__tracker_config *c, td__tracker **out)
{
    tracker *t = td__calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "tracker process: out of memory");
    t->head.ops = &td__tracker_process;
    t->head.c = *c;
    t->gpus = c->gpus ? c->gpus : &t->own_gpus;
    td__gpus_init(t->gpus, c->config->gpus);
    t->notify =
        (td__watch){.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), .ready = on_notify, .arg = t};
    td_status st = t->notify.fd < 0 ? TD_FAIL(TD_EIO, "inotify: %s", strerror(errno))
                                    : td__loop_watch(c->loop, &t->notify, EPOLLIN);
    if (st) {
        if (t->notify.fd >= 0)
            close(t->notify.fd);
        td__free(t);
        return st;
    }
    *out = &t->head;
    return TD_OK;
}

const td__tracker_ops td__tracker_process = {
    .name = "process",
    .help = "processes of this host, each job under a supervisor of its own",
    .shares_dir = true,
    .sees_steps = true,
    .sees_data = true,
    .create = process_create,
    .start = process_start,
    .signal = process_signal,
    .adopt = process_adopt,
    .logs = process_logs,
    .members = process_members,
    .forget = process_forget,
    .destroy = process_destroy,
};
