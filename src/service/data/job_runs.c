/* job_runs.c -- jobs of shipped algorithms report no run of their own: the service does it for
 * them, from their events and their metrics, so that a client finds their run and their model as it
 * finds those of the book's training code.
 *
 * Events are taken in their order, and the number of the last one is stored in the transaction of
 * what followed from it: after a restart none is lost, and none counts twice. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "service/algorithm.h"
#include "service/data/data_impl.h"

typedef MetadataStore__RunInfo run_t;
typedef MetadataStore__EpochInfo epoch_t;

#define CURSOR_KIND "cursor"
#define CURSOR_KEY "runs"
enum {
    CURSOR_STEP = 1024,      /* events of other jobs of which one moves the cursor */
    MOST_METRICS = 256 << 20 /* bytes: the job writes them */
};

static bool is_shipped(const td__job_spec *s)
{
    return td__algorithm_find(s->algorithm) && !s->job_file[0] && !s->n_command && !s->image[0];
}

/* ---- the run ---- */

static run_t *run_of_job(td__data *d, td__arena *a, const td__job_record *r)
{
    run_t *run = td__arena_alloc(a, sizeof *run);
    MetadataStore__TracingInformation *t = td__arena_alloc(a, sizeof *t);

    if (!run || !t)
        return NULL;
    metadata_store__run_info__init(run);
    metadata_store__tracing_information__init(t);
    run->start_time = td__data_now(d, a);
    run->run_id = td__arena_printf(a, "%d", r->id);
    run->run_name = td__data_text(a, r->spec->name);
    run->message = td__data_text(a, "Running");
    t->dataset_id = td__data_text(a, r->spec->dataset_id);
    t->version_hash = td__data_text(a, r->spec->train_data_version_hash);
    run->tracing = t;
    return run->run_id ? run : NULL;
}

/* The stored run of a job; a new one, its user's, where there is none or where somebody else took
 * the id before there was such a job. */
static td__answer find_or_make(td__data *d, td__arena *a, const td__job_record *r, run_t **out)
{
    const td__caller user = {.user = r->spec->user};
    char id[16];

    snprintf(id, sizeof id, "%d", r->id);
    if (td__run_get(d, a, id, out) == TD_ANSWER_OK &&
        td__data_check_owner(d, &user, TD_DOC_RUN, id) == TD_ANSWER_OK)
        return TD_ANSWER_OK;
    *out = run_of_job(d, a, r);
    return *out ? td__answer_of(td__data_set_owner(d, &user, TD_DOC_RUN, id))
                : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
}

/* ---- its end ---- */

typedef struct end_work {
    td__data_work base;
    run_t *run;
    MetadataStore__GetArtifactResponse *model; /* NULL: it failed */
    char job[TD__BUCKET_PATH];                 /* its directory */
    char labels[TD__BUCKET_PATH];              /* of its data; "": none */
    char to[TD__BUCKET_PATH];                  /* of its model */
    size_t room;                               /* of run->epochs */
} end_work;

/* A validation is an epoch of the book: rank and number, metrics as texts. */
static td_status add_epoch(end_work *e, const json_t *line)
{
    td__arena *a = e->base.arena;
    MetadataStore__RunInfo__EpochsEntry *entry = td__arena_alloc(a, sizeof *entry);
    epoch_t *epoch = td__arena_alloc(a, sizeof *epoch);
    const json_t *metrics = json_object_get(line, "metrics"), *value;
    const char *key;
    run_t *run = e->run;

    if (run->n_epochs == e->room) {
        size_t room = e->room ? 2 * e->room : 16;
        MetadataStore__RunInfo__EpochsEntry **at = td__arena_alloc(a, room * sizeof *at);

        if (at && run->n_epochs)
            memcpy(at, run->epochs, run->n_epochs * sizeof *at);
        run->epochs = at;
        e->room = room;
    }
    if (!entry || !epoch || !run->epochs)
        return TD_FAIL(TD_ENOMEM, "run: out of memory");
    metadata_store__run_info__epochs_entry__init(entry);
    metadata_store__epoch_info__init(epoch);
    epoch->run_id = run->run_id;
    epoch->epoch_id = td__arena_printf(a, "0-%" PRId64,
                                       (int64_t)json_integer_value(json_object_get(line, "epoch")));
    epoch->metrics = td__arena_alloc(a, json_object_size(metrics) * sizeof *epoch->metrics + 1);
    json_object_foreach((json_t *)(uintptr_t)metrics, key, value)
    {
        MetadataStore__EpochInfo__MetricsEntry *m = td__arena_alloc(a, sizeof *m);

        if (!m || !epoch->metrics || !epoch->epoch_id)
            return TD_FAIL(TD_ENOMEM, "run: out of memory");
        metadata_store__epoch_info__metrics_entry__init(m);
        m->key = td__data_text(a, key);
        m->value = td__arena_printf(a, "%.9g", json_number_value(value));
        epoch->metrics[epoch->n_metrics++] = m;
    }
    entry->key = epoch->epoch_id;
    entry->value = epoch;
    run->epochs[run->n_epochs++] = entry;
    return TD_OK;
}

static td_status take_line(end_work *e, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const char *part = json_string_value(json_object_get(line, "part"));
    const json_t *accuracy;

    if (!kind || !part || strcmp(kind, "eval") != 0)
        return TD_OK;
    if (!strcmp(part, "valid"))
        return add_epoch(e, line);
    accuracy = json_object_get(json_object_get(line, "metrics"), "accuracy");
    if (!strcmp(part, "test") && accuracy && e->run->success)
        e->run->message =
            td__arena_printf(e->base.arena, "test accuracy %8.3f", json_number_value(accuracy));
    return TD_OK;
}

static td_status read_metrics(end_work *e)
{
    char path[TD__BUCKET_PATH + 32];
    td__file_map in;
    td_status st = TD_OK;

    snprintf(path, sizeof path, "%s/run/metrics.jsonl", e->job);
    st = td__file_map_copy(&in, path, MOST_METRICS);
    if (st == TD_EINVAL) /* a run without its epochs rather than none */
        TD_LOG(WARN, SERVICE, "%s", td_last_error());
    if (st)
        return TD_OK; /* it ended before its first step */
    for (const char *at = (const char *)in.data, *end = at + in.nbytes, *stop; at < end && !st;
         at = stop + 1) {
        json_t *line;

        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            break;
        line = json_loadb(at, (size_t)(stop - at), 0, NULL);
        st = line ? take_line(e, line) : TD_OK;
        json_decref(line);
    }
    td__file_map_close(&in);
    return st;
}

/* The run's directory without what only training needs: job.yaml, the best checkpoint, labels. */
static td_status copy_model(end_work *e)
{
    char from[TD__BUCKET_PATH + 512], to[TD__BUCKET_PATH + 512], best[256];
    td__file_map in;
    size_t n;
    int files;

    snprintf(from, sizeof from, "%s/run/checkpoints/best", e->job);
    TD_TRY(td__file_map_copy(&in, from, sizeof best));
    n = in.nbytes < sizeof best - 1 ? in.nbytes : sizeof best - 1;
    memcpy(best, in.data, n);
    td__file_map_close(&in);
    best[n] = 0;
    best[strcspn(best, "\n")] = 0;
    if (strchr(best, '/') || best[0] == '.' || !best[0])
        return TD_FAIL(TD_EPROTO, "%s does not name a checkpoint", from);
    snprintf(from, sizeof from, "%s/run/job.yaml", e->job);
    TD_TRY(td__data_copy(from, e->to, NULL, &files));
    snprintf(to, sizeof to, "%s/checkpoints", e->to);
    mkdir(to, 0755); /* what is missing shows when files are copied into it */
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/run/checkpoints/%s", e->job, i ? "best" : "latest");
        TD_TRY(td__data_copy(from, to, NULL, &files));
    }
    snprintf(from, sizeof from, "%s/run/checkpoints/%s", e->job, best);
    snprintf(to, sizeof to, "%s/checkpoints/%s", e->to, best);
    mkdir(to, 0755);
    TD_TRY(td__data_copy(from, to, NULL, &files));
    return e->labels[0] ? td__data_copy(e->labels, e->to, NULL, &files) : TD_OK;
}

static td_status run_end(td__data_work *w)
{
    end_work *e = (end_work *)w;

    TD_TRY(read_metrics(e));
    if (e->model)
        TD_TRY(copy_model(e));
    if (w->data->config->metadata_service[0] && td__run_tell_other(w->data, e->run))
        TD_LOG(WARN, SERVICE, "the run of job %s was kept here only: %s", e->run->run_id,
               td_last_error());
    return TD_OK;
}

static td__answer finish_end(td__data_work *w, ProtobufCMessage **out)
{
    end_work *e = (end_work *)w;
    td_status st;

    (void)out;
    w->data->ending--;
    if (w->st) {
        TD_LOG(WARN, SERVICE, "the model of job %s was not stored: %s", e->run->run_id, w->error);
        e->model = NULL;
    }
    st = td__doc_put(w->data, TD_DOC_RUN, e->run->run_id, &e->run->base);
    if (!st && e->model)
        st = td__doc_put(w->data, TD_DOC_MODEL, e->run->run_id, &e->model->base);
    return td__answer_of(st);
}

static td__answer name_model(td__data *d, end_work *e, const td__job_record *r)
{
    td__answer a;

    if (r->data_bucket && r->data_path) {
        char key[TD__BUCKET_PATH];

        snprintf(key, sizeof key, "%s/labels.csv", r->data_path);
        a = td__service_bucket_path(d->service, r->data_bucket, key, e->labels, sizeof e->labels);
        if (a)
            return a;
    }
    e->model = td__arena_alloc(e->base.arena, sizeof *e->model);
    return e->model ? td__model_name(d, e->base.arena, r->spec->output_model_name, e->run->run_id,
                                     r->spec->algorithm, e->model, e->to)
                    : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
}

static td__answer start_end(td__data *d, const td__job_record *r)
{
    end_work *e = td__calloc(1, sizeof *e);
    td__answer a = e && !td__arena_create(&e->base.arena)
                       ? TD_ANSWER_OK
                       : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");

    if (!a)
        a = find_or_make(d, e->base.arena, r, &e->run);
    if (!a) {
        e->base.run = run_end;
        e->base.finish = finish_end;
        e->run->end_time = td__data_now(d, e->base.arena);
        e->run->success = r->state == TD_JOB_SUCCEEDED;
        e->run->message = td__data_text(e->base.arena, r->message);
        e->run->n_epochs = 0; /* read again: an earlier attempt may have ended here before */
        td__service_job_dir(d->service, r->id, e->job, sizeof e->job);
        if (e->run->success)
            a = name_model(d, e, r);
    }
    if (!a) {
        d->ending++;
        td__data_work_start(d, &e->base);
        return a;
    }
    if (e)
        td__arena_destroy(e->base.arena);
    td__free(e);
    return a;
}

/* ---- waiting for them ---- */

typedef struct settled {
    td__data_work base;
    void (*fn)(void *arg);
    void *arg;
} settled;

static td_status run_nothing(td__data_work *w)
{
    (void)w;
    return TD_OK;
}

static td__answer finish_nothing(td__data_work *w, ProtobufCMessage **out)
{
    (void)w;
    (void)out;
    return TD_ANSWER_OK;
}

static void settled_done(void *arg, td__answer a, const ProtobufCMessage *m)
{
    settled *s = arg;

    (void)a;
    (void)m;
    s->fn(s->arg);
}

/* Work is done in order: what is handed in now is done after them. */
void td__runs_settled(td__data *d, void (*fn)(void *arg), void *arg)
{
    settled *s = d->ending ? td__calloc(1, sizeof *s) : NULL;

    if (!s) { /* none, or out of memory: the run as it is */
        fn(arg);
        return;
    }
    s->fn = fn;
    s->arg = arg;
    s->base.run = run_nothing;
    s->base.finish = finish_nothing;
    s->base.done = settled_done;
    s->base.arg = s;
    td__data_work_start(d, &s->base);
}

/* ---- events ---- */

static td__answer start_run(td__data *d, const td__job_record *r)
{
    td__arena *arena;
    run_t *run;
    td__answer a = td__answer_of(td__arena_create(&arena));

    if (a)
        return a;
    a = find_or_make(d, arena, r, &run);
    if (!a)
        a = td__answer_of(td__doc_put(d, TD_DOC_RUN, run->run_id, &run->base));
    td__arena_destroy(arena);
    return a;
}

static void on_event(void *arg, const td__job_event *e)
{
    td__data *d = arg;
    bool final = td__job_state_final(e->state);
    const td__job_record *r;
    td__answer a = TD_ANSWER_OK;
    char seq[24];

    if (e->kind != TD_EVENT_STATE || !e->seq || (e->state != TD_JOB_RUNNING && !final))
        return;
    if (td__service_get(d->service, e->job, &r) == TD_ANSWER_OK && is_shipped(r->spec))
        a = final ? start_end(d, r) : start_run(d, r);
    else if (e->seq % CURSOR_STEP)
        return; /* read again after a restart, to no effect */
    snprintf(seq, sizeof seq, "%" PRId64, e->seq);
    if (a || td__job_store_put(d->store, CURSOR_KIND, CURSOR_KEY, seq))
        TD_LOG(WARN, SERVICE, "the run of job %d was not stored: %s", e->job, td_last_error());
}

td_status td__job_runs_start(td__data *d)
{
    char *value;
    int64_t after = 0;

    TD_TRY(td__job_store_value(d->store, CURSOR_KIND, CURSOR_KEY, &value));
    if (value)
        after = strtoll(value, NULL, 10);
    td__free(value);
    return td__service_subscribe(d->service, 0, after, on_event, d, &d->events);
}
