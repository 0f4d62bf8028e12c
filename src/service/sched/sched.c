/* sched.c -- the states of jobs and what changes them; see sched.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sched/sched.h"

#include <string.h>

#include "base/fail.h"
#include "service/sched/sched_impl.h"

enum { MOST_BACKOFF_MS = 3600 * 1000, ACTIONS_PER_JOB = 4 };

static bool by_id(const td__order_node *a, const td__order_node *b)
{
    return TD_ORDER_OF(a, job, in_all)->j.id < TD_ORDER_OF(b, job, in_all)->j.id;
}

static bool by_timer(const td__order_node *a, const td__order_node *b)
{
    const job *x = TD_ORDER_OF(a, job, in_timers), *y = TD_ORDER_OF(b, job, in_timers);

    return x->timer_ms != y->timer_ms ? x->timer_ms < y->timer_ms : x->j.id < y->j.id;
}

/* Lowest priority first, then the latest launch: least work is lost. */
static bool by_worth(const td__order_node *a, const td__order_node *b)
{
    const job *x = TD_ORDER_OF(a, job, in_active), *y = TD_ORDER_OF(b, job, in_active);

    if (x->j.priority != y->j.priority)
        return x->j.priority < y->j.priority;
    return x->j.launched_ms != y->j.launched_ms ? x->j.launched_ms > y->j.launched_ms
                                                : x->j.id > y->j.id;
}

td_status td__sched_create(const td__sched_opts *o, td__sched **out)
{
    td__sched *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "scheduler: out of memory");
    s->o = *o;
    s->users.before = td__sched_users_before;
    s->queued.before = by_id;
    s->timers.before = by_timer;
    s->active.before = by_worth;
    s->default_most = (td__resources){-1, -1, -1};
    s->default_queued = -1;
    s->default_weight = 1;
    *out = s;
    return TD_OK;
}

void td__sched_destroy(td__sched *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_job_buckets; i++)
        for (job *j = s->jobs[i], *next; j; j = next) {
            next = j->hash_next;
            td__sched_kind_release(j->kind);
            td__free(j);
        }
    td__free(s->jobs);
    td__free(s->scratch);
    td__free(s->actions);
    td__sched_users_fini(s);
    td__free(s);
}

static job *find_job(const td__sched *s, int32_t id)
{
    job *j = s->n_job_buckets ? s->jobs[(size_t)id % s->n_job_buckets] : NULL;

    while (j && j->j.id != id)
        j = j->hash_next;
    return j;
}

/* Room for one more job, so that nothing that happens to it later needs memory. */
static td_status reserve(td__sched *s)
{
    size_t n = (size_t)s->n_jobs + 1;

    if (n > s->n_job_buckets) {
        size_t buckets = s->n_job_buckets ? 2 * s->n_job_buckets : 256;
        job **table = td__calloc(buckets, sizeof(job *));
        if (!table)
            return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for jobs");
        for (size_t i = 0; i < s->n_job_buckets; i++)
            for (job *j = s->jobs[i], *next; j; j = next) {
                next = j->hash_next;
                job **bucket = &table[(size_t)j->j.id % buckets];
                j->hash_next = *bucket;
                *bucket = j;
            }
        td__free(s->jobs);
        s->jobs = table;
        s->n_job_buckets = buckets;
    }
    if (n > s->room_scratch) {
        job **scratch = td__realloc(s->scratch, 2 * n * sizeof(job *));
        if (!scratch)
            return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for jobs");
        s->scratch = scratch;
        s->room_scratch = 2 * n;
    }
    if (n * ACTIONS_PER_JOB > s->room_actions) {
        size_t room = 2 * n * ACTIONS_PER_JOB;
        td__sched_action *ring = td__calloc(room, sizeof *ring);
        if (!ring)
            return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for jobs");
        for (size_t i = 0; i < s->n_actions; i++)
            ring[i] = s->actions[(s->first_action + i) % s->room_actions];
        td__free(s->actions);
        s->actions = ring;
        s->room_actions = room;
        s->first_action = 0;
    }
    return TD_OK;
}

void td__sched_act(td__sched *s, td__sched_action a)
{
    TD_ASSERT(s->n_actions < s->room_actions, "scheduler: %zu actions were not taken",
              s->n_actions);
    s->actions[(s->first_action + s->n_actions++) % s->room_actions] = a;
}

bool td__sched_take(td__sched *s, td__sched_action *out)
{
    if (!s->n_actions)
        return false;
    *out = s->actions[s->first_action];
    s->first_action = (s->first_action + 1) % s->room_actions;
    s->n_actions--;
    return true;
}

static bool is_active(const job *j)
{
    return j->j.state == TD_JOB_LAUNCHING || j->j.state == TD_JOB_PENDING ||
           j->j.state == TD_JOB_RUNNING;
}

static void count_state(td__sched *s, const job *j, int n)
{
    s->launching += j->j.state == TD_JOB_LAUNCHING ? n : 0;
    if (j->j.queues && (j->j.state == TD_JOB_LAUNCHING || j->j.state == TD_JOB_PENDING))
        s->elsewhere += n;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The next time at which something is to be done about j; later than now. */
static int64_t next_time(const td__sched *s, const job *j, int64_t now)
{
    int64_t t = j->j.deadline_ms && !j->stop ? j->j.deadline_ms : INT64_MAX;

    if (j->place == PLACE_WAITING)
        t = sooner(t, j->j.not_before_ms);
    if (j->place == PLACE_ELIGIBLE) {
        int64_t preempt = j->eligible_ms + s->o.preempt_ms,
                starve = j->eligible_ms + s->o.starve_ms;
        if (s->o.preempt_ms >= 0 && preempt > now)
            t = sooner(t, preempt);
        if (starve > now)
            t = sooner(t, starve);
    }
    if (j->j.state == TD_JOB_LAUNCHING && !j->stop && s->o.launch_timeout_ms)
        t = sooner(t, j->j.launched_ms + s->o.launch_timeout_ms);
    if (j->j.state == TD_JOB_PENDING && j->placed_ms && !j->stop && s->o.launch_timeout_ms)
        t = sooner(t, j->placed_ms + s->o.launch_timeout_ms);
    if (j->j.state == TD_JOB_RUNNING && !j->stop && j->j.time_limit_ms)
        t = sooner(t, j->j.started_ms + j->j.time_limit_ms);
    return t;
}

static void set_timer(td__sched *s, job *j, int64_t now)
{
    td__order_remove(&s->timers, &j->in_timers);
    j->timer_ms = next_time(s, j, now);
    if (j->timer_ms != INT64_MAX)
        td__order_insert(&s->timers, &j->in_timers);
}

/* Into the state QUEUED: eligible, waiting for its time, or held. */
static void queue(td__sched *s, job *j, int64_t now)
{
    if (j->j.state != TD_JOB_QUEUED || !td__order_has(&j->in_all)) {
        j->j.state = TD_JOB_QUEUED;
        td__order_insert(&s->queued, &j->in_all);
        j->owner->queued++;
    }
    j->place = j->j.held ? PLACE_HELD : j->j.not_before_ms > now ? PLACE_WAITING : PLACE_ELIGIBLE;
    if (j->place == PLACE_ELIGIBLE) {
        j->eligible_ms = now;
        td__sched_enqueue(s, j);
        s->changed = true;
    }
    set_timer(s, j, now);
}

static void unqueue(td__sched *s, job *j)
{
    if (j->place == PLACE_ELIGIBLE)
        td__sched_dequeue(s, j);
    if (td__order_has(&j->in_all)) {
        td__order_remove(&s->queued, &j->in_all);
        j->owner->queued--;
    }
    if (s->reserved == j)
        s->reserved = NULL;
    s->changed = true; /* others may have waited behind it */
    j->place = PLACE_NONE;
}

static void say(td__sched *s, const job *j, td__sched_why why)
{
    td__sched_act(s, (td__sched_action){.kind = TD_SCHED_STATE,
                                        .job = j->j.id,
                                        .state = j->j.state,
                                        .why = why,
                                        .attempt = j->j.attempt,
                                        .failures = j->j.failures,
                                        .not_before_ms = j->j.not_before_ms});
}

/* Its final state; the scheduler forgets it. */
static void finish(td__sched *s, job *j, td__job_state state, td__sched_why why)
{
    unqueue(s, j);
    td__order_remove(&s->timers, &j->in_timers);
    j->j.state = state;
    say(s, j, why);
    job **at = &s->jobs[(size_t)j->j.id % s->n_job_buckets];
    while (*at != j)
        at = &(*at)->hash_next;
    *at = j->hash_next;
    s->n_jobs--;
    td__sched_kind_release(j->kind);
    td__free(j);
}

void td__sched_launch(td__sched *s, job *j, int64_t now)
{
    unqueue(s, j);
    j->j.state = TD_JOB_LAUNCHING;
    j->j.attempt++;
    j->j.launched_ms = now;
    j->j.started_ms = 0;
    count_state(s, j, 1);
    td__sched_use(s, j);
    td__order_insert(&s->active, &j->in_active);
    set_timer(s, j, now);
    td__sched_act(s, (td__sched_action){.kind = TD_SCHED_LAUNCH,
                                        .job = j->j.id,
                                        .state = j->j.state,
                                        .attempt = j->j.attempt,
                                        .failures = j->j.failures});
}

void td__sched_stop(td__sched *s, job *j, td__sched_why why)
{
    bool stopping = j->stop != TD_WHY_NONE;

    j->stop = why;
    td__order_remove(&s->timers, &j->in_timers);
    if (!stopping)
        td__sched_act(s, (td__sched_action){.kind = TD_SCHED_STOP,
                                            .job = j->j.id,
                                            .state = j->j.state,
                                            .why = why,
                                            .attempt = j->j.attempt,
                                            .failures = j->j.failures});
}

td_status td__sched_add(td__sched *s, int64_t now, const td__sched_job *given)
{
    user *owner;

    TD_TRY(reserve(s));
    TD_TRY(td__sched_user_get(s, given->user, &owner));
    job *j = td__calloc(1, sizeof *j);
    if (!j)
        return TD_FAIL(TD_ENOMEM, "scheduler: out of memory for jobs");
    td_status st = td__sched_kind_retain(owner, given, &j->kind);
    if (st) {
        td__free(j);
        return st;
    }
    j->j = *given;
    j->j.user = NULL;
    j->owner = owner;
    if (!s->usage_origin_ms)
        s->usage_origin_ms = now;
    job **bucket = &s->jobs[(size_t)j->j.id % s->n_job_buckets];
    j->hash_next = *bucket;
    *bucket = j;
    s->n_jobs++;
    if (is_active(j)) {
        /* It may have got its place since it was last heard of: its tracker says that it waits. */
        j->placed_ms = j->j.state == TD_JOB_PENDING ? now : 0;
        count_state(s, j, 1);
        td__sched_use(s, j);
        td__order_insert(&s->active, &j->in_active);
        if (j->j.cancel_asked ||
            j->j.pause_asked) /* the request may not have reached the tracker */
            td__sched_stop(s, j, j->j.cancel_asked ? TD_WHY_CANCEL : TD_WHY_PAUSE);
        else
            set_timer(s, j, now);
    } else if (j->j.state == TD_JOB_QUEUED) {
        queue(s, j, now);
    } else {
        set_timer(s, j, now);
    }
    return TD_OK;
}

void td__sched_release(td__sched *s, int64_t now, int32_t id)
{
    job *j = find_job(s, id);

    if (!j)
        return;
    j->j.held = false;
    if (j->place == PLACE_HELD)
        queue(s, j, now);
}

void td__sched_pending(td__sched *s, int64_t now, int32_t id, int attempt, bool placed)
{
    job *j = find_job(s, id);

    if (!j || j->j.attempt != attempt ||
        (j->j.state != TD_JOB_PENDING && (j->j.state != TD_JOB_LAUNCHING || placed)))
        return;
    j->placed_ms = placed ? now : 0;
    if (j->j.state == TD_JOB_LAUNCHING) {
        count_state(s, j, -1);
        j->j.state = TD_JOB_PENDING;
        count_state(s, j, 1);
        s->changed = true;
        say(s, j, TD_WHY_NONE);
    }
    if (!j->stop)
        set_timer(s, j, now);
}

void td__sched_started(td__sched *s, int64_t now, int32_t id, int attempt)
{
    job *j = find_job(s, id);

    if (!j || (j->j.state != TD_JOB_LAUNCHING && j->j.state != TD_JOB_PENDING) ||
        j->j.attempt != attempt)
        return;
    count_state(s, j, -1);
    s->changed = true;
    j->j.state = TD_JOB_RUNNING;
    j->j.started_ms = now;
    if (!j->stop)
        set_timer(s, j, now);
    say(s, j, TD_WHY_NONE);
}

static bool may_retry(const job *j, td__exit_class how)
{
    bool such = how == TD_EXIT_CLASS_RETRYABLE || how == TD_EXIT_CLASS_LOST ||
                j->stop == TD_WHY_LAUNCH_TIMEOUT || j->j.retry_permanent;

    return such && j->j.failures < j->j.retries;
}

static void retry(td__sched *s, job *j, int64_t now)
{
    int64_t backoff = j->j.backoff_ms;

    for (int i = 0; i < j->j.failures && backoff < MOST_BACKOFF_MS; i++)
        backoff *= 2;
    j->j.failures++;
    j->j.not_before_ms = now + sooner(backoff, MOST_BACKOFF_MS);
    j->stop = TD_WHY_NONE;
    queue(s, j, now);
    say(s, j, TD_WHY_RETRY);
}

void td__sched_ended(td__sched *s, int64_t now, int32_t id, int attempt, td__exit_class how)
{
    job *j = find_job(s, id);

    if (!j || !is_active(j) || j->j.attempt != attempt)
        return;
    td__sched_why stop = j->stop;
    count_state(s, j, -1);
    td__order_remove(&s->active, &j->in_active);
    td__sched_give_back(s, j, now);
    if (stop == TD_WHY_CANCEL)
        finish(s, j, TD_JOB_CANCELLED, stop);
    else if (how == TD_EXIT_CLASS_OK)
        finish(s, j, TD_JOB_SUCCEEDED, TD_WHY_EXIT);
    else if (stop == TD_WHY_DEADLINE || stop == TD_WHY_TIME_LIMIT)
        finish(s, j, TD_JOB_FAILED, stop);
    else if (stop == TD_WHY_PAUSE) {
        j->stop = TD_WHY_NONE;
        j->j.pause_asked = false;
        j->j.state = TD_JOB_PAUSED;
        set_timer(s, j, now);
        say(s, j, stop);
    } else if (stop == TD_WHY_PREEMPT) {
        j->stop = TD_WHY_NONE;
        j->j.not_before_ms = 0;
        queue(s, j, now);
        say(s, j, stop);
    } else if (may_retry(j, how)) {
        retry(s, j, now);
    } else {
        finish(s, j, TD_JOB_FAILED, stop == TD_WHY_LAUNCH_TIMEOUT ? stop : TD_WHY_EXIT);
    }
}

bool td__sched_cancel(td__sched *s, int64_t now, int32_t id)
{
    job *j = find_job(s, id);

    (void)now;
    if (!j)
        return false;
    if (is_active(j)) {
        j->j.cancel_asked = true;
        td__sched_stop(s, j, TD_WHY_CANCEL);
    } else {
        finish(s, j, TD_JOB_CANCELLED, TD_WHY_CANCEL);
    }
    return true;
}

bool td__sched_reject(td__sched *s, int64_t now, int32_t id)
{
    job *j = find_job(s, id);

    (void)now;
    if (!j || is_active(j))
        return false;
    finish(s, j, TD_JOB_FAILED, TD_WHY_REJECT);
    return true;
}

bool td__sched_pause(td__sched *s, int64_t now, int32_t id)
{
    job *j = find_job(s, id);

    if (!j || j->j.state == TD_JOB_PAUSED || j->stop == TD_WHY_CANCEL)
        return false;
    if (is_active(j)) {
        if (j->stop == TD_WHY_NONE || j->stop == TD_WHY_PREEMPT) {
            j->j.pause_asked = true;
            td__sched_stop(s, j, TD_WHY_PAUSE);
            return true;
        }
        return false;
    }
    unqueue(s, j);
    j->j.state = TD_JOB_PAUSED;
    set_timer(s, j, now);
    say(s, j, TD_WHY_PAUSE);
    return true;
}

bool td__sched_resume(td__sched *s, int64_t now, int32_t id)
{
    job *j = find_job(s, id);

    if (!j || j->j.state != TD_JOB_PAUSED)
        return false;
    j->j.not_before_ms = 0;
    queue(s, j, now);
    say(s, j, TD_WHY_RESUME);
    return true;
}

static void time_has_come(td__sched *s, job *j, int64_t now)
{
    if (j->j.deadline_ms && j->j.deadline_ms <= now && !j->stop) {
        if (is_active(j))
            td__sched_stop(s, j, TD_WHY_DEADLINE);
        else
            finish(s, j, TD_JOB_FAILED, TD_WHY_DEADLINE);
    } else if (j->place == PLACE_WAITING) {
        queue(s, j, now);
    } else if (j->j.state == TD_JOB_LAUNCHING || j->j.state == TD_JOB_PENDING) {
        td__sched_stop(s, j, TD_WHY_LAUNCH_TIMEOUT);
    } else if (j->j.state == TD_JOB_RUNNING) {
        td__sched_stop(s, j, TD_WHY_TIME_LIMIT);
    } else { /* it has waited long enough to be reserved for, or to preempt */
        s->changed = true;
        set_timer(s, j, now);
    }
}

void td__sched_tick(td__sched *s, int64_t now)
{
    td__order_node *first;

    while ((first = td__order_first(&s->timers))) {
        job *j = TD_ORDER_OF(first, job, in_timers);
        if (j->timer_ms > now)
            break;
        time_has_come(s, j, now);
    }
    td__sched_pass(s, now);
}

int64_t td__sched_wake_ms(const td__sched *s)
{
    td__order_node *first = td__order_first(&s->timers);

    return first ? TD_ORDER_OF(first, job, in_timers)->timer_ms : INT64_MAX;
}

int td__sched_position(const td__sched *s, int32_t id)
{
    const job *j = find_job(s, id);

    return j && td__order_has(&j->in_all) ? td__order_rank(&j->in_all) : -1;
}

td__resources td__sched_used(const td__sched *s)
{
    return s->used;
}

td__resources td__sched_capacity(const td__sched *s)
{
    return s->o.capacity;
}

int td__sched_jobs(const td__sched *s)
{
    return s->n_jobs;
}
