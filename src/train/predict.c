/* predict.c -- the model's output for every sample, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/runner.h"
#include "train/trainer_impl.h"

typedef struct rows {
    const td__dataset *d; /* that they are of */
    char *data;           /* of a batch, or where only rank 0 wants them of what another makes */
    bool to_first;        /* only rank 0 wants them */
    size_t row_nbytes;
    int micro_batches; /* of a batch */
    int rank, ranks;   /* that run a batch together, where params are in shards; else 0 of 1 */
    int64_t first;     /* of the batch: row 0 of data */
} rows;

static bool only_helps(const rows *out)
{
    return out->to_first && out->rank > 0;
}

/* Rows that this rank has room for, of a batch of so many. */
static int64_t kept_of(const rows *out, int64_t batch)
{
    td__row_range made = td__rank_rows(batch, out->micro_batches, out->rank, out->ranks);
    return only_helps(out) ? made.end - made.begin : batch;
}

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
    memcpy(out->data + (size_t)(s->begin - out->first) * out->row_nbytes, from, nbytes);
    return TD_OK;
}

/* The field of d that feeds an input of the model, and its bytes of a sample; -1: not read. */
static int field_of(const td__trainer *t, const td__dataset *d, int input, size_t *row_nbytes)
{
    const char *name = t->plan.facts.input[input];
    int f = td__dataset_field(d, name);
    if (f < 0 ||
        !td__runner_reads(td__micro_batch_any_runner(t->run.predict_set), name, row_nbytes))
        return -1;
    *row_nbytes = td__field_nbytes(&d->fields[f]);
    return f;
}

/* What the model reads of a batch; returns how many inputs. */
static int inputs_of(const td__trainer *t, const td__dataset *d, const td__batch *b,
                     const void *inputs[TD__MAX_MODEL_INPUTS], size_t nbytes[TD__MAX_MODEL_INPUTS])
{
    int n = 0;
    for (int i = 0; i < t->plan.facts.n_inputs; i++) {
        int f = field_of(t, d, i, &nbytes[n]);
        if (f >= 0)
            inputs[n++] = b->field[f];
    }
    return n;
}

static td_status ask_elsewhere(td__trainer *t, const td__batch *b, const rows *out)
{
    const void *inputs[TD__MAX_MODEL_INPUTS];
    size_t nbytes[TD__MAX_MODEL_INPUTS];
    int n = inputs_of(t, out->d, b, inputs, nbytes);
    return t->run.elsewhere(t->run.elsewhere_user, b->rows, n, inputs, nbytes, out->row_nbytes,
                            out->data);
}

void td__trainer_predict_elsewhere(td__trainer *t, td__elsewhere_fn *fn, void *user)
{
    t->run.elsewhere = fn;
    t->run.elsewhere_user = user;
}

/* Rows that rank r has made: to rank 0, or to all. */
static td_status share_made(td_comm *comm, const rows *out, int r, char *at, size_t nbytes)
{
    if (!out->to_first)
        return td_broadcast(comm, at, nbytes, TD_U8, r, NULL);
    if (r == 0 || (out->rank && out->rank != r))
        return TD_OK;
    return out->rank ? td_send(comm, at, nbytes, TD_U8, 0, NULL)
                     : td_recv(comm, at, nbytes, TD_U8, r, NULL);
}

static td_status share_rows(const td__trainer *t, const td__batch *b, const rows *out)
{
    for (int r = 0; r < out->ranks; r++) {
        td__row_range made = td__rank_rows(b->rows, out->micro_batches, r, out->ranks);
        size_t nbytes = (size_t)(made.end - made.begin) * out->row_nbytes;
        char *at = only_helps(out) ? out->data : out->data + (size_t)made.begin * out->row_nbytes;
        if (nbytes)
            TD_TRY(share_made(t->world.comm, out, r, at, nbytes));
    }
    return TD_OK;
}

static td_status run_batch(td__trainer *t, const td__batch *b, rows *out)
{
    td__micro_batch_calls calls = {.after = keep_rows, .user = out};
    if (t->run.elsewhere)
        return ask_elsewhere(t, b, out);
    if (out->ranks == 1)
        return td__micro_batches_run(
            t->run.predict_set, b, (td__micro_batch_cut){out->micro_batches, 0, out->micro_batches},
            0, 0, calls);
    if (only_helps(out))
        out->first = td__rank_rows(b->rows, out->micro_batches, out->rank, out->ranks).begin;
    TD_TRY(td__run_together(t, t->run.predict_walk, b, out->micro_batches, calls));
    return share_rows(t, b, out);
}

static td_status send_batches(td__trainer *t, td__loader *l, rows *out, td__predict_sink sink,
                              void *user)
{
    for (int64_t first = 0;;) {
        const td__batch *b;
        TD_TRY(td__loader_next(l, &b));
        if (!b)
            return TD_OK;
        TD_TRY(run_batch(t, b, out));
        if (sink)
            TD_TRY(sink(user, first, b->rows, out->data, out->row_nbytes));
        first += b->rows;
    }
}

/* A loader's: what this rank reads of a batch. */
static td__row_range own_rows(const void *user, int64_t index, int64_t rows_of_batch)
{
    const rows *out = user;
    (void)index;
    return td__rank_rows(rows_of_batch, out->micro_batches, out->rank, out->ranks);
}

static td_status make_set(td__trainer *t)
{
    if (t->run.predict_set)
        return td__together_walk(t, t->run.predict_set, &t->run.predict_walk);
    TD_TRY(td__micro_batch_set_create(&(td__micro_batch_set_opts){.model = t->plan.model,
                                                                  .pool = t->run.pool,
                                                                  .use = TD__USE_PREDICT,
                                                                  .backend = td__trainer_backend(t),
                                                                  .precision = t->o.precision},
                                      &t->run.predict_set));
    td__micro_batch_set_params(t->run.predict_set, t->replica.params);
    return td__together_walk(t, t->run.predict_set, &t->run.predict_walk);
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

static td_status predict(td__trainer *t, td__dataset *d, bool to_first, td__predict_sink sink,
                         void *user, td_dtype *dtype, td_shape *row_shape)
{
    int64_t batch = t->o.eval_batch < d->count ? t->o.eval_batch : d->count;
    rows out = {.d = d,
                .to_first = to_first,
                .micro_batches = td__micro_batches_default(batch),
                .ranks = 1};
    int64_t micro_batch_rows = (batch + out.micro_batches - 1) / out.micro_batches;
    td__loader *l = NULL;
    td_status st;

    if (d->count < 1)
        return TD_FAIL(TD_EINVAL, "there are no samples to predict");
    TD_TRY(make_set(t));
    if (t->run.predict_walk && !t->run.elsewhere) {
        out.rank = td__trainer_rank(t);
        out.ranks = td__trainer_ranks(t);
    }
    TD_TRY(describe(t, micro_batch_rows, dtype, row_shape));
    TD_TRY(td__micro_batch_set_dataset(t->run.predict_set, d, micro_batch_rows));
    out.row_nbytes = (size_t)td_shape_count(row_shape) * td_dtype_size(*dtype);
    int64_t kept = kept_of(&out, batch), last = kept_of(&out, d->count % batch);
    kept = kept > last ? kept : last;
    out.data = td__calloc((size_t)kept + 1, out.row_nbytes ? out.row_nbytes : 1);
    if (!out.data)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld rows of output", (long long)kept);
    st = td__loader_create(d,
                           &(td__loader_opts){.batch = batch,
                                              .epochs = 1,
                                              .prefetch = t->o.prefetch,
                                              .threads = t->o.data_threads,
                                              .rows = own_rows,
                                              .rows_user = &out},
                           &l);
    if (!st)
        st = send_batches(t, l, &out, sink, user);
    td__loader_destroy(l);
    td__free(out.data);
    return st;
}

td_status td__trainer_predict(td__trainer *t, td__dataset *d, td__predict_sink sink, void *user,
                              td_dtype *dtype, td_shape *row_shape)
{
    td_status st = predict(t, d, false, sink, user, dtype, row_shape);
    return t->run.predict_walk ? td__replicas_failed(t, st) : st;
}

td_status td__trainer_predict_to_first(td__trainer *t, td__dataset *d, td__predict_sink sink,
                                       void *user, td_dtype *dtype, td_shape *row_shape)
{
    td_status st = predict(t, d, true, sink, user, dtype, row_shape);
    return t->run.predict_walk ? td__replicas_failed(t, st) : st;
}

/* The samples as a batch: each input aligned as loaders do it, in one block of *room bytes. */
static td_status place_samples(const td__trainer *t, const td__dataset *d, const char *samples,
                               size_t nbytes, td__batch *b, char **block, size_t *room)
{
    enum { ALIGN = 64 };
    size_t each, all = 0, at = 0;
    for (int i = 0; i < t->plan.facts.n_inputs; i++)
        if (field_of(t, d, i, &each) >= 0)
            all += each;
    if (nbytes / (size_t)b->rows != all || nbytes % (size_t)b->rows)
        return TD_FAIL(TD_EINVAL, "%zu bytes are not %lld samples of %zu bytes each", nbytes,
                       (long long)b->rows, all);
    *room = nbytes + TD__MAX_MODEL_INPUTS * ALIGN;
    *block = td__alloc_block(*room);
    if (!*block)
        return TD_FAIL(TD_ENOMEM, "no memory for %lld samples", (long long)b->rows);
    for (int i = 0; i < t->plan.facts.n_inputs; i++) {
        int f = field_of(t, d, i, &each);
        if (f < 0)
            continue;
        b->field[f] = *block + at;
        memcpy(b->field[f], samples, each * (size_t)b->rows);
        samples += each * (size_t)b->rows;
        at += td__align_up(each * (size_t)b->rows, ALIGN);
    }
    return TD_OK;
}

td_status td__trainer_outputs(td__trainer *t, int64_t n, const void *samples, size_t nbytes,
                              void **out, size_t *row_nbytes)
{
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    td__batch b = {.rows = n, .here = {0, n}};
    int micro_batches = td__micro_batches_default(n);
    char *block = NULL;
    size_t room = 0;
    td_dtype dtype;
    td_shape shape;
    td_status st;

    *out = NULL;
    if (n > t->o.eval_batch)
        return TD_FAIL(TD_EINVAL, "%lld samples at once: at most %lld", (long long)n,
                       (long long)t->o.eval_batch);
    TD_TRY(make_set(t));
    int64_t micro_batch_rows = (n + micro_batches - 1) / micro_batches;
    TD_TRY(describe(t, micro_batch_rows, &dtype, &shape));
    TD_TRY(td__micro_batch_set_dataset(t->run.predict_set, d, micro_batch_rows));
    *row_nbytes = (size_t)td_shape_count(&shape) * td_dtype_size(dtype);
    rows to = {.d = d,
               .data = td__calloc((size_t)n, *row_nbytes ? *row_nbytes : 1),
               .row_nbytes = *row_nbytes};
    st = to.data ? place_samples(t, d, samples, nbytes, &b, &block, &room)
                 : TD_FAIL(TD_ENOMEM, "no memory for %lld rows of output", (long long)n);
    if (!st)
        st = td__micro_batches_run(t->run.predict_set, &b,
                                   (td__micro_batch_cut){micro_batches, 0, micro_batches}, 0, 0,
                                   (td__micro_batch_calls){.after = keep_rows, .user = &to});
    td__free_block(block, room);
    *out = to.data;
    return st;
}
