/* micro_batches.c -- see micro_batches.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/micro_batches_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/lone_norm.h"
#include "step/kept_samples.h"

td_status td__micro_batch_set_create(const td__micro_batch_set_opts *opts,
                                     td__micro_batch_set **out)
{
    *out = td__calloc(1, sizeof **out);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for programs");
    (*out)->o = *opts;
    (*out)->threads = td__pool_threads(opts->pool);
    pthread_mutex_init(&(*out)->lock, NULL);
    return TD_OK;
}

static void drop(td__micro_batch_set *s, td__sized *z)
{
    pthread_mutex_lock(&s->lock);
    for (int k = td__micro_batch_runners(s); z->runners && k > 0; k--) /* borrowers first */
        td_runner_destroy(z->runners[k - 1]);
    td__free(z->runners);
    td_program_destroy(z->program);
    memset(z, 0, sizeof *z);
    pthread_mutex_unlock(&s->lock);
}

void td__micro_batch_set_destroy(td__micro_batch_set *s)
{
    if (!s)
        return;
    for (int i = 0; i < TD__ROW_PLACES; i++)
        drop(s, &s->sizes[i]);
    td__free(s->in_step);
    td__free(s->begins);
    pthread_mutex_destroy(&s->lock);
    td__free(s);
}

void td__micro_batch_set_params(td__micro_batch_set *s, td_params *ps)
{
    s->ps = ps;
}

/* ---- Programs -------------------------------------------------------------------------------- */

static void note_facts(const td__model_nodes *n, td__model_facts *f)
{
    f->n_metrics = n->n_metrics;
    for (int i = 0; i < n->n_metrics; i++) {
        snprintf(f->metric[i], sizeof f->metric[i], "%s", n->metrics[i].name);
        f->higher_is_better[i] = n->metrics[i].higher_is_better;
        f->whole[i] = n->metrics[i].whole;
    }
    if (n->output) {
        f->output_dtype = td_node_dtype(n->output);
        f->output_shape = td_node_shape(n->output);
    }
    f->n_inputs = n->n_inputs;
    for (int i = 0; i < n->n_inputs; i++)
        snprintf(f->input[i], sizeof f->input[i], "%s", n->inputs[i]);
    snprintf(f->target, sizeof f->target, "%s", n->target ? n->target : "");
    snprintf(f->ignoring, sizeof f->ignoring, "%s", n->ignoring ? n->ignoring : "");
    f->ignore = n->ignore;
    f->none_ignored = n->none_ignored;
    f->class_weights = n->class_weights;
    f->n_class_weights = n->n_class_weights;
    f->n_tables = n->n_tables;
    memcpy(f->table, n->table, sizeof f->table);
}

static td_status make_program(td__micro_batch_set *s, td_graph *g, td__sized *z)
{
    td__model_nodes nodes = {0};
    td_node *outputs[TD__MAX_METRICS];
    td_program_opts o = {
        .backend = s->o.backend,
        .precision = s->o.precision,
        .evaluate = s->o.use != TD__USE_TRAIN,
        .outputs = outputs,
        .nondeterministic = s->o.nondeterministic && s->o.use == TD__USE_TRAIN,
    };

    TD_TRY(s->o.model.build(s->o.model.user, g, z->rows, &nodes));
    if (td_graph_status(g))
        return TD_FAIL(td_graph_status(g), "%s", td_graph_error(g));
    TD_ASSERT(nodes.n_metrics <= TD__MAX_METRICS && nodes.n_inputs <= TD__MAX_MODEL_INPUTS,
              "%d metrics, %d inputs", nodes.n_metrics, nodes.n_inputs);
    if (nodes.ignoring && s->o.use == TD__USE_TRAIN && td__graph_sync_norm(g))
        nodes.loss = td_mul(g, nodes.loss, td_input(g, TD__LOSS_FACTOR, TD_F32, TD_SCALAR));
    note_facts(&nodes, &z->facts);
    const td_node *lone = td__graph_lone_norm(g);
    if (lone)
        snprintf(z->facts.lone_norm, sizeof z->facts.lone_norm, "%s", td_node_name(lone));
    if (s->o.use == TD__USE_EVALUATE)
        for (int i = 0; i < nodes.n_metrics; i++)
            outputs[o.n_outputs++] = nodes.metrics[i].node;
    if (s->o.use == TD__USE_PREDICT) {
        if (!nodes.output)
            return TD_FAIL(TD_EINVAL, "the model names no output to predict");
        outputs[o.n_outputs++] = nodes.output;
        nodes.loss = NULL;
    }
    td__tensor_cut whole = {.of = s->ps};
    return td__program_create_tensor(g, nodes.loss, &o, false, o.evaluate ? &whole : &s->o.tensor,
                                     &z->program);
}

static td_status make(td__micro_batch_set *s, int64_t rows, td__sized *z)
{
    td_graph *g;
    TD_TRY(td_graph_create(&g));
    z->rows = rows;
    td_status st = make_program(s, g, z);
    td_graph_destroy(g);
    TD_TRY(st);
    td_runner **all = td__calloc((size_t)td__micro_batch_runners(s), sizeof *all);
    pthread_mutex_lock(&s->lock);
    z->runners = all;
    pthread_mutex_unlock(&s->lock);
    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for %d runners", td__micro_batch_runners(s));
    TD_LOG(DEBUG, TRAIN, "a program for %lld rows: %d nodes", (long long)rows,
           td_program_node_count(z->program));
    return TD_OK;
}

/* The entry for `rows`, made if need be. */
static td_status find(td__micro_batch_set *s, int64_t rows, td__sized **out)
{
    bool found;
    int place = td__row_cache_find(&s->cache, rows, &found);
    td__sized *z = *out = &s->sizes[place];
    if (found)
        return TD_OK;
    drop(s, z);
    td_status st = make(s, rows, z);
    if (st) {
        drop(s, z);
        td__row_cache_forget(&s->cache, place);
    }
    return st;
}

td_status td__micro_batch_program(td__micro_batch_set *s, int64_t rows, const td_program **out,
                                  td__model_facts *facts)
{
    td__sized *z;
    TD_TRY(find(s, rows, &z));
    *out = z->program;
    if (facts)
        *facts = z->facts;
    return TD_OK;
}

int td__micro_batch_runners(const td__micro_batch_set *s)
{
    return s->threads * TD__PLACES;
}

td_runner *td__micro_batch_runner(td__micro_batch_set *s, int64_t rows, int k)
{
    for (int i = 0; i < TD__ROW_PLACES; i++)
        if (s->sizes[i].rows == rows)
            return s->sizes[i].runners[k];
    return NULL;
}

td_runner *td__micro_batch_any_runner(const td__micro_batch_set *s)
{
    for (int i = 0; i < TD__ROW_PLACES; i++)
        for (int k = 0; s->sizes[i].rows && k < td__micro_batch_runners(s); k++)
            if (s->sizes[i].runners[k])
                return s->sizes[i].runners[k];
    TD_ASSERT(false, "nothing has run");
    return NULL;
}

void td__micro_batch_own_grads(td__micro_batch_set *s)
{
    for (int i = 0; i < TD__ROW_PLACES; i++)
        for (int k = 0; s->sizes[i].rows && k < td__micro_batch_runners(s); k++)
            if (s->sizes[i].runners[k])
                td__runner_set_grads(s->sizes[i].runners[k], NULL);
}

bool td__micro_batch_set_now(td__micro_batch_set *s, char *out, size_t max)
{
    const char *name = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < TD__ROW_PLACES && !name; i++)
        for (int k = 0; s->sizes[i].runners && k < td__micro_batch_runners(s) && !name; k++)
            if (s->sizes[i].runners[k])
                name = td__runner_now(s->sizes[i].runners[k]);
    if (name)
        snprintf(out, max, "%s", name);
    pthread_mutex_unlock(&s->lock);
    return name != NULL;
}

/* Losses are as they are, until somebody says otherwise. */
static td_status no_factor(td_runner *r)
{
    static const float ONE = 1;
    if (!td__runner_reads(r, TD__LOSS_FACTOR, NULL))
        return TD_OK;
    return td_runner_set_input(r, TD__LOSS_FACTOR, &ONE, sizeof ONE);
}

/* The nth runner of a thread; those before it are there. */
static td_status runner_of(td__micro_batch_set *s, td__sized *z, int thread, int n, td_runner **out)
{
    td_runner **all = &z->runners[thread * TD__PLACES];
    if (!all[n]) {
        td_runner *r;
        TD_TRY(n ? td__runner_create_sibling(all[0], &r) : td_runner_create(z->program, s->ps, &r));
        td_status st = no_factor(r);
        if (st) {
            td_runner_destroy(r);
            return st;
        }
        td_runner_set_profile(r, s->o.profile);
        pthread_mutex_lock(&s->lock);
        all[n] = r;
        pthread_mutex_unlock(&s->lock);
    }
    *out = all[n];
    return TD_OK;
}

/* A program knows only the inputs that it reads: prediction has no use for labels. Where there is a
 * loss, an input that nobody reads is a mistake that would train on zeros. */
td_status td__micro_batch_set_dataset(td__micro_batch_set *s, const td__dataset *d, int64_t rows)
{
    td__sized *z;
    td_runner *r;
    TD_TRY(find(s, rows, &z));
    TD_TRY(runner_of(s, z, 0, 0, &r));
    for (int i = 0; i < z->facts.n_inputs; i++) {
        const char *name = z->facts.input[i];
        int f = td__dataset_field(d, name);
        size_t nbytes;
        s->field_of[i] = -1;
        if (!td__runner_reads(r, name, &nbytes)) {
            if (s->o.use != TD__USE_PREDICT)
                return TD_FAIL(TD_EINVAL, "the model says that it reads '%s', but does not", name);
            continue;
        }
        if (f < 0)
            return TD_FAIL(TD_EINVAL, "the data have no field '%s', which the model reads", name);
        s->field_of[i] = f;
        s->row_nbytes[i] = td__field_nbytes(&d->fields[f]);
        if (s->row_nbytes[i] * (size_t)rows != nbytes)
            return TD_FAIL(TD_EINVAL,
                           "field '%s' of the data has %zu bytes a sample, the model reads %zu",
                           name, s->row_nbytes[i], nbytes / (size_t)rows);
    }
    return TD_OK;
}

/* ---- Running --------------------------------------------------------------------------------- */

static td__sized *size_of(const td__batch_run *n, int64_t rows)
{
    return n->low && n->low->rows == rows ? n->low : n->high;
}

/* Input i of r from row `at` of the batch's memory on. */
static td_status set_input(const td__micro_batch_set *s, td_runner *r, int i, const char *name,
                           const td__batch *batch, int64_t at, int64_t rows)
{
    size_t each = s->row_nbytes[i];
    if (batch->kept)
        return td__kept_rows_feed(batch, s->field_of[i], at, rows, r, name);
    const char *from = (const char *)batch->field[s->field_of[i]] + (size_t)at * each;
    return td_runner_set_input(r, name, from, (size_t)rows * each);
}

static td_status set_inputs(const td__micro_batch_set *s, const td__sized *z, td_runner *r,
                            const td__batch *batch, int64_t at)
{
    for (int i = 0; i < z->facts.n_inputs; i++)
        if (s->field_of[i] >= 0)
            TD_TRY(set_input(s, r, i, z->facts.input[i], batch, at, z->rows));
    return TD_OK;
}

td_status td__micro_batch_ready(td__micro_batch_set *s, const td__batch *batch, int64_t at,
                                int64_t rows, td_runner **out, uint64_t *seed)
{
    td__sized *z;
    TD_TRY(find(s, rows, &z));
    TD_TRY(runner_of(s, z, 0, 0, out));
    *seed = s->o.seed;
    return set_inputs(s, z, *out, batch, at);
}

const td__micro_batch_set_opts *td__micro_batch_options(const td__micro_batch_set *s)
{
    return &s->o;
}

td_status td__micro_batch_feed(td__micro_batch_set *s, td_runner *r, const td__batch *batch,
                               int64_t at, int64_t rows)
{
    const td__model_facts *f = NULL; /* inputs have the same names for any number of rows */
    for (int i = 0; i < TD__ROW_PLACES && !f; i++)
        f = s->sizes[i].rows ? &s->sizes[i].facts : NULL;
    TD_ASSERT(f, "no data set was named");
    for (int i = 0; i < f->n_inputs; i++)
        if (s->field_of[i] >= 0 && td__runner_reads(r, f->input[i], NULL))
            TD_TRY(set_input(s, r, i, f->input[i], batch, at, rows));
    return TD_OK;
}

td_status td__micro_batch_take(td__micro_batch_set *s, int thread, int i, td__micro_batch *out,
                               int *n)
{
    const td__batch_run *now = &s->now;
    int in_flight = s->values ? TD__PLACES : now->calls.passed ? now->calls.in_flight : 1;
    int end = td__micro_batch_first(s, thread + 1), last = end - in_flight;
    last = last > td__micro_batch_first(s, thread) ? last : td__micro_batch_first(s, thread);
    *n = i < last ? 1 : end - i;
    for (int k = 0; k < *n; k++) {
        int64_t begin = td__micro_batch_begin(now->batch->rows, now->cut.micro_batches, i + k);
        int64_t rows =
            td__micro_batch_begin(now->batch->rows, now->cut.micro_batches, i + k + 1) - begin;
        int same = 0;
        out[k] = (td__micro_batch){.thread = thread,
                                   .index = i + k,
                                   .begin = begin,
                                   .rows = rows,
                                   .last = i >= last,
                                   .place = k};
        for (int other = 0; other < k; other++)
            same += out[other].rows == rows;
        if (rows)
            TD_TRY(runner_of(s, size_of(now, rows), thread, same, &out[k].runner));
    }
    return TD_OK;
}

td_status td__micro_batch_start(td__micro_batch_set *s, const td__micro_batch *micro_batch)
{
    const td__batch_run *n = &s->now;
    if (n->calls.before)
        TD_TRY(n->calls.before(n->calls.user, micro_batch));
    if (!micro_batch->rows)
        return TD_OK;
    TD_TRY(set_inputs(s, size_of(n, micro_batch->rows), micro_batch->runner, n->batch,
                      micro_batch->begin - n->batch->here.begin));
    td__runner_begin(micro_batch->runner,
                     (td_run_key){.seed = s->o.seed,
                                  .step = n->step,
                                  .micro_batch = n->first + (uint32_t)micro_batch->index});
    return TD_OK;
}

static td_status run_alone(td__micro_batch_set *s, const td__micro_batch *micro_batch)
{
    TD_TRY(td__micro_batch_start(s, micro_batch));
    if (micro_batch->rows)
        TD_TRY(td__runner_end(micro_batch->runner));
    return s->now.calls.after(s->now.calls.user, micro_batch);
}

static td_status run_in_flight(td__micro_batch_set *s, const td__micro_batch *micro_batches, int n)
{
    const td__micro_batch_calls *c = &s->now.calls;
    bool some = false;
    for (int i = 0; i < n; i++) {
        TD_TRY(td__micro_batch_start(s, &micro_batches[i]));
        some = some || micro_batches[i].rows;
    }
    for (int m = 0; some && m < c->n_marks; m++) {
        for (int i = 0; i < n; i++)
            if (micro_batches[i].rows)
                td__runner_until(micro_batches[i].runner, c->marks[m]);
        c->passed(c->user, micro_batches[0].thread, c->marks[m]);
    }
    for (int i = 0; i < n; i++)
        if (micro_batches[i].rows)
            TD_TRY(td__runner_end(micro_batches[i].runner));
    while (n-- > 0) /* as brackets: the first one began first, and ends last */
        TD_TRY(c->after(c->user, &micro_batches[n]));
    c->passed(c->user, micro_batches[0].thread, SIZE_MAX);
    return TD_OK;
}

static td_status run_range(void *user, int thread)
{
    td__micro_batch_set *s = user;
    td__micro_batch micro_batches[TD__PLACES];
    for (int i = td__micro_batch_first(s, thread), n; i < td__micro_batch_first(s, thread + 1);
         i += n) {
        TD_TRY(td__micro_batch_take(s, thread, i, micro_batches, &n));
        TD_TRY(micro_batches[0].last && s->now.calls.passed ? run_in_flight(s, micro_batches, n)
                                                            : run_alone(s, &micro_batches[0]));
    }
    return TD_OK;
}

/* ---- A batch --------------------------------------------------------------------------------- */

/* Runners of the thread for its micro-batches, made before the threads are on their way. */
static td_status make_runners(td__micro_batch_set *s, int thread)
{
    td__micro_batch micro_batches[TD__PLACES];
    for (int i = td__micro_batch_first(s, thread), n; i < td__micro_batch_first(s, thread + 1);
         i += n)
        TD_TRY(td__micro_batch_take(s, thread, i, micro_batches, &n));
    return TD_OK;
}

td_status td__micro_batch_clear_rows(td__micro_batch_set *s)
{
    const td__model_lookup *l = s->o.model.lookup;
    return l && l->clear ? l->clear(l->user) : TD_OK;
}

/* Rows of tables come to this rank. */
static td_status look_up(td__micro_batch_set *s, int64_t rows, const td__batch **batch)
{
    const td__model_lookup *l = s->o.model.lookup;
    td__sized *z;
    TD_TRY(find(s, rows, &z));
    if (!z->facts.n_tables)
        return TD_OK;
    if (!l || !l->rows)
        return TD_FAIL(TD_EINVAL,
                       "table %s is on servers, and there are none: only `tandem train --servers` "
                       "has its rows",
                       z->facts.table[0].param);
    return l->rows(l->user, *batch, s->o.use == TD__USE_TRAIN, batch);
}

td_status td__micro_batches_run(td__micro_batch_set *s, const td__batch *batch,
                                td__micro_batch_cut cut, uint32_t step, uint32_t first,
                                td__micro_batch_calls calls)
{
    int64_t rows = batch->rows / cut.micro_batches;
    if (cut.begin == cut.end && !(s->values && td__sync_values_of_all(s->values)))
        return TD_OK;
    TD_ASSERT(
        cut.begin == cut.end ||
            (batch->here.begin <=
                 td__micro_batch_begin(batch->rows, cut.micro_batches, cut.begin) &&
             batch->here.end >= td__micro_batch_begin(batch->rows, cut.micro_batches, cut.end)),
        "rows of micro-batches %d to %d were not read", cut.begin, cut.end);
    TD_TRY(look_up(s, rows ? rows : 1, &batch));
    s->now =
        (td__batch_run){.batch = batch, .cut = cut, .step = step, .first = first, .calls = calls};
    if (rows)
        TD_TRY(find(s, rows, &s->now.low));
    if (batch->rows % cut.micro_batches)
        TD_TRY(find(s, rows + 1, &s->now.high));
    for (int t = 0; t < s->threads; t++)
        TD_TRY(make_runners(s, t));
    return s->values ? td__micro_batches_in_step(s) : td__pool_run(s->o.pool, run_range, s);
}
