/* faults.c -- see faults.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/rng.h"
#include "coll/comm_impl.h"
#include "train/checkpoint_impl.h"

enum { MOST_OPS = 32, DRAWN_STOP_NS = 1500000000 };

typedef struct tally {
    const char *op; /* a constant */
    uint64_t n;
} tally;

struct td__faults {
    td__points points; /* first */
    td__fault_plan plan;
    td__fault_do *act;
    void *user;
    int trace;                 /* file; -1: none */
    pthread_mutex_t lock;      /* of all below; held while a fault is carried out by nobody */
    uint64_t generation, step; /* step 0: none of this generation has begun */
    int rank, size;
    td_comm *comm;
    bool armed, flip;
    uint64_t slow_ns; /* for each shard */
    bool done[TD_FAULT_EVENTS];
    tally ops[MOST_OPS];
    uint64_t kinds[2];
    uint64_t began_ns, drawn; /* drawn: events by the clock that are past */
};

/* ---- Carrying out ---------------------------------------------------------------------------- */

/* Stop, and have a child wake us: it does nothing but wait, and goes when we do. */
static void stop_self(uint64_t for_ns)
{
    struct timespec span = {.tv_sec = (time_t)(for_ns / 1000000000u),
                            .tv_nsec = (long)(for_ns % 1000000000u)};
    pid_t self = getpid(), child = for_ns ? fork() : -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        nanosleep(&span, NULL);
        kill(self, SIGCONT);
        _exit(0);
    }
    if (child > 0 || !for_ns)
        kill(self, SIGSTOP);
    if (child > 0)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
}

static td_status carry_out(td__faults *f, const td__fault_event *e, td_comm *comm)
{
    char text[TD_FAULT_TEXT], why[TD_FAULT_TEXT + 32];
    TD_LOG(WARN, TRAIN, "fault: %s", td__fault_text(e, text));
    if (e->act == TD_FAULT_CUT && comm) {
        snprintf(why, sizeof why, "rank %d lost rank %d (fault: %s)", e->rank, e->peer, text);
        td__comm_poison_all(comm, TD_EPEER, why);
    }
    pthread_mutex_lock(&f->lock);
    f->flip = f->flip || e->act == TD_FAULT_FLIP;
    f->slow_ns = e->act == TD_FAULT_SLOW ? e->for_ns : f->slow_ns;
    pthread_mutex_unlock(&f->lock);
    if (e->act == TD_FAULT_CUT || e->act == TD_FAULT_FLIP || e->act == TD_FAULT_SLOW)
        return TD_OK;
    if (e->act == TD_FAULT_FULL)
        return TD_FAIL(TD_EIO, "no space left on the device (fault: %s)", text);
    if (f->act)
        return f->act(f->user, e);
    if (e->act == TD_FAULT_KILL)
        kill(getpid(), SIGKILL);
    stop_self(e->for_ns);
    return TD_OK;
}

/* ---- Counting (under the lock) --------------------------------------------------------------- */

static uint64_t count(td__faults *f, const char *op)
{
    for (int i = 0; i < MOST_OPS; i++) {
        tally *t = &f->ops[i];
        if (!t->op)
            t->op = op;
        if (t->op == op || strcmp(t->op, op) == 0)
            return ++t->n;
    }
    return 0;
}

/* late: or in a later step. */
static bool is_here(const td__faults *f, const td__fault_event *e, bool late)
{
    if (e->rank != f->rank)
        return false;
    if (e->generation)
        return f->step == 0 && e->number == f->generation;
    return f->armed && (e->number == f->step || (late && e->number < f->step));
}

/* The events of this point, op "": of a beginning. */
static int due(td__faults *f, td__point_kind kind, const char *op, td__fault_event *out)
{
    uint64_t n = *op ? count(f, op) : 0, of_kind = *op ? ++f->kinds[kind] : 0;
    int found = 0;

    for (int i = 0; i < f->plan.n_events; i++) {
        const td__fault_event *e = &f->plan.events[i];
        uint64_t at = strcmp(e->op, op) == 0                                        ? n
                      : strcmp(e->op, kind == TD_POINT_COMM ? "comm" : "file") == 0 ? of_kind
                      : strcmp(e->op, "op") == 0 ? f->kinds[0] + f->kinds[1]
                                                 : 0;
        bool here = *op ? *e->op && at == e->count : !*e->op;
        bool late = kind == TD_POINT_FILE && strcmp(e->op, op) == 0; /* written beside the steps */
        if (f->done[i] || !here || !is_here(f, e, late))
            continue;
        f->done[i] = true;
        out[found++] = *e;
    }
    return found;
}

/* One event for each time that the clock has gone round, for the rank that it hits. */
static bool drawn(td__faults *f, const char *op, td__fault_event *out)
{
    if (!f->plan.every_ns || f->size < 2 || !f->step)
        return false;
    uint64_t now = (td__clock_ns() - f->began_ns) / f->plan.every_ns;
    if (now <= f->drawn)
        return false;
    f->drawn = now;
    td__rng_key key = {.seed = f->plan.seed, .step = (uint32_t)now};
    double what = (double)td__rng_uniform(&key, 0), who = (double)td__rng_uniform(&key, 1);
    int rank = (int)(who * f->size);
    *out = (td__fault_event){.act = what < 0.6   ? TD_FAULT_KILL
                                    : what < 0.8 ? TD_FAULT_STOP
                                                 : TD_FAULT_CUT,
                             .rank = rank,
                             .peer = (rank + 1) % f->size,
                             .for_ns = what >= 0.6 && what < 0.8 ? DRAWN_STOP_NS : 0,
                             .number = f->step};
    snprintf(out->op, sizeof out->op, "%s", op);
    for (int i = 0; i < MOST_OPS && f->ops[i].op; i++)
        if (strcmp(f->ops[i].op, op) == 0)
            out->count = f->ops[i].n;
    return rank == f->rank;
}

static void trace(const td__faults *f, td__point_kind kind, const char *op)
{
    char line[96];
    if (f->trace < 0)
        return;
    int n = snprintf(line, sizeof line, "%d %llu %s %s\n", f->rank, (unsigned long long)f->step,
                     kind == TD_POINT_COMM ? "comm" : "file", op);
    if (n > 0 && write(f->trace, line, (size_t)n) != n)
        TD_LOG(WARN, TRAIN, "faults: cannot write the trace: %s", strerror(errno));
}

static td_status at_point(td__points *p, td__point_kind kind, const char *op)
{
    td__faults *f = (td__faults *)p;
    td__fault_event events[TD_FAULT_EVENTS + 1];

    pthread_mutex_lock(&f->lock);
    int n = due(f, kind, op, events);
    if (*op && drawn(f, op, &events[n]))
        n++;
    if (*op)
        trace(f, kind, op);
    td_comm *comm = f->comm;
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < n; i++)
        TD_TRY(carry_out(f, &events[i], comm));
    return TD_OK;
}

/* ---- The trainer's side ---------------------------------------------------------------------- */

/* Is there a point of this name? A fault at any other would never happen, and nobody would know. */
static bool known_operation(const char *op)
{
    static const char *const OTHERS[] = {
        "",        "comm",         "file",          "op",         "rename", "remove", "prune",
        "metrics", TD__STATE_FILE, TD__LATEST_FILE, TD__BEST_FILE};
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (strcmp(op, OTHERS[i]) == 0)
            return true;
    for (int i = 0; i < TD__FILE_COUNT; i++)
        if (strcmp(op, td__checkpoint_file_name((td__checkpoint_file)i)) == 0)
            return true;
    for (int i = 0; i < TD_COLL_COUNT; i++)
        if (strcmp(op, td__coll_name((td__coll)i)) == 0)
            return true;
    return false;
}

static td_status check_operations(const td__fault_plan *p)
{
    for (int i = 0; i < p->n_events; i++)
        if (!known_operation(p->events[i].op))
            return TD_FAIL(TD_EINVAL,
                           "faults: no operation is called \"%s\"; there are comm, file, op, a "
                           "collective (allreduce, ...) and a file (state.json, metrics, ...)",
                           p->events[i].op);
    return TD_OK;
}

td_status td__faults_create(const char *text, td__fault_do *act, void *user, td__faults **out)
{
    *out = NULL;
    td__faults *f = td__calloc(1, sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory for faults");
    f->points.at = at_point;
    f->act = act;
    f->user = user;
    f->trace = -1;
    f->began_ns = td__clock_ns();
    pthread_mutex_init(&f->lock, NULL);
    td_status st = td__fault_parse(text, &f->plan);
    if (!st)
        st = check_operations(&f->plan);
    if (!st && *f->plan.trace) {
        f->trace = open(f->plan.trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (f->trace < 0)
            st = TD_FAIL(TD_EINVAL, "faults: cannot write %s: %s", f->plan.trace, strerror(errno));
    }
    if (st) {
        td__faults_destroy(f);
        return st;
    }
    *out = f;
    return TD_OK;
}

void td__faults_destroy(td__faults *f)
{
    if (!f)
        return;
    if (f->trace >= 0)
        close(f->trace);
    pthread_mutex_destroy(&f->lock);
    td__free(f);
}

td__points *td__faults_points(td__faults *f)
{
    return f ? &f->points : NULL;
}

/* What was due before this generation has hit somebody, who may be gone. */
static void skip_drawn(td__faults *f)
{
    uint64_t past = f->plan.every_ns ? (td__clock_ns() - f->began_ns) / f->plan.every_ns : 0;
    f->drawn = past > f->drawn ? past : f->drawn;
}

static void begin(td__faults *f)
{
    memset(f->ops, 0, sizeof f->ops);
    memset(f->kinds, 0, sizeof f->kinds);
}

void td__faults_generation(td__faults *f, uint64_t number, int rank, int size, td_comm *comm)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->generation = number;
    f->rank = rank;
    f->size = size;
    f->comm = comm;
    f->step = 0;
    f->armed = true;
    skip_drawn(f);
    begin(f);
    pthread_mutex_unlock(&f->lock);
}

void td__faults_step(td__faults *f, uint64_t step, bool first)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->step = step;
    f->armed = first;
    begin(f);
    pthread_mutex_unlock(&f->lock);
    td_status st = at_point(&f->points, TD_POINT_COMM, "");
    if (st && f->comm) /* this rank is as good as dead */
        td_comm_abort(f->comm, td_last_error());
}

void td__faults_gone(td__faults *f, int rank, uint64_t step)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->plan.n_events; i++) {
        const td__fault_event *e = &f->plan.events[i];
        if (!e->generation && e->rank == rank && e->number <= step)
            f->done[i] = true;
    }
    pthread_mutex_unlock(&f->lock);
}

uint32_t td__faults_past(td__faults *f, uint32_t also)
{
    uint32_t past = 0;
    if (!f)
        return 0;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->plan.n_events; i++) {
        f->done[i] = f->done[i] || (also >> i & 1);
        past |= (uint32_t)f->done[i] << i;
    }
    pthread_mutex_unlock(&f->lock);
    return past;
}

uint32_t td__faults_count(td__faults *f)
{
    uint32_t n = 0;
    if (!f)
        return 0;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->plan.n_events; i++)
        n += f->done[i];
    n += (uint32_t)f->drawn;
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool td__faults_flip(td__faults *f)
{
    if (!f)
        return false;
    pthread_mutex_lock(&f->lock);
    bool flip = f->flip;
    f->flip = false;
    pthread_mutex_unlock(&f->lock);
    return flip;
}

void td__faults_slow(td__faults *f, int shards)
{
    if (!f || !f->slow_ns || shards < 1)
        return;
    uint64_t ns = f->slow_ns * (uint64_t)shards;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)},
              NULL);
}

double td__faults_elapsed(const td__faults *f)
{
    return f ? 1e-9 * (double)(td__clock_ns() - f->began_ns) : 0;
}

void td__faults_since(td__faults *f, double elapsed)
{
    if (!f || elapsed <= td__faults_elapsed(f))
        return;
    uint64_t now = td__clock_ns(), ns = (uint64_t)(elapsed * 1e9);
    f->began_ns = now > ns ? now - ns : 0;
    skip_drawn(f);
}
