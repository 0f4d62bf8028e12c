/* A day of the service in minutes: jobs of many users through the scheduler, with a virtual tracker
 * and a clock that jumps from event to event. After every event all invariants of the scheduler are
 * checked, and these: no attempt runs beside another of its job, no job runs after its final state,
 * every job reaches exactly one final state, and at the end nothing is left.
 *
 * 20,000 jobs, or a million in the longer form (make soak-service).
 *
 * Test labels: full one-thread */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "service/sched/sched.h"
#include "support/check.h"
#include "support/full.h"

enum { USERS = 40, ALIVE = 250, MOST_EVENTS = 8 * ALIVE };

typedef enum event_kind { STARTS, ENDS } event_kind;

typedef struct event {
    int64_t time;
    event_kind kind;
    int32_t job;
    int attempt;
    td__exit_class how;
} event;

typedef struct virtual_job {
    bool known, final, live, may_preempt;
    int attempt, launches;
    int64_t submitted;
} virtual_job;

typedef struct world {
    td__sched *s;
    td__rng_key key;
    uint64_t drawn;
    int64_t now;
    event heap[MOST_EVENTS];
    int n_heap;
    virtual_job *jobs;
    int32_t n_jobs, submitted, alive;
    int32_t ids[ALIVE]; /* alive ones */
    int64_t events, launches, finals[TD_JOB_STATE_COUNT], stops;
} world;

static uint32_t draw(world *w, uint32_t n)
{
    return td__rng_u32(&w->key, w->drawn++) % n;
}

static void push(world *w, event e)
{
    int i = w->n_heap++;

    assert_true(i < MOST_EVENTS);
    for (; i > 0 && w->heap[(i - 1) / 2].time > e.time; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static event pop(world *w)
{
    event first = w->heap[0], last = w->heap[--w->n_heap];
    int i = 0;

    for (int c; (c = 2 * i + 1) < w->n_heap; i = c) {
        c += c + 1 < w->n_heap && w->heap[c + 1].time < w->heap[c].time;
        if (w->heap[c].time >= last.time)
            break;
        w->heap[i] = w->heap[c];
    }
    w->heap[i] = last;
    return first;
}

static void launched(world *w, const td__sched_action *a)
{
    virtual_job *j = &w->jobs[a->job];
    int64_t start = w->now + 1 + draw(w, 3000);

    if (j->final)
        fail_msg("job %d is launched after its final state", a->job);
    if (j->live)
        fail_msg("job %d: attempt %d is launched while another one runs", a->job, a->attempt);
    if (a->attempt != j->attempt + 1)
        fail_msg("job %d: attempt %d follows attempt %d", a->job, a->attempt, j->attempt);
    j->live = true;
    j->attempt = a->attempt;
    w->launches++;
    switch (draw(w, 20)) {
    case 0: /* cannot be started */
        push(w, (event){start, ENDS, a->job, a->attempt, TD_EXIT_CLASS_LAUNCH});
        return;
    case 1: return; /* hangs; the launch timeout ends it */
    default: push(w, (event){start, STARTS, a->job, a->attempt, TD_EXIT_CLASS_NONE});
    }
    static const td__exit_class HOW[] = {TD_EXIT_CLASS_OK,        TD_EXIT_CLASS_OK,
                                         TD_EXIT_CLASS_OK,        TD_EXIT_CLASS_RETRYABLE,
                                         TD_EXIT_CLASS_PERMANENT, TD_EXIT_CLASS_LOST};
    push(w,
         (event){start + 1 + draw(w, 200000), ENDS, a->job, a->attempt, HOW[draw(w, TD_LEN(HOW))]});
}

static void finished(world *w, int32_t id, td__job_state state)
{
    virtual_job *j = &w->jobs[id];

    if (j->final)
        fail_msg("job %d: a second final state, %s", id, td__job_state_name(state));
    if (j->live)
        fail_msg("job %d is %s while an attempt runs", id, td__job_state_name(state));
    j->final = true;
    w->finals[state]++;
    for (int i = 0; i < w->alive; i++)
        if (w->ids[i] == id) {
            w->ids[i] = w->ids[--w->alive];
            return;
        }
    fail_msg("job %d was not alive", id);
}

static void follow(world *w)
{
    td__sched_action a;

    td__sched_tick(w->s, w->now);
    while (td__sched_take(w->s, &a)) {
        if (a.kind == TD_SCHED_LAUNCH) {
            launched(w, &a);
        } else if (a.kind == TD_SCHED_STOP) {
            w->stops++;
            push(w, (event){w->now + 1 + draw(w, 30000), ENDS, a.job, a.attempt,
                            draw(w, 10) ? TD_EXIT_CLASS_RETRYABLE : TD_EXIT_CLASS_OK});
        } else if (td__job_state_final(a.state)) {
            finished(w, a.job, a.state);
        }
    }
    const char *wrong = td__sched_check(w->s);
    if (wrong)
        fail_msg("event %lld at %lld ms: %s", (long long)w->events, (long long)w->now, wrong);
    w->events++;
}

static void submit(world *w)
{
    static char names[USERS][8];
    uint32_t user = draw(w, USERS), members = draw(w, 8) ? 1 : 1 + draw(w, 12);
    int32_t id = ++w->submitted;

    user = draw(w, user + 1); /* some users have most of the jobs */
    snprintf(names[user], sizeof names[user], "u%u", user);
    td__sched_job j = {
        .id = id,
        .user = names[user],
        .priority = draw(w, 4) ? 0 : (int)draw(w, 21) - 10,
        .need = {members * (1 + draw(w, 2)), draw(w, 5) ? 0 : members, members * draw(w, 2000)},
        .submitted_ms = w->now,
        .deadline_ms = draw(w, 30) ? 0 : w->now + draw(w, 1000000),
        .time_limit_ms = draw(w, 3) ? 0 : 1000 + draw(w, 250000),
        .retries = (int)draw(w, 4),
        .backoff_ms = draw(w, 5000),
        .retry_permanent = !draw(w, 10),
        .preemptible = !draw(w, 3),
        .held = !draw(w, 20)};
    if (!draw(w, 6)) /* what another system hands out, some of it or all */
        j.elsewhere = (td__resources){j.need.slots, j.need.gpus, draw(w, 2) ? j.need.memory_mb : 0};
    if (!td__sched_fits(w->s, j.user, j.need, j.elsewhere)) {
        j.need = (td__resources){1, 0, 0};
        j.elsewhere = (td__resources){0};
    }
    w->jobs[id] = (virtual_job){.known = true, .submitted = w->now};
    w->ids[w->alive++] = id;
    CHECK_OK(td__sched_add(w->s, w->now, &j));
}

/* What users do: to a job that is alive, whatever it does just now. */
static void request(world *w)
{
    if (!w->alive)
        return;
    int32_t id = w->ids[draw(w, (uint32_t)w->alive)];
    switch (draw(w, 5)) {
    case 0: td__sched_cancel(w->s, w->now, id); break;
    case 1: td__sched_pause(w->s, w->now, id); break;
    default: td__sched_resume(w->s, w->now, id); td__sched_release(w->s, w->now, id);
    }
}

static void happen(world *w, const event *e)
{
    virtual_job *j = &w->jobs[e->job];

    if (!j->live || j->attempt != e->attempt)
        return; /* it has ended in another way */
    if (e->kind == STARTS) {
        td__sched_started(w->s, w->now, e->job, e->attempt);
    } else {
        j->live = false;
        td__sched_ended(w->s, w->now, e->job, e->attempt, e->how);
    }
}

static void turn(world *w)
{
    int64_t wake = td__sched_wake_ms(w->s), next = w->n_heap ? w->heap[0].time : INT64_MAX;
    int64_t later = wake < next ? wake : next;
    bool more = w->submitted < w->n_jobs && w->alive < ALIVE;

    if (more && (later == INT64_MAX || draw(w, 3))) {
        w->now += draw(w, 20);
        if (later < w->now)
            w->now = later;
        submit(w);
    } else if (!draw(w, 40) || later == INT64_MAX) {
        request(w);
    } else {
        w->now = later > w->now ? later : w->now;
        if (next <= w->now) {
            event e = pop(w);
            happen(w, &e);
        }
    }
    follow(w);
}

TEST(soak)
{
    static world w;
    uint64_t begin = td__clock_ns();

    w = (world){.n_jobs = full_test() ? 1000000 : 20000, .now = 1, .key = {.seed = 1}};
    if (getenv("TD_SOAK_SEED"))
        w.key.seed = strtoull(getenv("TD_SOAK_SEED"), NULL, 10);
    w.jobs = calloc((size_t)w.n_jobs + 1, sizeof *w.jobs);
    assert_non_null(w.jobs);
    CHECK_OK(td__sched_create(&(td__sched_opts){.capacity = {64, 16, 64000},
                                                .max_launching = 24,
                                                .half_life_s = 3600,
                                                .starve_ms = 600000,
                                                .preempt_ms = 30000,
                                                .launch_timeout_ms = 60000},
                              &w.s));
    CHECK_OK(td__sched_set_quota(w.s, "*", (td__resources){32, 16, -1}, -1, 1));
    CHECK_OK(td__sched_set_quota(w.s, "u1", (td__resources){8, 0, -1}, -1, 1));
    CHECK_OK(td__sched_set_quota(w.s, "u2", (td__resources){-1, -1, 20000}, -1, 4));
    while (w.submitted < w.n_jobs || w.alive)
        turn(&w);
    assert_int_equal(td__sched_jobs(w.s), 0);
    td__resources used = td__sched_used(w.s);
    assert_int_equal(used.slots + used.gpus + used.memory_mb, 0);
    int64_t ended = 0;
    for (int i = 0; i < TD_JOB_STATE_COUNT; i++)
        ended += w.finals[i];
    assert_int_equal(ended, w.n_jobs);
    for (int32_t id = 1; id <= w.n_jobs; id++)
        if (!w.jobs[id].final)
            fail_msg("job %d has no final state", id);
    print_message("%d jobs in %.1f days: %lld events, %lld launches, %lld stops; %lld succeeded, "
                  "%lld failed, %lld cancelled; %.1f s, seed %llu\n",
                  w.n_jobs, (double)w.now / 86400e3, (long long)w.events, (long long)w.launches,
                  (long long)w.stops, (long long)w.finals[TD_JOB_SUCCEEDED],
                  (long long)w.finals[TD_JOB_FAILED], (long long)w.finals[TD_JOB_CANCELLED],
                  (double)(td__clock_ns() - begin) / 1e9, (unsigned long long)w.key.seed);
    td__sched_destroy(w.s);
    free(w.jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
