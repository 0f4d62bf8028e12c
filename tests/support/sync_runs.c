/* sync_runs.c -- see sync_runs.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/sync_runs.h"

#include <math.h>
#include <string.h>

#include "graph/params.h"
#include "support/check.h"
#include "support/train_models.h"
#include "tandem/tandem.h"

static td_status build_quadratic(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, SYNC_WIDTH));
    td_node *h = td_nn_linear(g, "one", x, 1, NULL);
    *out = (td__model_nodes){.loss = td_mean(g, td_square(g, h), NULL, 0, false),
                             .output = h,
                             .inputs = {"x"},
                             .n_inputs = 1};
    return TD_OK;
}

static td_status build_ridge(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, SYNC_WIDTH));
    td_node *y = td_cast(g, td_input(g, "y", TD_I32, TD_SHAPE(rows)), TD_F32);
    td_node *h = td_nn_linear(g, "one", x, 1, NULL);
    td_node *off = td_sub(g, td_reshape(g, h, TD_SHAPE(rows)), y);
    *out = (td__model_nodes){.loss = td_mean(g, td_square(g, off), NULL, 0, false),
                             .output = h,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const train_model MODEL = {
    .name = "quadratic", .build = build_quadratic, .x = {1, {SYNC_WIDTH}}, .classes = 2};

static td_status open_part(void *user, td__part part, td__dataset **out)
{
    (void)user;
    *out = NULL;
    if (part != TD_PART_TRAIN)
        return TD_ENOTSUP;
    *out = train_model_data(&MODEL, SYNC_SAMPLES, 3);
    return TD_OK;
}

static void read_params(td__trainer *t, float *out)
{
    const td_params *ps = td__trainer_params(t);
    const char *const NAMES[] = {"one.weight", "one.bias"};
    for (int i = 0; i < 2; i++) {
        td_param_info info = td_params_info(ps, td_params_find(ps, NAMES[i]));
        td__mapping map;
        CHECK_OK(td__params_map(ps, info.offset, info.count, TD_MAP_READ, &map));
        memcpy(out + i * SYNC_WIDTH, map.at, map.nbytes);
        td__mem_map_drop(&map);
    }
}

typedef struct stopper {
    td__observer head;
    uint64_t after;
    atomic_int stop;
} stopper;

static td_status stop_after(td__observer *o, const td__step_event *e)
{
    stopper *s = (stopper *)o;
    if (e->step + 1 == s->after) /* told with the next one */
        atomic_store(&s->stop, 1);
    return TD_OK;
}

static void find_places(td__trainer *t, sync_run *u)
{
    const td_params *ps = td__trainer_params(t);
    size_t weight = td_params_info(ps, td_params_find(ps, "one.weight")).offset;
    for (size_t p = 0; p < SYNC_WIDTH; p++)
        u->place[p] = weight + p;
    u->place[SYNC_WIDTH] = td_params_info(ps, td_params_find(ps, "one.bias")).offset;
    u->block = td__params_total(ps);
}

typedef struct tracer {
    td__observer head;
    sync_run *run;
    td__trainer *of;
    int rank;
} tracer;

static td_status trace_step(td__observer *o, const td__step_event *e)
{
    tracer *t = (tracer *)o;
    read_params(t->of, t->run->trace[e->step - 1][t->rank]);
    return TD_OK;
}

static void body(ranks_ctx *r)
{
    sync_run *u = r->arg;
    td__model model = {.build = u->problem == SYNC_QUADRATIC ? build_quadratic : build_ridge};
    td__train_opts o = u->opts;
    td__train_result got;
    td__trainer *t;
    stopper stop = {.head = {.step = stop_after}, .after = u->stop_after};
    bool found;
    o.comm = r->comm;
    if (r->rank)
        o.checkpoint_dir = NULL;
    RANK_OK(r, td__trainer_create(&o, &model, u->data, &t));
    tracer trace = {.head = {.step = trace_step}, .run = u, .of = t, .rank = r->rank};
    if (r->rank == 0) {
        read_params(t, u->first);
        find_places(t, u);
    }
    if (u->trace)
        RANK_OK(r, td__trainer_observe(t, &trace.head));
    if (r->rank == 0 && u->observer)
        RANK_OK(r, td__trainer_observe(t, u->observer));
    if (u->resume && r->rank == 0)
        RANK_OK(r, td__trainer_resume(t, &found));
    if (u->stop_after) {
        RANK_OK(r, td__trainer_observe(t, &stop.head));
        RANK_OK(r, td__trainer_run(t, &stop.stop, &got));
        RANK_CHECK(r, got.end == TD_TRAIN_INTERRUPTED && got.step == u->stop_after, "step %d",
                   (int)got.step);
    }
    RANK_OK(r, td__trainer_run(t, r->rank ? NULL : u->stop, &got));
    if (r->rank == 0) {
        read_params(t, u->last);
        u->got = got;
    }
    td__trainer_destroy(t);
}

void sync_run_init(sync_run *u, sync_problem problem, const char *rule)
{
    *u = (sync_run){.problem = problem,
                    .opts = {.batch = SYNC_BATCH,
                             .steps = SYNC_STEPS,
                             .threads = 1,
                             .micro_batches = 12,
                             .valid_every = -1,
                             .seed = SYNC_SEED,
                             .prefetch = -1,
                             .optim = {.name = "sgd", .lr = SYNC_LR},
                             .sync = {.rule = rule},
                             .checkpoint_every = -1}};
    if (problem == SYNC_RIDGE_REGRESSION)
        u->opts.optim.weight_decay = SYNC_RIDGE;
    CHECK_OK(td__data_open(
        &(td__data_opts){.source = "digits", .open_part = open_part, .open_user = u}, &u->data));
}

void sync_run_end(sync_run *u)
{
    td__data_close(u->data);
}

void sync_run_set(sync_run *u, const char *option, double value)
{
    u->opts.sync.set[u->opts.sync.n_set++] = (td__sync_setting){option, value};
}

void sync_run_on(sync_run *u, int n, const ranks_opts *opts)
{
    ranks_run(n, opts, body, u);
}

/* ---- In double ------------------------------------------------------------------------------- */

double sync_sim_mean(const sync_sim *s, int param)
{
    double sum = 0;
    for (int r = 0; r < s->n; r++)
        sum += s->x[r][param];
    return sum / s->n;
}

void sync_sim_grad(const sync_sim *s, int r, const td__batch *b, const double *at, double *out)
{
    int64_t begin = b->rows * r / s->n, end = b->rows * (r + 1) / s->n;
    const float *rows = b->field[0];
    const int32_t *y = b->field[1];
    bool ridge = s->problem == SYNC_RIDGE_REGRESSION;
    for (int k = 0; k < SYNC_PARAMS; k++)
        out[k] = ridge ? SYNC_RIDGE * at[k] : 0;
    for (int64_t i = begin; i < end; i++) {
        double h = at[SYNC_WIDTH] - (ridge ? (double)y[i] : 0);
        for (int k = 0; k < SYNC_WIDTH; k++)
            h += at[k] * (double)rows[i * SYNC_WIDTH + k];
        for (int k = 0; k < SYNC_PARAMS; k++)
            out[k] += 2 * h * (k < SYNC_WIDTH ? (double)rows[i * SYNC_WIDTH + k] : 1) /
                      (double)(end - begin);
    }
}

void sync_sim_descend(sync_sim *s, int r, const td__batch *b)
{
    double grad[SYNC_PARAMS];
    sync_sim_grad(s, r, b, s->x[r], grad);
    for (int k = 0; k < SYNC_PARAMS; k++)
        s->x[r][k] -= SYNC_LR * grad[k];
}

td__loader *sync_batches(td__dataset **data)
{
    td__loader_opts o = {
        .batch = SYNC_BATCH, .shuffle = true, .augment = true, .seed = SYNC_SEED, .prefetch = -1};
    td__loader *l;
    *data = train_model_data(&MODEL, SYNC_SAMPLES, 3);
    CHECK_OK(td__loader_create(*data, &o, &l));
    return l;
}

td__loader *sync_samples(td__dataset **data)
{
    td__loader *l;
    *data = train_model_data(&MODEL, SYNC_SAMPLES, 3);
    CHECK_OK(
        td__loader_create(*data, &(td__loader_opts){.batch = SYNC_SAMPLES, .prefetch = -1}, &l));
    return l;
}

void sync_sim_begin(sync_sim *s, const sync_run *u)
{
    s->problem = u->problem;
    for (int p = 0; p < SYNC_PARAMS; p++) {
        s->c[p] = (double)u->first[p];
        for (int r = 0; r < s->n; r++)
            s->x[r][p] = s->c[p];
    }
}

/* Normal equations, by Gauss and Jordan. */
void sync_ridge_optimum(double *out)
{
    enum { P = SYNC_PARAMS };
    td__dataset *data;
    td__loader *l = sync_samples(&data);
    const td__batch *b;
    double m[P][P + 1] = {{0}};
    CHECK_OK(td__loader_next(l, &b));
    const float *x = b->field[0];
    const int32_t *y = b->field[1];
    for (int i = 0; i < SYNC_SAMPLES; i++) {
        double row[P + 1];
        for (int k = 0; k < P; k++)
            row[k] = k < SYNC_WIDTH ? (double)x[i * SYNC_WIDTH + k] : 1;
        row[P] = y[i];
        for (int j = 0; j < P; j++)
            for (int k = 0; k <= P; k++)
                m[j][k] += 2 * row[j] * row[k] / SYNC_SAMPLES;
    }
    for (int j = 0; j < P; j++)
        m[j][j] += SYNC_RIDGE;
    for (int j = 0; j < P; j++) {
        double pivot = m[j][j]; /* positive definite */
        for (int k = 0; k <= P; k++)
            m[j][k] /= pivot;
        for (int i = 0; i < P; i++) {
            double f = i == j ? 0 : m[i][j];
            for (int k = 0; k <= P; k++)
                m[i][k] -= f * m[j][k];
        }
    }
    for (int j = 0; j < P; j++)
        out[j] = m[j][P];
    td__loader_destroy(l);
    td__dataset_destroy(data);
}
