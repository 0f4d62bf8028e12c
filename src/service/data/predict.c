/* predict.c -- predictions by the models of runs: `tandem predict` on the files of the model, in a
 * process of its own, and the label that its class stands for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "prediction_service.pb-c.h"
#include "service/algorithm.h"
#include "service/data/csv.h"
#include "service/data/data_impl.h"
#include "service/track/command.h"

enum { PREDICT_MS = 60000, MOST_BYTES = 64 << 20 };

typedef struct predict_work {
    td__data_work base;
    char model[TD__BUCKET_PATH];
    const char *document, *algorithm;
    char *label; /* the answer */
} predict_work;

/* The label of that number, from labels.csv; the number itself where there is none. */
static td_status look_up(predict_work *p, const char *number)
{
    char path[TD__BUCKET_PATH + 16];
    td__file_map in;
    td__csv csv;

    p->label = td__arena_strdup(p->base.arena, number);
    snprintf(path, sizeof path, "%s/labels.csv", p->model);
    if (access(path, R_OK) == 0) {
        TD_TRY(td__file_map_copy(&in, path, MOST_BYTES));
        td__csv_init(&csv, in.data, in.nbytes);
        while (td__csv_next(&csv))
            if (!strcmp(td__csv_field(&csv, 0), number))
                p->label = td__arena_strdup(p->base.arena, td__csv_field(&csv, 1));
        td__csv_fini(&csv);
        td__file_map_close(&in);
    }
    return p->label ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory");
}

static td_status read_prediction(predict_work *p, const char *path)
{
    td__file_map in;
    json_t *j;
    td_status st;

    TD_TRY(td__file_map_copy(&in, path, MOST_BYTES));
    j = json_loadb((const char *)in.data, in.nbytes, JSON_DISABLE_EOF_CHECK, NULL);
    td__file_map_close(&in);
    st = json_string_value(json_object_get(j, "prediction"))
             ? look_up(p, json_string_value(json_object_get(j, "prediction")))
             : TD_FAIL(TD_EPROTO, "tandem predict wrote no prediction");
    json_decref(j);
    return st;
}

static td_status write_document(predict_work *p, const char *path)
{
    td__text line = {0};
    td__file_out f;
    td_status st;

    td__text_add(&line, "\"");
    for (const char *s = p->document; *s; s++)
        td__text_append(&line, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    td__text_add(&line, "\"\n");
    st = td__text_status(&line);
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, line.data, line.used);
        st = td__file_out_commit(&f);
    }
    td__text_fini(&line);
    return st;
}

static td_status run_predict(td__data_work *w)
{
    predict_work *p = (predict_work *)w;
    char dir[TD__BUCKET_PATH], in[TD__BUCKET_PATH + 32], out[TD__BUCKET_PATH + 32];
    const char *argv[] = {td__service_self(w->data->service),
                          "predict",
                          p->model,
                          "--checkpoint",
                          "best",
                          "--input",
                          in,
                          "--output",
                          out,
                          "--threads",
                          "1",
                          NULL};
    td__text said = {0};
    td_status st;

    snprintf(dir, sizeof dir, "%s/predict-XXXXXX", w->data->config->data_dir);
    if (!mkdtemp(dir))
        return TD_FAIL(TD_EIO, "no directory for the document in %s", w->data->config->data_dir);
    snprintf(in, sizeof in, "%s/document.csv", dir);
    snprintf(out, sizeof out, "%s/prediction.jsonl", dir);
    st = write_document(p, in);
    if (!st)
        st = td__command(&(td__command_opts){.argv = argv,
                                             .out = &said,
                                             .until = td__deadline_in_ms(PREDICT_MS)},
                         NULL);
    if (!st)
        st = read_prediction(p, out);
    td__text_fini(&said);
    unlink(in);
    unlink(out);
    rmdir(dir);
    return st;
}

static td__answer finish_predict(td__data_work *w, ProtobufCMessage **out)
{
    predict_work *p = (predict_work *)w;
    Prediction__PredictResponse *r = td__arena_alloc(w->arena, sizeof *r);
    td__text json = {0};

    if (w->st)
        return td__answer_fail(TD_ANSWER_INTERNAL, "Prediction failed for algorithm %s: %s",
                               p->algorithm, w->error);
    td__text_add(&json, "{\"result\": ");
    td__text_json(&json, p->label);
    td__text_add(&json, "}");
    if (r && !json.failed) {
        prediction__predict_response__init(r);
        r->response = td__data_text(w->arena, json.data);
        *out = &r->base;
    }
    td__text_fini(&json);
    return *out ? TD_ANSWER_OK : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
}

static td__answer start_predict(td__data *d, predict_work *p, const char *run, const char *document)
{
    MetadataStore__GetArtifactResponse *m;
    td__answer a = td__model_get(d, p->base.arena, run, &m);

    if (a == TD_ANSWER_NOT_FOUND || a == TD_ANSWER_INVALID)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "Cannot locate model artifact for runId %s.",
                               run);
    if (!a && !td__algorithm_find(m->algorithm))
        a = td__answer_fail(TD_ANSWER_STATE, "Algorithm %s doesn't have supporting predictor.",
                            m->algorithm);
    if (!a)
        a = td__service_bucket_path(d->service, m->artifact->bucket, m->artifact->path, p->model,
                                    sizeof p->model);
    if (a)
        return a;
    p->algorithm = m->algorithm;
    p->document = td__data_text(p->base.arena, document);
    td__data_work_start_on(d, d->waiters, &p->base);
    return TD_ANSWER_OK;
}

void td__predict(td__data *d, const char *run, const char *document, td__data_done done, void *arg)
{
    predict_work *p = td__calloc(1, sizeof *p);
    td__answer a = p && !td__arena_create(&p->base.arena)
                       ? TD_ANSWER_OK
                       : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");

    if (!a) {
        p->base.run = run_predict;
        p->base.finish = finish_predict;
        p->base.done = done;
        p->base.arg = arg;
        a = start_predict(d, p, run, document);
    }
    if (!a)
        return;
    done(arg, a, NULL);
    if (p)
        td__arena_destroy(p->base.arena);
    td__free(p);
}
