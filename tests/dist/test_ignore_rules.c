/* Ignored targets (loss.ignore) with rules that take the mean over some ranks' rows: local updates
 * and backup workers. Their mean is over the targets that count in those rows, however few; also
 * where ranks have samples of their own (data.partition). The loss is that of all ranks' targets.
 * Held against softmax regression in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "data/loader.h"
#include "graph/params.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/train_models.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

/* Class 0 is ignored: by chance a rank has more of it than another, or nothing else. */
enum { SAMPLES = 30, BATCH = 6, WIDTH = 4, CLASSES = 3, IGNORE = 0, STEPS = 10, SEED = 7 };
static const double LR = 0.5;

static td_status build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, WIDTH));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_nn_linear(g, "fc", x, CLASSES, NULL);
    td_xent_opts opts = {.use_ignore = true, .ignore_index = IGNORE};
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, h, y, &opts),
                             .output = h,
                             .ignoring = "y",
                             .ignore = IGNORE,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static const train_model MODEL = {
    .name = "regression", .build = build, .x = {1, {WIDTH}}, .classes = CLASSES};

static td_status open_part(void *user, td__part part, td__dataset **out)
{
    (void)user;
    *out = NULL;
    if (part != TD_PART_TRAIN)
        return TD_ENOTSUP;
    *out = train_model_data(&MODEL, SAMPLES, 3);
    return TD_OK;
}

typedef struct regression {
    double w[CLASSES][WIDTH], b[CLASSES];
} regression;

static regression weights_of(td__trainer *t)
{
    td_params *ps = td__trainer_params(t);
    td_param_info w = td_params_info(ps, td_params_find(ps, "fc.weight"));
    td_param_info b = td_params_info(ps, td_params_find(ps, "fc.bias"));
    const float *block = td_params_block(ps, NULL);
    regression m;
    for (int c = 0; c < CLASSES; c++) {
        m.b[c] = (double)block[b.offset + (size_t)c];
        for (int j = 0; j < WIDTH; j++)
            m.w[c][j] = (double)block[w.offset + (size_t)(c * WIDTH + j)];
    }
    return m;
}

/* Losses before a step, and how many. */
typedef struct losses {
    double sum, counted;
} losses;

/* A step of gradient descent on the rows that were read; false: none of them counts. */
static bool descend(regression *m, const td__batch *batch, losses *all)
{
    const float *x = batch->field[0];
    const int32_t *y = batch->field[1];
    regression g = {0};
    double counted = 0;
    for (int64_t i = 0; i < batch->here.end - batch->here.begin; i++) {
        double z[CLASSES], sum = 0;
        if (y[i] == IGNORE)
            continue;
        counted++;
        for (int c = 0; c < CLASSES; c++) {
            z[c] = m->b[c];
            for (int j = 0; j < WIDTH; j++)
                z[c] += m->w[c][j] * (double)x[i * WIDTH + j];
            sum += exp(z[c]);
        }
        all->sum += log(sum) - z[y[i]];
        for (int c = 0; c < CLASSES; c++) {
            double d = exp(z[c]) / sum - (c == y[i]);
            g.b[c] += d;
            for (int j = 0; j < WIDTH; j++)
                g.w[c][j] += d * (double)x[i * WIDTH + j];
        }
    }
    all->counted += counted;
    for (int c = 0; counted > 0 && c < CLASSES; c++) {
        m->b[c] -= LR * g.b[c] / counted;
        for (int j = 0; j < WIDTH; j++)
            m->w[c][j] -= LR * g.w[c][j] / counted;
    }
    return counted > 0;
}

static regression mean_of(const regression *a, const regression *b)
{
    regression m;
    for (int c = 0; c < CLASSES; c++) {
        m.b[c] = (a->b[c] + b->b[c]) / 2;
        for (int j = 0; j < WIDTH; j++)
            m.w[c][j] = (a->w[c][j] + b->w[c][j]) / 2;
    }
    return m;
}

static const int RANK[2] = {0, 1};

static td__row_range half(const void *user, int64_t index, int64_t rows)
{
    int rank = *(const int *)user;
    (void)index;
    return (td__row_range){rank * rows / 2, (rank + 1) * rows / 2};
}

/* One of the ways to give ranks samples of their own; NULL: rows of one order. */
typedef struct own_data {
    const char *name;
    td__partition_mode mode;
} own_data;

/* Two ranks; alone: rank 0 is the one that counts. The mean loss of the last step. */
static double simulate(regression *m, bool alone, const own_data *way)
{
    td__dataset *d = train_model_data(&MODEL, SAMPLES, 3);
    losses last = {0};
    td__loader *l[2];
    int idle = 0;
    for (int r = 0; r < 2; r++) {
        td__loader_opts o = {.batch = BATCH,
                             .shuffle = true,
                             .augment = true,
                             .seed = SEED,
                             .prefetch = -1,
                             .rows = half,
                             .rows_user = &RANK[r]};
        if (way) {
            o.in_step = true;
            o.partition = (td__partition){.mode = way->mode, .worker = r, .workers = 2};
        }
        CHECK_OK(td__loader_create(d, &o, &l[r]));
    }
    for (int step = 0; step < STEPS; step++) {
        regression by[2] = {*m, *m};
        last = (losses){0};
        for (int r = 0; r < 2; r++) {
            const td__batch *b;
            CHECK_OK(td__loader_next(l[r], &b));
            idle += !descend(&by[r], b, &last);
        }
        *m = alone ? by[0] : mean_of(&by[0], &by[1]);
    }
    CHECK(way || idle > 0, "every rank has counted targets in every step");
    td__loader_destroy(l[0]);
    td__loader_destroy(l[1]);
    td__dataset_destroy(d);
    return last.sum / last.counted;
}

typedef struct run {
    td__sync_config sync;
    const own_data *own_data;
    double loss;
    td__data *data;
    regression first, last; /* of rank 0 */
} run;

static void train(ranks_ctx *r)
{
    run *u = r->arg;
    td__model model = {.build = build};
    td__train_opts o = {.batch = BATCH,
                        .steps = STEPS,
                        .threads = 1,
                        .micro_batches = 2,
                        .valid_every = -1,
                        .seed = SEED,
                        .prefetch = -1,
                        .optim = {.name = "sgd", .lr = LR},
                        .sync = u->sync,
                        .partition = u->own_data ? u->own_data->name : NULL,
                        .checkpoint_every = -1,
                        .comm = r->comm};
    td__train_result got;
    td__trainer *t;
    RANK_OK(r, td__trainer_create(&o, &model, u->data, &t));
    if (r->rank == 0)
        u->first = weights_of(t);
    RANK_OK(r, td__trainer_run(t, NULL, &got));
    if (r->rank == 0) {
        u->last = weights_of(t);
        u->loss = got.train_loss;
    }
    td__trainer_destroy(t);
}

TEST(the_mean_is_over_what_counts)
{
    static const td__sync_config RULES[] = {
        {.rule = "ma", .set = {{"tau", 1}}, .n_set = 1},
        {.rule = "local-sgd", .set = {{"tau", 1}}, .n_set = 1},
        {.backup = 1},
    };
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        const char *name = RULES[i].rule ? RULES[i].rule : "backup";
        run u = {.sync = RULES[i]};
        CHECK_OK(
            td__data_open(&(td__data_opts){.source = "digits", .open_part = open_part}, &u.data));
        ranks_run(2, NULL, train, &u);
        simulate(&u.first, RULES[i].backup > 0, NULL);
        for (int c = 0; c < CLASSES; c++)
            CHECK(fabs(u.last.b[c] - u.first.b[c]) < 1e-5 &&
                      fabs(u.last.w[c][1] - u.first.w[c][1]) < 1e-5,
                  "%s: bias %d is %.9g, expected %.9g", name, c, u.last.b[c], u.first.b[c]);
        td__data_close(u.data);
    }
}

TEST(ranks_with_samples_of_their_own)
{
    static const own_data WAYS[] = {{"even", TD_PARTITION_EVEN},
                                    {"shuffled", TD_PARTITION_SHUFFLED},
                                    {"replacement", TD_PARTITION_REPLACEMENT}};
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        run u = {.sync = {.rule = "ma", .set = {{"tau", 1}}, .n_set = 1}, .own_data = &WAYS[i]};
        CHECK_OK(
            td__data_open(&(td__data_opts){.source = "digits", .open_part = open_part}, &u.data));
        ranks_run(2, NULL, train, &u);
        double loss = simulate(&u.first, false, u.own_data);
        CHECK(fabs(u.loss - loss) < 1e-5, "%s: loss %.9g, expected %.9g", WAYS[i].name, u.loss,
              loss);
        for (int c = 0; c < CLASSES; c++)
            CHECK(fabs(u.last.b[c] - u.first.b[c]) < 1e-5 &&
                      fabs(u.last.w[c][1] - u.first.w[c][1]) < 1e-5,
                  "%s: bias %d is %.9g, expected %.9g", WAYS[i].name, c, u.last.b[c], u.first.b[c]);
        td__data_close(u.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_mean_is_over_what_counts),
                                       cmocka_unit_test(ranks_with_samples_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
