/* sweeps_store.c -- a sweep as a document of the store, kind "sweep", and as JSON for clients.
 *
 * The document holds the text as submitted and what became of each trial; values of trials follow
 * from the text. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "service/sweep/sweeps_impl.h"

static const char *const STATES[] = {
#define X(id, name) name,
    TD_SWEEP_STATE_MAP(X)
#undef X
};

const char *td__sweep_state_name(td__sweep_state s)
{
    return STATES[s];
}

td_status td__sweep_run_create(int64_t id, const char *text, size_t nbytes, td__sweep_run **out)
{
    td__sweep_run *r = td__calloc(1, sizeof *r);
    td_status st;
    *out = NULL;
    if (!r)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    r->id = id;
    TD_TRY_OR(st, failed, td__sweep_parse(text, nbytes, "sweep", &r->plan));
    r->text = td__malloc(nbytes + 1);
    r->trials = td__calloc((size_t)r->plan->trials, sizeof *r->trials);
    if (!r->text || !r->trials) {
        st = TD_FAIL(TD_ENOMEM, "out of memory");
        goto failed;
    }
    memcpy(r->text, text, nbytes);
    r->text[nbytes] = 0;
    *out = r;
    return TD_OK;
failed:
    td__sweep_run_destroy(r);
    return st;
}

void td__sweep_run_destroy(td__sweep_run *r)
{
    if (!r)
        return;
    td__asha_fini(&r->asha);
    td__sweep_destroy(r->plan);
    td__free(r->trials);
    td__free(r->text);
    td__free(r->user);
    td__free(r);
}

/* ---- the document ---- */

td_status td__sweep_run_save(td__sweeps *w, td__sweep_run *r)
{
    td__text t = {0};
    char key[32];
    td__text_add(&t, "{\"text\":");
    td__text_json(&t, r->text);
    td__text_add(&t, ",\"user\":");
    td__text_json(&t, r->user);
    td__text_printf(&t, ",\"admin\":%s,\"state\":%d,\"created_ms\":%" PRId64 ",\"message\":",
                    r->admin ? "true" : "false", (int)r->state, r->created_ms);
    td__text_json(&t, r->message);
    td__text_add(&t, ",\"trials\":[");
    for (int i = 0; i < r->started; i++) {
        const td__trial *k = &r->trials[i];
        td__text_printf(&t,
                        "%s{\"job\":%d,\"rung\":%d,\"stopped\":%s,\"step\":%" PRId64 ",\"best\":",
                        i ? "," : "", (int)k->job, k->rung, k->stopped ? "true" : "false", k->step);
        td__text_json_number(&t, k->has ? k->best : (double)NAN, 17);
        td__text_add(&t, "}");
    }
    td__text_add(&t, "],\"rungs\":[");
    for (int i = 0; i < r->asha.n_rungs; i++) {
        td__text_add(&t, i ? ",[" : "[");
        for (int k = 0; k < r->asha.rungs[i].n; k++) {
            td__text_add(&t, k ? "," : "");
            td__text_json_number(&t, r->asha.rungs[i].values[k], 17);
        }
        td__text_add(&t, "]");
    }
    td__text_add(&t, "]}");
    snprintf(key, sizeof key, "%012" PRId64, r->id);
    td_status st = td__text_status(&t);
    if (!st)
        st = td__job_store_put(td__service_store(w->service), "sweep", key, t.data);
    td__text_fini(&t);
    return st;
}

static td_status load_rungs(td__sweep_run *r, const json_t *rungs)
{
    size_t i, k;
    json_t *rung, *value;
    json_array_foreach(rungs, i, rung) json_array_foreach(rung, k, value)
    {
        TD_TRY(td__asha_put(&r->asha, (int)i, json_number_value(value)));
    }
    return TD_OK;
}

static void load_trials(td__sweeps *w, td__sweep_run *r, const json_t *trials)
{
    size_t i;
    json_t *o;
    json_array_foreach(trials, i, o)
    {
        const td__job_record *j;
        const json_t *best = json_object_get(o, "best");
        if ((int64_t)i >= r->plan->trials)
            return;
        td__trial *t = &r->trials[r->started++];
        *t = (td__trial){.job = (int32_t)json_integer_value(json_object_get(o, "job")),
                         .rung = (int)json_integer_value(json_object_get(o, "rung")),
                         .stopped = json_is_true(json_object_get(o, "stopped")),
                         .step = json_integer_value(json_object_get(o, "step")),
                         .has = json_is_number(best),
                         .best = json_number_value(best)};
        /* A trial that was deleted has ended. */
        t->state = td__service_get(w->service, t->job, &j) ? TD_JOB_CANCELLED : j->state;
        t->again = !td__job_state_final(t->state);
    }
}

typedef struct loading {
    td__sweeps *w;
    td_status st;
} loading;

static bool load_one(void *arg, const char *key, const char *value)
{
    loading *l = arg;
    td__sweep_run *r = NULL;
    json_t *o = json_loads(value, 0, NULL);
    const char *text = json_string_value(json_object_get(o, "text"));
    const char *user = json_string_value(json_object_get(o, "user"));
    const char *message = json_string_value(json_object_get(o, "message"));
    if (!text || !user)
        l->st = TD_FAIL(TD_EPROTO, "sweep %s in the store is damaged", key);
    else
        l->st = td__sweep_run_create(strtoll(key, NULL, 10), text, strlen(text), &r);
    if (!l->st) {
        r->user = td__strdup(user);
        r->admin = json_is_true(json_object_get(o, "admin"));
        r->state = (td__sweep_state)(json_integer_value(json_object_get(o, "state")) %
                                     TD_SWEEP_STATE_COUNT);
        r->created_ms = json_integer_value(json_object_get(o, "created_ms"));
        snprintf(r->message, sizeof r->message, "%s", message ? message : "");
        load_trials(l->w, r, json_object_get(o, "trials"));
        l->st = r->user ? load_rungs(r, json_object_get(o, "rungs"))
                        : TD_FAIL(TD_ENOMEM, "out of memory");
    }
    if (l->st) {
        td__sweep_run_destroy(r);
    } else {
        r->next = l->w->runs;
        l->w->runs = r;
    }
    json_decref(o);
    return !l->st;
}

td_status td__sweeps_load(td__sweeps *w)
{
    loading l = {.w = w};
    TD_TRY(td__job_store_values(td__service_store(w->service), "sweep", load_one, &l));
    return l.st;
}

/* ---- for clients ---- */

static void trial_json(const td__sweep_run *r, int i, td__text *out)
{
    const td__trial *t = &r->trials[i];
    char value[TD__SWEEP_VALUE];
    td__text_printf(out,
                    "%s{\"trial\":%d,\"job\":%d,\"state\":\"%s\",\"step\":%" PRId64
                    ",\"rung\":%d,\"value\":",
                    i ? "," : "", i, (int)t->job,
                    t->stopped ? "stopped" : td__job_state_name(t->state), t->step, t->rung);
    td__text_json_number(out, t->has ? t->best : (double)NAN, 9);
    td__text_add(out, ",\"parameters\":{");
    for (int d = 0; d < r->plan->n_dims; d++) {
        td__text_add(out, d ? "," : "");
        td__text_json(out, r->plan->dims[d].name);
        td__text_add(out, ":");
        td__text_json(out, td__sweep_value(r->plan, i, d, value));
    }
    td__text_add(out, "}}");
}

void td__sweep_run_json(const td__sweep_run *r, td__text *out)
{
    const td__trial *best = td__sweep_best(r);
    td__text_printf(out, "{\"id\":%" PRId64 ",\"name\":", r->id);
    td__text_json(out, r->plan->name);
    td__text_add(out, ",\"user\":");
    td__text_json(out, r->user);
    td__text_printf(out, ",\"state\":\"%s\",\"message\":", td__sweep_state_name(r->state));
    td__text_json(out, r->message);
    td__text_printf(out, ",\"search\":\"%s\",\"metric\":", r->plan->search);
    td__text_json(out, r->plan->metric);
    td__text_printf(
        out, ",\"goal\":\"%s\",\"total\":%" PRId64 ",\"finished\":%d,\"created_ms\":%" PRId64,
        td__sweep_lower(r->plan) ? "min" : "max", r->plan->trials, td__sweep_finished(r),
        r->created_ms);
    if (best) {
        td__text_printf(out, ",\"best\":{\"job\":%d,\"value\":", (int)best->job);
        td__text_json_number(out, best->best, 9);
        td__text_add(out, "}");
    }
    td__text_add(out, ",\"trials\":[");
    for (int i = 0; i < r->started; i++)
        trial_json(r, i, out);
    td__text_add(out, "]}");
}
