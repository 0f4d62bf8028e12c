/* service_run.c -- between scheduler and trackers: actions become records and then requests,
 * reports of trackers become events of the scheduler.
 *
 * Order matters. The state LAUNCHING is committed with its token before the tracker is asked to
 * start it, so that a service that dies in between asks again with the same token, and the tracker
 * starts it once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/sha256.h"
#include "launch/message.h"
#include "remote/url.h"
#include "service/command.h"
#include "service/group_env.h"
#include "service/service_impl.h"

enum { AGAIN_MS = 2000 }; /* before a tracker is asked again */

/* Trackers. */

td_status td__service_tracker(td__service *s, const char *name, td__tracker **out)
{
    const td__tracker_ops *ops = td__tracker_find(*name ? name : s->config->tracker);
    int i = 0;

    *out = NULL;
    if (!ops)
        return TD_FAIL(TD_EINVAL, "there is no tracker '%s'", *name ? name : s->config->tracker);
    while (i < TD__MAX_TRACKERS && s->trackers[i].ops && s->trackers[i].ops != ops)
        i++;
    TD_ASSERT(i < TD__MAX_TRACKERS, "service: too many trackers");
    if (!s->trackers[i].tracker) {
        td__tracker_config c = {.loop = s->o.loop,
                                .config = s->config,
                                .self = s->o.self,
                                .gpus = &s->gpus,
                                .points = s->o.points,
                                .event = td__service_track_event,
                                .arg = s};
        TD_TRY(ops->create(&c, &s->trackers[i].tracker));
        s->trackers[i].ops = ops;
    }
    *out = s->trackers[i].tracker;
    return TD_OK;
}

static void after_commit(td__service *s, td__active *a)
{
    if (a->queued_op)
        return;
    a->queued_op = true;
    a->op_next = NULL;
    *s->ops_end = a;
    s->ops_end = &a->op_next;
    td__service_touch(s);
}

bool td__service_is_starting(const td__job_record *r)
{
    return r->state == TD_JOB_LAUNCHING || r->state == TD_JOB_PENDING;
}

/* A job of the store, or a new one, becomes the scheduler's. */
td_status td__service_schedule(td__service *s, td__active *a)
{
    const td__job_spec *p = a->r->spec;
    bool queued = a->r->state == TD_JOB_QUEUED || a->r->state == TD_JOB_PAUSED;
    const td__tracker_ops *t = td__tracker_find(*p->tracker ? p->tracker : s->config->tracker);
    td__sched_job j = {
        .id = a->r->id,
        .user = p->user,
        .priority = p->priority,
        .need = td__service_need(p),
        .elsewhere = td__service_elsewhere(s, p),
        .queues = t && t->own_capacity,
        .submitted_ms = a->r->submitted_ms,
        .deadline_ms = p->deadline_s ? a->r->submitted_ms + p->deadline_s * 1000 : 0,
        .time_limit_ms = p->time_limit_s * 1000,
        .retries = p->retries,
        .backoff_ms = p->backoff_s * 1000,
        .retry_permanent = p->retry_permanent,
        .preemptible = p->preemptible,
        .state = a->r->state,
        .attempt = a->r->attempt,
        .failures = a->r->failures,
        .not_before_ms = a->r->not_before_ms,
        .launched_ms = a->r->launched_ms,
        .started_ms = a->r->started_ms,
        .cancel_asked = a->r->cancel_asked,
        .pause_asked = a->r->pause_asked,
    };

    a->data_wanted = queued && *p->dataset_id && *p->train_data_version_hash &&
                     !a->r->data_bucket && (s->data.fetch || !s->begun);
    j.held = a->data_wanted;
    if (a->data_wanted)
        td__service_want_data(s, a, 1);
    if (a->start || a->adopt)
        after_commit(s, a);
    return td__sched_add(s->sched, td__service_now_ms(s), &j);
}

/* Actions of the scheduler. */

static void new_token(td__job_record *r)
{
    unsigned char random[6];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        uint64_t now = td__clock_ns(); /* attempts of one job differ by their number anyway */
        memcpy(random, &now, sizeof random);
    }
    snprintf(r->token, sizeof r->token, "job-%d-%d-%02x%02x%02x%02x%02x%02x", r->id, r->attempt,
             random[0], random[1], random[2], random[3], random[4], random[5]);
}

static void launch(td__service *s, td__active *a, const td__sched_action *x)
{
    td__job_record *r = a->r;
    int64_t now = td__service_now_ms(s);

    r->state = TD_JOB_LAUNCHING;
    r->attempt = x->attempt;
    r->launched_ms = now;
    r->started_ms = 0;
    r->exit_status = -1;
    r->exit_class = TD_EXIT_CLASS_NONE;
    td__job_record_say(r, "%s", "");
    new_token(r);
    a->restored = a->again = false;
    td__service_write(s, r);
    td__service_say(s, r, TD_EVENT_ATTEMPT, 0, "%s", r->token);
    a->start = true;
    after_commit(s, a);
    s->stats.launched++;
    s->stats.retried += x->failures > 0;
    s->stats.wait_seconds += (double)(now - r->queued_ms) / 1000;
}

static const char *why_text(td__sched_why why)
{
    switch (why) {
    case TD_WHY_CANCEL: return "cancelled";
    case TD_WHY_PAUSE: return "paused";
    case TD_WHY_RESUME: return "resumed";
    case TD_WHY_PREEMPT: return "preempted by a job of higher priority";
    case TD_WHY_DEADLINE: return "the deadline has passed";
    case TD_WHY_TIME_LIMIT: return "the time limit is exceeded";
    case TD_WHY_LAUNCH_TIMEOUT: return "the group did not start in time";
    default: return "";
    }
}

static void stop(td__service *s, td__active *a, td__sched_why why)
{
    s->stats.preempted += why == TD_WHY_PREEMPT;
    td__service_say(s, a->r, TD_EVENT_NOTE, 0, "stopping: %s", why_text(why));
    a->stop = true;
    after_commit(s, a);
}

/* Messages: what the tracker said about an exit stays; other reasons are said here. */
static void say_why(td__job_record *r, const td__sched_action *x)
{
    char ended[512];

    switch (x->why) {
    case TD_WHY_NONE:
    case TD_WHY_EXIT:
    case TD_WHY_REJECT: break;
    case TD_WHY_RETRY:
        snprintf(ended, sizeof ended, "%.400s", r->message);
        td__job_record_say(r, "attempt %d failed (%s); trying again", x->attempt, ended);
        break;
    case TD_WHY_CANCEL: /* who cancelled may have said why */
        if (strncmp(r->message, "cancelled", strlen("cancelled")) != 0)
            td__job_record_say(r, "cancelled");
        break;
    default: td__job_record_say(r, "%s", why_text(x->why));
    }
}

static void enter_state(td__service *s, td__active *a, const td__sched_action *x)
{
    td__job_record *r = a->r;
    int64_t now = td__service_now_ms(s);

    r->state = x->state;
    r->failures = x->failures;
    r->not_before_ms = x->state == TD_JOB_QUEUED ? x->not_before_ms : 0;
    say_why(r, x);
    if (x->state == TD_JOB_RUNNING)
        r->started_ms = now;
    if (x->state == TD_JOB_QUEUED)
        r->queued_ms = now;
    if (x->state == TD_JOB_QUEUED || x->state == TD_JOB_PAUSED)
        r->pause_asked = false;
    if (td__job_state_final(x->state)) {
        r->finished_ms = now;
        s->stats.finished[x->state]++;
    }
    td__service_write(s, r);
    td__service_say(s, r, TD_EVENT_STATE, 0, "%s", r->message);
    if (td__job_state_final(x->state)) {
        td__service_collect_artifacts(s, r);
        td__active_remove(s, a);
    }
}

void td__service_follow(td__service *s)
{
    td__sched_action x;

    while (td__sched_take(s->sched, &x)) {
        td__active *a = td__active_find(s, x.job);
        if (!a)
            continue;
        switch (x.kind) {
        case TD_SCHED_LAUNCH: launch(s, a, &x); break;
        case TD_SCHED_STOP: stop(s, a, x.why); break;
        case TD_SCHED_STATE: enter_state(s, a, &x); break;
        }
    }
}

/* Requests to trackers. */

/* Nobody has asked the tracker: a new attempt has failed, one of before may run all the same. */
static void could_not_ask(td__service *s, td__active *a)
{
    td__track_event e = {.kind = a->restored ? TD_TRACK_AGAIN : TD_TRACK_FAILED,
                         .token = a->r->token,
                         .text = td_last_error()};

    td__service_track_event(s, &e);
}

static void ask_later(td__service *s, td__active *a)
{
    a->again = true;
    if (!s->again_ms)
        s->again_ms = td__service_now_ms(s) + AGAIN_MS;
    td__service_touch(s);
}

void td__service_ask_again(td__service *s, int64_t now)
{
    if (!s->again_ms || now < s->again_ms)
        return;
    s->again_ms = 0;
    for (size_t i = 0; i < s->n_buckets; i++)
        for (td__active *a = s->active[i]; a; a = a->hash_next)
            if (a->again) {
                a->again = false;
                a->asked_again = true;
                a->start = td__service_is_starting(a->r) && !a->r->cancel_asked;
                a->adopt = !a->start;
                after_commit(s, a);
            }
}

/* "K=V" texts as an array that ends with NULL, in the arena. */
static const char *const *as_array(td__arena *arena, const td__texts *t)
{
    size_t n = 0, at = 0;
    const char *text;

    while (td__texts_next(t->data, t->used, &at))
        n++;
    const char **list = td__arena_alloc(arena, (n + 1) * sizeof *list);
    for (at = n = 0; list && (text = td__texts_next(t->data, t->used, &at));)
        list[n++] = text;
    return list;
}

/* Ranks of tandem meet at the master's port, which rank 0 serves; only who knows the attempt's
 * secret, which is made of ours and its token, may join. */
static td_status add_secret(td__service *s, const td__job_record *r, td__texts *env)
{
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];
    td__text text = {0};

    TD_TRY(td__service_key(s));
    td__text_append(&text, (const char *)s->key, sizeof s->key);
    td__text_add(&text, r->token);
    td_status st = td__text_status(&text);
    if (!st)
        st = td__sha256_of(text.data, text.used, digest);
    td__text_fini(&text);
    TD_TRY(st);
    td__sha256_hex(digest, hex);
    td__texts_add(env, "%s=%s", td__env_name(TD_ENV_SECRET), hex);
    td__texts_add(env, "%s=0", td__env_name(TD_ENV_STORE_RANK));
    return TD_OK;
}

/* Where the job's data set lies; "": not here. */
static void find_data(const td__service *s, const td__job_record *r, char data[TD__JOB_PATH])
{
    const char *bucket = r->data_bucket ? r->data_bucket : "";
    const char *path = r->data_path ? r->data_path : "";

    if (!*bucket || td__service_bucket_path(s, bucket, path, data, TD__JOB_PATH) ||
        access(data, F_OK) != 0)
        data[0] = '\0';
}

/* What a job may reach of this service: its own files, and its data set to be read. */
static td_status add_server(td__service *s, const td__job_record *r, const char *url,
                            const char *data, td__texts *env)
{
    char token[TD__JOB_TOKEN];

    TD_TRY(td__service_job_token(s, r, token));
    td__texts_add(env, "%s=%s", td__env_name(TD_ENV_SERVER), url);
    td__texts_add(env, "%s=%s", td__env_name(TD_ENV_TOKEN), token);
    if (*data) {
        td__text path = {0};
        td__url_encode(&path, r->data_path ? r->data_path : "", true);
        td__texts_add(env, "TRAINING_DATA_URL=%s/v1/buckets/%s%s%s", url, r->data_bucket,
                      path.used ? "/" : "", path.used ? path.data : "");
        td__text_fini(&path);
    }
    return TD_OK;
}

bool td__service_sees_data(const td__service *s, const td__tracker_ops *ops)
{
    char there[TD__JOB_PATH] = "", http[TD_ADDRESS_BYTES + 16];

    if (ops->place)
        ops->place(s->config, "job", there, sizeof there);
    if (!*there)
        return ops->sees_data || ops->shares_dir;
    /* Otherwise hosts see the service's directory. */
    return !td__service_http(s, ops->name, http) && !*s->config->checkpoints_url;
}

/* The place of the job and all that it needs to know, which is the same at every start and adoption
 * of an attempt. */
static td_status prepare(td__service *s, td__active *a, const char *dir, char there[TD__JOB_PATH],
                         const char *data, td__job_command *c, bool *attended, td__texts *env)
{
    const td__tracker_ops *ops = a->tracker->ops;
    char grpc[TD_ADDRESS_BYTES], http[TD_ADDRESS_BYTES + 16];
    char url[TD_ADDRESS_BYTES + TD__DATA_DIR];
    bool reached = td__service_http(s, ops->name, http), ssh = !strcmp(ops->name, "ssh");

    there[0] = '\0';
    if (ops->place)
        ops->place(s->config, a->r->token, there, TD__JOB_PATH);
    bool elsewhere = *there, shares_dir = ops->shares_dir && !elsewhere;
    td__job_place p = {.dir = dir,
                       .there = there,
                       .local = !strcmp(ops->name, "process"),
                       .attended = reached && !shares_dir};
    bool brought = p.attended || (!shares_dir && *s->config->checkpoints_url);

    /* What programs leave in slurm.dir is fetched from there; a job file's run is not moved between
     * attempts but by its checkpoints. Where nothing is brought from hosts, they may see the
     * directory all the same. */
    brought = brought || (elsewhere && ops->shares_dir && !a->r->spec->job_file[0]);
    p.shares_dir = shares_dir || (elsewhere && !brought);
    if (!elsewhere || !brought)
        snprintf(there, TD__JOB_PATH, "%s", dir);
    p.self = p.local ? s->o.self : ssh ? s->config->ssh_program : "tandem";
    if (!shares_dir && *s->config->checkpoints_url)
        snprintf(url, sizeof url, "%s/%d", s->config->checkpoints_url, a->r->id);
    else if (p.attended)
        snprintf(url, sizeof url, "%s/v1/jobs/%d/checkpoints", http, a->r->id);
    else
        url[0] = '\0';
    p.checkpoints = *url ? url : NULL;
    *attended = p.attended && a->r->spec->job_file[0];
    TD_TRY(td__job_command_make(s->config, a->r, &p, c));
    td__advertised(s->config, s->grpc, ops->name, grpc);
    td__job_env(s->config, a->r, grpc, there, p.checkpoints, c->tandem, env);
    if (reached && !p.local)
        TD_TRY(add_server(s, a->r, http, data, env));
    if (*data && (ops->sees_data || shares_dir))
        td__texts_add(env, "TRAINING_DATA_DIR=%s", data);
    if (td__framework_meets(a->r->spec->framework) && !c->own_ranks)
        TD_TRY(add_secret(s, a->r, env));
    return TD_OK;
}

static td_status ask_to_start(td__service *s, td__active *a, bool adopt)
{
    char dir[TD__JOB_PATH], there[TD__JOB_PATH], data[TD__JOB_PATH];
    td__job_command c = {0};
    td__texts env = {0};
    bool attended;
    td_status st = TD_OK;

    TD_TRY(td__service_tracker(s, a->r->spec->tracker, &a->tracker));
    TD_TRY(td__service_make_job_dir(s, a->r->id));
    td__service_job_dir(s, a->r->id, dir, sizeof dir);
    find_data(s, a->r, data);
    TD_TRY_OR(st, done, prepare(s, a, dir, there, data, &c, &attended, &env));
    td__group g = {.token = a->r->token,
                   .job = a->r->id,
                   .attempt = a->r->attempt,
                   .spec = a->r->spec,
                   .dir = dir,
                   .data = data,
                   .env = env.failed ? NULL : as_array(c.arena, &env),
                   .command = c.argv,
                   .image = c.image,
                   .own_ranks = c.own_ranks,
                   .attended = attended};
    if (!g.env) {
        st = TD_FAIL(TD_ENOMEM, "job %d: out of memory", a->r->id);
        goto done;
    }
    TD_TRY_OR(st, done, td__point(s->o.points, TD_POINT_COMM, adopt ? "adopt" : "start"));
    if (adopt)
        a->tracker->ops->adopt(a->tracker, &g);
    else
        a->tracker->ops->start(a->tracker, &g);
    TD_TRY_OR(st, done, td__point(s->o.points, TD_POINT_COMM, "asked"));
done:
    td__texts_fini(&env);
    td__job_command_fini(&c);
    return st;
}

void td__service_ask(td__service *s)
{
    td__active *a;

    while ((a = s->ops)) { /* answers may come within the calls, and end jobs */
        bool start = a->start, adopt = a->adopt, stop_it = a->stop;
        int32_t job = a->r->id;
        s->ops = a->op_next;
        if (!s->ops)
            s->ops_end = &s->ops;
        a->queued_op = a->start = a->adopt = a->stop = false;
        a->op_next = NULL;
        if ((start || adopt) && ask_to_start(s, a, adopt))
            could_not_ask(s, a);
        a = td__active_find(s, job);
        if (stop_it && a && a->tracker && !td__point(s->o.points, TD_POINT_COMM, "stop"))
            a->tracker->ops->signal(a->tracker, a->r->token, TD_TRACK_ALL, TD_TRACK_STOP);
    }
}

/* Reports of trackers. */

/* Token "job-ID-ATTEMPT-...": the job, if it is its current attempt. */
static td__active *of_token(td__service *s, const char *token)
{
    int32_t id;

    if (sscanf(token, "job-%" SCNd32 "-", &id) != 1)
        return NULL;
    td__active *a = td__active_find(s, id);
    return a && !strcmp(a->r->token, token) ? a : NULL;
}

static void ended(td__service *s, td__active *a, const td__track_event *e, td__exit_class how)
{
    a->r->exit_status = e->exit_status;
    a->r->exit_class = how;
    td__service_attempt_ended(s, a->r, e->unsaved);
    if (e->text && *e->text && !a->r->cancel_asked) /* else its message says why */
        td__job_record_say(a->r, "%s", e->text);
    else if (!a->r->cancel_asked)
        td__job_record_say(a->r, "Exit code %d", e->exit_status);
    td__service_touch(s);
    td__sched_ended(s->sched, td__service_now_ms(s), a->r->id, a->r->attempt, how);
}

static void on_end(td__service *s, td__active *a, const td__track_event *e)
{
    td__track_event x = *e;

    if (e->kind == TD_TRACK_FAILED) {
        x.exit_status = -1;
        ended(s, a, &x, e->exit_class ? e->exit_class : TD_EXIT_CLASS_LAUNCH);
    } else if (e->kind == TD_TRACK_UNKNOWN) {
        x.exit_status = -1;
        x.text = e->text ? e->text : "lost: the tracker no longer knows this job";
        ended(s, a, &x, TD_EXIT_CLASS_LOST);
    } else {
        ended(s, a, &x, e->exit_class ? e->exit_class : td__exit_class_of(e->exit_status));
    }
}

/* It waits in the queue of its tracker's system, or no longer. */
static void on_queue(td__service *s, td__active *a, const td__track_event *e)
{
    bool placed = e->kind == TD_TRACK_PLACED;

    if (!td__service_is_starting(a->r))
        return;
    td__job_record_say(a->r, "%s at %s%s%s", placed ? "launching" : "pending",
                       a->tracker->ops->name, e->text ? ": " : "", e->text ? e->text : "");
    td__service_write(s, a->r);
    td__sched_pending(s->sched, td__service_now_ms(s), a->r->id, a->r->attempt, placed);
}

void td__service_track_event(void *arg, const td__track_event *e)
{
    td__service *s = arg;
    td__active *a = of_token(s, e->token);
    td__job_event told = {.member = e->member, .time_ms = td__service_now_ms(s), .text = ""};

    if (e->kind == TD_TRACK_FORGOTTEN)
        td__service_forgotten(s, e->token);
    if (!a || td__point(s->o.points, TD_POINT_COMM, "event"))
        return;
    told.job = a->r->id;
    told.state = a->r->state;
    switch (e->kind) {
    case TD_TRACK_STARTED:
        td__job_record_say(a->r, "%s", ""); /* troubles of its start are over */
        if (a->asked_again && (a->r->cancel_asked || a->r->pause_asked)) {
            a->stop = true;
            after_commit(s, a);
        }
        a->asked_again = false;
        td__sched_started(s->sched, td__service_now_ms(s), a->r->id, a->r->attempt);
        td__service_touch(s);
        break;
    case TD_TRACK_FAILED:
    case TD_TRACK_EXITED:
    case TD_TRACK_UNKNOWN: on_end(s, a, e); break;
    case TD_TRACK_MEMBER_RESTARTED:
        td__service_say(s, a->r, TD_EVENT_MEMBER, e->member, "%s", e->text ? e->text : "");
        break;
    case TD_TRACK_AGAIN: ask_later(s, a); __attribute__((fallthrough));
    case TD_TRACK_TROUBLE:
        td__service_say(s, a->r, TD_EVENT_NOTE, e->member, "%s", e->text ? e->text : "");
        if (td__service_is_starting(a->r) && e->text) { /* what a user sees while it waits */
            td__job_record_say(a->r, "%s", e->text);
            td__service_write(s, a->r);
        }
        break;
    case TD_TRACK_LOG:
        told.kind = TD_EVENT_LOG;
        td__service_tell_now(s, &told);
        break;
    case TD_TRACK_METRICS:
        told.kind = TD_EVENT_METRICS;
        td__service_tell_now(s, &told);
        break;
    case TD_TRACK_PENDING:
    case TD_TRACK_PLACED: on_queue(s, a, e); break;
    case TD_TRACK_FORGOTTEN: break;
    }
}
