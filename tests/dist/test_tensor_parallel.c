/* Products in pieces, and what lies between them on rows (sequence): the same loss and gradients as
 * whole ones but for rounding; and the same bits for any number of ranks that divides the pieces.
 * Rows take less memory. Then a rank that fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "graph/program_impl.h"
#include "graph/tensor.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/nn.h"

enum { ROWS = 6, CONTEXT = 8, VOCAB = 67, MOST = 1 << 20 };

/* ---- Models ---------------------------------------------------------------------------------- */

static td_node *mlp(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, 24));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(ROWS));
    static const int64_t WIDTHS[] = {64, 32, 48, 10};
    td_mlp_opts o = {.widths = WIDTHS, .n_widths = 4, .act = TD_ACT_GELU};
    return td_softmax_cross_entropy(g, td_model_mlp(g, x, &o), y, NULL);
}

static td_node *gpt_of(td_graph *g, int64_t rows, double dropout)
{
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(rows, CONTEXT));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows, CONTEXT));
    td_gpt2_opts o = {.layers = 2,
                      .heads = 4,
                      .width = 32,
                      .vocab = VOCAB,
                      .context = CONTEXT,
                      .dropout = dropout};
    td_xent_opts smooth = {.smoothing = 0.1};
    return td_softmax_cross_entropy(g, td_model_gpt2(g, ids, &o), y, &smooth);
}

static td_node *gpt(td_graph *g)
{
    return gpt_of(g, ROWS, 0);
}

static td_node *gpt_drops(td_graph *g)
{
    return gpt_of(g, ROWS, 0.2);
}

/* Samples, not tokens, are what pieces divide first. */
static td_node *gpt_samples(td_graph *g)
{
    return gpt_of(g, 8, 0);
}

/* Norms, a bias, an activation, a scale and residual sums between products, on samples. */
static td_node *blocks_of(td_graph *g, double dropout)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(8, 24));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(8));
    td_node *scale =
        td_param(g, "scale", TD_SHAPE(32), (td_init){.kind = TD_INIT_CONSTANT, .a = 2});
    td_nn_linear_opts relu = {.act = TD_ACT_RELU};
    td_node *h = td_nn_linear(g, "a2", td_nn_linear(g, "a1", x, 64, &relu), 32, &relu);
    h = td_nn_dropout(g, td_nn_rms_norm(g, "rms", h, NULL), dropout);
    td_node *r = td_nn_linear(g, "b2", td_nn_linear(g, "b1", h, 64, &relu), 32, NULL);
    h = td_nn_layer_norm(g, "ln", td_add(g, td_mul(g, r, scale), h), NULL);
    r = td_nn_linear(g, "c2", td_nn_linear(g, "c1", h, 64, &relu), 32, NULL);
    return td_softmax_cross_entropy(g, td_nn_linear(g, "fc", td_add(g, h, r), 10, NULL), y, NULL);
}

static td_node *blocks(td_graph *g)
{
    return blocks_of(g, 0);
}

static td_node *blocks_drop(td_graph *g)
{
    return blocks_of(g, 0.1);
}

static td_node *cnn(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, 3, 8, 8));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(ROWS));
    td_nn_conv2d_opts same = {.conv = {.pad = {1, 1}}};
    td_pool2d_opts pool = {.size = {2, 2}, .stride = {2, 2}};
    td_node *h = td_relu(g, td_nn_conv2d(g, "conv1", x, 32, 3, &same));
    h = td_max_pool2d(g, td_nn_conv2d(g, "conv2", h, 16, 3, &same), &pool);
    h = td_nn_batch_norm(g, "bn", h, NULL);
    h = td_avg_pool2d(g, td_nn_conv2d(g, "conv3", h, 64, 3, &same), &pool);
    h = td_reshape(g, h, TD_SHAPE(ROWS, -1));
    return td_softmax_cross_entropy(g, td_nn_linear(g, "fc", h, 10, NULL), y, NULL);
}

/* A table that one layer reads whole and another one in pieces. */
static td_node *shared(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, 32));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(ROWS));
    td_node *w = td_param(g, "w", TD_SHAPE(64, 32), (td_init){.kind = TD_INIT_XAVIER_UNIFORM});
    td_node *scale = td_mean(g, td_square(g, w), NULL, 0, false);
    td_node *h = td_relu(g, td_linear(g, td_mul(g, x, scale), w, NULL, TD_ACT_NONE));
    return td_softmax_cross_entropy(g, td_nn_linear(g, "fc", h, 10, NULL), y, NULL);
}

typedef struct model {
    const char *name;
    td_node *(*build)(td_graph *g);
    int64_t classes;
    bool sequence, random; /* random: whole products drop other elements */
} model;
static const model MODELS[] = {
    {"mlp", mlp, 10, false, false},
    {"gpt", gpt, VOCAB, false, false},
    {"cnn", cnn, 10, false, false},
    {"shared", shared, 10, false, false},
    {"mlp by rows", mlp, 10, true, false},
    {"gpt by tokens", gpt, VOCAB, true, false},
    {"gpt by samples", gpt_samples, VOCAB, true, false},
    {"gpt with dropout by tokens", gpt_drops, VOCAB, true, true},
    {"cnn by rows", cnn, 10, true, false},
    {"blocks by rows", blocks, 10, true, false},
    {"blocks with dropout by rows", blocks_drop, 10, true, true},
};

/* ---- A run ----------------------------------------------------------------------------------- */

typedef struct result {
    float loss;
    size_t count;
    float *grads; /* (MOST), of the caller */
} result;

static td_status set_inputs(td_runner *r, const model *m)
{
    static const char *const NAMES[] = {"x", "y", "ids"};
    for (int i = 0; i < 3; i++) {
        size_t nbytes;
        void *at = td_runner_input(r, NAMES[i], &nbytes);
        for (size_t k = 0; at && k < nbytes / 4; k++)
            if (i == 0)
                ((float *)at)[k] = (float)((k * 37 + 11) % 101) / 50 - 1;
            else
                ((int32_t *)at)[k] = (int32_t)((k * 29 + 5 * (size_t)i) % (size_t)m->classes);
    }
    return TD_OK;
}

/* The gradients in the order of names: that of the block is another one where products are cut. */
static void sort(const td_params *ps, const float *block, result *out)
{
    const char *last = "";
    out->count = 0;
    for (;;) {
        int next = -1;
        for (int i = 0; i < td_params_count(ps); i++) {
            td_param_info info = td_params_info(ps, i);
            if (!info.is_state && strcmp(info.name, last) > 0 &&
                (next < 0 || strcmp(info.name, td_params_info(ps, next).name) < 0))
                next = i;
        }
        if (next < 0)
            return;
        td_param_info info = td_params_info(ps, next);
        memcpy(out->grads + out->count, block + info.offset, info.count * sizeof *block);
        out->count += info.count;
        last = info.name;
    }
}

/* The loss, and the gradients of all ranks. */
static td_status take(const td_program *p, const td_params *ps, td_runner *r, td_comm *comm,
                      result *out)
{
    td__param_cut how;
    td__staging staging = {NULL, 0};
    size_t count;
    float *grads = td_runner_grads(r, &count);
    td_status st = count <= MOST ? TD_OK : TD_ENOMEM;
    for (int i = 0; comm && !st && td__program_param_cut(p, i, &how); i++) {
        td_param_info info = td_params_info(ps, td_params_find(ps, how.name));
        how.pieces.ranks = td_comm_size(comm);
        st = td__pieces_gather(comm, &how.pieces, grads + info.offset, sizeof *grads, &staging);
    }
    td__free(staging.at);
    out->loss = td_runner_loss(r);
    if (!st)
        sort(ps, grads, out);
    return st;
}

/* One run on a rank, which may be the only one. */
static td_status run_model(const model *m, const td__tensor_cut *cut, td_dtype precision,
                           td_comm *comm, result *out)
{
    td_program_opts o = {.precision = precision};
    td_graph *g;
    td_program *p = NULL;
    td_params *ps = NULL;
    td_runner *r = NULL;
    td_status st = td_graph_create(&g);
    if (!st)
        st = td__program_create_tensor(g, m->build(g), &o, false, cut, &p);
    td_graph_destroy(g);
    if (!st)
        st = td_params_create(p, 7, &ps);
    if (!st)
        st = td_runner_create(p, ps, &r);
    if (!st) {
        td__runner_set_comm(r, comm);
        st = set_inputs(r, m);
    }
    if (!st)
        st = td_runner_run(r, (td_run_key){.seed = 3, .step = 1});
    if (!st && out)
        st = take(p, ps, r, comm, out);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    return st;
}

static result room(void)
{
    result r = {.grads = calloc(MOST, sizeof(float))};
    CHECK(r.grads, "no memory");
    return r;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void test_pieces_give_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        if (MODELS[i].random)
            continue;
        result whole = room(), cut = room();
        CHECK_OK(run_model(&MODELS[i], NULL, TD_F32, NULL, &whole));
        for (int pieces = 2; pieces <= 4; pieces *= 2) {
            td__tensor_cut how = {.pieces = pieces, .ranks = 1};
            double diff = 0, size = 0;
            how.sequence = MODELS[i].sequence;
            CHECK_OK(run_model(&MODELS[i], &how, TD_F32, NULL, &cut));
            CHECK(fabsf(cut.loss - whole.loss) < 1e-5F * fabsf(whole.loss), "%s: loss %g, not %g",
                  MODELS[i].name, (double)cut.loss, (double)whole.loss);
            CHECK(cut.count == whole.count && cut.count, "%s: %zu gradients, not %zu",
                  MODELS[i].name, cut.count, whole.count);
            for (size_t k = 0; k < cut.count; k++) {
                double d = (double)cut.grads[k] - (double)whole.grads[k];
                diff += d * d;
                size += (double)whole.grads[k] * (double)whole.grads[k];
            }
            CHECK(size > 0 && sqrt(diff) < 2e-5 * sqrt(size), "%s in %d pieces: off by %g of %g",
                  MODELS[i].name, pieces, sqrt(diff), sqrt(size));
        }
        free(whole.grads);
        free(cut.grads);
    }
}

typedef struct expected {
    const model *m;
    td_dtype precision;
    const result *one;
} expected;

static void same_bits(ranks_ctx *r)
{
    const expected *x = r->arg;
    td__tensor_cut how = {
        .pieces = 4, .ranks = r->size, .rank = r->rank, .sequence = x->m->sequence};
    result mine = {.grads = calloc(MOST, sizeof(float))};
    td_status st = run_model(x->m, &how, x->precision, r->comm, &mine);
    bool same = !st && mine.loss == x->one->loss && mine.count == x->one->count &&
                memcmp(mine.grads, x->one->grads, mine.count * sizeof(float)) == 0;
    free(mine.grads);
    RANK_OK(r, st);
    RANK_CHECK(r, same, "%s on %d ranks: other weights", x->m->name, r->size);
}

static void test_ranks_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            result one = room();
            td__tensor_cut how = {.pieces = 4, .ranks = 1, .sequence = MODELS[i].sequence};
            expected x = {&MODELS[i], narrow ? TD_BF16 : TD_F32, &one};
            CHECK_OK(run_model(x.m, &how, x.precision, NULL, &one));
            ranks_run(2, NULL, same_bits, &x);
            ranks_run(4, &(ranks_opts){.transport = "shm"}, same_bits, &x);
            ranks_run(2, &(ranks_opts){.transport = "tcp"}, same_bits, &x);
            free(one.grads);
        }
}

/* A rank of four has a quarter of what lies between products. */
static void test_rows_take_less_memory(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        size_t nbytes[2], nodes[2];
        for (int sequence = 0; sequence < 2; sequence++) {
            td__tensor_cut how = {
                .pieces = 4, .ranks = 4, .sequence = sequence, .rows_wanted = sequence};
            td_program_opts o = {.precision = narrow ? TD_BF16 : TD_F32};
            td_graph *g;
            td_program *p;
            CHECK_OK(td_graph_create(&g));
            CHECK_OK(td__program_create_tensor(g, gpt_drops(g), &o, false, &how, &p));
            nbytes[sequence] = td_program_memory(p).activations;
            nodes[sequence] = 0;
            for (int i = 0; i < p->g->n_nodes; i++) {
                const td_node *n = p->g->nodes[i];
                const td_attr_pieces *a = n->attr;
                nodes[sequence] += n->op == TD_OP_PIECES_SUM && a->scatter;
            }
            td_graph_destroy(g);
            td_program_destroy(p);
        }
        CHECK(nbytes[1] < nbytes[0] * 8 / 10, "%zu bytes by rows, %zu without", nbytes[1],
              nbytes[0]);
        /* Forward: the embedding and two products of each layer. Backward: before the two other
         * products of each, and the logits. */
        CHECK(nodes[0] == 0 && nodes[1] == 10, "%zu and %zu reduce-scatters", nodes[0], nodes[1]);
    }
}

/* A rank that is gone: the other's run ends with a failure, and does not wait. */
static void one_is_gone(ranks_ctx *r)
{
    td__tensor_cut how = {.pieces = 2, .ranks = 2, .rank = r->rank};
    if (r->rank == 1) {
        td_comm_abort(r->comm, "it has left");
        return;
    }
    td_status st = run_model(&MODELS[0], &how, TD_F32, r->comm, NULL);
    RANK_CHECK(r, st == TD_EPEER || st == TD_EABORTED, "%s: %s", td_status_name(st),
               td_last_error());
}

static void test_a_failure_ends_the_run(void **state)
{
    (void)state;
    td__tensor_cut how = {.pieces = 2, .ranks = 2};
    ranks_run(2, NULL, one_is_gone, NULL);
    CHECK_STATUS(run_model(&MODELS[0], &how, TD_F32, NULL, NULL), TD_EINVAL);
    CHECK(strstr(td_last_error(), "needs the pieces of 2 ranks"), "%s", td_last_error());
}

static void test_what_cannot_be_cut(void **state)
{
    (void)state;
    td__tensor_cut eight = {.pieces = 8, .ranks = 1};
    CHECK_STATUS(run_model(&MODELS[1], &eight, TD_F32, NULL, NULL), TD_EINVAL);
    CHECK(strstr(td_last_error(), "8 pieces do not divide the 4 heads"), "%s", td_last_error());
    td__tensor_cut five = {.pieces = 5, .ranks = 1};
    CHECK_STATUS(run_model(&MODELS[0], &five, TD_F32, NULL, NULL), TD_EINVAL);
    CHECK(strstr(td_last_error(), "no layer of the model is wide enough"), "%s", td_last_error());
    td__tensor_cut rows = {.pieces = 4, .ranks = 1, .sequence = true};
    CHECK_OK(run_model(&MODELS[0], &rows, TD_F32, NULL, NULL)); /* whole: 6 rows */
    rows.rows_wanted = true;
    CHECK_STATUS(run_model(&MODELS[0], &rows, TD_F32, NULL, NULL), TD_EINVAL);
    CHECK(strstr(td_last_error(), "rows (samples or tokens of a micro-batch) that 4 pieces divide"),
          "%s", td_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_give_the_same),
        cmocka_unit_test(test_ranks_give_the_same_bits),
        cmocka_unit_test(test_rows_take_less_memory),
        cmocka_unit_test(test_a_failure_ends_the_run),
        cmocka_unit_test(test_what_cannot_be_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
