/* book_training.c -- training.TrainingService, as the book's clients know it: texts, states and
 * codes are part of its interface. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "service/grpc/api_impl.h"
#include "service/spec.h"
#include "training_service.pb-c.h"

typedef Training__TrainingJobMetadata metadata_t;

static td_status spec_of(const metadata_t *m, td__job_spec **out)
{
    td__pair *pairs = NULL;
    td__job_spec *s = NULL;
    td_status st;

    TD_TRY(td__spec_create(out));
    s = *out;
    s->algorithm = td__spec_text(s, m->algorithm);
    s->dataset_id = td__spec_text(s, m->dataset_id);
    s->name = td__spec_text(s, m->name);
    s->train_data_version_hash = td__spec_text(s, m->train_data_version_hash);
    s->output_model_name = td__spec_text(s, m->output_model_name);
    pairs = td__arena_alloc(s->arena, m->n_parameters * sizeof *pairs + 1);
    for (size_t i = 0; pairs && i < m->n_parameters; i++)
        pairs[i] = (td__pair){td__spec_text(s, m->parameters[i]->key),
                              td__spec_text(s, m->parameters[i]->value)};
    st = pairs ? td__spec_pairs(s, pairs, (int)m->n_parameters, &s->parameters)
               : TD_FAIL(TD_ENOMEM, "out of memory");
    if (st) {
        td__spec_destroy(s);
        *out = NULL;
    }
    return st;
}

static void train(td__call *c, void *arg, const void *request)
{
    static const metadata_t none = TRAINING__TRAINING_JOB_METADATA__INIT;
    td__grpc_api *a = arg;
    const Training__TrainRequest *q = request;
    Training__TrainResponse r = TRAINING__TRAIN_RESPONSE__INIT;
    td__caller who = td__grpc_caller(c);
    td__job_spec *spec;

    if (td__grpc_refused(c, td__answer_of(spec_of(q->metadata ? q->metadata : &none, &spec))) ||
        td__grpc_refused(c, td__service_submit(a->o.service, &who, spec, NULL, true, &r.job_id)))
        return;
    td__call_reply(c, &r.base);
}

enum { MOST_PARAMETERS = 1024 };

static void status(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    td__service *s = a->o.service;
    const Training__GetTrainingStatusRequest *q = request;
    Training__GetTrainingStatusResponse r = TRAINING__GET_TRAINING_STATUS_RESPONSE__INIT;
    metadata_t m = TRAINING__TRAINING_JOB_METADATA__INIT;
    Training__TrainingJobMetadata__ParametersEntry entries[MOST_PARAMETERS],
        *parameters[MOST_PARAMETERS];
    const td__job_record *job;
    char message[1024];

    if (td__grpc_refused(c, td__service_get(s, q->job_id, &job)))
        return;
    m.algorithm = td__grpc_text(job->spec->algorithm);
    m.dataset_id = td__grpc_text(job->spec->dataset_id);
    m.name = td__grpc_text(job->spec->name);
    m.train_data_version_hash = td__grpc_text(job->spec->train_data_version_hash);
    m.output_model_name = td__grpc_text(job->spec->output_model_name);
    for (int i = 0; i < job->spec->parameters.n && i < MOST_PARAMETERS; i++) {
        const td__pair *p = &job->spec->parameters.at[i];

        training__training_job_metadata__parameters_entry__init(&entries[i]);
        entries[i].key = td__grpc_text(p->key);
        entries[i].value = td__grpc_text(td__secret_name(p->key) ? "***" : p->value);
        parameters[m.n_parameters++] = &entries[i];
    }
    m.parameters = parameters;
    r.metadata = &m;
    r.job_id = job->id;
    r.status = (Training__TrainingStatus)td__job_state_book(job->state);
    r.message = td__service_book_message(s, job, message, sizeof message);
    r.positioninqueue = td__service_position(s, job->id);
    td__call_reply(c, &r.base);
}

static const td__grpc_method METHODS[] = {
    TD_METHOD("Train", UNARY, training__train_request, SUBMIT, train),
    TD_METHOD("GetTrainingStatus", UNARY, training__get_training_status_request, READ, status),
};
const td__grpc_service td__book_training = {"training.TrainingService", METHODS, TD_LEN(METHODS)};
