/* micro_batches.c -- see micro_batches.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/micro_batches.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/lone_norm.h"
#include "graph/runner.h"
#include "step/kept_samples.h"
#include "step/row_cache.h"

/* A program for one number of rows. */
typedef struct sized {
    int64_t rows; /* 0: free */
    td_program *program;
    td__model_facts facts;
    td_runner **runners; /* (threads, TD__MOST_IN_FLIGHT) NULL until needed */
} sized;

/* The batch being run. */
typedef struct run {
    const td__batch *batch;
    td__micro_batch_cut cut;
    uint32_t step, first;
    sized *low, *high; /* of rows / micro-batches, and of one row more */
    td__micro_batch_calls calls;
} run;

/* A micro-batch that is in flight with others of its batch. */
typedef struct in_step {
    td__micro_batch at;
    td__synced value; /* that it has come to */
} in_step;

struct td__micro_batch_set {
    td__micro_batch_set_opts o;
    td__sync_values *values;
    in_step *in_step; /* (threads, TD__MOST_IN_FLIGHT) with values */
    int64_t *begins;  /* rows of micro-batches, with values */
    td_params *ps;
    int threads;
    sized sizes[TD__ROW_PLACES]; /* by place of the cache */
    td__row_cache cache;
    int field_of[TD__MAX_MODEL_INPUTS]; /* by input; -1: the program does not read it */
    size_t row_nbytes[TD__MAX_MODEL_INPUTS];
    run now;
    pthread_mutex_t lock; /* of the list of programs and runners, which other threads look at */
};

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

static void drop(td__micro_batch_set *s, sized *z)
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
    f->n_tables = n->n_tables;
    memcpy(f->table, n->table, sizeof f->table);
}

static td_status make_program(td__micro_batch_set *s, td_graph *g, sized *z)
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

static td_status make(td__micro_batch_set *s, int64_t rows, sized *z)
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
static td_status find(td__micro_batch_set *s, int64_t rows, sized **out)
{
    bool found;
    int place = td__row_cache_find(&s->cache, rows, &found);
    sized *z = *out = &s->sizes[place];
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
    sized *z;
    TD_TRY(find(s, rows, &z));
    *out = z->program;
    if (facts)
        *facts = z->facts;
    return TD_OK;
}

int td__micro_batch_runners(const td__micro_batch_set *s)
{
    return s->threads * TD__MOST_IN_FLIGHT;
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

/* The nth runner of a thread; those before it are there. */
static td_status runner_of(td__micro_batch_set *s, sized *z, int thread, int n, td_runner **out)
{
    td_runner **all = &z->runners[thread * TD__MOST_IN_FLIGHT];
    if (!all[n]) {
        td_runner *r;
        TD_TRY(n ? td__runner_create_sibling(all[0], &r) : td_runner_create(z->program, s->ps, &r));
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
    sized *z;
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

static sized *size_of(const run *n, int64_t rows)
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

static td_status set_inputs(const td__micro_batch_set *s, const sized *z, td_runner *r,
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
    sized *z;
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

static int first_of(const td__micro_batch_set *s, int thread)
{
    return td__micro_batch_of_thread(s->now.cut, thread, s->threads);
}

/* The thread's next micro-batches, from i on: one, or those that it runs last. A runner has one of
 * them at a time, so of those of one size each has its own. */
static td_status take(td__micro_batch_set *s, int thread, int i, td__micro_batch *out, int *n)
{
    const run *now = &s->now;
    int in_flight = s->values ? TD__MOST_IN_FLIGHT : now->calls.passed ? now->calls.in_flight : 1;
    int end = first_of(s, thread + 1), last = end - in_flight;
    last = last > first_of(s, thread) ? last : first_of(s, thread);
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

/* Ready to be run. */
static td_status begin(td__micro_batch_set *s, const td__micro_batch *micro_batch)
{
    const run *n = &s->now;
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
    TD_TRY(begin(s, micro_batch));
    if (micro_batch->rows)
        TD_TRY(td__runner_end(micro_batch->runner));
    return s->now.calls.after(s->now.calls.user, micro_batch);
}

static td_status run_in_flight(td__micro_batch_set *s, const td__micro_batch *micro_batches, int n)
{
    const td__micro_batch_calls *c = &s->now.calls;
    bool some = false;
    for (int i = 0; i < n; i++) {
        TD_TRY(begin(s, &micro_batches[i]));
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
    td__micro_batch micro_batches[TD__MOST_IN_FLIGHT];
    for (int i = first_of(s, thread), n; i < first_of(s, thread + 1); i += n) {
        TD_TRY(take(s, thread, i, micro_batches, &n));
        TD_TRY(micro_batches[0].last && s->now.calls.passed ? run_in_flight(s, micro_batches, n)
                                                            : run_alone(s, &micro_batches[0]));
    }
    return TD_OK;
}

/* ---- Values of all micro-batches ------------------------------------------------------------- */

td_status td__micro_batch_set_values(td__micro_batch_set *s, td__sync_values *values)
{
    enum { MOST = 4096 }; /* micro-batches of a batch */
    size_t n = (size_t)td__micro_batch_runners(s);
    if (!s->in_step)
        s->in_step = td__calloc(n, sizeof *s->in_step);
    if (!s->begins)
        s->begins = td__calloc(MOST + 1, sizeof *s->begins);
    if (!s->in_step || !s->begins)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu micro-batches side by side", n);
    s->values = values;
    return TD_OK;
}

void td__micro_batch_drop_values(td__micro_batch_set *s)
{
    s->values = NULL;
}

static in_step *in_step_of(const td__micro_batch_set *s, int thread)
{
    return s->in_step + thread * TD__MOST_IN_FLIGHT;
}

static td_status begin_in_step(void *user, int thread)
{
    td__micro_batch_set *s = user;
    td__micro_batch at[TD__MOST_IN_FLIGHT];
    int first = first_of(s, thread), n = 0;
    if (first < first_of(s, thread + 1))
        TD_TRY(take(s, thread, first, at, &n));
    for (int i = 0; i < n; i++) {
        in_step_of(s, thread)[i].at = at[i];
        TD_TRY(begin(s, &at[i]));
    }
    return TD_OK;
}

static td_status next_in_step(void *user, int thread)
{
    const td__micro_batch_set *s = user;
    for (int i = 0, n = first_of(s, thread + 1) - first_of(s, thread); i < n; i++) {
        in_step *m = &in_step_of(s, thread)[i];
        if (m->at.rows)
            m->value = td__runner_until_sync(m->at.runner);
    }
    return TD_OK;
}

static td_status end_in_step(void *user, int thread)
{
    const td__micro_batch_set *s = user;
    const td__micro_batch_calls *c = &s->now.calls;
    const in_step *m = in_step_of(s, thread);
    int n = first_of(s, thread + 1) - first_of(s, thread);
    for (int i = 0; i < n; i++)
        if (m[i].at.rows)
            TD_TRY(td__runner_end(m[i].at.runner));
    for (int i = n; i-- > 0;)
        TD_TRY(c->after(c->user, &m[i].at));
    if (c->passed && n)
        c->passed(c->user, thread, SIZE_MAX);
    return TD_OK;
}

static td_status exchange(td__micro_batch_set *s, int point)
{
    td__sync_values_begin(s->values, point);
    for (int t = 0; t < s->threads; t++)
        for (int i = 0, n = first_of(s, t + 1) - first_of(s, t); i < n; i++)
            if (in_step_of(s, t)[i].at.rows)
                td__sync_values_put(s->values, in_step_of(s, t)[i].at.index,
                                    &in_step_of(s, t)[i].value);
    TD_TRY(td__sync_values_exchange(s->values, s->begins));
    for (int t = 0; t < s->threads; t++)
        for (int i = 0, n = first_of(s, t + 1) - first_of(s, t); i < n; i++)
            if (in_step_of(s, t)[i].at.rows)
                td__sync_values_take(s->values, in_step_of(s, t)[i].at.rows,
                                     &in_step_of(s, t)[i].value);
    return TD_OK;
}

/* All micro-batches of this rank, from one value to the next. A rank without any takes part in the
 * exchange. */
static td_status run_in_step(td__micro_batch_set *s)
{
    const td__micro_batch_cut *cut = &s->now.cut;
    for (int i = 0; i <= cut->micro_batches; i++)
        s->begins[i] = td__micro_batch_begin(s->now.batch->rows, cut->micro_batches, i);
    TD_TRY(td__pool_run(s->o.pool, begin_in_step, s));
    for (int p = 0; p < td__sync_values_points(s->values); p++) {
        TD_TRY(td__pool_run(s->o.pool, next_in_step, s));
        TD_TRY(exchange(s, p));
    }
    return td__pool_run(s->o.pool, end_in_step, s);
}

/* ---- A batch --------------------------------------------------------------------------------- */

/* Runners of the thread for its micro-batches, made before the threads are on their way. */
static td_status make_runners(td__micro_batch_set *s, int thread)
{
    td__micro_batch micro_batches[TD__MOST_IN_FLIGHT];
    for (int i = first_of(s, thread), n; i < first_of(s, thread + 1); i += n)
        TD_TRY(take(s, thread, i, micro_batches, &n));
    return TD_OK;
}

/* Rows of tables come to this rank. */
static td_status look_up(td__micro_batch_set *s, int64_t rows, const td__batch **batch)
{
    const td__model_lookup *l = s->o.model.lookup;
    sized *z;
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
    if (cut.begin == cut.end && !s->values)
        return TD_OK;
    TD_ASSERT(
        cut.begin == cut.end ||
            (batch->here.begin <=
                 td__micro_batch_begin(batch->rows, cut.micro_batches, cut.begin) &&
             batch->here.end >= td__micro_batch_begin(batch->rows, cut.micro_batches, cut.end)),
        "rows of micro-batches %d to %d were not read", cut.begin, cut.end);
    TD_TRY(look_up(s, rows ? rows : 1, &batch));
    s->now = (run){.batch = batch, .cut = cut, .step = step, .first = first, .calls = calls};
    if (rows)
        TD_TRY(find(s, rows, &s->now.low));
    if (batch->rows % cut.micro_batches)
        TD_TRY(find(s, rows + 1, &s->now.high));
    for (int t = 0; t < s->threads; t++)
        TD_TRY(make_runners(s, t));
    return s->values ? run_in_step(s) : td__pool_run(s->o.pool, run_range, s);
}
