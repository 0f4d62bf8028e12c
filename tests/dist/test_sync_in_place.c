/* Rules whose threads update shared params at once, on a linear model, a matrix factorization and
 * embeddings under a dense layer. One thread of hogwild, and any number of threads of cyclades,
 * have the bits of SGD that takes the micro-batches in turn, which is a run of the exact rule with
 * batches of that size. Several threads of hogwild learn, and lose no update that is added. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "base/atomic_float.h"
#include "support/check.h"
#include "tandem/tandem.h"
#include "train/trainer.h"

enum { BATCH = 96, UNIT = 3, SAMPLES = 960 };

static td_status linear(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static const int64_t IDS = 26;
    int32_t starts[BATCH];
    (void)user;
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(rows, IDS));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    for (int64_t i = 0; i < rows; i++)
        starts[i] = (int32_t)(i * IDS);
    td_init init = {.kind = TD_INIT_NORMAL, .b = 0.01};
    td_nn_embedding_opts o = {.sparse = true, .mode = TD_BAG_SUM, .weight_init = &init};
    td_node *h = td_nn_embedding_bag(g, "w", td_reshape(g, ids, TD_SHAPE(-1)),
                                     td_constant(g, TD_I32, TD_SHAPE(rows), starts), 52000, 2, &o);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, h, y, NULL),
                             .output = h,
                             .inputs = {"ids", "y"},
                             .n_inputs = 2};
    return TD_OK;
}

static td_status factors(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static const int WIDTH_AXIS = 1;
    (void)user;
    td_node *user_id = td_input(g, "user", TD_I32, TD_SHAPE(rows));
    td_node *item_id = td_input(g, "item", TD_I32, TD_SHAPE(rows));
    td_node *y = td_input(g, "y", TD_F32, TD_SHAPE(rows));
    td_nn_embedding_opts o = {.sparse = true};
    td_node *u = td_nn_embedding(g, "user", user_id, 300, 4, &o);
    td_node *v = td_nn_embedding(g, "item", item_id, 300, 4, &o);
    td_node *h = td_sum(g, td_mul(g, u, v), &WIDTH_AXIS, 1, false);
    *out = (td__model_nodes){
        .loss = td_mse(g, h, y), .output = h, .inputs = {"user", "item", "y"}, .n_inputs = 3};
    return TD_OK;
}

static td_status deep(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(rows, 26));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 13));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_nn_embedding_opts o = {.sparse = true};
    td_node *v = td_reshape(g, td_nn_embedding(g, "v", ids, 52000, 2, &o), TD_SHAPE(rows, 52));
    td_node *both[] = {v, x};
    td_node *h = td_relu(g, td_nn_linear(g, "fc1", td_concat(g, both, 2, 1), 16, NULL));
    h = td_nn_linear(g, "fc2", h, 2, NULL);
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, h, y, NULL),
                             .output = h,
                             .inputs = {"ids", "x", "y"},
                             .n_inputs = 3};
    return TD_OK;
}

typedef struct problem {
    const char *name, *source;
    td_status (*build)(void *user, td_graph *g, int64_t rows, td__model_nodes *out);
    bool tables_only;
} problem;
static const problem PROBLEMS[] = {{"linear", "clicks", linear, true},
                                   {"factors", "ratings", factors, true},
                                   {"deep", "clicks", deep, false}};

typedef struct outcome {
    td__observer watch;
    char digest[65];
    double first, last; /* losses */
} outcome;

static td_status note_loss(td__observer *watch, const td__step_event *e)
{
    outcome *o = (outcome *)watch;
    o->first = e->step == 1 ? e->loss : o->first;
    o->last = e->loss;
    return TD_OK;
}

/* rule NULL: the exact one, of which a step is a micro-batch. */
static outcome train(const problem *p, const char *rule, int threads, double update, int epochs)
{
    td__data *d;
    td__trainer *t;
    td__train_result r;
    outcome got = {.watch = {.step = note_loss}};
    td__data_opts data = {
        .source = p->source,
        .source_opts = {.count = SAMPLES, .vocab = p->build == factors ? 300 : 52000},
        .seed = 5};
    td__train_opts o = {.batch = rule ? BATCH : UNIT,
                        .micro_batches = rule ? BATCH / UNIT : 1,
                        .epochs = epochs,
                        .threads = threads,
                        .optim = {.name = "sgd", .lr = 0.05},
                        .seed = 3,
                        .valid_every = -1};
    o.sync.rule = rule;
    if (update > 0)
        o.sync.set[o.sync.n_set++] = (td__sync_setting){"update", update};
    CHECK_OK(td__data_open(&data, &d));
    CHECK_OK(td__trainer_create(&o, &(td__model){.build = p->build}, d, &t));
    CHECK_OK(td__trainer_observe(t, &got.watch));
    CHECK_OK(td__trainer_run(t, NULL, &r));
    memcpy(got.digest, r.digest, sizeof got.digest);
    td__trainer_destroy(t);
    td__data_close(d);
    return got;
}

static void check_same(const problem *p, const char *what, int threads, const outcome *a,
                       const outcome *b)
{
    CHECK(strcmp(a->digest, b->digest) == 0, "%s, %s, %d threads: other weights than in turn",
          p->name, what, threads);
}

TEST(cyclades_has_the_bits_of_the_serial_order)
{
    for (int i = 0; i < TD_LEN(PROBLEMS); i++) {
        const problem *p = &PROBLEMS[i];
        if (!p->tables_only)
            continue;
        outcome serial = train(p, NULL, 1, 0, 1);
        for (int threads = 1; threads <= 4; threads++) {
            outcome got = train(p, "cyclades", threads, 0, 1);
            check_same(p, "cyclades", threads, &got, &serial);
        }
    }
}

TEST(one_thread_of_hogwild_has_them_too)
{
    for (int i = 0; i < TD_LEN(PROBLEMS); i++)
        for (int update = 0; update < 2; update++) {
            outcome serial = train(&PROBLEMS[i], NULL, 1, 0, 1);
            outcome got = train(&PROBLEMS[i], "hogwild", 1, update, 1);
            check_same(&PROBLEMS[i], update ? "hogwild add" : "hogwild", 1, &got, &serial);
        }
}

TEST(threads_of_hogwild_learn)
{
    for (int i = 0; i < TD_LEN(PROBLEMS); i++)
        for (int threads = 2; threads <= 4; threads += 2) {
            outcome got = train(&PROBLEMS[i], "hogwild", threads, threads == 4, 8);
            CHECK(got.last < 0.9 * got.first, "%s, %d threads: loss %g, then %g", PROBLEMS[i].name,
                  threads, got.first, got.last);
        }
}

enum { ADDERS = 4, ADDITIONS = 20000 };
static float sums[3];

static void *add(void *user)
{
    (void)user;
    for (int i = 0; i < ADDITIONS; i++)
        td__float_add(&sums[i % 3], 1);
    return NULL;
}

TEST(no_addition_is_lost)
{
    pthread_t thread[ADDERS];
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add, NULL), 0);
    for (int i = 0; i < ADDERS; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ_INT((int)(sums[0] + sums[1] + sums[2]), ADDERS * ADDITIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cyclades_has_the_bits_of_the_serial_order),
        cmocka_unit_test(one_thread_of_hogwild_has_them_too),
        cmocka_unit_test(threads_of_hogwild_learn),
        cmocka_unit_test(no_addition_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
