/* service_jobs.c -- what clients ask of jobs: submit, look, list, cancel, pause, resume, delete. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/key.h"
#include "service/service_impl.h"
#include "service/spec.h"

enum { OLD_MOST = 1000 }; /* old jobs that are deleted at once */

static td__answer no_such_job(int32_t job)
{
    return td__answer_fail(TD_ANSWER_NOT_FOUND, "Job %d doesn't exist", job);
}

td__answer td__service_get(td__service *s, int32_t job, const td__job_record **out)
{
    td__active *a = td__active_find(s, job);
    td__job_record *r = NULL;

    *out = a ? a->r : NULL;
    if (a)
        return TD_ANSWER_OK;
    if (job <= 0)
        return no_such_job(job);
    r = s->recent[job % TD__RECENT];
    if (!r || r->id != job) {
        td_status st = td__job_store_get(s->store, job, &r);
        if (st)
            return td__answer_of(st);
        if (!r)
            return no_such_job(job);
        td__service_set_recent(s, job, r);
    }
    *out = r;
    return TD_ANSWER_OK;
}

td__answer td__service_find_own(td__service *s, const td__caller *who, int32_t job,
                                const td__job_record **out)
{
    td__answer a = td__service_get(s, job, out);

    if (a)
        return a;
    if (!who->admin && strcmp(who->user, (*out)->spec->user) != 0)
        return td__answer_fail(TD_ANSWER_DENIED, "job %d belongs to another user", job);
    return TD_ANSWER_OK;
}

static td__answer check_room(td__service *s, const td__job_spec *spec)
{
    const td__service_config *c = s->config;
    td__resources need = td__service_need(spec);
    int queued = td__sched_queued_of(s->sched, spec->user);

    if (s->n_active >= c->max_queued)
        return td__answer_fail(TD_ANSWER_EXHAUSTED,
                               "the service has %d jobs, schedule.max_queued; try again later",
                               s->n_active);
    int64_t most = td__sched_most_queued(s->sched, spec->user);
    if (most >= 0 && queued >= most)
        return td__answer_fail(TD_ANSWER_EXHAUSTED,
                               "%s has %d queued jobs, the quota; try again later", spec->user,
                               queued);
    if (!td__sched_fits(s->sched, spec->user, need, td__service_elsewhere(s, spec))) {
        td__resources all = td__sched_capacity(s->sched);
        return td__answer_fail(TD_ANSWER_INVALID,
                               "the job needs %" PRId64 " slots, %" PRId64 " GPUs and %" PRId64
                               " MiB and can never run: the service has %" PRId64 ", %" PRId64
                               " and %" PRId64 ", and a quota may allow less",
                               need.slots, need.gpus, need.memory_mb, all.slots, all.gpus,
                               all.memory_mb);
    }
    return TD_ANSWER_OK;
}

static td__answer insert(td__service *s, td__job_record *r, const char *key, int32_t *job)
{
    td__active *a = NULL;
    td_status st = td__job_store_insert(s->store, r, key);

    if (!st)
        st = td__active_add(s, r, &a);
    if (!st)
        st = td__service_schedule(s, a);
    if (st) {
        char text[512];
        snprintf(text, sizeof text, "%s", td_last_error());
        if (r->id && td__job_store_delete(s->store, r->id))
            s->failed = true; /* half of it cannot be taken back: the commit fails */
        if (a)
            td__active_remove(s, a);
        else
            td__job_record_destroy(r);
        return td__answer_fail(TD_ANSWER_INTERNAL, "%s", text);
    }
    *job = r->id;
    s->stats.submitted++;
    td__service_say(s, r, TD_EVENT_STATE, 0, "submitted");
    return TD_ANSWER_OK;
}

td__answer td__service_submit(td__service *s, const td__caller *who, td__job_spec *spec,
                              const char *key, bool strict, int32_t *job)
{
    td__answer a = TD_ANSWER_OK;

    *job = 0;
    if (!*spec->user || !who->admin)
        spec->user = td__spec_text(spec, who->user);
    if (key && *key) {
        a = td__answer_of(td__job_store_by_key(s->store, spec->user, key, job));
        if (a || *job) {
            td__spec_destroy(spec);
            return a;
        }
    }
    a = td__service_check_spec(s, who, spec, strict);
    if (!a)
        a = check_room(s, spec);
    td__job_record *r = a ? NULL : td__calloc(1, sizeof *r);
    if (r)
        r->message = td__strdup("");
    if (!r || !r->message) {
        td__free(r);
        td__spec_destroy(spec);
        return a ? a : td__answer_fail(TD_ANSWER_INTERNAL, "out of memory");
    }
    r->spec = spec;
    r->exit_status = -1;
    r->submitted_ms = r->queued_ms = td__service_now_ms(s);
    return insert(s, r, key, job);
}

td__answer td__service_cancel(td__service *s, const td__caller *who, int32_t job, const char *why)
{
    const td__job_record *r;
    td__answer answer = td__service_find_own(s, who, job, &r);
    td__active *a = td__active_find(s, job);

    if (answer)
        return answer;
    if (!a) /* asked for twice, or too late */
        return r->state == TD_JOB_CANCELLED
                   ? TD_ANSWER_OK
                   : td__answer_fail(TD_ANSWER_STATE, "job %d has ended: it is %s", job,
                                     td__job_state_name(r->state));
    a->r->cancel_asked = true;
    if (why && *why)
        td__job_record_say(a->r, "cancelled: %s", why);
    td__service_write(s, a->r);
    td__sched_cancel(s->sched, td__service_now_ms(s), job);
    return TD_ANSWER_OK;
}

td__answer td__service_pause(td__service *s, const td__caller *who, int32_t job)
{
    const td__job_record *r;
    td__answer answer = td__service_find_own(s, who, job, &r);
    td__active *a = td__active_find(s, job);

    if (answer || (a && a->r->state == TD_JOB_PAUSED))
        return answer;
    if (!a || !td__sched_pause(s->sched, td__service_now_ms(s), job))
        return td__answer_fail(TD_ANSWER_STATE, "job %d is %s and cannot be paused", job,
                               td__job_state_name(r->state));
    a->r->pause_asked = true;
    td__service_write(s, a->r);
    return TD_ANSWER_OK;
}

td__answer td__service_resume(td__service *s, const td__caller *who, int32_t job)
{
    const td__job_record *r;
    td__answer answer = td__service_find_own(s, who, job, &r);
    td__active *a = td__active_find(s, job);

    if (answer)
        return answer;
    if (!a || !td__sched_resume(s->sched, td__service_now_ms(s), job))
        return td__answer_fail(TD_ANSWER_STATE, "job %d is %s, not paused", job,
                               td__job_state_name(r->state));
    td__service_touch(s);
    return TD_ANSWER_OK;
}

/* After the commit: a job that is still there if it fails keeps its files. */
static void files_go(td__service *s, int32_t job)
{
    if (s->n_removed == s->room_removed) {
        size_t room = s->room_removed ? 2 * s->room_removed : 64;
        int32_t *more = td__realloc(s->removed, room * sizeof *more);
        if (!more)
            return; /* they stay */
        s->removed = more;
        s->room_removed = room;
    }
    s->removed[s->n_removed++] = job;
}

static td__answer delete_job(td__service *s, int32_t job, const char *tracker_name,
                             const char *token)
{
    td__service_forget_job(s, job, tracker_name, token);
    td__answer a = td__answer_of(td__job_store_delete(s->store, job));
    td__service_set_recent(s, job, NULL);
    td__service_touch(s);
    if (!a)
        files_go(s, job);
    return a;
}

td__answer td__service_delete(td__service *s, const td__caller *who, int32_t job)
{
    const td__job_record *r;
    td__answer answer = td__service_find_own(s, who, job, &r);

    if (answer)
        return answer;
    if (!td__job_state_final(r->state))
        return td__answer_fail(TD_ANSWER_STATE, "job %d is %s; cancel it first", job,
                               td__job_state_name(r->state));
    return delete_job(s, job, r->spec->tracker, r->token);
}

td__answer td__service_retry(td__service *s, const td__caller *who, int32_t job, int32_t *another)
{
    const td__job_record *r;
    td__job_spec *spec, *none;
    td__text json = {0};
    td__answer a = td__service_find_own(s, who, job, &r);

    *another = 0;
    if (a)
        return a;
    td_status st = td__spec_create(&none);
    td__spec_json(r->spec, &json);
    if (!st)
        st = td__text_status(&json);
    if (!st)
        st = td__spec_parse(json.data, json.used, "job", &spec);
    td__text_fini(&json);
    td__spec_destroy(none);
    if (st)
        return td__answer_of(st);
    spec->sweep = 0; /* not a trial of it: a sweep starts its own */
    return td__service_submit(s, who, spec, NULL, false, another);
}

int td__service_position(td__service *s, int32_t job)
{
    int position = td__sched_position(s->sched, job);

    return position > 0 ? position : 0;
}

char *td__service_book_message(td__service *s, const td__job_record *r, char *buf, size_t nbytes)
{
    bool exited = r->exit_class == TD_EXIT_CLASS_OK || r->exit_class == TD_EXIT_CLASS_PERMANENT ||
                  r->exit_class == TD_EXIT_CLASS_RETRYABLE;

    if (td__job_state_book(r->state) == 0)
        snprintf(buf, nbytes, "Queueing, there are %d training jobs waiting before this.",
                 td__service_position(s, r->id));
    else if (td__job_state_book(r->state) == 1 || r->state == TD_JOB_RUNNING)
        buf[0] = '\0';
    else if (r->state != TD_JOB_CANCELLED && exited && r->exit_status >= 0)
        snprintf(buf, nbytes, "Exit code %d", r->exit_status);
    else
        snprintf(buf, nbytes, "%s", r->message);
    return buf;
}

/* Lists. */

typedef struct listing {
    td__service *s;
    td__job_each each;
    void *arg;
    int n, limit;
    int32_t last;
} listing;

static bool list_one(void *arg, const td__job_record *r)
{
    listing *l = arg;

    l->n++;
    l->last = r->id;
    return l->each(l->arg, r) && l->n < l->limit;
}

static const td__job_record *in_memory(void *arg, int32_t job)
{
    const td__active *a = td__active_find(arg, job);

    return a ? a->r : NULL;
}

td__answer td__service_list(td__service *s, const td__job_filter *given, const char *page_token,
                            td__job_each each, void *arg, char *next)
{
    td__job_filter f = *given;
    int limit = f.limit > 0 && f.limit < TD__PAGE_MOST ? f.limit : TD__PAGE_MOST;
    listing l = {.s = s, .each = each, .arg = arg, .limit = limit};
    int64_t before = 0;

    next[0] = '\0';
    if (page_token && *page_token &&
        (!td__parse_int(page_token, &before) || before < 1 || before > INT32_MAX))
        return td__answer_fail(TD_ANSWER_INVALID, "page_token: expected what an earlier page gave");
    if (before)
        f.before = (int32_t)before;
    f.limit = limit + 1; /* is there a page after this one? */
    td_status st = td__job_store_list_known(s->store, &f, in_memory, s, list_one, &l);
    if (st)
        return td__answer_of(st);
    if (l.n == limit && l.last > 1)
        snprintf(next, TD__PAGE_TOKEN, "%d", l.last);
    return TD_ANSWER_OK;
}

static td__answer parse_states(char *text, unsigned *out)
{
    for (char *word = text, *end; word; word = end) {
        td__job_state state;
        end = strchr(word, ',');
        if (end)
            *end++ = '\0';
        if (!td__job_state_parse(word, &state))
            return td__answer_fail(TD_ANSWER_INVALID,
                                   "filter: there is no state '%s' (queued, paused, launching, "
                                   "pending, running, succeeded, failed, cancelled)",
                                   word);
        *out |= 1u << state;
    }
    return TD_ANSWER_OK;
}

td__answer td__job_filter_parse(td__arena *a, const char *text, td__job_filter *out)
{
    enum { MOST_LABELS = 16 };
    td__pair *labels = td__arena_alloc(a, MOST_LABELS * sizeof *labels);
    char *rest = td__arena_strdup(a, text ? text : "");

    *out = (td__job_filter){0};
    if (!labels || !rest)
        return td__answer_fail(TD_ANSWER_INTERNAL, "out of memory");
    out->labels.at = labels;
    for (char *word = rest + strspn(rest, " "), *end; *word; word = end) {
        char *equals = strchr(word, '=');
        int64_t sweep;
        end = word + strcspn(word, " ");
        end += *end ? (*end = '\0', 1) : 0;
        end += strspn(end, " ");
        if (!equals || equals > word + strlen(word))
            return td__answer_fail(TD_ANSWER_INVALID, "filter: expected key=value, found '%s'",
                                   word);
        *equals++ = '\0';
        if (!strcmp(word, "state")) {
            td__answer answer = parse_states(equals, &out->states);
            if (answer)
                return answer;
        } else if (!strcmp(word, "user")) {
            out->user = equals;
        } else if (!strcmp(word, "name")) {
            out->name = equals;
        } else if (!strcmp(word, "algorithm")) {
            out->algorithm = equals;
        } else if (!strcmp(word, "sweep") && td__parse_int(equals, &sweep)) {
            out->sweep = sweep;
        } else if (!strncmp(word, "label.", 6) && out->labels.n < MOST_LABELS) {
            labels[out->labels.n++] = (td__pair){word + 6, equals};
        } else {
            return td__answer_fail(TD_ANSWER_INVALID,
                                   "filter: unknown key '%s' (state, user, name, algorithm, "
                                   "sweep, label.KEY)",
                                   word);
        }
    }
    return TD_ANSWER_OK;
}

/* Clean-up by age. */

typedef struct old_jobs {
    int64_t before_ms;
    int n;
    struct {
        int32_t id;
        char tracker[32], token[TD__TOKEN];
    } jobs[OLD_MOST];
} old_jobs;

static bool note_old(void *arg, const td__job_record *r)
{
    old_jobs *o = arg;

    if (r->finished_ms && r->finished_ms < o->before_ms) {
        o->jobs[o->n].id = r->id;
        snprintf(o->jobs[o->n].tracker, sizeof o->jobs[0].tracker, "%s", r->spec->tracker);
        snprintf(o->jobs[o->n].token, sizeof o->jobs[0].token, "%s", r->token);
        o->n++;
    }
    return o->n < OLD_MOST;
}

void td__service_delete_old(td__service *s, int64_t now)
{
    old_jobs *o = td__calloc(1, sizeof *o);

    if (!o)
        return; /* next time */
    o->before_ms = now - s->config->keep_s * 1000;
    if (!td__job_store_list_ended(s->store, o->before_ms, OLD_MOST, note_old, o))
        for (int i = 0; i < o->n; i++)
            if (delete_job(s, o->jobs[i].id, o->jobs[i].tracker, o->jobs[i].token))
                break;
    td__free(o);
}

/* Quotas and numbers. */

td__answer td__service_set_quota(td__service *s, const td__caller *who, const td__quota *q)
{
    if (!who->admin)
        return td__answer_fail(TD_ANSWER_DENIED, "quotas are set by admins");
    if (!q->user || !*q->user || !(q->weight > 0))
        return td__answer_fail(TD_ANSWER_INVALID, "expected a user and a weight above 0");
    td_status st = td__job_store_quota(s->store, q);
    if (!st)
        st =
            td__sched_set_quota(s->sched, q->user, (td__resources){q->slots, q->gpus, q->memory_mb},
                                q->queued, q->weight);
    td__service_touch(s);
    return td__answer_of(st);
}

td__answer td__service_remove_quota(td__service *s, const td__caller *who, const char *user)
{
    const td__service_config *c = s->config;
    bool found;

    if (!who->admin)
        return td__answer_fail(TD_ANSWER_DENIED, "quotas are set by admins");
    td_status st = td__job_store_delete_quota(s->store, user, &found);
    if (!st && !found)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "no quota was set for '%s'", user);
    if (!st)
        td__sched_unset_quota(s->sched, user);
    for (int i = 0; i < c->n_quotas && !st; i++) {
        const td__quota_rule *q = &c->quotas[i];
        if (!strcmp(q->user, user))
            st = td__sched_set_quota(s->sched, user,
                                     (td__resources){q->slots, q->gpus, q->memory_mb}, q->queued,
                                     q->weight);
    }
    td__service_touch(s);
    return td__answer_of(st);
}

td_status td__service_quotas(td__service *s, td__quota_each each, void *arg)
{
    for (int i = 0; i < s->config->n_quotas; i++) {
        const td__quota_rule *r = &s->config->quotas[i];
        td__quota q = {r->user, r->slots, r->gpus, r->memory_mb, r->queued, r->weight};
        if (!each(arg, &q))
            return TD_OK;
    }
    return td__job_store_quotas(s->store, each, arg);
}

void td__service_get_stats(td__service *s, td__service_stats *out)
{
    td__resources all = td__sched_capacity(s->sched), used = td__sched_used(s->sched);

    *out = s->stats;
    if (td__job_store_count(s->store, out->jobs))
        memset(out->jobs, 0, sizeof out->jobs);
    out->slots = all.slots;
    out->slots_used = used.slots;
    out->gpus = all.gpus;
    out->gpus_used = used.gpus;
    out->memory_mb = all.memory_mb;
    out->memory_mb_used = used.memory_mb;
}

void td__service_users(td__service *s, bool (*each)(void *arg, const td__user_usage *u), void *arg)
{
    td__sched_user u;

    for (int i = 0; td__sched_user_at(s->sched, td__service_now_ms(s), i, &u); i++)
        if (!each(arg, &(td__user_usage){.user = u.name,
                                         .slots = u.used.slots,
                                         .gpus = u.used.gpus,
                                         .memory_mb = u.used.memory_mb,
                                         .queued = u.queued,
                                         .usage = u.past,
                                         .weight = u.weight}))
            return;
}
