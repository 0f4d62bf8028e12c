/* trainer.c -- what any trainer does: fit, evaluate, predict, save, load. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/predict_file.h"
#include "api/trainer_impl.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "tandem/tensor.h"

void td_trainer_destroy(td_trainer *t)
{
    if (!t)
        return;
    if (t->run) { /* has the trainer and the data */
        if (!t->fitted)
            td__job_run_take_back(t->run);
        td__job_run_fini(t->run);
        td__free(t->run);
    } else {
        td__trainer_destroy(t->trainer);
        td__data_close(t->data);
    }
    for (int i = 0; i < TD_LEN(t->parts); i++)
        td_dataset_destroy(t->parts[i]);
    td_job_destroy(t->keys);
    td__arena_destroy(t->arena);
    td__free(t);
}

static td_status fit_compiled(td_trainer *t, td_run_result *out)
{
    td__train_result r;

    t->fitted = true;
    TD_TRY(td__trainer_run(t->trainer, &t->stop, &r));
    td__run_result_fill(out, &r, "");
    return *r.unsaved ? TD_FAIL(TD_EIO, "%s", r.unsaved) : TD_OK;
}

td_status td_trainer_fit(td_trainer *t, td_run_result *out)
{
    td_run_result own, *r = out ? out : &own;

    *r = (td_run_result){0};
    if (t->trained)
        return TD_FAIL(TD_EINVAL, "fit: this is a trained model; td_trainer_from_job with resume "
                                  "goes on with its run");
    td_status st = t->run ? td__trainer_fit_job(t, r) : fit_compiled(t, r);
    atomic_store(&t->stop, 0); /* of this run; a next one goes on */
    TD_TRY(st);
    if (t->callbacks.to.end)
        t->callbacks.to.end(t->callbacks.to.user, r);
    return TD_OK;
}

void td_trainer_stop(td_trainer *t)
{
    atomic_store(&t->stop, 1);
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

static bool elastic(const td_trainer *t)
{
    return t->run && t->run->session.members;
}

static bool several(const td_trainer *t)
{
    return elastic(t) || (t->comm && td_comm_size(t->comm) > 1);
}

enum { PATH_ROOM = sizeof(((td__checkpoint_info *)0)->path) + 32 }; /* of a checkpoint's file */

/* The file of weights of the newest checkpoint. */
static td_status newest(const td_trainer *t, td__checkpoint_info *info, char *path, size_t room)
{
    TD_TRY(td__checkpoint_find(t->run->checkpoints, NULL, info));
    snprintf(path, room, "%s/model.safetensors", info->path);
    return TD_OK;
}

/* The weights that an elastic run would begin with now; each rank has its own, and the first ones
 * where there is no checkpoint. */
static td_status take_newest(td_trainer *t)
{
    td__checkpoint_info info;
    char path[PATH_ROOM];

    if (!td__checkpoint_any(t->run->checkpoints))
        return TD_OK;
    TD_TRY(newest(t, &info, path, sizeof path));
    return td__trainer_load(t->trainer, path);
}

/* Elastic ranks that had parts of the weights have left each other: the last checkpoint has all. */
static bool scattered(const td_trainer *t)
{
    return t->split && t->fitted && elastic(t);
}

static td_status find_last(const td_trainer *t, char *path, size_t room)
{
    td__checkpoint_info info;

    TD_TRY(newest(t, &info, path, room));
    if (info.state.step == td__trainer_step(t->trainer))
        return TD_OK;
    return TD_FAIL(TD_EIO, "the newest checkpoint, %s, is not that of step %" PRIu64, info.path,
                   td__trainer_step(t->trainer));
}

/* The weights that evaluations and predictions are made with. Ranks other than 0 have none of a
 * job, or of a checkpoint, before the run begins, and elastic ranks may have parts of them after
 * it: they get them now. */
static td_status share_weights(td_trainer *t)
{
    char path[PATH_ROOM];

    if (scattered(t) && !t->gathered) {
        TD_TRY(find_last(t, path, sizeof path));
        TD_TRY(td__trainer_load(t->trainer, path));
        t->gathered = true;
    }
    if (t->fitted || t->trained || !t->late || !several(t))
        return TD_OK;
    TD_TRY(elastic(t) ? take_newest(t) : td__trainer_share(t->trainer));
    t->late = false;
    return TD_OK;
}

/* Rank 0's status on all ranks: one that failed is not waited for in the next call. */
static td_status share_status(td_trainer *t, td_status st)
{
    int32_t code = (int32_t)st;

    if (!t->comm)
        return st;
    TD_TRY(td_broadcast(t->comm, &code, 1, TD_I32, 0, NULL));
    if (code && td_comm_rank(t->comm) > 0)
        return TD_FAIL((td_status)code, "rank 0 could not write the file");
    return (td_status)code;
}

static bool writes(const td_trainer *t)
{
    return !t->comm || td_comm_rank(t->comm) == 0;
}

/* ---- Evaluation and prediction --------------------------------------------------------------- */

/* Samples of the kind that the model reads; fields that are missing the model may not need. */
static td_status check_samples(const td_trainer *t, const td__dataset *d)
{
    for (int i = 0; i < t->model.n_fields; i++) {
        const td__field *f = &t->model.fields[i];
        int k = td__dataset_field(d, f->name);
        if (k >= 0 &&
            (d->fields[k].dtype != f->dtype || !td_shape_equal(&d->fields[k].shape, &f->shape)))
            return TD_FAIL(TD_EINVAL,
                           "field %s of the samples has another type or shape than in training",
                           f->name);
    }
    return TD_OK;
}

td_status td_trainer_evaluate(td_trainer *t, td_dataset *d, td_metrics *out)
{
    td__eval_result r;

    *out = (td_metrics){0};
    TD_TRY(share_weights(t));
    TD_TRY(check_samples(t, d->samples));
    TD_TRY(td__trainer_evaluate(t->trainer, d->samples, &r));
    td__metrics_fill(out, &r);
    return TD_OK;
}

/* Where predicted rows go: as f32, after those that came before. */
typedef struct prediction {
    td_dtype dtype; /* of the model's output */
    td_shape row;
    float *out;
} prediction;

static td_status take_rows(void *user, int64_t first, int64_t rows, const void *output,
                           size_t row_nbytes)
{
    const prediction *p = user;
    int64_t each = (int64_t)(row_nbytes / td_dtype_size(p->dtype));
    td_shape flat = {.ndim = 1, .dim = {rows * each}};
    td_tensor from, to;

    TD_TRY(td_tensor_wrap(&from, p->dtype, flat, (void *)(uintptr_t)output));
    TD_TRY(td_tensor_wrap(&to, TD_F32, flat, p->out + first * each));
    return td_tensor_copy(&from, &to);
}

td_status td_trainer_predict(td_trainer *t, td_dataset *d, float *out, size_t count, td_shape *row)
{
    prediction p = {.out = out};
    int64_t need;

    TD_TRY(check_samples(t, d->samples));
    TD_TRY(td__trainer_output(t->trainer, &p.dtype, &p.row));
    if (row)
        *row = p.row;
    if (!out)
        return TD_OK;
    TD_TRY(share_weights(t));
    if (!td__i64_mul(td_shape_count(&p.row), d->samples->count, &need) || (uint64_t)need > count)
        return TD_FAIL(TD_EINVAL, "predict: room for %zu values, %" PRId64 " are needed", count,
                       need);
    return td__trainer_predict(t->trainer, d->samples, take_rows, &p, &p.dtype, &p.row);
}

td_status td_trainer_predict_file(td_trainer *t, td_dataset *d, const char *path)
{
    TD_TRY(td__predict_file_check(path));
    TD_TRY(check_samples(t, d->samples));
    TD_TRY(share_weights(t));
    td_status st = TD_OK;
    if (writes(t))
        st = td__predict_file_write(t->trainer, d->samples, t->model.fields, t->model.n_fields,
                                    path);
    else if (t->split) /* each brings its part of the weights */
        st = td__predict_file_help(t->trainer, d->samples);
    return share_status(t, st);
}

td_status td_trainer_part(td_trainer *t, const char *part, td_dataset **out)
{
    static const td__part ORDER[] = {TD_PART_TEST, TD_PART_VALID, TD_PART_TRAIN};

    *out = NULL;
    for (int i = 0; i < TD_LEN(ORDER); i++) {
        td__dataset *d = td__data_part(t->data, ORDER[i]);
        if (d && (part ? !strcmp(part, td__part_name(ORDER[i])) : ORDER[i] != TD_PART_TRAIN))
            return td__pipeline_borrow(d, out);
    }
    return TD_FAIL(TD_EINVAL, "there is no %s part of the data: expected train, valid or test",
                   part ? part : "test or valid");
}

/* ---- Weights --------------------------------------------------------------------------------- */

static td_status save_last(const td_trainer *t, const char *path)
{
    char from[PATH_ROOM];
    td__file_map map;
    td__file_out out;

    TD_TRY(find_last(t, from, sizeof from));
    TD_TRY(td__file_map_open(&map, from));
    td_status st = td__file_out_open(&out, path);
    if (!st) {
        td__file_out_write(&out, map.data, map.nbytes);
        st = td__file_out_commit(&out);
    }
    td__file_map_close(&map);
    return st;
}

td_status td_trainer_save(td_trainer *t, const char *path)
{
    size_t n = strlen(path), ending = strlen(".safetensors");

    if (n <= ending || strcmp(path + n - ending, ".safetensors") != 0)
        return TD_FAIL(TD_EINVAL, "save: expected a name ending in .safetensors, found '%.200s'",
                       path);
    if (scattered(t))
        return td__job_run_leads(t->run) ? save_last(t, path) : TD_OK;
    TD_TRY(share_weights(t));
    return share_status(t, td__trainer_save(t->trainer, path));
}

td_status td_trainer_load(td_trainer *t, const char *path)
{
    td__checkpoint_info info;
    char weights[PATH_ROOM];
    struct stat file;

    if (t->split && elastic(t))
        return TD_FAIL(TD_ENOTSUP,
                       "load: elastic ranks hold parts of the weights (%s): resume from a "
                       "checkpoint instead",
                       t->split);
    if (stat(path, &file) != 0)
        return TD_FAIL(TD_EINVAL, "load: there is no file %s", path);
    if (S_ISDIR(file.st_mode)) {
        TD_TRY(td__checkpoint_find(path, NULL, &info));
        snprintf(weights, sizeof weights, "%s/model.safetensors", info.path);
        path = weights;
    }
    TD_TRY(td__trainer_load(t->trainer, path));
    t->late = false;
    return TD_OK;
}

td_params *td_trainer_params(td_trainer *t)
{
    return td__trainer_params(t->trainer);
}

uint64_t td_trainer_step(const td_trainer *t)
{
    return td__trainer_step(t->trainer);
}

int td_trainer_rank(const td_trainer *t)
{
    return td__trainer_rank(t->trainer);
}
