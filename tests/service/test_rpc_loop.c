/* The event loop: descriptors, timers, work from and for other threads, phases of a turn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rpc/loop.h"
#include "rpc/work.h"
#include "support/check.h"

typedef struct rig {
    td__loop *loop;
    char log[64]; /* one letter per event */
    td__watch watch;
    int pipe[2];
} rig;

static void note(rig *r, char what)
{
    size_t n = strlen(r->log);

    if (n + 1 < sizeof r->log)
        r->log[n] = what;
}

static void on_ready(void *arg, uint32_t events)
{
    rig *r = arg;
    char c;

    CHECK(events & EPOLLIN, "events are %x", events);
    CHECK_EQ_INT(read(r->pipe[0], &c, 1), 1);
    note(r, c);
}

static void on_commit(void *arg)
{
    note(arg, 'C');
}

static void on_send(void *arg)
{
    note(arg, 'S');
}

static void rig_init(rig *r)
{
    *r = (rig){0};
    CHECK_OK(td__loop_create(&r->loop));
    CHECK_EQ_INT(pipe(r->pipe), 0);
    r->watch = (td__watch){.fd = r->pipe[0], .ready = on_ready, .arg = r};
    CHECK_OK(td__loop_watch(r->loop, &r->watch, EPOLLIN));
}

static void rig_fini(rig *r)
{
    td__loop_unwatch(r->loop, &r->watch);
    close(r->pipe[0]);
    close(r->pipe[1]);
    td__loop_destroy(r->loop);
}

TEST(changes_are_committed_before_answers_leave)
{
    rig r;
    td__turn_hook send = {.run = on_send, .arg = &r}, commit = {.run = on_commit, .arg = &r};

    rig_init(&r);
    td__loop_hook(r.loop, TD_TURN_SEND, &send);
    td__loop_hook(r.loop, TD_TURN_COMMIT, &commit);
    CHECK_EQ_INT(write(r.pipe[1], "ab", 2), 2);
    CHECK_OK(td__loop_turn(r.loop, 1000));
    CHECK_OK(td__loop_turn(r.loop, 1000));
    assert_string_equal(r.log, "aCSbCS");
    td__loop_unhook(r.loop, TD_TURN_COMMIT, &commit);
    CHECK_OK(td__loop_turn(r.loop, 0));
    assert_string_equal(r.log, "aCSbCSS");
    rig_fini(&r);
}

/* Of two descriptors that are ready in one turn the first removes the second. */
typedef struct pair {
    td__loop *loop;
    td__watch w[2];
    int fd[2][2], calls;
} pair;

static void remove_other(void *arg, uint32_t events)
{
    pair *p = arg;

    (void)events;
    p->calls++;
    for (int i = 0; i < 2; i++)
        td__loop_unwatch(p->loop, &p->w[i]);
}

TEST(an_unwatched_descriptor_is_not_called_even_in_the_same_turn)
{
    pair p = {0};

    CHECK_OK(td__loop_create(&p.loop));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(pipe(p.fd[i]), 0);
        CHECK_EQ_INT(write(p.fd[i][1], "x", 1), 1);
        p.w[i] = (td__watch){.fd = p.fd[i][0], .ready = remove_other, .arg = &p};
        CHECK_OK(td__loop_watch(p.loop, &p.w[i], EPOLLIN));
    }
    CHECK_OK(td__loop_turn(p.loop, 1000));
    CHECK_EQ_INT(p.calls, 1);
    for (int i = 0; i < 2; i++) {
        close(p.fd[i][0]);
        close(p.fd[i][1]);
    }
    td__loop_destroy(p.loop);
}

/* ---- timers ---- */

enum { N_TIMERS = 1000 };

typedef struct ticks {
    td__loop *loop;
    td__timer t[N_TIMERS];
    td__deadline want[N_TIMERS]; /* 0: stopped */
    td__deadline last;
    int fired;
} ticks;

static ticks T;

static void on_tick(void *arg)
{
    td__timer *t = arg;

    CHECK(t->at >= T.last, "timer %d is late", (int)(t - T.t));
    CHECK(T.want[t - T.t] == t->at, "timer %d: wrong time", (int)(t - T.t));
    T.last = t->at;
    T.want[t - T.t] = 0;
    T.fired++;
}

TEST(timers_fire_once_and_in_order_after_moves_and_stops)
{
    td__deadline base;
    int expected = 0;

    memset(&T, 0, sizeof T);
    CHECK_OK(td__loop_create(&T.loop));
    base = td__loop_now(T.loop) + 1000;
    for (uint32_t i = 0; i < 4 * N_TIMERS; i++) { /* started, moved and stopped at random */
        uint32_t r = (i * 2654435761u) ^ (i << 7), k = r % N_TIMERS;

        T.t[k].due = on_tick;
        T.t[k].arg = &T.t[k];
        if (r % 5 == 0) {
            td__timer_stop(T.loop, &T.t[k]);
            T.want[k] = 0;
        } else {
            T.want[k] = base + (r >> 8) % 1000000;
            td__timer_start(T.loop, &T.t[k], T.want[k]);
        }
    }
    for (int k = 0; k < N_TIMERS; k++)
        expected += T.want[k] != 0;
    CHECK(expected > N_TIMERS / 2, "only %d timers are left to test", expected);
    while (T.fired < expected && !td__deadline_passed(base + 10000000000ull))
        CHECK_OK(td__loop_turn(T.loop, 10));
    CHECK_EQ_INT(T.fired, expected);
    CHECK_OK(td__loop_turn(T.loop, 2));
    CHECK_EQ_INT(T.fired, expected);
    td__loop_destroy(T.loop);
}

static void restart(void *arg)
{
    rig *r = arg;

    note(r, 't');
}

TEST(a_timer_started_for_now_waits_for_the_next_turn)
{
    rig r;
    td__timer t = {.due = restart, .arg = &r};

    rig_init(&r);
    td__timer_start(r.loop, &t, 0);
    CHECK_OK(td__loop_turn(r.loop, 1000));
    assert_string_equal(r.log, "t");
    CHECK_OK(td__loop_turn(r.loop, 0));
    assert_string_equal(r.log, "t");
    rig_fini(&r);
}

/* ---- other threads ---- */

enum { N_TASKS = 10000 };

typedef struct work {
    td__loop *loop;
    td__task tasks[N_TASKS];
    int order[N_TASKS], done;
} work;

static work W;

static void run_task(void *arg)
{
    td__task *t = arg;

    W.order[W.done++] = (int)(t - W.tasks);
    if (W.done == N_TASKS)
        td__loop_stop(W.loop);
}

static void *post_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < N_TASKS; i++) {
        W.tasks[i] = (td__task){.run = run_task, .arg = &W.tasks[i]};
        td__loop_post(W.loop, &W.tasks[i]);
    }
    return NULL;
}

TEST(tasks_of_another_thread_run_in_order_and_wake_the_loop)
{
    pthread_t thread;

    memset(&W, 0, sizeof W);
    CHECK_OK(td__loop_create(&W.loop));
    CHECK_EQ_INT(pthread_create(&thread, NULL, post_all, NULL), 0);
    CHECK_OK(td__loop_run(W.loop));
    pthread_join(thread, NULL);
    CHECK_EQ_INT(W.done, N_TASKS);
    for (int i = 0; i < N_TASKS; i++)
        CHECK_EQ_INT(W.order[i], i);
    td__loop_destroy(W.loop);
}

/* ---- work that blocks ---- */

enum { N_WORKS = 200 };

typedef struct job {
    td__work work;
    pthread_t ran_on;
    int done, was_run, order;
} job;

static job J[N_WORKS];
static int n_done;

static void run_job(void *arg)
{
    ((job *)arg)->ran_on = pthread_self();
}

static void job_done(void *arg, bool was_run)
{
    job *j = arg;

    j->done++;
    j->was_run = was_run;
    j->order = n_done++;
}

static void add_jobs(td__work_threads *w)
{
    memset(J, 0, sizeof J);
    n_done = 0;
    for (int i = 0; i < N_WORKS; i++) {
        J[i].work = (td__work){.run = run_job, .done = job_done, .arg = &J[i]};
        td__work_threads_add(w, &J[i].work);
    }
}

TEST(work_is_done_elsewhere_in_order_and_ends_on_the_loop)
{
    td__loop *l;
    td__work_threads *w;
    td__deadline until = td__deadline_in_ms(10000);

    CHECK_OK(td__loop_create(&l));
    CHECK_OK(td__work_threads_create(l, 1, &w));
    add_jobs(w);
    while (n_done < N_WORKS) {
        CHECK(!td__deadline_passed(until), "only %d of %d are done", n_done, N_WORKS);
        CHECK_OK(td__loop_turn(l, 100));
    }
    for (int i = 0; i < N_WORKS; i++) {
        CHECK(J[i].done == 1 && J[i].was_run && J[i].order == i, "work %d", i);
        CHECK(!pthread_equal(J[i].ran_on, pthread_self()), "work %d ran on the loop thread", i);
    }
    td__work_threads_destroy(w);
    td__loop_destroy(l);
}

TEST(work_that_is_left_at_the_end_is_told_of_once)
{
    td__loop *l;
    td__work_threads *w;

    CHECK_OK(td__loop_create(&l));
    CHECK_OK(td__work_threads_create(l, 2, &w));
    add_jobs(w);
    td__work_threads_destroy(w); /* some of it was run, some not, none was told of before */
    for (int i = 0; i < N_WORKS; i++)
        CHECK(J[i].done == 1, "work %d was told of %d times", i, J[i].done);
    CHECK_OK(td__loop_turn(l, 0)); /* nothing of it is left in the loop */
    CHECK_EQ_INT(n_done, N_WORKS);
    td__loop_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_committed_before_answers_leave),
        cmocka_unit_test(an_unwatched_descriptor_is_not_called_even_in_the_same_turn),
        cmocka_unit_test(timers_fire_once_and_in_order_after_moves_and_stops),
        cmocka_unit_test(a_timer_started_for_now_waits_for_the_next_turn),
        cmocka_unit_test(tasks_of_another_thread_run_in_order_and_wake_the_loop),
        cmocka_unit_test(work_is_done_elsewhere_in_order_and_ends_on_the_loop),
        cmocka_unit_test(work_that_is_left_at_the_end_is_told_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
