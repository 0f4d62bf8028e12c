/* bench_comm.c -- measuring collectives among processes of this host.
 *
 * For each number: every rank rewrites its buffer, a barrier, one call. The time is from the last
 * rank's start to the last rank's end, on the clock that they share; the median over many calls.
 * "bytes" is the size of the largest buffer of a rank: in calls that gather or scatter each rank's
 * block is bytes / ranks.
 *
 * Ranks are processes made by fork, one per core in turn. They meet through a file in a folder of
 * their own, keep times in memory shared with this process, and rank 0 writes rows to a pipe. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_comm.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "coll/comm_setup.h"

enum { MOST_RANKS = 64, MOST_CALLS = 400, LEAST_CALLS = 5, WARM_UP = 2, TIMEOUT_MS = 60000 };

typedef struct shared {
    _Alignas(64) uint64_t start[MOST_RANKS], end[MOST_RANKS];
    int more[2]; /* in turn: who is late must not read the next answer */
    char error[400];
} shared;

typedef struct bencher {
    const bench_plan *plan;
    shared *shared;
    td_comm *comm;
    int rank, size, turn;
    FILE *to;     /* rows; rank 0 */
    float *a, *b; /* (bytes) each; what the collective needs */
} bencher;

bool bench_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    if (strcmp(list, "all") == 0)
        return true;
    for (const char *at = list; *at;) {
        size_t k = strcspn(at, ",");
        if (k == n && memcmp(at, name, n) == 0)
            return true;
        at += k + (at[k] == ',');
    }
    return false;
}

static td_status call(const bencher *b, td__coll kind, const char *algo, size_t count)
{
    td_coll_opts o = {.algo = algo};
    td_comm *c = b->comm;
    size_t block = count / (size_t)b->size ? count / (size_t)b->size : 1;
    switch (kind) {
    case TD_COLL_ALLREDUCE: return td_allreduce(c, b->a, b->a, count, TD_F32, TD_REDUCE_SUM, &o);
    case TD_COLL_REDUCE: return td_reduce(c, b->a, b->a, count, TD_F32, TD_REDUCE_SUM, 0, &o);
    case TD_COLL_BROADCAST: return td_broadcast(c, b->a, count, TD_F32, 0, &o);
    case TD_COLL_REDUCE_SCATTER:
        return td_reduce_scatter(c, b->a, b->b, block, TD_F32, TD_REDUCE_SUM, &o);
    case TD_COLL_ALL_GATHER:
        return td_all_gather(c, b->a + (size_t)b->rank * block, b->a, block, TD_F32, &o);
    case TD_COLL_ALL_TO_ALL: return td_all_to_all(c, b->a, b->b, block, TD_F32, &o);
    case TD_COLL_GATHER: return td_coll_gather(c, b->b, b->a, block, TD_F32, 0, &o);
    case TD_COLL_SCATTER: return td_coll_scatter(c, b->a, b->b, block, TD_F32, 0, &o);
    case TD_COLL_BARRIER: return td_barrier(c, &o);
    default: return TD_FAIL(TD_ENOTSUP, "no measurement of %s", td__coll_name(kind));
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double last_of(const uint64_t *t, int n)
{
    uint64_t last = 0;
    for (int r = 0; r < n; r++)
        last = t[r] > last ? t[r] : last;
    return 1e-3 * (double)last;
}

static td_status check_sum(const bencher *b, td__coll kind, size_t count)
{
    float want = (float)(b->size * (b->size + 1) / 2);
    if (kind == TD_COLL_ALLREDUCE && (b->a[0] != want || b->a[count - 1] != want))
        return TD_FAIL(TD_EPROTO, "rank %d: a wrong sum, %g and %g instead of %g", b->rank,
                       (double)b->a[0], (double)b->a[count - 1], (double)want);
    return TD_OK;
}

/* One number. Rank 0 decides when it is enough. */
static td_status measure(bencher *b, td__coll kind, const char *algo, size_t nbytes, bench_row *row)
{
    double us[MOST_CALLS];
    int n = -WARM_UP;
    size_t count = nbytes / sizeof(float) ? nbytes / sizeof(float) : 1;
    uint64_t begin = td__clock_ns();
    shared *s = b->shared;
    for (;;) {
        for (size_t i = 0; kind != TD_COLL_BARRIER && i < count; i++)
            b->a[i] = (float)(b->rank + 1);
        if (b->rank == 0)
            s->more[b->turn] =
                n < LEAST_CALLS ||
                (n < MOST_CALLS && (double)(td__clock_ns() - begin) < b->plan->seconds * 1e9);
        TD_TRY(td_barrier(b->comm, NULL));
        bool more = s->more[b->turn];
        b->turn = !b->turn;
        if (!more)
            break;
        uint64_t start = td__clock_ns();
        TD_TRY(call(b, kind, algo, count));
        s->end[b->rank] = td__clock_ns();
        s->start[b->rank] = start; /* not before: the others' cores share the line */
        TD_TRY(check_sum(b, kind, count));
        TD_TRY(td_barrier(b->comm, NULL));
        if (n >= 0)
            us[n] = last_of(s->end, b->size) - last_of(s->start, b->size);
        n++;
    }
    qsort(us, (size_t)n, sizeof *us, by_value);
    row->us = us[n / 2];
    row->low = us[n / 10];
    row->high = us[n - 1 - n / 10];
    return TD_OK;
}

static td_status measure_sizes(bencher *b, td__coll kind, const char *algo, const char *memory)
{
    const bench_plan *p = b->plan;
    bench_row row = {.ranks = b->size};
    bool both = strcmp(p->transport, "shm") == 0;
    snprintf(row.who, sizeof row.who, "tandem %s%s%s", p->transport, both ? " " : "",
             both ? memory : "");
    snprintf(row.collective, sizeof row.collective, "%s", td__coll_name(kind));
    snprintf(row.algorithm, sizeof row.algorithm, "%s", algo ? algo : "default");
    for (int i = 0; i < p->n_sizes; i++) {
        row.nbytes = kind == TD_COLL_BARRIER ? sizeof(float) : p->nbytes[i];
        TD_TRY(measure(b, kind, algo, row.nbytes, &row));
        if (b->rank == 0) {
            bench_rows_write(&row, b->to);
            fflush(b->to);
        }
        if (kind == TD_COLL_BARRIER)
            break;
    }
    return TD_OK;
}

/* Every row of algos.def that was asked for and can do it. */
static td_status measure_algorithms(bencher *b, td__coll kind, const char *memory)
{
    const char *list = b->plan->algorithms;
    if (bench_listed(list, "default") && strcmp(list, "all") != 0)
        TD_TRY(measure_sizes(b, kind, NULL, memory));
    for (int i = 0; td__algo_at(i); i++) {
        const td__algo *a = td__algo_at(i);
        td__coll_call probe = {.kind = kind, .count = 1 << 20, .dtype = TD_F32};
        /* Only "shm" knows registered memory. */
        if (strcmp(memory, "registered") == 0 && strcmp(a->name, "shm") != 0)
            continue;
        if (bench_listed(list, a->name) && td__comm_can(b->comm, a, &probe))
            TD_TRY(measure_sizes(b, kind, a->name, memory));
    }
    return TD_OK;
}

static td_status get_buffer(bencher *b, bool registered, size_t nbytes, float **out)
{
    void *p = NULL;
    if (registered) {
        TD_TRY(td_comm_alloc(b->comm, nbytes, &p));
    } else {
        p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0);
        if (p == MAP_FAILED)
            return TD_FAIL(TD_ENOMEM, "no buffer of %zu bytes", nbytes);
    }
    *out = p;
    return TD_OK;
}

static void put_buffer(bencher *b, bool registered, size_t nbytes, float *p)
{
    if (p && registered)
        td_comm_free(b->comm, p);
    else if (p)
        munmap(p, nbytes);
}

static td_status measure_collective(bencher *b, td__coll kind, const char *memory)
{
    size_t most = 0, room;
    bool registered = strcmp(memory, "registered") == 0;
    bool second = kind == TD_COLL_REDUCE_SCATTER || kind == TD_COLL_ALL_TO_ALL ||
                  kind == TD_COLL_GATHER || kind == TD_COLL_SCATTER;
    for (int i = 0; i < b->plan->n_sizes; i++)
        most = b->plan->nbytes[i] > most ? b->plan->nbytes[i] : most;
    if (!td__size_add(most, sizeof(float) * MOST_RANKS, &room))
        return TD_FAIL(TD_EINVAL, "%zu bytes: too large", most);
    b->a = b->b = NULL;
    TD_TRY(get_buffer(b, registered, room, &b->a));
    td_status st = second ? get_buffer(b, registered, room, &b->b) : TD_OK;
    if (!st)
        st = measure_algorithms(b, kind, memory);
    put_buffer(b, registered, room, b->b);
    put_buffer(b, registered, room, b->a);
    return st;
}

static td_status measure_all(bencher *b)
{
    static const char *const MEMORY[] = {"registered", "private"};
    bool shm = strcmp(b->plan->transport, "shm") == 0;
    for (int k = 0; k < TD_COLL_SEND; k++) {
        const char *name = td__coll_name((td__coll)k);
        if (!bench_listed(b->plan->collectives, name))
            continue;
        for (int m = 0; m < TD_LEN(MEMORY); m++) {
            bool wanted = shm ? bench_listed(b->plan->memory, MEMORY[m]) : m == 1;
            if (wanted && (k != TD_COLL_BARRIER || m == 1))
                TD_TRY(measure_collective(b, (td__coll)k, MEMORY[m]));
        }
    }
    return TD_OK;
}

/* ---- the ranks ---- */

/* Each rank its core, in turn. */
static void pin(int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) == 0)
        return;
    int k = rank % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &all) && k-- == 0)
            CPU_SET((size_t)cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static td_status be_rank(const bench_plan *plan, int rank, const char *folder, shared *s, FILE *to)
{
    bencher b = {.plan = plan, .shared = s, .rank = rank, .size = plan->ranks, .to = to};
    td__world w;
    td_comm_opts o = {.engine = "native", .transport = plan->transport, .timeout_ms = TIMEOUT_MS};
    pin(rank);
    TD_TRY(td__world_from_env(&w));
    w.rank = w.local_rank = rank;
    w.size = w.local_size = plan->ranks;
    w.store[0] = 0;
    snprintf(w.meeting, sizeof w.meeting, "%s/meet", folder);
    TD_TRY(td__comm_create(&w, &o, &b.comm));
    td_status st = measure_all(&b);
    if (st)
        td_comm_abort(b.comm, td_last_error());
    td_comm_destroy(b.comm);
    return st;
}

static void rank_main(const bench_plan *plan, int rank, const char *folder, shared *s, int pipe_fd)
{
    FILE *to = fdopen(pipe_fd, "w");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    td_status st = to ? be_rank(plan, rank, folder, s, to) : TD_ENOMEM;
    if (st && !s->error[0])
        snprintf(s->error, sizeof s->error, "%s", td_last_error());
    if (to)
        fclose(to);
    _exit(st ? 1 : 0);
}

static void read_rows(int fd, bench_rows *rows, FILE *progress)
{
    char line[512];
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return;
    }
    while (fgets(line, sizeof line, from)) {
        if (bench_rows_parse(rows, line) && progress) {
            const bench_row *r = &rows->row[rows->count - 1];
            char size[16];
            fprintf(progress, "%s %s, %s, %d ranks, %s: %.2f us\n", r->collective, r->algorithm,
                    r->who, r->ranks, bench_size_text(r->nbytes, size), r->us);
        }
    }
    fclose(from);
}

td_status bench_comm_measure(const bench_plan *plan, bench_rows *rows, FILE *progress)
{
    pid_t pid[MOST_RANKS];
    char folder[] = "/tmp/tandem-bench-XXXXXX", meeting[64];
    int fd[2], started = 0, failed = 0;
    if (plan->ranks < 1 || plan->ranks > MOST_RANKS)
        return TD_FAIL(TD_EINVAL, "%d ranks: 1 to %d can be measured", plan->ranks, MOST_RANKS);
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED || !mkdtemp(folder) || pipe(fd))
        return TD_FAIL(TD_EIO, "cannot create the memory, directory or pipe of the ranks");
    fflush(NULL);
    for (int r = 0; r < plan->ranks; r++) {
        pid[r] = fork();
        if (pid[r] < 0)
            break;
        if (pid[r] == 0) {
            close(fd[0]);
            rank_main(plan, r, folder, s, fd[1]);
        }
        started++;
    }
    close(fd[1]);
    if (started == plan->ranks)
        read_rows(fd[0], rows, progress);
    else
        close(fd[0]);
    for (int r = 0; r < started; r++) {
        int status;
        if (started < plan->ranks)
            kill(pid[r], SIGKILL);
        failed += waitpid(pid[r], &status, 0) < 0 || status != 0;
    }
    snprintf(meeting, sizeof meeting, "%s/meet", folder);
    unlink(meeting);
    rmdir(folder);
    td_status st = TD_OK;
    if (started < plan->ranks || failed)
        st = TD_FAIL(TD_EPEER, "%d of %d ranks over %s failed: %s", failed ? failed : started,
                     plan->ranks, plan->transport, s->error[0] ? s->error : "the processes died");
    munmap(s, sizeof *s);
    return st;
}
