/* predict.c -- the model's output for every sample, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "train/trainer_impl.h"

typedef struct rows {
    char *data; /* of a batch */
    size_t row_nbytes;
} rows;

static td_status keep_rows(void *user, const td__micro_batch *s)
{
    const rows *out = user;
    if (!s->runner)
        return TD_OK;
    size_t nbytes;
    const void *from = td_runner_output(s->runner, 0, &nbytes);
    if (nbytes != (size_t)s->rows * out->row_nbytes)
        return TD_FAIL(TD_EINVAL, "the model's output has %zu bytes for %lld rows of %zu", nbytes,
                       (long long)s->rows, out->row_nbytes);
    memcpy(out->data + (size_t)s->begin * out->row_nbytes, from, nbytes);
    return TD_OK;
}

static td_status send_batches(td__trainer *t, td__loader *l, int micro_batches, rows *out,
                              td__predict_sink sink, void *user)
{
    for (int64_t first = 0;;) {
        const td__batch *b;
        TD_TRY(td__loader_next(l, &b));
        if (!b)
            return TD_OK;
        TD_TRY(td__micro_batches_run(t->run.predict_set, b,
                                     (td__micro_batch_cut){micro_batches, 0, micro_batches}, 0, 0,
                                     (td__micro_batch_calls){.after = keep_rows, .user = out}));
        TD_TRY(sink(user, first, b->rows, out->data, out->row_nbytes));
        first += b->rows;
    }
}

static td_status make_set(td__trainer *t)
{
    if (t->run.predict_set)
        return TD_OK;
    TD_TRY(td__micro_batch_set_create(&(td__micro_batch_set_opts){.model = t->plan.model,
                                                                  .pool = t->run.pool,
                                                                  .use = TD__USE_PREDICT,
                                                                  .backend = t->o.backend,
                                                                  .precision = t->o.precision},
                                      &t->run.predict_set));
    td__micro_batch_set_params(t->run.predict_set, t->replica.params);
    return TD_OK;
}

/* What one row of the output is. */
static td_status describe(td__trainer *t, int64_t micro_batch_rows, td_dtype *dtype, td_shape *row)
{
    const td_program *p;
    td__model_facts f;
    char text[128];

    TD_TRY(td__micro_batch_program(t->run.predict_set, micro_batch_rows, &p, &f));
    if (f.output_shape.ndim < 1 || f.output_shape.dim[0] != micro_batch_rows)
        return TD_FAIL(TD_EINVAL,
                       "the model's output is %s for %lld rows: its first axis must be "
                       "the rows",
                       td_shape_text(&f.output_shape, text, sizeof text),
                       (long long)micro_batch_rows);
    *dtype = f.output_dtype;
    row->ndim = f.output_shape.ndim - 1;
    for (int i = 0; i < row->ndim; i++)
        row->dim[i] = f.output_shape.dim[i + 1];
    return TD_OK;
}

td_status td__trainer_output(td__trainer *t, td_dtype *dtype, td_shape *row_shape)
{
    TD_TRY(make_set(t));
    return describe(t, 1, dtype, row_shape);
}

td_status td__trainer_predict(td__trainer *t, td__dataset *d, td__predict_sink sink, void *user,
                              td_dtype *dtype, td_shape *row_shape)
{
    int64_t batch = t->o.eval_batch < d->count ? t->o.eval_batch : d->count;
    int micro_batches = td__micro_batches_default(batch);
    int64_t micro_batch_rows = (batch + micro_batches - 1) / micro_batches;
    rows out = {NULL, 0};
    td__loader *l = NULL;
    td_status st;

    if (d->count < 1)
        return TD_FAIL(TD_EINVAL, "there are no samples to predict");
    TD_TRY(make_set(t));
    TD_TRY(describe(t, micro_batch_rows, dtype, row_shape));
    TD_TRY(td__micro_batch_set_dataset(t->run.predict_set, d, micro_batch_rows));
    out.row_nbytes = (size_t)td_shape_count(row_shape) * td_dtype_size(*dtype);
    out.data = td__calloc((size_t)batch, out.row_nbytes ? out.row_nbytes : 1);
    if (!out.data)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld rows of output", (long long)batch);
    TD_TRY_OR(st, done,
              td__loader_create(d,
                                &(td__loader_opts){.batch = batch,
                                                   .epochs = 1,
                                                   .prefetch = t->o.prefetch,
                                                   .threads = t->o.data_threads},
                                &l));
    bool sharded = td__trainer_traits(t).sharded_params;
    if (sharded)
        TD_TRY_OR(st, done, td__shards_gather_all(t->replica.shards));
    st = send_batches(t, l, micro_batches, &out, sink, user);
    if (sharded)
        td__shards_drop_all(t->replica.shards);
done:
    td__loader_destroy(l);
    td__free(out.data);
    return st;
}
