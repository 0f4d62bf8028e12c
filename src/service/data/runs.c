/* runs.c -- what training programs report of themselves, and the models that they register. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/key.h"
#include "service/data/data_impl.h"

typedef MetadataStore__RunInfo run_t;
typedef MetadataStore__GetArtifactResponse model_t;
typedef DataManagement__FileInfo file_t;

static td__answer out_of_memory(void)
{
    return td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
}

/* ---- runs ---- */

static td__answer find_run(td__data *d, td__arena *a, const char *run, run_t **out)
{
    ProtobufCMessage *m;
    td_status st = td__doc_get(d, a, TD_DOC_RUN, run, &metadata_store__run_info__descriptor, &m);

    *out = (run_t *)m;
    return td__answer_of(st);
}

td__answer td__run_get(td__data *d, td__arena *a, const char *run, run_t **out)
{
    td__answer answer = find_run(d, a, run, out);

    if (!answer && !*out)
        answer = td__answer_fail(TD_ANSWER_NOT_FOUND, "Run %s doesn't exist", run);
    return answer;
}

/* The run of a job is its user's, who may not have started it yet. */
static td__answer check_job(td__data *d, const td__caller *who, const char *run)
{
    const td__job_record *r;
    int64_t id;

    if (who->admin || !td__parse_int(run, &id) || id < 1 || id > INT32_MAX ||
        td__service_get(d->service, (int32_t)id, &r) || !strcmp(r->spec->user, who->user))
        return TD_ANSWER_OK;
    return td__answer_fail(TD_ANSWER_DENIED, "job %s belongs to another user", run);
}

td__answer td__run_start(td__data *d, const td__caller *who, td__arena *a,
                         const MetadataStore__LogRunStartRequest *q,
                         MetadataStore__LogRunStartResponse **out)
{
    MetadataStore__LogRunStartResponse *r = td__arena_alloc(a, sizeof *r);
    run_t *run = td__arena_alloc(a, sizeof *run), *old;
    td__answer answer = find_run(d, a, q->run_id, &old);

    if (!answer && old)
        answer = td__answer_fail(TD_ANSWER_EXISTS, "Run %s already exists", q->run_id);
    if (!answer)
        answer = check_job(d, who, q->run_id);
    if (!answer)
        answer = td__answer_of(td__data_set_owner(d, who, TD_DOC_RUN, q->run_id));
    if (answer)
        return answer;
    if (!r || !run)
        return out_of_memory();
    metadata_store__run_info__init(run);
    run->start_time = q->start_time;
    run->run_id = q->run_id;
    run->run_name = q->run_name;
    run->tracing = q->tracing;
    run->message = td__data_text(a, "Running");
    metadata_store__log_run_start_response__init(r);
    r->run_info = run;
    r->bucket = td__data_text(a, d->config->model_bucket);
    r->path = td__arena_printf(a, "run_%s", q->run_id);
    *out = r;
    return r->path ? td__answer_of(td__doc_put(d, TD_DOC_RUN, q->run_id, &run->base))
                   : out_of_memory();
}

td__answer td__run_epoch(td__data *d, const td__caller *who, td__arena *a,
                         const MetadataStore__EpochInfo *e)
{
    MetadataStore__RunInfo__EpochsEntry *entry = td__arena_alloc(a, sizeof *entry), **at;
    run_t *run;
    td__answer answer = td__run_get(d, a, e->run_id, &run);

    if (!answer)
        answer = td__data_check_owner(d, who, TD_DOC_RUN, e->run_id);
    if (answer)
        return answer;
    for (size_t i = 0; i < run->n_epochs; i++)
        if (!strcmp(run->epochs[i]->key, e->epoch_id))
            return td__answer_fail(TD_ANSWER_EXISTS, "Epoch %s in Run %s already exists",
                                   e->epoch_id, e->run_id);
    at = td__arena_alloc(a, (run->n_epochs + 1) * sizeof *at);
    if (!entry || !at)
        return out_of_memory();
    metadata_store__run_info__epochs_entry__init(entry);
    entry->key = e->epoch_id;
    entry->value = (MetadataStore__EpochInfo *)(uintptr_t)e;
    if (run->n_epochs)
        memcpy(at, run->epochs, run->n_epochs * sizeof *at);
    at[run->n_epochs++] = entry;
    run->epochs = at;
    return td__answer_of(td__doc_put(d, TD_DOC_RUN, e->run_id, &run->base));
}

td__answer td__run_end(td__data *d, const td__caller *who, td__arena *a,
                       const MetadataStore__LogRunEndRequest *q, run_t **out)
{
    td__answer answer = td__run_get(d, a, q->run_id, out);

    if (!answer)
        answer = td__data_check_owner(d, who, TD_DOC_RUN, q->run_id);
    if (answer)
        return answer;
    (*out)->end_time = q->end_time;
    (*out)->success = q->success;
    (*out)->message = q->message;
    return td__answer_of(td__doc_put(d, TD_DOC_RUN, q->run_id, &(*out)->base));
}

/* ---- models ---- */

td__answer td__model_get(td__data *d, td__arena *a, const char *run, model_t **out)
{
    ProtobufCMessage *m;
    td_status st;

    if (!run[0])
        return td__answer_fail(TD_ANSWER_INVALID, "RunId required.");
    st = td__doc_get(d, a, TD_DOC_MODEL, run, &metadata_store__get_artifact_response__descriptor,
                     &m);
    *out = (model_t *)m;
    if (st)
        return td__answer_of(st);
    return m ? TD_ANSWER_OK
             : td__answer_fail(TD_ANSWER_NOT_FOUND, "Artifact with runId %s doesn't exist", run);
}

typedef struct model_work {
    td__data_work base;
    model_t model;
    char from[TD__BUCKET_PATH], to[TD__BUCKET_PATH];
} model_work;

static td_status copy_model(td__data_work *w)
{
    model_work *m = (model_work *)w;
    int n;

    return td__data_copy(m->from, m->to, NULL, &n);
}

static td__answer finish_model(td__data_work *w, ProtobufCMessage **out)
{
    model_work *m = (model_work *)w;
    MetadataStore__CreateArtifactResponse *r = td__arena_alloc(w->arena, sizeof *r);
    td__answer a = td__data_work_failed(w);

    if (a)
        return a;
    if (!r)
        return out_of_memory();
    metadata_store__create_artifact_response__init(r);
    r->version = m->model.version;
    r->artifact = m->model.artifact;
    r->run_id = m->model.run_id;
    r->name = m->model.name;
    r->algorithm = m->model.algorithm;
    *out = &r->base;
    return td__answer_of(td__doc_put(w->data, TD_DOC_MODEL, m->model.run_id, &m->model.base));
}

td__answer td__model_name(td__data *d, td__arena *a, const char *name, const char *run,
                          const char *algorithm, model_t *m, char to[TD__BUCKET_PATH])
{
    char *counter = td__arena_printf(a, "model/%s", name);
    file_t *file = td__arena_alloc(a, sizeof *file);
    int64_t version;
    td__answer answer = counter && file
                            ? td__answer_of(td__job_store_number(d->store, counter, &version))
                            : out_of_memory();

    if (answer)
        return answer;
    metadata_store__get_artifact_response__init(m);
    data_management__file_info__init(file);
    m->artifact = file;
    m->name = td__data_text(a, name);
    m->version = td__arena_printf(a, "%lld", (long long)version);
    m->run_id = td__data_text(a, run);
    m->algorithm = td__data_text(a, algorithm);
    file->name = m->name;
    file->bucket = td__data_text(a, d->config->model_bucket);
    file->path = version == 1 ? m->name : td__arena_printf(a, "%s@%lld", name, (long long)version);
    return m->version && file->path ? td__data_dir(d, file->bucket, file->path, to)
                                    : out_of_memory();
}

static td__answer start_model(td__data *d, model_work *m,
                              const MetadataStore__CreateArtifactRequest *q)
{
    td__answer answer = td__service_bucket_path(d->service, q->artifact->bucket, q->artifact->path,
                                                m->from, sizeof m->from);

    if (!answer)
        answer = td__model_name(d, m->base.arena, q->artifact->name, q->run_id, q->algorithm,
                                &m->model, m->to);
    if (!answer)
        td__data_work_start(d, &m->base);
    return answer;
}

/* A model belongs to its run; one of a run that was not started here, to who brings the first. */
static td__answer check_model(td__data *d, const td__caller *who, const char *run)
{
    td__arena *a = NULL;
    run_t *known = NULL;
    td__answer answer = td__answer_of(td__arena_create(&a));

    if (!answer)
        answer = find_run(d, a, run, &known);
    if (!answer && known)
        answer = td__data_check_owner(d, who, TD_DOC_RUN, run);
    else if (!answer)
        answer = check_job(d, who, run);
    td__arena_destroy(a);
    return answer;
}

void td__model_create(td__data *d, const td__caller *who,
                      const MetadataStore__CreateArtifactRequest *q, td__data_done done, void *arg)
{
    model_work *m = td__calloc(1, sizeof *m);
    td__answer a = m && !td__arena_create(&m->base.arena) ? TD_ANSWER_OK : out_of_memory();

    if (!a) {
        m->base.run = copy_model;
        m->base.finish = finish_model;
        m->base.done = done;
        m->base.arg = arg;
        a = q->artifact && q->artifact->name[0]
                ? check_model(d, who, q->run_id)
                : td__answer_fail(TD_ANSWER_INVALID, "artifact and its name are required");
        if (!a)
            a = start_model(d, m, q);
    }
    if (!a)
        return;
    done(arg, a, NULL);
    if (m)
        td__arena_destroy(m->base.arena);
    td__free(m);
}
