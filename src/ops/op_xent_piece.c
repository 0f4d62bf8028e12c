/* op_xent_piece.c -- cross entropy of logits that are cut by classes (ops/op_xent.c has the maths
 * of the whole). Of each row a piece says three numbers, and from those of all pieces comes the
 * loss, without anybody seeing all logits:
 *
 *     xent_piece   lse_w = log sum_j exp(x_j),  hit_w = x_t if the piece has class t, else 0,
 *                  sum_w = sum_j x_j (0 without smoothing)
 *     xent_join    lse = log sum_w exp(lse_w),  then the loss with hit = sum_w hit_w
 *
 *     d/d lse_w = exp(lse_w - lse) g,  d/d hit_w = -(1 - s) g,  d/d sum_w = -s g / C
 *                                      with g = dloss / counted rows, 0 for rows that do not count
 *     d/dx_j    = dlse_w exp(x_j - lse_w) + dhit_w [j = t] + dsum_w                           */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

enum { LSE, HIT, SUM, STATS };

static bool counts(const td_attr_xent *at, int64_t target)
{
    return !(at->use_ignore && target == at->ignore_index);
}

static td_status check_piece(const td_op_args *a)
{
    const td_attr_xent_piece *at = a->attr;
    TD_TRY(td__want_float(a, 0, "logits"));
    TD_TRY(td__want_min_ndim(a, 0, "logits", 1));
    TD_TRY(td__want_index(a, 1, "target"));
    td_shape rows = td__shape_rows(&a->in_desc[0]->shape);
    TD_TRY(td__want_shape(a, 1, "target", &rows));
    int64_t width = td__last_dim(&a->in_desc[0]->shape);
    if (width < 1 || at->first < 0 || at->first + width > at->classes)
        return TD_FAIL(TD_EINVAL, "%lld classes from %lld of %lld", (long long)width,
                       (long long)at->first, (long long)at->classes);
    return TD_OK;
}

static td_status piece_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(check_piece(a));
    out[0] = td__desc(td__acc_dtype(a->in_desc[0]->dtype),
                      TD_SHAPE(STATS, td__row_count(&a->in_desc[0]->shape)));
    *n_out = 1;
    return TD_OK;
}

static void piece_ref(const td_op_args *a)
{
    const td_attr_xent_piece *at = a->attr;
    const double *x = a->in[0]; /* (R, c) */
    double *y = a->out[0];      /* (3, R) */
    int64_t rows = td__row_count(&a->in_desc[0]->shape), n = td__last_dim(&a->in_desc[0]->shape);

    for (int64_t r = 0; r < rows; r++, x += n) {
        int64_t t = td__ref_index(a->in_desc[1]->dtype, a->in[1], r) - at->first;
        double top = -INFINITY, sum = 0, all = 0;
        for (int64_t i = 0; i < n; i++)
            top = x[i] > top ? x[i] : top;
        for (int64_t i = 0; i < n; i++) {
            sum += exp(x[i] - top);
            all += x[i];
        }
        y[LSE * rows + r] = top + log(sum);
        y[HIT * rows + r] = t >= 0 && t < n ? x[t] : 0;
        y[SUM * rows + r] = at->loss.smoothing > 0 ? all : 0;
    }
}

static void piece_grad(const td_grad_args *ga)
{
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_XENT_PIECE_BACK, ga->y->attr, ga->y->in[0], ga->y->in[1],
                             ga->y, ga->dy[0]);
}

static td_status piece_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_shape stats = TD_SHAPE(STATS, td__row_count(&a->in_desc[0]->shape));
    TD_TRY(check_piece(a));
    TD_TRY(td__want_weight_shape(a, 2, "stats", &stats));
    TD_TRY(td__want_weight_shape(a, 3, "dstats", &stats));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

static void piece_back_ref(const td_op_args *a)
{
    const td_attr_xent_piece *at = a->attr;
    const double *x = a->in[0], *y = a->in[2], *dy = a->in[3]; /* (R, c), (3, R), (3, R) */
    double *dx = a->out[0];
    int64_t rows = td__row_count(&a->in_desc[0]->shape), n = td__last_dim(&a->in_desc[0]->shape);
    bool smooth = at->loss.smoothing > 0;

    for (int64_t r = 0; r < rows; r++, x += n, dx += n) {
        int64_t t = td__ref_index(a->in_desc[1]->dtype, a->in[1], r) - at->first;
        for (int64_t i = 0; i < n; i++)
            dx[i] = dy[LSE * rows + r] * exp(x[i] - y[LSE * rows + r]) +
                    (i == t ? dy[HIT * rows + r] : 0) + (smooth ? dy[SUM * rows + r] : 0);
    }
}

static td_status check_join(const td_op_args *a, int64_t *rows)
{
    TD_TRY(td__want_float(a, 0, "stats"));
    TD_TRY(td__want_ndim(a, 0, "stats", 2));
    TD_TRY(td__want_index(a, 1, "target"));
    *rows = td_shape_count(&a->in_desc[1]->shape);
    const td_shape *s = &a->in_desc[0]->shape;
    if (s->dim[0] < STATS || s->dim[0] % STATS || s->dim[1] != *rows)
        return TD_FAIL(TD_EINVAL, "stats are (%lld, %lld), of %lld rows", (long long)s->dim[0],
                       (long long)s->dim[1], (long long)*rows);
    return TD_OK;
}

static td_status join_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    int64_t rows;
    TD_TRY(check_join(a, &rows));
    td_dtype stat = td__acc_dtype(a->in_desc[0]->dtype);
    out[0] = td__desc(stat, TD_SCALAR);
    out[1] = td__desc(stat, TD_SHAPE(rows));
    *n_out = 2;
    return TD_OK;
}

static void join_ref(const td_op_args *a)
{
    const td_attr_xent_piece *at = a->attr;
    const double *y = a->in[0];                 /* (W, 3, R) */
    double *loss = a->out[0], *lse = a->out[1]; /* (), (R) */
    int64_t rows = a->in_desc[0]->shape.dim[1], pieces = a->in_desc[0]->shape.dim[0] / STATS;
    int64_t counted = 0;
    double total = 0, s = at->loss.smoothing;

    for (int64_t r = 0; r < rows; r++) {
        double top = -INFINITY, sum = 0, hit = 0, all = 0;
        for (int64_t w = 0; w < pieces; w++)
            top = fmax(top, y[(w * STATS + LSE) * rows + r]);
        for (int64_t w = 0; w < pieces; w++) {
            sum += exp(y[(w * STATS + LSE) * rows + r] - top);
            hit += y[(w * STATS + HIT) * rows + r];
            all += y[(w * STATS + SUM) * rows + r];
        }
        lse[r] = top + log(sum);
        int64_t t = td__ref_index(a->in_desc[1]->dtype, a->in[1], r);
        if (!counts(&at->loss, t))
            continue;
        counted++;
        if (t < 0 || t >= at->classes)
            hit = (double)NAN;
        total += (1 - s) * (lse[r] - hit);
        if (s > 0)
            total += s * (lse[r] - all / (double)at->classes);
    }
    loss[0] = counted ? total / (double)counted : 0;
}

static void join_grad(const td_grad_args *ga)
{
    if (ga->need[0] && ga->dy[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_XENT_JOIN_BACK, ga->y->attr, ga->y->in[0], ga->y->in[1],
                             td__part(ga->g, ga->y, 1), ga->dy[0]);
}

static td_status join_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    int64_t rows;
    TD_TRY(check_join(a, &rows));
    td_shape one = TD_SCALAR, each = TD_SHAPE(rows);
    TD_TRY(td__want_weight_shape(a, 2, "lse", &each));
    TD_TRY(td__want_weight_shape(a, 3, "dloss", &one));
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

static void join_back_ref(const td_op_args *a)
{
    const td_attr_xent_piece *at = a->attr;
    const double *y = a->in[0], *lse = a->in[2], *dloss = a->in[3];
    double *dy = a->out[0]; /* (W, 3, R) */
    int64_t rows = a->in_desc[0]->shape.dim[1], pieces = a->in_desc[0]->shape.dim[0] / STATS;
    int64_t counted = 0;

    for (int64_t r = 0; r < rows; r++)
        counted += counts(&at->loss, td__ref_index(a->in_desc[1]->dtype, a->in[1], r));
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = td__ref_index(a->in_desc[1]->dtype, a->in[1], r);
        bool live = counts(&at->loss, t) && t >= 0 && t < at->classes;
        double g = live ? dloss[0] / (double)counted : 0, s = at->loss.smoothing;
        for (int64_t w = 0; w < pieces; w++) {
            const double *row = y + w * STATS * rows + r;
            double *d = dy + w * STATS * rows + r;
            d[LSE * rows] = exp(row[LSE * rows] - lse[r]) * g;
            d[HIT * rows] = -(1 - s) * g;
            d[SUM * rows] = -s * g / (double)at->classes;
        }
    }
}

static const td_attr_xent_piece PLAIN = {.first = 0, .classes = 14},
                                HIGH = {.first = 7, .classes = 14, .loss = {.smoothing = 0.1}},
                                SKIP = {.first = 3,
                                        .classes = 14,
                                        .loss = {.use_ignore = true, .ignore_index = -1}};

#define PIECE(attribute, r, c) \
    .n_in = 2, .in = {TD__FLOATS(r, c), TD__INTS(r)}, .attr = &attribute, .ihi = 14
static const td_op_sample PIECE_SAMPLES[] = {
    {PIECE(PLAIN, 5, 7)},
    {PIECE(HIGH, 5, 7)},
    {PIECE(SKIP, 9, 3)},
    {PIECE(PLAIN, 1, 1)},
    {PIECE(PLAIN, 0, 7)},
    {.n_in = 2, .in = {TD__FLOATS(2, 3, 7), TD__LONGS(2, 3)}, .attr = &HIGH, .ihi = 14},
};

#define PIECE_BACK(attribute, r, c)                                                       \
    .n_in = 4, .in = {TD__FLOATS(r, c), TD__INTS(r), TD__FLOATS(3, r), TD__FLOATS(3, r)}, \
    .attr = &attribute, .ihi = 14, .positive = TD__BIT(2)
static const td_op_sample PIECE_BACK_SAMPLES[] = {
    {PIECE_BACK(PLAIN, 5, 7)},
    {PIECE_BACK(HIGH, 5, 7)},
    {PIECE_BACK(SKIP, 9, 3)},
    {PIECE_BACK(PLAIN, 0, 7)},
};

#define JOIN(attribute, w, r) \
    .n_in = 2, .in = {TD__FLOATS(3 * w, r), TD__INTS(r)}, .attr = &attribute, .ihi = 14
static const td_op_sample JOIN_SAMPLES[] = {
    {JOIN(PLAIN, 1, 5)},
    {JOIN(HIGH, 2, 5)},
    {JOIN(SKIP, 4, 9), .ilo = -1},
    {JOIN(PLAIN, 2, 0)},
};

#define JOIN_BACK(attribute, w, r)                                                          \
    .n_in = 4, .in = {TD__FLOATS(3 * w, r), TD__INTS(r), TD__FLOATS(r), {.dtype = TD_F32}}, \
    .attr = &attribute, .ihi = 14, .positive = TD__BIT(2)
static const td_op_sample JOIN_BACK_SAMPLES[] = {
    {JOIN_BACK(PLAIN, 1, 5)},
    {JOIN_BACK(HIGH, 2, 5)},
    {JOIN_BACK(SKIP, 4, 9), .ilo = -1},
    {JOIN_BACK(PLAIN, 2, 0)},
};

const td_op_def td__op_xent_piece = {
    .name = "xent_piece",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_xent_piece),
    .infer = piece_infer,
    .ref = piece_ref,
    .grad = piece_grad,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = PIECE_SAMPLES,
    .n_samples = TD_LEN(PIECE_SAMPLES),
};

const td_op_def td__op_xent_piece_back = {
    .name = "xent_piece_back",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_xent_piece),
    .infer = piece_back_infer,
    .ref = piece_back_ref,
    .weights = TD__BIT(2) | TD__BIT(3),
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = PIECE_BACK_SAMPLES,
    .n_samples = TD_LEN(PIECE_BACK_SAMPLES),
};

const td_op_def td__op_xent_join = {
    .name = "xent_join",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_xent_piece),
    .infer = join_infer,
    .ref = join_ref,
    .grad = join_grad,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = JOIN_SAMPLES,
    .n_samples = TD_LEN(JOIN_SAMPLES),
};

const td_op_def td__op_xent_join_back = {
    .name = "xent_join_back",
    .n_in_min = 4,
    .n_in_max = 4,
    .attr_size = sizeof(td_attr_xent_piece),
    .infer = join_back_infer,
    .ref = join_back_ref,
    .weights = TD__BIT(2) | TD__BIT(3),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = JOIN_BACK_SAMPLES,
    .n_samples = TD_LEN(JOIN_BACK_SAMPLES),
};
