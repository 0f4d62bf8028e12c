/* service.c -- the service's life: opening, what was left running, the turn's commit, closing; see
 * service.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/service.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/utf8.h"
#include "service/service_impl.h"
#include "service/track/gpus.h"
#include "service/track/place.h"

enum { SWEEP_MS = 60000 }; /* between looks for old jobs */

void td__service_listens(td__service *s, const char *grpc)
{
    snprintf(s->grpc, sizeof s->grpc, "%s", grpc);
}

td__loop *td__service_loop(const td__service *s)
{
    return s->o.loop;
}

const char *td__service_self(const td__service *s)
{
    return s->o.self;
}

const td__service_config *td__service_config_of(const td__service *s)
{
    return s->config;
}

td__job_store *td__service_store(td__service *s)
{
    return s->store;
}

int64_t td__service_now_ms(const td__service *s)
{
    struct timespec t;

    (void)s;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool td__service_failed(const td__service *s)
{
    return s->failed;
}

td__active *td__active_find(const td__service *s, int32_t job)
{
    td__active *a = s->n_buckets && job > 0 ? s->active[(size_t)job % s->n_buckets] : NULL;

    while (a && a->r->id != job)
        a = a->hash_next;
    return a;
}

static td_status grow(td__service *s)
{
    size_t n = s->n_buckets ? 2 * s->n_buckets : 1024;

    if ((size_t)s->n_active < s->n_buckets)
        return TD_OK;
    td__active **table = td__calloc(n, sizeof(td__active *));
    if (!table)
        return TD_FAIL(TD_ENOMEM, "service: out of memory for jobs");
    for (size_t i = 0; i < s->n_buckets; i++)
        for (td__active *a = s->active[i], *next; a; a = next) {
            next = a->hash_next;
            td__active **bucket = &table[(size_t)a->r->id % n];
            a->hash_next = *bucket;
            *bucket = a;
        }
    td__free(s->active);
    s->active = table;
    s->n_buckets = n;
    return TD_OK;
}

td_status td__active_add(td__service *s, td__job_record *r, td__active **out)
{
    *out = NULL;
    TD_TRY(grow(s));
    td__active *a = td__calloc(1, sizeof *a);
    if (!a)
        return TD_FAIL(TD_ENOMEM, "service: out of memory for jobs");
    a->r = r;
    td__active **bucket = &s->active[(size_t)r->id % s->n_buckets];
    a->hash_next = *bucket;
    *bucket = a;
    s->n_active++;
    *out = a;
    return TD_OK;
}

/* Answers of this turn may point to the record. */
void td__active_remove(td__service *s, td__active *a)
{
    td__active **at = &s->active[(size_t)a->r->id % s->n_buckets];

    while (*at != a)
        at = &(*at)->hash_next;
    *at = a->hash_next;
    s->n_active--;
    for (td__active **op = &s->ops; *op; op = &(*op)->op_next)
        if (*op == a) {
            *op = a->op_next;
            if (s->ops_end == &a->op_next)
                s->ops_end = op;
            break;
        }
    td__service_keep(s, a->r);
    td__free(a);
}

void td__service_keep(td__service *s, td__job_record *r)
{
    if (s->n_kept == s->room_kept) {
        size_t room = s->room_kept ? 2 * s->room_kept : 64;
        td__job_record **kept = td__realloc(s->kept, room * sizeof(td__job_record *));
        if (!kept)
            return; /* a leak of one record rather than an answer that points to nothing */
        s->kept = kept;
        s->room_kept = room;
    }
    s->kept[s->n_kept++] = r;
}

void td__service_set_recent(td__service *s, int32_t job, td__job_record *r)
{
    td__job_record **slot = &s->recent[job % TD__RECENT];

    if (*slot)
        td__service_keep(s, *slot); /* an answer of this turn may point to it */
    *slot = r;
}

static void release_kept(td__service *s)
{
    while (s->n_kept)
        td__job_record_destroy(s->kept[--s->n_kept]);
}

void td__service_touch(td__service *s)
{
    td__loop_again(s->o.loop);
}

void td__service_write(td__service *s, const td__job_record *r)
{
    if (td__job_store_update(s->store, r))
        TD_LOG(ERROR, SERVICE, "job %d: %s", r->id, td_last_error());
    td__service_touch(s);
}

void td__service_say(td__service *s, const td__job_record *r, td__event_kind kind, int member,
                     const char *fmt, ...)
{
    char text[1200];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    td__utf8_clean(text);
    td__told *t = td__calloc(1, sizeof *t);
    char *copy = td__strdup(text);
    td__job_event e = {.job = r->id,
                       .kind = kind,
                       .state = r->state,
                       .member = member,
                       .time_ms = td__service_now_ms(s),
                       .text = copy ? copy : ""};
    if (td__job_store_event(s->store, &e))
        TD_LOG(ERROR, SERVICE, "job %d: %s", r->id, td_last_error());
    td__service_touch(s);
    if (!t || !copy) { /* subscribers find it in the store */
        td__free(t);
        td__free(copy);
        return;
    }
    t->e = e;
    *s->told_end = t;
    s->told_end = &t->next;
}

static void on_timer(void *arg)
{
    (void)arg; /* the turn's commit phase looks at the clock */
}

/* Wake up when the scheduler, a data set or the clean-up wants it. */
static void set_timer(td__service *s, int64_t now)
{
    int64_t wake = td__sched_wake_ms(s->sched);

    if (s->data.fetch && s->data_wake_ms < wake)
        wake = s->data_wake_ms;
    if (s->config->keep_s && s->next_sweep_ms < wake)
        wake = s->next_sweep_ms;
    if (s->again_ms && s->again_ms < wake)
        wake = s->again_ms;
    if (s->forget_ms < wake)
        wake = s->forget_ms;
    if (wake == INT64_MAX)
        td__timer_stop(s->o.loop, &s->timer);
    else
        td__timer_start(s->o.loop, &s->timer,
                        td__deadline_in_ms(wake > now ? (uint64_t)(wake - now) : 0));
}

/* Nobody serves data sets: jobs need not wait for theirs. */
static void begin(td__service *s, int64_t now)
{
    s->begun = true;
    for (size_t i = 0; i < s->n_buckets && !s->data.fetch; i++)
        for (td__active *a = s->active[i]; a; a = a->hash_next)
            if (a->data_wanted) {
                a->data_wanted = false;
                td__sched_release(s->sched, now, a->r->id);
            }
}

static void fail(td__service *s)
{
    TD_LOG(ERROR, SERVICE, "%s; stopping, since what was promised cannot be kept", td_last_error());
    s->failed = true;
    td__loop_stop(s->o.loop);
}

static void on_commit(void *arg)
{
    td__service *s = arg;
    int64_t now = td__service_now_ms(s);

    if (s->failed)
        return;
    release_kept(s);
    if (!s->begun)
        begin(s, now);
    td__service_ask_data(s, now);
    td__service_ask_again(s, now);
    if (s->config->keep_s && now >= s->next_sweep_ms) {
        td__service_delete_old(s, now);
        s->next_sweep_ms = now + SWEEP_MS;
    }
    td__sched_tick(s->sched, now);
    td__service_follow(s);
    if (td__job_store_dirty(s->store)) {
        uint64_t began = td__clock_ns();
        if (td__job_store_commit(s->store)) {
            fail(s);
            return;
        }
        s->stats.commits++;
        s->stats.commit_seconds += (double)(td__clock_ns() - began) / 1e9;
    }
    while (s->n_removed)
        td__service_remove_job_dir(s, s->removed[--s->n_removed]);
    td__service_tell(s);
    td__service_forget_ended(s, now);
    td__service_ask(s);
    set_timer(s, now);
}

static td_status absolute(const char *dir, char out[TD__DATA_DIR])
{
    char cwd[PATH_MAX];

    if (dir[0] != '/' && !getcwd(cwd, sizeof cwd))
        return TD_FAIL(TD_EIO, "the current directory: %s", strerror(errno));
    int n = snprintf(out, TD__DATA_DIR, "%s%s%s", dir[0] == '/' ? "" : cwd,
                     dir[0] == '/' ? "" : "/", dir);
    return n < TD__DATA_DIR ? TD_OK : TD_FAIL(TD_EINVAL, "data.dir: the path is too long");
}

td__resources td__service_need(const td__job_spec *p)
{
    return (td__resources){(int64_t)p->members * p->slots, (int64_t)p->members * p->gpus,
                           (int64_t)p->members * p->memory_mb};
}

/* What ssh.hosts have together; gpus -1: it is not said. */
static td__resources ssh_capacity(const td__service_config *c)
{
    td__resources all = {.gpus = -1};
    size_t nbytes;
    int slots, gpus;

    for (int i = 0; i < c->n_ssh_hosts; i++)
        if (td__place_parse_host(c->ssh_hosts[i], &nbytes, &slots, &gpus)) {
            all.slots += slots;
            if (gpus >= 0)
                all.gpus = (all.gpus < 0 ? 0 : all.gpus) + gpus;
        }
    return all;
}

td__resources td__service_elsewhere(const td__service *s, const td__job_spec *p)
{
    const td__service_config *c = s->config;
    const td__tracker_ops *t = td__tracker_find(*p->tracker ? p->tracker : c->tracker);
    td__resources need = td__service_need(p);

    /* Of hosts that ssh reaches it is known how many slots they have, and GPUs if that is said. */
    if (t && !strcmp(t->name, "ssh"))
        return (td__resources){.gpus = c->gpus < 0 && ssh_capacity(c).gpus < 0 ? need.gpus : 0,
                               .memory_mb = !c->memory_mb ? need.memory_mb : 0};
    return (td__resources){t && t->own_capacity && !c->slots ? need.slots : 0,
                           t && t->own_capacity && c->gpus < 0 ? need.gpus : 0,
                           t && t->own_capacity && !c->memory_mb ? need.memory_mb : 0};
}

static td_status create_scheduler(td__service *s)
{
    const td__service_config *c = s->config;
    struct sysinfo info = {0};

    sysinfo(&info);
    td__resources there = ssh_capacity(c);
    bool ssh = !strcmp(c->tracker, "ssh");
    int64_t slots = ssh && there.slots ? there.slots : td__processors(),
            gpus = ssh && there.gpus >= 0 ? there.gpus : td__gpus_of_machine();
    int64_t memory = (int64_t)((double)info.totalram * info.mem_unit / (1 << 20));
    td__sched_opts o = {.capacity = {c->slots > 0 ? c->slots : slots, c->gpus >= 0 ? c->gpus : gpus,
                                     c->memory_mb > 0 ? c->memory_mb : memory},
                        .max_launching = (int)c->max_launching,
                        .max_pending = (int)c->max_pending,
                        .half_life_s = c->half_life_s,
                        .starve_ms = c->starve_s * 1000,
                        .preempt_ms = c->preempt_s < 0 ? -1 : c->preempt_s * 1000,
                        .launch_timeout_ms = c->launch_timeout_s * 1000};
    TD_TRY(td__sched_create(&o, &s->sched));
    for (int i = 0; i < c->n_quotas; i++) {
        const td__quota_rule *q = &c->quotas[i];
        TD_TRY(td__sched_set_quota(s->sched, q->user,
                                   (td__resources){q->slots, q->gpus, q->memory_mb}, q->queued,
                                   q->weight));
    }
    return TD_OK;
}

static bool apply_quota(void *arg, const td__quota *q)
{
    td__service *s = arg;
    td_status st = td__sched_set_quota(
        s->sched, q->user, (td__resources){q->slots, q->gpus, q->memory_mb}, q->queued, q->weight);

    return st == TD_OK;
}

typedef struct restoring {
    td__service *s;
    td_status st;
} restoring;

static bool restore(void *arg, const td__job_record *found)
{
    restoring *x = arg;
    td__active *a;
    td__job_record *r = NULL;

    x->st = td__job_store_get(x->s->store, found->id, &r);
    if (!x->st && r)
        x->st = td__active_add(x->s, r, &a);
    if (x->st || !r) {
        td__job_record_destroy(r);
        return x->st == TD_OK;
    }
    /* A launch that was written down may or may not have been asked for: start() finds out. One
     * that is to be cancelled anyway is only looked for. */
    a->restored = true;
    a->start = td__service_is_starting(r) && !r->cancel_asked;
    a->adopt = r->state == TD_JOB_RUNNING || (td__service_is_starting(r) && !a->start);
    x->st = td__service_schedule(x->s, a);
    return x->st == TD_OK;
}

static td_status restore_all(td__service *s)
{
    restoring x = {.s = s};
    td__job_filter f = {.states = 1u << TD_JOB_QUEUED | 1u << TD_JOB_PAUSED |
                                  1u << TD_JOB_LAUNCHING | 1u << TD_JOB_PENDING |
                                  1u << TD_JOB_RUNNING};

    TD_TRY(td__job_store_quotas(s->store, apply_quota, s));
    TD_TRY(td__job_store_list(s->store, &f, restore, &x));
    return x.st;
}

td_status td__service_create(const td__service_opts *o, td__service **out)
{
    td_status st = TD_OK;
    td__service *s = td__calloc(1, sizeof *s);
    char path[TD__JOB_PATH + 32];

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "service: out of memory");
    s->o = *o;
    s->config = o->config;
    if (s->config->n_grpc_listen)
        td__service_listens(s, s->config->grpc_listen[0]);
    s->ops_end = &s->ops;
    s->told_end = &s->told;
    s->data_wake_ms = INT64_MAX;
    s->stats.start_ms = td__service_now_ms(s);
    s->timer = (td__timer){.due = on_timer};
    s->commit_hook = (td__turn_hook){.run = on_commit, .arg = s};
    TD_TRY_OR(st, fail, absolute(o->config->data_dir, s->dir));
    TD_TRY_OR(st, fail, td__service_make_dirs(s));
    snprintf(path, sizeof path, "%s/service.db", s->dir);
    td__job_store_opts store = {.full_sync = !strcmp(o->config->store_sync, "full"),
                                .points = o->points};
    TD_TRY_OR(st, fail, td__job_store_open(path, &store, &s->store));
    TD_TRY_OR(st, fail, create_scheduler(s));
    td__tracker *tracker;
    TD_TRY_OR(st, fail, td__service_tracker(s, o->config->tracker, &tracker));
    TD_TRY_OR(st, fail, restore_all(s));
    td__loop_hook(o->loop, TD_TURN_COMMIT, &s->commit_hook);
    td__loop_again(o->loop);
    *out = s;
    return TD_OK;
fail:
    s->commit_hook.run = NULL; /* was not added */
    td__service_destroy(s);
    return st;
}

void td__service_destroy(td__service *s)
{
    if (!s)
        return;
    if (s->commit_hook.run) {
        td__loop_unhook(s->o.loop, TD_TURN_COMMIT, &s->commit_hook);
        td__timer_stop(s->o.loop, &s->timer);
        if (!s->failed && s->store && td__job_store_commit(s->store))
            TD_LOG(ERROR, SERVICE, "%s", td_last_error());
        else if (!s->failed)
            while (s->n_removed)
                td__service_remove_job_dir(s, s->removed[--s->n_removed]);
    }
    td__work_threads_destroy(s->cleaners);
    for (int i = 0; i < TD__MAX_TRACKERS; i++)
        if (s->trackers[i].tracker)
            s->trackers[i].ops->destroy(s->trackers[i].tracker);
    for (size_t i = 0; i < s->n_buckets; i++)
        for (td__active *a = s->active[i], *next; a; a = next) {
            next = a->hash_next;
            td__job_record_destroy(a->r);
            td__free(a);
        }
    for (int32_t i = 0; i < TD__RECENT; i++)
        td__service_set_recent(s, i, NULL);
    release_kept(s);
    for (td__told *t = s->told, *next; t; t = next) {
        next = t->next;
        td__free((char *)(uintptr_t)t->e.text);
        td__free(t);
    }
    td__free(s->kept);
    td__free(s->removed);
    td__free(s->active);
    td__sched_destroy(s->sched);
    td__job_store_close(s->store);
    td__free(s);
}
