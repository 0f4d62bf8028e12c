/* op_embedding_bag.c -- sums or means of table rows over bags of ids, and their backward.
 *
 *     y[b, :] = sum of table[ids[i], :] for i in [offsets[b], offsets[b + 1])
 *
 * the last bag reaching to the end; the mean divides by the number of ids that are not padding
 * (below 0), and an empty bag gives zeros. Offsets are cut to 0..n; where they fall, the bag is
 * empty. Ids of V or more give NaN, as in op_embedding.c.
 *
 * embedding_bag_back    the table's gradient as a dense (V, D)
 * embedding_bag_spread  the gradient of each looked-up row, (n, D): what embedding_rows makes the
 *                       row-sparse gradient of */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

/* One bag: its ids are [begin, end), `live` of them not padding. */
typedef struct bag {
    int64_t begin, end, live;
} bag;

static int64_t id_at(const td_op_args *a, int64_t i)
{
    return td__ref_index(a->in_desc[0]->dtype, a->in[0], i);
}

static int64_t offset_at(const td_op_args *a, int64_t b, int64_t n)
{
    if (b == a->in_desc[1]->shape.dim[0])
        return n;
    int64_t at = td__ref_index(a->in_desc[1]->dtype, a->in[1], b);
    return at < 0 ? 0 : at > n ? n : at;
}

static bag bag_at(const td_op_args *a, int64_t b)
{
    int64_t n = a->in_desc[0]->shape.dim[0];
    bag g = {.begin = offset_at(a, b, n), .end = offset_at(a, b + 1, n)};

    for (int64_t i = g.begin; i < g.end; i++)
        g.live += id_at(a, i) >= 0;
    return g;
}

/* The share of y[b] that each id of the bag has. */
static double bag_share(const td_attr_embedding *at, const bag *g)
{
    return at->mode == TD_BAG_MEAN && g->live > 0 ? 1 / (double)g->live : 1;
}

static td_status check(const td_op_args *a)
{
    const td_attr_embedding *at = a->attr;

    TD_TRY(td__want_index(a, 0, "ids"));
    TD_TRY(td__want_ndim(a, 0, "ids", 1));
    TD_TRY(td__want_index(a, 1, "offsets"));
    TD_TRY(td__want_ndim(a, 1, "offsets", 1));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    if (at->mode != TD_BAG_SUM && at->mode != TD_BAG_MEAN)
        return TD_FAIL(TD_EINVAL, "unknown mode %d of a bag", (int)at->mode);
    return TD_OK;
}

static td_status bag_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_embedding *at = a->attr;
    const td_shape *table = &a->in_desc[2]->shape;

    TD_TRY(check(a));
    TD_TRY(td__want_float(a, 2, "the table"));
    TD_TRY(td__want_ndim(a, 2, "the table", 2));
    out[0] = td__desc(td__out_dtype(a->in_desc[2]->dtype, at->out_dtype),
                      TD_SHAPE(a->in_desc[1]->shape.dim[0], table->dim[1]));
    TD_TRY(td__want_count(&out[0].shape, "y"));
    *n_out = 1;
    return TD_OK;
}

static void bag_ref(const td_op_args *a)
{
    const double *table = a->in[2]; /* (V, D) */
    double *y = a->out[0];          /* (B, D) */
    int64_t v = a->in_desc[2]->shape.dim[0], d = a->in_desc[2]->shape.dim[1];

    for (int64_t b = 0; b < a->in_desc[1]->shape.dim[0]; b++, y += d) {
        bag g = bag_at(a, b);
        double share = bag_share(a->attr, &g);
        for (int64_t j = 0; j < d; j++)
            y[j] = 0;
        for (int64_t i = g.begin; i < g.end; i++) {
            int64_t id = id_at(a, i);
            for (int64_t j = 0; j < d && id >= 0; j++)
                y[j] += share * (id < v ? table[id * d + j] : (double)NAN);
        }
    }
}

static void bag_grad(const td_grad_args *ga)
{
    td_node *ids = ga->y->in[0], *offsets = ga->y->in[1], *table = ga->y->in[2];
    td_attr_embedding at;

    if (!ga->need[2])
        return;
    memcpy(&at, ga->y->attr, sizeof at);
    at.out_dtype = table->out[0].dtype;
    at.rows = table->out[0].shape.dim[0];
    if (at.sparse) {
        td_node *spread = TD__NODE(ga->g, TD_OP_EMBEDDING_BAG_SPREAD, &at, ids, offsets, ga->dy[0]);
        ga->dx[2] = TD__NODE(ga->g, TD_OP_EMBEDDING_ROWS, &at, ids, spread);
    } else {
        ga->dx[2] = TD__NODE(ga->g, TD_OP_EMBEDDING_BAG_BACK, &at, ids, offsets, ga->dy[0]);
    }
}

static td_status check_back(const td_op_args *a)
{
    TD_TRY(check(a));
    TD_TRY(td__want_float(a, 2, "dy"));
    TD_TRY(td__want_ndim(a, 2, "dy", 2));
    return td__want_vector(a, 1, "offsets", a->in_desc[2]->shape.dim[0]);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_embedding *at = a->attr;

    TD_TRY(check_back(a));
    out[0] = td__desc(td__out_dtype(a->in_desc[2]->dtype, at->out_dtype),
                      TD_SHAPE(at->rows, a->in_desc[2]->shape.dim[1]));
    TD_TRY(td__want_count(&out[0].shape, "the table"));
    *n_out = 1;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td_attr_embedding *at = a->attr;
    const double *dy = a->in[2]; /* (B, D) */
    double *dtable = a->out[0];  /* (V, D) */
    int64_t d = a->in_desc[2]->shape.dim[1];

    for (int64_t i = 0; i < at->rows * d; i++)
        dtable[i] = 0;
    for (int64_t b = 0; b < a->in_desc[1]->shape.dim[0]; b++, dy += d) {
        bag g = bag_at(a, b);
        double share = bag_share(at, &g);
        for (int64_t i = g.begin; i < g.end; i++) {
            int64_t id = id_at(a, i);
            for (int64_t j = 0; j < d && id >= 0 && id < at->rows; j++)
                dtable[id * d + j] += share * dy[j];
        }
    }
}

static td_status spread_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_back(a));
    out[0] = td__desc(a->in_desc[2]->dtype,
                      TD_SHAPE(a->in_desc[0]->shape.dim[0], a->in_desc[2]->shape.dim[1]));
    TD_TRY(td__want_count(&out[0].shape, "the rows' gradients"));
    *n_out = 1;
    return TD_OK;
}

static void spread_ref(const td_op_args *a)
{
    const double *dy = a->in[2]; /* (B, D) */
    double *rows = a->out[0];    /* (n, D) */
    int64_t n = a->in_desc[0]->shape.dim[0], d = a->in_desc[2]->shape.dim[1];

    for (int64_t i = 0; i < n * d; i++)
        rows[i] = 0;
    for (int64_t b = 0; b < a->in_desc[1]->shape.dim[0]; b++, dy += d) {
        bag g = bag_at(a, b);
        double share = bag_share(a->attr, &g);
        for (int64_t i = g.begin; i < g.end; i++)
            for (int64_t j = 0; j < d && id_at(a, i) >= 0; j++)
                rows[i * d + j] += share * dy[j]; /* bags may overlap */
    }
}

TD_API td_node *td_embedding_bag(td_graph *g, td_node *ids, td_node *offsets, td_node *table,
                                 td_bag_mode mode, bool sparse)
{
    td_attr_embedding at;

    memset(&at, 0, sizeof at);
    at.out_dtype = table ? table->out[0].dtype : TD_F32;
    at.sparse = sparse;
    at.mode = mode;
    return TD__NODE(g, TD_OP_EMBEDDING_BAG, &at, ids, offsets, table);
}

/* Ids and offsets are drawn from one range; offsets need not rise, and bags may overlap. */
static const td_attr_embedding SUM = {.rows = 9, .mode = TD_BAG_SUM},
                               MEAN = {.rows = 9, .mode = TD_BAG_MEAN},
                               SUM40 = {.rows = 40, .mode = TD_BAG_SUM},
                               MEAN40 = {.rows = 40, .mode = TD_BAG_MEAN};

#define FORWARD(attribute, n, b, v, d, first)                                          \
    .n_in = 3, .in = {TD__INTS(n), TD__INTS(b), TD__FLOATS(v, d)}, .attr = &attribute, \
    .ilo = first, .ihi = v
static const td_op_sample SAMPLES[] = {
    {FORWARD(SUM, 10, 3, 9, 4, 0)},
    {FORWARD(MEAN, 10, 3, 9, 4, 0)},
    {FORWARD(SUM, 12, 5, 9, 3, -3)},
    {FORWARD(MEAN, 12, 5, 9, 3, -3)},
    {FORWARD(MEAN, 6, 1, 9, 3, 0)},
    {FORWARD(MEAN, 0, 2, 9, 3, 0)}, /* empty bags */
    {FORWARD(SUM, 5, 0, 9, 3, 0)},
    {.n_in = 3, .in = {TD__LONGS(10), TD__LONGS(3), TD__FLOATS(9, 4)}, .attr = &MEAN, .ihi = 9},
    {FORWARD(SUM40, 60, 9, 40, 67, -2), .no_grad = TD__ALL_INPUTS},
    {FORWARD(MEAN40, 60, 9, 40, 67, -2), .no_grad = TD__ALL_INPUTS},
};

#define BACK(attribute, n, b, v, d, first)                                                 \
    {                                                                                      \
        .n_in = 3, .in = {TD__INTS(n), TD__INTS(b), TD__FLOATS(b, d)}, .attr = &attribute, \
        .ilo = first, .ihi = v                                                             \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(SUM, 10, 3, 9, 4, 0), BACK(MEAN, 10, 3, 9, 4, 0),      BACK(SUM, 12, 5, 9, 3, -3),
    BACK(MEAN, 6, 1, 9, 3, 0), BACK(MEAN, 12, 5, 9, 3, -3),     BACK(MEAN, 0, 2, 9, 3, 0),
    BACK(SUM, 5, 0, 9, 3, 0),  BACK(MEAN40, 60, 9, 40, 67, -2), BACK(SUM40, 60, 9, 40, 67, -2),
};

const td_op_def td__op_embedding_bag = {
    .name = "embedding_bag",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_embedding),
    .infer = bag_infer,
    .ref = bag_ref,
    .grad = bag_grad,
    .weights = TD__BIT(2),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_embedding_bag_back = {
    .name = "embedding_bag_back",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_embedding),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

const td_op_def td__op_embedding_bag_spread = {
    .name = "embedding_bag_spread",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_embedding),
    .infer = spread_infer,
    .ref = spread_ref,
    .grad = NULL,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
