/* A rank that dies or stops in a collective costs the others one status, or one line in the log,
 * and never a hang: after SIGKILL every survivor has TD_EPEER that names the victim in under a
 * second; after SIGSTOP every waiting rank says who is stopped. Ranks are processes that meet in a
 * store of the test, as under an agent, or in one that rank 0 hosts. Nothing is left behind. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "coll/comm_impl.h"
#include "coll/comm_setup.h"
#include "coll/hang.h"
#include "support/check.h"
#include "support/procs.h"
#include "support/sanitized.h"
#include "tandem/log.h"

enum { SIZE = 4, MOST = 5, COUNT = 2000, PATIENCE_MS = 100000, SURVIVED = 3, FAST_STALL_MS = 300 };
enum { EPEER_MS = 1000, STALL_MS = 5000 }; /* promised, on a machine with time for it */

/* Between the test and its ranks. */
typedef struct board {
    char store[256];
    td__secret secret;
    char meeting[128]; /* rank 0 hosts the store */
    atomic_int ready;  /* the above is filled in */
    const char *transport;
    int size, call, victim;
    uint32_t stall_ms;
    char needle[32];         /* what the report must say of the victim */
    int turns[PROCS_MOST];   /* calls done */
    int stalled[PROCS_MOST]; /* reports that say the victim is stopped */
    int failed[PROCS_MOST];  /* has its error */
    char text[PROCS_MOST][600];
    char line[PROCS_MOST][600]; /* last in its log */
} board;

typedef td_status (*call_fn)(td_comm *c, float *x, float *y);

static td_status do_allreduce(td_comm *c, float *x, float *y)
{
    return td_allreduce(c, x, y, COUNT, TD_F32, TD_REDUCE_MAX, NULL);
}
static td_status do_ring(td_comm *c, float *x, float *y)
{
    return td_allreduce(c, x, y, COUNT, TD_F32, TD_REDUCE_MAX, &(td_coll_opts){.algo = "ring"});
}
static td_status do_reduce(td_comm *c, float *x, float *y)
{
    td_status st = td_reduce(c, x, y, COUNT, TD_F32, TD_REDUCE_MAX, 1, NULL);
    return st ? st : td_barrier(c, NULL); /* only the root waits in a reduce */
}
static td_status do_broadcast(td_comm *c, float *x, float *y)
{
    (void)y;
    td_status st = td_broadcast(c, x, COUNT, TD_F32, 2, NULL);
    return st ? st : td_barrier(c, NULL);
}
static td_status do_reduce_scatter(td_comm *c, float *x, float *y)
{
    return td_reduce_scatter(c, x, y, COUNT / (size_t)td_comm_size(c), TD_F32, TD_REDUCE_MAX, NULL);
}
static td_status do_all_gather(td_comm *c, float *x, float *y)
{
    return td_all_gather(c, x, y, COUNT / (size_t)td_comm_size(c), TD_F32, NULL);
}
static td_status do_all_to_all(td_comm *c, float *x, float *y)
{
    return td_all_to_all(c, x, y, COUNT / (size_t)td_comm_size(c), TD_F32, NULL);
}
static td_status do_gather(td_comm *c, float *x, float *y)
{
    td_status st = td_coll_gather(c, x, y, COUNT / (size_t)td_comm_size(c), TD_F32, 0, NULL);
    return st ? st : td_barrier(c, NULL);
}
static td_status do_scatter(td_comm *c, float *x, float *y)
{
    td_status st = td_coll_scatter(c, x, y, COUNT / (size_t)td_comm_size(c), TD_F32, 3, NULL);
    return st ? st : td_barrier(c, NULL);
}
static td_status do_barrier(td_comm *c, float *x, float *y)
{
    (void)x, (void)y;
    return td_barrier(c, NULL);
}

/* Has anybody said what the victim is doing? */
static bool is_described(const board *b)
{
    int n = 0;
    for (int r = 0; r < SIZE; r++)
        n += __atomic_load_n(&b->stalled[r], __ATOMIC_ACQUIRE);
    return n > 0;
}

/* Ranks that are late, once all have turned a few times, until it is noticed. */
static int turns_done, late_rank; /* of this process */
static const board *late_board;
static td_status do_compute(td_comm *c, float *x, float *y)
{
    (void)x, (void)y;
    if (turns_done == 5 && td_comm_rank(c) == late_rank)
        for (td__deadline until = td__deadline_in_ms(PATIENCE_MS);
             !is_described(late_board) && !td__deadline_passed(until);)
            poll(NULL, 0, 10);
    return td_barrier(c, NULL);
}
static td_status do_other(td_comm *c, float *x, float *y)
{
    (void)y;
    if (turns_done == 5 && td_comm_rank(c) == late_rank)
        return td_recv(c, x, 1, TD_F32, (late_rank + 1) % SIZE, NULL);
    return td_barrier(c, NULL);
}

static td_status do_exchange(td_comm *c, float *x, float *y)
{
    int rank = td_comm_rank(c), size = td_comm_size(c);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    td_status st = rank % 2 ? td_recv(c, y, COUNT, TD_F32, before, NULL) : TD_OK;
    st = st ? st : td_send(c, x, COUNT, TD_F32, next, NULL);
    return st || rank % 2 ? st : td_recv(c, y, COUNT, TD_F32, before, NULL);
}
static td_status do_async(td_comm *c, float *x, float *y)
{
    enum { N = 3, EACH = COUNT / N };
    td_work *work[N] = {0};
    td_status st = TD_OK;
    for (int i = 0; i < N && !st; i++)
        st = td_allreduce(c, x + i * EACH, y + i * EACH, EACH, TD_F32, TD_REDUCE_SUM,
                          &(td_coll_opts){.work = &work[i]});
    for (int i = 0; i < N && work[i]; i++) {
        td_status one = td_work_wait(work[i]);
        st = st ? st : one;
    }
    return st;
}
static td_status do_split(td_comm *c, float *x, float *y)
{
    td_comm *half = NULL;
    td_status st = td_comm_split(c, td_comm_rank(c) % 2, 0, &half);
    st = st ? st : td_allreduce(half, x, y, COUNT, TD_F32, TD_REDUCE_MAX, NULL);
    td_comm_destroy(half);
    td_status all = td_barrier(c, NULL); /* only the victim's half fails by itself */
    return all ? all : st;
}
static td_status do_alloc(td_comm *c, float *x, float *y)
{
    void *p;
    (void)y;
    td_status st = td_comm_alloc(c, COUNT * sizeof *x, &p);
    if (!st) {
        st = td_allreduce(c, x, p, COUNT, TD_F32, TD_REDUCE_SUM, NULL);
        td_comm_free(c, p);
    }
    return st;
}

static const struct {
    const char *name;
    call_fn run;
} CALLS[] = {
    {"allreduce", do_allreduce},
    {"ring", do_ring},
    {"reduce", do_reduce},
    {"broadcast", do_broadcast},
    {"reduce_scatter", do_reduce_scatter},
    {"all_gather", do_all_gather},
    {"all_to_all", do_all_to_all},
    {"gather", do_gather},
    {"scatter", do_scatter},
    {"barrier", do_barrier},
    {"send and recv", do_exchange},
    {"asynchronous allreduce", do_async},
    {"split", do_split},
    {"alloc", do_alloc},
    {"a barrier while one computes", do_compute},
    {"a barrier while one receives", do_other},
};
enum { N_CALLS = TD_LEN(CALLS) - 2, COMPUTE = N_CALLS, OTHER };

/* ---- in the ranks ---- */

typedef struct ear {
    board *b;
    int rank;
} ear;

/* The log's sink: counts stall reports that name the victim and say what is wrong with it. */
static void listen_to_log(void *user, td_log_level level, td_log_part part, const char *line)
{
    ear *e = user;
    char name[32], alias[32]; /* in groups ranks have other numbers */
    (void)level, (void)part;
    snprintf(e->b->line[e->rank], sizeof e->b->line[e->rank], "%s", line);
    snprintf(name, sizeof name, "for rank %d ", e->b->victim);
    snprintf(alias, sizeof alias, "(world rank %d, ", e->b->victim);
    if (strstr(line, "stall") && (strstr(line, name) || strstr(line, alias)) &&
        strstr(line, e->b->needle))
        __atomic_add_fetch(&e->b->stalled[e->rank], 1, __ATOMIC_RELEASE);
}

static td_status meet(board *b, int rank, int size, td_comm **out)
{
    td__world w = {.rank = rank,
                   .size = size,
                   .local_rank = rank,
                   .local_size = size,
                   .host = "here",
                   .hostname = "here",
                   .address = "127.0.0.1",
                   .secret = b->secret};
    snprintf(w.store, sizeof w.store, "%s", b->store);
    snprintf(w.meeting, sizeof w.meeting, "%s", b->meeting);
    td_comm_opts o = {.engine = "native", .transport = b->transport, .stall_ms = b->stall_ms};
    return td__comm_create(&w, &o, out);
}

static void ignore_event(void *user, const char *group, int rank, const char *what)
{
    (void)user, (void)group, (void)rank, (void)what;
}

/* Is the late rank one that tells what it does? */
static bool says_why(const board *b)
{
    return b->call == COMPUTE && strcmp(b->transport, "tcp") == 0;
}

static int rank_body(int rank, int size, void *arg)
{
    static float x[COUNT], y[COUNT * MOST];
    board *b = arg;
    ear e = {b, rank};
    td_comm *c;
    char name[16];
    td_log_set_sink(listen_to_log, &e);
    td_log_set_level(TD_LOG_INFO); /* of several that wait only one warns */
    while (!atomic_load(&b->ready))
        poll(NULL, 0, 1); /* ranks die with the test */
    if (meet(b, rank, size, &c)) {
        fprintf(stderr, "rank %d: %s\n", rank, td_last_error());
        return 1;
    }
    td_status st;
    late_rank = b->victim;
    late_board = b;
    if (says_why(b) && rank == b->victim)
        td__comm_says(c, TD_PHASE_DATA, 17, "samples");
    while (!(st = CALLS[b->call].run(c, x, y)) && !(b->call == COMPUTE && turns_done == 10)) {
        __atomic_add_fetch(&b->turns[rank], 1, __ATOMIC_RELEASE);
        turns_done++;
    }
    if (!st) {
        td_comm_destroy(c);
        return SURVIVED;
    }
    snprintf(b->text[rank], sizeof b->text[rank], "%s: %s", td_status_name(st), td_last_error());
    __atomic_store_n(&b->failed[rank], 1, __ATOMIC_RELEASE);
    /* A poisoned communicator keeps saying so, and at once. */
    snprintf(name, sizeof name, "rank %d", b->victim);
    bool good = st == TD_EPEER && strstr(td_last_error(), name) && td_barrier(c, NULL) == st;
    if (!good)
        fprintf(stderr, "rank %d: %s\n", rank, b->text[rank]);
    td_comm_destroy(c);
    return good ? SURVIVED : 1;
}

/* ---- in the test ---- */

typedef struct scene {
    procs p;
    board *b;
    td__store_server *server;
    int n_fds;
} scene;

static void scene_open(scene *s, const char *transport, int size, int call, int victim, bool hosted,
                       uint32_t stall_ms)
{
    s->n_fds = procs_count_fds();
    s->server = NULL;
    s->b = procs_shared_alloc(sizeof *s->b);
    s->b->transport = transport;
    s->b->size = size;
    s->b->call = call;
    s->b->victim = victim;
    s->b->stall_ms = stall_ms;
    snprintf(s->b->needle, sizeof s->b->needle, "%s",
             says_why(s->b)    ? "data: samples at step 17 for"
             : call == COMPUTE ? "compute: in no call for"
             : call == OTHER   ? "in recv #1"
                               : "stopped");
    procs_start(&s->p, size, rank_body, s->b); /* before this process has threads */
    if (hosted) {
        snprintf(s->b->meeting, sizeof s->b->meeting, "%s/meet", check_tmpdir());
    } else {
        CHECK(getrandom(&s->b->secret, sizeof s->b->secret, 0) == sizeof s->b->secret, "random");
        CHECK_OK(td__store_server_create(&s->b->secret, &(td__store_opts){.listen = "127.0.0.1:0"},
                                         &s->server));
        snprintf(s->b->store, sizeof s->b->store, "%s", td__store_server_address(s->server));
    }
    atomic_store(&s->b->ready, 1);
    for (int r = 0; r < size; r++)
        procs_await(&s->b->turns[r], 5, PATIENCE_MS);
}

/* All survivors have an error that names the victim; nothing is left. */
static void scene_wait(scene *s, const char *what)
{
    for (int r = 0; r < s->b->size; r++)
        if (r != s->b->victim) {
            int status = procs_wait(&s->p, r, PATIENCE_MS);
            CHECK(status == SURVIVED, "%s: rank %d gave %d: %s", what, r, status, s->b->text[r]);
        }
    int want = s->b->call != COMPUTE ? 128 + SIGKILL : SURVIVED;
    CHECK_EQ_INT(procs_wait(&s->p, s->b->victim, PATIENCE_MS), want);
}

static void scene_leave(scene *s)
{
    td__store_server_destroy(s->server);
    if (s->b->meeting[0]) {
        CHECK(access(s->b->meeting, F_OK) != 0, "%s is left", s->b->meeting);
        check_tmpdir_remove();
    }
    procs_shared_free(s->b, sizeof *s->b);
    CHECK_EQ_INT(procs_count_fds(), s->n_fds);
}

static void scene_close(scene *s, const char *what)
{
    scene_wait(s, what);
    scene_leave(s);
}

/* How many milliseconds until all but the victim have what `words` count? */
static int await_others(const scene *s, const int *words, const char *what)
{
    uint64_t t0 = td__clock_ns();
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    for (int r = 0; r < s->b->size; r++)
        for (; r != s->b->victim && !__atomic_load_n(&words[r], __ATOMIC_ACQUIRE); sched_yield())
            CHECK(!td__deadline_passed(until),
                  "%s: timed out after %d ms waiting for rank %d to say so; its last line: %s",
                  what, PATIENCE_MS, r, s->b->line[r]);
    return (int)((td__clock_ns() - t0) / 1000000);
}

static int kill_once(const char *what, const char *transport, int size, int call, int victim,
                     bool hosted)
{
    scene s;
    scene_open(&s, transport, size, call, victim, hosted, 0);
    procs_signal(&s.p, victim, SIGKILL);
    int ms = await_others(&s, s.b->failed, what);
    scene_close(&s, what);
    return ms;
}

static int stop_once(const char *what, const char *transport, int call, int victim,
                     uint32_t stall_ms)
{
    scene s;
    scene_open(&s, transport, SIZE, call, victim, false, stall_ms);
    procs_signal(&s.p, victim, SIGSTOP);
    int ms = await_others(&s, s.b->stalled, what);
    procs_signal(&s.p, victim, SIGKILL);
    scene_close(&s, what);
    return ms;
}

/* Other programs may keep the processors busy: what takes long is told, not judged. */
static void note_time(const char *what, int ms, int promised)
{
    if (ms >= promised)
        print_message("%s: known after %d ms\n", what, ms);
}

static void kill_one(const char *transport, int size, int call, int victim, bool hosted)
{
    char what[96];
    snprintf(what, sizeof what, "SIGKILL of rank %d of %d in %s over %s%s", victim, size,
             CALLS[call].name, transport, hosted ? ", rank 0 hosts the store" : "");
    note_time(what, kill_once(what, transport, size, call, victim, hosted), EPEER_MS);
}

static void stop_one(const char *transport, int call, int victim, uint32_t stall_ms)
{
    char what[96];
    snprintf(what, sizeof what, "SIGSTOP of rank %d in %s over %s", victim, CALLS[call].name,
             transport);
    note_time(what, stop_once(what, transport, call, victim, stall_ms), STALL_MS);
}

static const char *const TRANSPORTS[] = {"shm", "tcp"};

TEST(killed_in_every_collective)
{
    for (int t = 0; t < TD_LEN(TRANSPORTS); t++)
        for (int k = 0; k < N_CALLS; k++)
            for (int size = SIZE; size <= MOST; size++)
                kill_one(TRANSPORTS[t], size, k, (k + 2 * t + size) % size, false);
}

TEST(killed_whoever_it_is)
{
    for (int t = 0; t < TD_LEN(TRANSPORTS); t++)
        for (int victim = 0; victim < SIZE; victim++)
            for (int hosted = 0; hosted < 2; hosted++)
                kill_one(TRANSPORTS[t], SIZE, 0, victim, hosted);
}

/* A rank that dies when it has just joined, or when it has introduced itself and the others already
 * wait for its connection. */
static int meeting_body(int rank, int size, void *arg)
{
    board *b = arg;
    td_comm *c;
    while (!atomic_load(&b->ready))
        poll(NULL, 0, 1);
    if (rank == b->victim) {
        td__store *s;
        int64_t n;
        td__deadline until = td__deadline_in_ms(PATIENCE_MS);
        char self[128];
        int length =
            snprintf(self, sizeof self, "here\nhere\n1\n127.0.0.1\ntransport %s, algorithm auto\n",
                     b->transport ? b->transport : "auto");
        if (td__store_connect(b->store, &b->secret, NULL, until, &s) ||
            td__store_add(s, "worlds/1", 1, until, &n) ||
            td__store_join(s, "w1", rank, ignore_event, NULL, until) ||
            (b->call && td__store_set(s, "w1/rank1", self, (size_t)length + 1, until)))
            return 1;
        __atomic_store_n(&b->turns[rank], 1, __ATOMIC_RELEASE);
        pause();
    }
    __atomic_store_n(&b->turns[rank], 1, __ATOMIC_RELEASE);
    td_status st = meet(b, rank, size, &c);
    snprintf(b->text[rank], sizeof b->text[rank], "%s: %s", td_status_name(st), td_last_error());
    __atomic_store_n(&b->failed[rank], 1, __ATOMIC_RELEASE);
    return st == TD_EPEER && strstr(b->text[rank], "rank 1") ? SURVIVED : 1;
}

static int meet_once(const char *transport, int stage)
{
    scene s = {.n_fds = procs_count_fds(), .b = procs_shared_alloc(sizeof *s.b)};
    s.b->transport = transport;
    s.b->call = stage;
    s.b->victim = 1;
    s.b->size = SIZE;
    procs_start(&s.p, SIZE, meeting_body, s.b);
    CHECK(getrandom(&s.b->secret, sizeof s.b->secret, 0) == sizeof s.b->secret, "random");
    CHECK_OK(td__store_server_create(&s.b->secret, NULL, &s.server));
    snprintf(s.b->store, sizeof s.b->store, "%s", td__store_server_address(s.server));
    atomic_store(&s.b->ready, 1);
    for (int r = 0; r < SIZE; r++)
        procs_await(&s.b->turns[r], 1, PATIENCE_MS);
    poll(NULL, 0, 50); /* into the midst of it, though any moment must do */
    procs_signal(&s.p, s.b->victim, SIGKILL);
    int ms = await_others(&s, s.b->failed, "SIGKILL while meeting");
    scene_close(&s, "meeting");
    return ms;
}

TEST(killed_while_meeting)
{
    for (int t = 0; t < TD_LEN(TRANSPORTS); t++)
        for (int stage = 0; stage < 2; stage++)
            note_time("a death while meeting", meet_once(TRANSPORTS[t], stage), EPEER_MS);
}

TEST(stopped_is_reported)
{
    for (int t = 0; t < TD_LEN(TRANSPORTS); t++) {
        stop_one(TRANSPORTS[t], 0, 2, 0); /* the default: within 5 s */
        for (int victim = 0; victim < SIZE; victim++)
            stop_one(TRANSPORTS[t], 0, victim, FAST_STALL_MS);
        for (int k = 1; k < N_CALLS; k++)
            stop_one(TRANSPORTS[t], k, k % SIZE, FAST_STALL_MS);
    }
}

TEST(late_ranks_are_described)
{
    for (int t = 0; t < TD_LEN(TRANSPORTS); t++)
        for (int call = COMPUTE; call <= OTHER; call++) {
            scene s;
            scene_open(&s, TRANSPORTS[t], SIZE, call, 1, false, FAST_STALL_MS);
            for (td__deadline until = td__deadline_in_ms(PATIENCE_MS); !is_described(s.b);
                 poll(NULL, 0, 10))
                CHECK(!td__deadline_passed(until), "no report of %s over %s", CALLS[call].name,
                      TRANSPORTS[t]);
            if (call == OTHER) /* it would wait until its deadline */
                procs_signal(&s.p, 1, SIGKILL);
            scene_close(&s, CALLS[call].name);
        }
}

/* Rank 1 is late, does its part while rank 0 is stopped, and leaves: when rank 0 goes on, all that
 * it waited for is there, and so is the news that rank 1 has left. */
static int leaving_body(int rank, int size, void *arg)
{
    board *b = arg;
    ear e = {b, rank};
    float x = 0;
    td_comm *c;
    td_log_set_sink(listen_to_log, &e);
    td_log_set_level(TD_LOG_INFO);
    while (!atomic_load(&b->ready))
        poll(NULL, 0, 1);
    td_status st = meet(b, rank, size, &c);
    if (!st && rank == b->victim)
        procs_await(&b->turns[rank], 1, PATIENCE_MS);
    if (!st)
        st = b->call     ? td_barrier(c, NULL)
             : rank == 0 ? td_recv(c, &x, 1, TD_F32, 1, NULL)
                         : td_send(c, &x, 1, TD_F32, 0, NULL);
    if (st)
        fprintf(stderr, "rank %d: %s\n", rank, td_last_error());
    td_comm_destroy(c);
    return st ? 1 : 0;
}

TEST(a_rank_that_has_done_its_part_may_leave)
{
    enum { TIMES = 4 };
    for (int k = 0; k < 2 * TD_LEN(TRANSPORTS) * TIMES; k++) {
        scene s = {.n_fds = procs_count_fds(), .b = procs_shared_alloc(sizeof *s.b)};
        board *b = s.b;
        b->transport = TRANSPORTS[k % TD_LEN(TRANSPORTS)];
        b->call = k / TD_LEN(TRANSPORTS) % 2;
        b->victim = 1;
        b->size = 2;
        b->stall_ms = FAST_STALL_MS;
        snprintf(b->needle, sizeof b->needle, "compute: in no call");
        procs_start(&s.p, 2, leaving_body, b);
        CHECK(getrandom(&b->secret, sizeof b->secret, 0) == sizeof b->secret, "random");
        CHECK_OK(td__store_server_create(&b->secret, NULL, &s.server));
        snprintf(b->store, sizeof b->store, "%s", td__store_server_address(s.server));
        atomic_store(&b->ready, 1);
        procs_await(&b->stalled[0], 1, PATIENCE_MS); /* it has waited for some time */
        procs_signal(&s.p, 0, SIGSTOP);
        __atomic_store_n(&b->turns[1], 1, __ATOMIC_RELEASE);
        CHECK_EQ_INT(procs_wait(&s.p, 1, PATIENCE_MS), 0);
        procs_signal(&s.p, 0, SIGCONT);
        int status = procs_wait(&s.p, 0, PATIENCE_MS);
        CHECK(status == 0, "%s, %s: rank 0 ended with %d", b->transport,
              b->call ? "a barrier" : "a receive", status);
        scene_leave(&s);
    }
}

TEST(nothing_is_left_in_shared_memory)
{
    DIR *dir = opendir("/dev/shm");
    for (struct dirent *e; dir && (e = readdir(dir));)
        CHECK(!strstr(e->d_name, "tandem"), "/dev/shm/%s is left", e->d_name);
    if (dir)
        closedir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_every_collective),
        cmocka_unit_test(killed_whoever_it_is),
        cmocka_unit_test(killed_while_meeting),
        cmocka_unit_test(stopped_is_reported),
        cmocka_unit_test(late_ranks_are_described),
        cmocka_unit_test(a_rank_that_has_done_its_part_may_leave),
        cmocka_unit_test(nothing_is_left_in_shared_memory),
    };
    return cmocka_run_group_tests_name("rank_death", tests, NULL, NULL);
}
