/* sync_ensemble_compress.c -- ensemble and compression (EC-DNN: Sun, Chen, Bian and Liu, 2017):
 * where the loss is not convex, the mean of the ranks' params may be worse than each of them, but
 * the mean of their outputs is not. So every tau steps ranks exchange their models, and in the
 * `compress` steps that follow each rank labels its own samples anew with the mean output of all
 * models and trains its own model, which stays as large as it was, on these labels too:
 *
 *     loss_i = (1 - weight) f_i(x_i) + weight mean (h(x_i) - (1/n) sum_k h(x_k of the exchange))^2
 *
 * with h the model's output (logits of classes). Then it goes on with its own loss. At a meeting
 * all take the model of the rank whose own loss was the lowest since the last one; labels that are
 * not used up are dropped.
 *
 * Steps with new labels are those of another engine, whose program has that loss and one input
 * more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/sync_local.h"
#include "step/work_partition.h"
#include "tandem/graph.h"
#include "tandem/ops.h"

static const char LABEL[] = "ensemble/output";

typedef struct ensemble {
    td__sync_local base;
    td__model inner; /* of the job */
    td__micro_batch_set *students, *teachers;
    td__step_engine *plain, *compressing; /* plain: the one that came with the rule */
    td__dataset data;                     /* the fields of the job's, and the labels */
    float *models;                        /* (ranks, count) of the last exchange */
    float *labels, *output;               /* (rows of a batch, row) */
    size_t row;                           /* floats of a row of outputs */
    uint64_t exchanged; /* the step of it; 0: there was none since ranks have met */
    double loss, steps; /* own ones since then */
    td__batch *batch;   /* that is being labelled */
} ensemble;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("32"),
    TD_KEY_ROW("compress", INT, "Steps after an exchange with the ensemble's labels.", .lo = 1,
               .hi = 1000000, .def = "8"),
    TD_KEY_ROW("weight", REAL, "Share of those labels in the loss of such a step.", .hi = 1,
               .flags = TD_KEY_ABOVE, .def = "0.1"),
    TD_KEYS_END};

/* ---- Models ---------------------------------------------------------------------------------- */

/* The job's model with the loss of a step that compresses. */
static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    ensemble *e = user;
    double weight = td__sync_value(&e->base.base, "weight");
    TD_TRY(e->inner.build(e->inner.user, g, rows, out));
    td_node *label = td_input(g, LABEL, TD_F32, td_node_shape(out->output));
    td_node *off = td_sub(g, td_cast(g, out->output, TD_F32), label);
    td_node *far = td_mean(g, td_square(g, off), NULL, 0, false);
    out->loss = td_add(g, td_affine(g, out->loss, 1 - weight, 0), td_affine(g, far, weight, 0));
    if (out->n_inputs == TD__MAX_MODEL_INPUTS)
        return TD_FAIL(TD_EINVAL,
                       "the sync rule ensemble-compress needs an input of its own, the "
                       "model has %d",
                       out->n_inputs);
    out->inputs[out->n_inputs++] = LABEL;
    return TD_OK;
}

static td_status make_set(ensemble *e, td__micro_batch_use use, td__micro_batch_set **out)
{
    td__sync *s = &e->base.base;
    td__micro_batch_set_opts o = *td__micro_batch_options(s->x.step.set);
    o.use = use;
    o.profile = false;
    if (use == TD__USE_TRAIN)
        o.model = (td__model){.build = build, .user = e};
    TD_TRY(td__micro_batch_set_create(&o, out));
    td__micro_batch_set_params(*out, s->x.step.params);
    return TD_OK;
}

static td_status make_label(ensemble *e, const td__model_facts *facts)
{
    td__field *f = &e->data.fields[e->data.n_fields];
    const td_shape *shape = &facts->output_shape;
    if (e->data.n_fields == TD__MAX_FIELDS || facts->output_dtype != TD_F32 || shape->ndim < 1)
        return TD_FAIL(TD_EINVAL, "the sync rule ensemble-compress cannot label samples with this "
                                  "model's output");
    *f = (td__field){.dtype = TD_F32, .shape = {.ndim = shape->ndim - 1}};
    memcpy(f->name, LABEL, sizeof LABEL);
    e->row = 1;
    for (int i = 1; i < shape->ndim; i++)
        e->row *= (size_t)(f->shape.dim[i - 1] = shape->dim[i]);
    e->data.n_fields++;
    return TD_OK;
}

static td_status make_engine(ensemble *e)
{
    td__sync *s = &e->base.base;
    td__step_opts o = *td__step_opts_of(s->engine);
    int64_t rows = (s->x.batch + o.micro_batches - 1) / o.micro_batches;
    td__model_facts facts;
    const td_program *program;
    TD_TRY(make_set(e, TD__USE_PREDICT, &e->teachers));
    TD_TRY(td__micro_batch_program(e->teachers, rows, &program, &facts));
    TD_TRY(td__micro_batch_set_dataset(e->teachers, &e->data, rows));
    TD_TRY(make_label(e, &facts));
    TD_TRY(make_set(e, TD__USE_TRAIN, &e->students));
    TD_TRY(td__micro_batch_program(e->students, rows, &o.program, NULL));
    TD_TRY(td__micro_batch_set_dataset(e->students, &e->data, rows));
    o.set = e->students;
    return td__step_engine_create(&o, &e->compressing);
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 0};
    ensemble *e = (ensemble *)s;
    TD_TRY(td__sync_local_create(s, &OPS));
    if (!s->x.data)
        return TD_FAIL(TD_EINVAL, "the sync rule ensemble-compress needs a data set");
    e->plain = s->engine;
    e->inner = td__micro_batch_options(s->x.step.set)->model;
    e->data.n_fields = s->x.data->n_fields;
    memcpy(e->data.fields, s->x.data->fields, sizeof e->data.fields);
    TD_TRY(make_engine(e));
    size_t rows = (size_t)s->x.batch * e->row;
    e->models = td__calloc(e->base.count * (size_t)e->base.ranks + 1, sizeof *e->models);
    e->labels = td__calloc(rows + 1, sizeof *e->labels);
    e->output = td__calloc(rows + 1, sizeof *e->output);
    return e->models && e->labels && e->output
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for the models of %d ranks", e->base.ranks);
}

static void destroy(td__sync *s)
{
    ensemble *e = (ensemble *)s;
    if (e->plain)
        s->engine = e->plain;
    td__step_engine_destroy(e->compressing);
    td__micro_batch_set_destroy(e->students);
    td__micro_batch_set_destroy(e->teachers);
    td__free(e->models);
    td__free(e->labels);
    td__free(e->output);
    td__sync_local_destroy(s);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static bool compresses(const ensemble *e)
{
    return e->exchanged &&
           e->base.step - e->exchanged <= (uint64_t)td__sync_value(&e->base.base, "compress");
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    ensemble *e = (ensemble *)s;
    td__step_engine *was = s->engine;
    TD_TRY(td__sync_local_begin(s, at));
    s->engine = compresses(e) ? e->compressing : e->plain;
    if (s->engine != was)
        td__step_begin(s->engine, td__step_number(was), td__step_batches(was), td__step_rows(was));
    return TD_OK;
}

static td_status keep_rows(void *user, const td__micro_batch *m)
{
    ensemble *e = user;
    size_t nbytes;
    if (!m->runner)
        return TD_OK;
    const void *from = td_runner_output(m->runner, 0, &nbytes);
    size_t at = (size_t)(m->begin - e->batch->here.begin) * e->row;
    if (nbytes != (size_t)m->rows * e->row * sizeof(float))
        return TD_FAIL(TD_EINVAL, "%zu bytes of output for %lld rows", nbytes, (long long)m->rows);
    memcpy(e->output + at, from, nbytes);
    return TD_OK;
}

static td_status put_params(td__sync *s, const float *from)
{
    td_params *params = s->x.step.params;
    TD_TRY(td__mem_write(td__params_device(params), td_params_block(params, NULL), from,
                         td__params_total(params) * sizeof *from));
    td_params_touch(params);
    return TD_OK;
}

/* The mean output of all models on this rank's rows, in the order of ranks. base.mean keeps the
 * params of this rank meanwhile. */
static td_status label(ensemble *e, td__batch *b)
{
    td__sync *s = &e->base.base;
    const td__step_opts *o = td__step_opts_of(s->engine);
    td_params *params = s->x.step.params;
    td__micro_batch_range own = td__rank_micro_batches(o->micro_batches, o->rank, o->size);
    size_t n = (size_t)(b->here.end - b->here.begin) * e->row;
    td_status st = TD_OK;
    e->batch = b;
    TD_TRY(td__mem_read(td__params_device(params), e->base.mean, td_params_block(params, NULL),
                        e->base.count * sizeof *e->base.mean));
    memset(e->labels, 0, n * sizeof *e->labels);
    for (int r = 0; !st && r < e->base.ranks; r++) {
        st = put_params(s, e->models + (size_t)r * e->base.count);
        if (!st)
            st = td__micro_batches_run(
                e->teachers, b, (td__micro_batch_cut){o->micro_batches, own.begin, own.end}, 0, 0,
                (td__micro_batch_calls){.after = keep_rows, .user = e});
        for (size_t i = 0; !st && i < n; i++)
            e->labels[i] += e->output[i] / (float)e->base.ranks;
    }
    td_status back = put_params(s, e->base.mean);
    return st ? st : back;
}

static td_status batch(td__sync *s, const td__batch *from)
{
    ensemble *e = (ensemble *)s;
    if (s->engine == e->plain)
        return td__step_batch(s->engine, from);
    td__batch b = *from;
    TD_TRY(label(e, &b));
    b.field[e->data.n_fields - 1] = e->labels;
    return td__step_batch(s->engine, &b);
}

/* The mean loss of this rank's rows, before the numbers of all are added up. */
static void note_loss(ensemble *e, const td__grad_share *own)
{
    td__sync *s = &e->base.base;
    double weight = td__step_own_weight(s->engine);
    double all = s->x.step.weights ? 1 : (double)td__step_rows(s->engine);
    if (s->engine != e->plain || !(weight > 0))
        return;
    e->loss += own->loss * all / weight;
    e->steps++;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    td__grad_share own;
    TD_TRY(td__step_own_share(s->engine, &own));
    note_loss((ensemble *)s, &own);
    TD_TRY(td__sync_sum_numbers(s));
    if (own.grads)
        TD_TRY(td__step_apply(s->engine, NULL, 0, lr, out));
    td__step_done(s->engine, out);
    return TD_OK;
}

static td_status gather(td__sync *s)
{
    ensemble *e = (ensemble *)s;
    td_params *params = s->x.step.params;
    td__step_times *times = td__step_times_of(s->engine);
    td__mapping map;
    if (!td__sync_kind(s))
        return TD_OK;
    TD_TRY(td__params_map(params, 0, e->base.count, TD_MAP_READ, &map));
    td_status st = TD_OK;
    if (s->x.comm)
        st = td_all_gather(s->x.comm, map.at, e->models, e->base.count, TD_F32, NULL);
    else
        memcpy(e->models, map.at, map.nbytes);
    td__mem_map_drop(&map);
    TD_TRY(st);
    e->exchanged = e->base.step;
    times->sent_nbytes = times->plain_nbytes =
        (size_t)(e->base.ranks - 1) * e->base.count * sizeof(float);
    return TD_OK;
}

/* Whose own loss was the lowest; ties: the first. */
static td_status find_best(ensemble *e, int *best)
{
    td_comm *comm = e->base.base.x.comm;
    double mine = e->steps > 0 ? e->loss / e->steps : HUGE_VAL, lowest = mine;
    int32_t rank = e->base.ranks;
    TD_TRY(td_allreduce(comm, &mine, &lowest, 1, TD_F64, TD_REDUCE_MIN, NULL));
    if (mine <= lowest)
        rank = td_comm_rank(comm);
    TD_TRY(td_allreduce(comm, &rank, &rank, 1, TD_I32, TD_REDUCE_MIN, NULL));
    *best = rank < e->base.ranks ? rank : 0;
    return TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    ensemble *e = (ensemble *)s;
    td_params *params = s->x.step.params;
    td__mapping map;
    int best;
    if (why == TD_MEET_BEGIN)
        TD_TRY(td__sync_local_meet(s, why));
    if (why != TD_MEET_BEGIN && s->x.comm) {
        TD_TRY(find_best(e, &best));
        TD_TRY(td__params_map(params, 0, e->base.count, TD_MAP_BOTH, &map));
        td_status st = td_broadcast(s->x.comm, map.at, e->base.count, TD_F32, best, NULL);
        if (st)
            td__mem_map_drop(&map);
        TD_TRY(st ? st : td__mem_unmap(&map));
        td_params_touch(params);
    }
    e->exchanged = 0;
    e->loss = e->steps = 0;
    return why == TD_MEET_BEGIN ? TD_OK : td__local_share_optimizer(&e->base);
}

/* The models of all ranks, and what a second engine holds. */
static size_t exchange(const td__sync_sizes *z)
{
    return td__sync_local_exchange(z) + (size_t)z->world.ranks * z->params + 2 * z->grads;
}

static void plan(td__planner *w)
{
    td__local_plan_step(w);
    if (td__planner_kind(w))
        td__planner_coll(w, TD_PLAN_ALL_GATHER,
                         (uint64_t)w->ranks * td__params_total(w->at->params) * sizeof(float), 0);
}

const td__sync_ops td__sync_ensemble_compress = {
    .name = "ensemble-compress",
    .help = "local updates; every tau steps ranks learn what the ensemble of all models says",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(ensemble),
    .reads_batches = true,
    .check = td__sync_local_check,
    .traits = td__sync_local_traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .batch = batch,
    .step = step,
    .gather = gather,
    .plan = plan,
    .kind = td__sync_local_kind,
    .meet = meet,
};
