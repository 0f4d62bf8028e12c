/* faults.c -- see faults.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "coll/comm.h"
#include "checkpoint/names.h"
#include "run/run_dir.h"

enum { MOST_OPS = 32, AHEAD = 2, MOST_TEXT = 1 << 20, HANG_NS = 10000000 };
#define FILE_NAME "faults.txt"

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
    pthread_mutex_t lock;      /* of all below; not held while a fault takes its time */
    uint64_t generation, step; /* step 0: none of this generation has begun */
    int rank, size;
    td_comm *comm;
    bool flip;
    uint64_t slow_ns;  /* for each micro-batch */
    double slow_times; /* as long as they take; 0: once */
    tally ops[MOST_OPS];
    uint64_t kinds[2];
    uint64_t began_ns;
    td__faults_known known;                  /* but for `elapsed` */
    char source[TD__PATH], record[TD__PATH]; /* files; "": none */
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

/* One line, by one write: ranks share the file. */
static void write_down(const td__faults *f, const char *text)
{
    char line[TD_FAULT_TEXT + 2];
    int n = snprintf(line, sizeof line, "%s\n", text);
    if (!*f->record)
        return;
    int fd = open(f->record, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        TD_LOG(WARN, TRAIN, "faults: cannot write %s: %s", f->record, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* This thread goes no further; 0: for ever. */
static void hang(uint64_t for_ns)
{
    uint64_t until = for_ns ? td__clock_ns() + for_ns : UINT64_MAX;
    while (td__clock_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = HANG_NS}, NULL);
}

static td_status carry_out(td__faults *f, const td__fault_event *e)
{
    char text[TD_FAULT_TEXT], why[TD_FAULT_TEXT + 32];
    TD_LOG(WARN, TRAIN, "fault: %s", td__fault_text(e, text));
    write_down(f, text);
    snprintf(why, sizeof why, "rank %d lost rank %d (fault: %s)", e->rank, e->peer, text);
    pthread_mutex_lock(&f->lock);
    if (e->act == TD_FAULT_CUT && f->comm) /* which is there for as long as the lock is held */
        td__comm_poison_all(f->comm, TD_EPEER, why);
    f->flip = f->flip || e->act == TD_FAULT_FLIP;
    f->slow_ns = e->act == TD_FAULT_SLOW ? e->for_ns : f->slow_ns;
    f->slow_times = e->act == TD_FAULT_SLOW ? e->times : f->slow_times;
    pthread_mutex_unlock(&f->lock);
    if (e->act == TD_FAULT_HANG)
        hang(e->for_ns);
    if (e->act == TD_FAULT_CUT || e->act == TD_FAULT_FLIP || e->act == TD_FAULT_SLOW ||
        e->act == TD_FAULT_HANG)
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

static bool is_past(const td__faults_known *k, int event)
{
    return k->past[event / 8] >> event % 8 & 1;
}

static void set_past(td__faults_known *k, int event)
{
    k->past[event / 8] = (uint8_t)(k->past[event / 8] | 1u << event % 8);
}

/* A point, with its numbers in the step: of its operation, and of its kind. */
typedef struct place {
    td__point_kind kind;
    const char *op; /* "": a beginning */
    uint64_t n, of_kind;
} place;

/* late: or in a later step. */
static bool is_here(const td__faults *f, const td__fault_event *e, bool late)
{
    if (e->generation)
        return e->rank == f->rank && f->step == 0 && e->number == f->generation;
    return !f->known.over && f->size > 0 && e->rank % f->size == f->rank &&
           (e->number == f->step || (late && e->number < f->step));
}

static bool is_due(const td__faults *f, const td__fault_event *e, const place *p)
{
    uint64_t at = strcmp(e->op, p->op) == 0                                        ? p->n
                  : strcmp(e->op, p->kind == TD_POINT_COMM ? "comm" : "file") == 0 ? p->of_kind
                  : strcmp(e->op, "op") == 0 ? f->kinds[0] + f->kinds[1]
                                             : 0;
    bool late = p->kind == TD_POINT_FILE && strcmp(e->op, p->op) == 0; /* beside the steps */
    return (*p->op ? *e->op && at == e->count : !*e->op) && is_here(f, e, late);
}

/* The fault that the seed gives to this step, if there is one: of a world that can stand it. */
static bool drawn(const td__faults *f, uint64_t step, td__fault_event *out)
{
    const td__faults_known *k = &f->known;
    uint64_t n = k->drawn && k->at == step ? k->drawn : td__fault_of_step(&f->plan, step);
    if (!n || f->size < 2 || step <= k->hit)
        return false;
    td__fault_draw(&f->plan, n, k->world, out);
    out->number = step;
    return true;
}

/* The next event of this point, from number *i on. */
static bool next_due(td__faults *f, const place *p, int *i, td__fault_event *out)
{
    for (; *i < f->plan.n_events; ++*i)
        if (!is_past(&f->known, *i) && is_due(f, &f->plan.events[*i], p)) {
            set_past(&f->known, *i);
            *out = f->plan.events[(*i)++];
            return true;
        }
    if (!drawn(f, f->step, out) || !is_due(f, out, p))
        return false;
    f->known.hit = f->step;
    return true;
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

static td_status at_point(td__points *points, td__point_kind kind, const char *op)
{
    td__faults *f = (td__faults *)points;
    td__fault_event e;
    td_status st = TD_OK;
    int i = 0;

    pthread_mutex_lock(&f->lock);
    place p = {.kind = kind, .op = op};
    if (*op) {
        p.n = count(f, op);
        p.of_kind = ++f->kinds[kind];
        trace(f, kind, op);
    }
    while (!st && next_due(f, &p, &i, &e)) {
        pthread_mutex_unlock(&f->lock);
        st = carry_out(f, &e);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return st;
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
                           "faults: unknown operation \"%s\"; known: comm, file, op, a "
                           "collective (allreduce, ...) and a file (state.json, metrics, ...)",
                           p->events[i].op);
    return TD_OK;
}

/* The schedule in the file of this name, "@PATH". */
static td_status parse_file(td__faults *f, const char *path)
{
    td__file_map map;
    if ((size_t)snprintf(f->source, sizeof f->source, "%s", path) >= sizeof f->source)
        return TD_FAIL(TD_EINVAL, "faults: the path %.60s... is too long", path);
    if (td__file_map_open(&map, path))
        return TD_FAIL(TD_EINVAL, "faults: cannot read %s", path);
    char *text = map.nbytes < MOST_TEXT ? td__calloc(map.nbytes + 1, 1) : NULL;
    if (text)
        memcpy(text, map.data, map.nbytes);
    td__file_map_close(&map);
    td_status st = text ? td__fault_parse(text, &f->plan)
                        : TD_FAIL(TD_EINVAL, "faults: %s is too long for a schedule", path);
    td__free(text);
    return st;
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
    td_status st = *text == '@' ? parse_file(f, text + 1) : td__fault_parse(text, &f->plan);
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

td_status td__faults_record(td__faults *f, const char *dir)
{
    struct stat from, to;
    if (!f)
        return TD_OK;
    TD_TRY(td__run_dir_path(dir, FILE_NAME, f->record));
    /* What is replayed in its own directory is there already. */
    if (*f->source && stat(f->source, &from) == 0 && stat(f->record, &to) == 0 &&
        from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        f->record[0] = 0;
    return TD_OK;
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
    f->known.world = size > f->known.world ? size : f->known.world;
    begin(f);
    pthread_mutex_unlock(&f->lock);
}

void td__faults_step(td__faults *f, uint64_t step)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->step = step;
    begin(f);
    pthread_mutex_unlock(&f->lock);
    td_status st = at_point(&f->points, TD_POINT_COMM, "");
    if (st && f->comm) /* this rank is as good as dead */
        td_comm_abort(f->comm, td_last_error());
}

/* Does this event end a rank? */
static bool is_end(const td__fault_event *e)
{
    return e->act == TD_FAULT_KILL || e->act == TD_FAULT_STOP || e->act == TD_FAULT_HANG;
}

/* What was to befall that rank in steps from `first` to `last` has; is one of them its end? */
static bool befallen(td__faults *f, int rank, int size, uint64_t first, uint64_t last)
{
    td__fault_event e;
    bool end = false;
    for (int i = 0; i < f->plan.n_events; i++) {
        const td__fault_event *p = &f->plan.events[i];
        if (p->generation || p->rank % size != rank || p->number < first || p->number > last)
            continue;
        end = end || (is_end(p) && !is_past(&f->known, i));
        set_past(&f->known, i);
    }
    if (drawn(f, last, &e) && e.rank % size == rank) {
        end = end || is_end(&e);
        f->known.hit = last;
    }
    return end;
}

void td__faults_gone(td__faults *f, int rank, int size, uint64_t tried)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    if (!befallen(f, rank, size, 0, tried))
        befallen(f, rank, size, tried + 1, tried + 1);
    pthread_mutex_unlock(&f->lock);
}

void td__faults_over(td__faults *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->known.over = 1;
    pthread_mutex_unlock(&f->lock);
}

static uint64_t the_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounds of the clock since the run began. */
static uint64_t rounds(const td__faults *f)
{
    return f->plan.every_ns ? (td__clock_ns() - f->began_ns) / f->plan.every_ns : 0;
}

void td__faults_tell(td__faults *f, td__faults_known *out)
{
    memset(out, 0, sizeof *out);
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    *out = f->known;
    out->elapsed = 1e-9 * (double)(td__clock_ns() - f->began_ns);
    pthread_mutex_unlock(&f->lock);
}

void td__faults_learn(td__faults *f, const td__faults_known *k)
{
    if (!f)
        return;
    uint64_t now = td__clock_ns(), ns = (uint64_t)(k->elapsed * 1e9);
    pthread_mutex_lock(&f->lock);
    if (ns < now && now - ns < f->began_ns)
        f->began_ns = now - ns;
    if (k->drawn > f->known.drawn) {
        f->known.drawn = k->drawn;
        f->known.at = k->at;
    }
    f->known.round = the_most(f->known.round, k->round);
    f->known.hit = the_most(f->known.hit, k->hit);
    f->known.world = k->world > f->known.world ? k->world : f->known.world;
    f->known.over |= k->over;
    for (size_t i = 0; i < sizeof k->past; i++)
        f->known.past[i] |= k->past[i];
    pthread_mutex_unlock(&f->lock);
}

uint32_t td__faults_count(td__faults *f)
{
    uint32_t n = 0;
    if (!f)
        return 0;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->plan.n_events; i++)
        n += is_past(&f->known, i);
    n += (uint32_t)f->known.drawn;
    if (f->plan.every_steps && f->known.hit)
        n += (uint32_t)((f->known.hit - 1) / f->plan.every_steps + 1);
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool td__faults_due(td__faults *f)
{
    if (!f)
        return false;
    pthread_mutex_lock(&f->lock);
    bool last_is_past = f->step > f->known.at;
    bool due = f->size > 1 && f->step && last_is_past && rounds(f) > f->known.round;
    pthread_mutex_unlock(&f->lock);
    return due;
}

void td__faults_call(td__faults *f, uint64_t step)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->known.drawn++;
    f->known.round = the_most(f->known.round + 1, rounds(f));
    f->known.at = step + AHEAD;
    pthread_mutex_unlock(&f->lock);
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

void td__faults_slow(td__faults *f, int micro_batches, double seconds)
{
    if (!f || micro_batches < 1)
        return;
    pthread_mutex_lock(&f->lock); /* the thread that writes files carries out faults too */
    uint64_t ns = f->slow_ns * (uint64_t)micro_batches;
    if (f->slow_times > 1)
        ns += (uint64_t)(1e9 * seconds * (f->slow_times - 1));
    pthread_mutex_unlock(&f->lock);
    if (!ns)
        return;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)},
              NULL);
}
