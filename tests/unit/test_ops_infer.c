/* test_ops_infer.c -- what operators refuse and what they infer.
 *
 * Every bad call must give NULL, TD_EINVAL and one line that names the call, the node or input, and
 * the sizes; never a crash. Every infer rule is also fed its own samples with shapes and types
 * damaged at random, and must answer with a status. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/attr.h"
#include "support/node_check.h"
#include "support/sample.h"
#include "tandem/ops.h"

/* What bad calls are made on. */
typedef struct world {
    td_graph *g;
    td_node *x;     /* "x": f32 (3, 4) */
    td_node *y;     /* "y": f32 (5, 4) */
    td_node *image; /* f32 (2, 3, 5, 4) */
    td_node *half;  /* "half": bf16 (3, 4) */
    td_node *ids;   /* "ids": i32 (3) */
    td_node *flag;  /* bool (3, 4) */
    td_node *empty; /* f32 (0, 4) */
} world;

static void open_world(world *w)
{
    CHECK_OK(td_graph_create(&w->g));
    w->x = td_input(w->g, "x", TD_F32, TD_SHAPE(3, 4));
    w->y = td_input(w->g, "y", TD_F32, TD_SHAPE(5, 4));
    w->image = td_input(w->g, "image", TD_F32, TD_SHAPE(2, 3, 5, 4));
    w->half = td_input(w->g, "half", TD_BF16, TD_SHAPE(3, 4));
    w->ids = td_input(w->g, "ids", TD_I32, TD_SHAPE(3));
    w->flag = td_input(w->g, "flag", TD_BOOL, TD_SHAPE(3, 4));
    w->empty = td_input(w->g, "empty", TD_F32, TD_SHAPE(0, 4));
    CHECK(!td_graph_status(w->g), "%s", td_graph_error(w->g));
}

/* clang-format off */
#define BAD(NAME, EXPR) static td_node *NAME(world *w) { td_graph *g = w->g; (void)g; return EXPR; }
BAD(add_shapes, td_add(g, w->x, w->y))
BAD(add_dtypes, td_add(g, w->x, w->half))
BAD(add_bools, td_add(g, w->flag, w->flag))
BAD(div_integers, td_div(g, w->ids, w->ids))
BAD(less_dtypes, td_less(g, w->ids, w->x))
BAD(where_cond, td_where(g, w->x, w->x, w->x))
BAD(where_dtypes, td_where(g, w->flag, w->x, w->half))
BAD(exp_integers, td_exp(g, w->ids))
BAD(affine_nan, td_affine(g, w->x, (double)NAN, 0))
BAD(clamp_order, td_clamp(g, w->x, 2, 1))
BAD(clamp_nan, td_clamp(g, w->x, (double)NAN, 1))
BAD(slope_nan, td_leaky_relu(g, w->x, (double)NAN))
BAD(cast_unknown, td_cast(g, w->x, (td_dtype)99))
BAD(input_unknown, td_input(g, "odd", (td_dtype)-3, TD_SHAPE(2)))
BAD(input_negative, td_input(g, "odd", TD_F32, TD_SHAPE(2, -7)))
BAD(input_huge, td_input(g, "odd", TD_F32, TD_SHAPE(INT64_MAX / 2, 3)))
BAD(input_axes, td_input(g, "odd", TD_F32, (td_shape){.ndim = 9}))
BAD(dropout_one, td_dropout(g, w->x, 1))
BAD(dropout_nan, td_dropout(g, w->x, (double)NAN))
BAD(dropout_negative, td_dropout(g, w->x, -0.1))
BAD(sum_axis, td_sum(g, w->x, (int[]){2}, 1, false))
BAD(sum_twice, td_sum(g, w->x, (int[]){1, -1}, 2, false))
BAD(sum_many, td_sum(g, w->x, (int[]){0, 1}, 77, false))
BAD(sum_integers, td_sum(g, w->ids, NULL, 0, false))
BAD(mean_empty, td_mean(g, w->empty, NULL, 0, false))
BAD(max_empty, td_max(g, w->empty, (int[]){0}, 1, false))
BAD(argmax_axis, td_argmax(g, w->x, -3))
BAD(argmax_empty, td_argmax(g, w->empty, 0))
BAD(reshape_count, td_reshape(g, w->x, TD_SHAPE(5, 3)))
BAD(reshape_unknown, td_reshape(g, w->x, TD_SHAPE(-1, 5)))
BAD(reshape_two, td_reshape(g, w->x, TD_SHAPE(-1, -1)))
BAD(reshape_zero, td_reshape(g, w->empty, TD_SHAPE(0, -1)))
BAD(reshape_axes, td_reshape(g, w->x, (td_shape){.ndim = -2}))
BAD(permute_twice, td_permute(g, w->x, (int[]){1, 1}))
BAD(permute_axis, td_permute(g, w->x, (int[]){0, 2}))
BAD(permute_null, td_permute(g, w->x, NULL))
BAD(slice_range, td_slice(g, w->x, 0, 1, 4, 1))
BAD(slice_order, td_slice(g, w->x, 0, 2, 1, 1))
BAD(slice_step, td_slice(g, w->x, 0, 0, 3, 0))
BAD(slice_axis, td_slice(g, w->x, 2, 0, 1, 1))
BAD(concat_none, td_concat(g, NULL, 0, 0))
BAD(concat_sizes, td_concat(g, (td_node *[]){w->x, w->y}, 2, 1))
BAD(concat_dtypes, td_concat(g, (td_node *[]){w->x, w->half}, 2, 0))
BAD(concat_axes, td_concat(g, (td_node *[]){w->x, w->image}, 2, 0))
BAD(split_uneven, td_split(g, w->x, 0, 2, (td_node *[2]){0}))
BAD(split_none, td_split(g, w->x, 0, 0, (td_node *[1]){0}))
BAD(gather_dtype, td_gather(g, w->x, w->y, 0))
BAD(gather_axes, td_gather(g, w->x, w->ids, 0))
BAD(pad_negative, td_pad(g, w->x, (int64_t[]){0, -1}, (int64_t[]){0, 0}, 0))
BAD(pad_overflow, td_pad(g, w->x, (int64_t[]){0, INT64_MAX}, (int64_t[]){0, 0}, 0))
BAD(one_hot_depth, td_one_hot(g, w->ids, 0, TD_F32))
BAD(one_hot_float, td_one_hot(g, w->x, 3, TD_F32))
BAD(expand_shape, td_expand(g, w->x, TD_SHAPE(3, 5)))
BAD(expand_smaller, td_expand(g, w->x, TD_SHAPE(4)))
BAD(accuracy_rows, td_accuracy(g, w->y, w->ids, 1))
BAD(accuracy_k, td_accuracy(g, w->x, w->ids, 5))
BAD(top_k_k, td_top_k(g, w->x, 0, NULL))
BAD(mse_shapes, td_mse(g, w->x, w->y))
BAD(mse_integers, td_mse(g, w->ids, w->ids))
BAD(huber_delta, td_huber(g, w->x, w->x, 0))
BAD(nll_shapes, td_nll(g, w->y, w->ids))
BAD(kl_shapes, td_kl_div(g, w->x, w->y))
BAD(bce_shapes, td_bce_with_logits(g, w->x, w->y))
BAD(norm_axis, td_norm(g, w->x, (int[]){5}, 1, false))
BAD(missing_input, td_add(g, w->x, NULL))

static const struct {
    td_node *(*make)(world *w);
    refusal want;
} BAD_CALLS[] = {
    {add_shapes, {"td_add", {"'x'", "(3, 4)", "(5, 4)"}}},
    {add_dtypes, {"td_add", {"'half'", "f32", "bf16"}}},
    {add_bools, {"td_add", {"bool", "(3, 4)"}}},
    {div_integers, {"td_div", {"i32", "floating"}}},
    {less_dtypes, {"td_less", {"i32", "f32"}}},
    {where_cond, {"td_where", {"must be bool"}}},
    {where_dtypes, {"td_where", {"f32", "bf16"}}},
    {exp_integers, {"td_exp", {"'ids'", "i32", "floating"}}},
    {affine_nan, {"td_affine", {"nan", "finite"}}},
    {clamp_order, {"td_clamp", {"2", "1", "range"}}},
    {clamp_nan, {"td_clamp", {"nan"}}},
    {slope_nan, {"td_leaky_relu", {"slope", "nan"}}},
    {cast_unknown, {"td_cast", {"99"}}},
    {input_unknown, {"td_input", {"odd", "-3"}}},
    {input_negative, {"td_input", {"odd", "-7"}}},
    {input_huge, {"td_input", {"odd"}}},
    {input_axes, {"td_input", {"odd", "9"}}},
    {dropout_one, {"td_dropout", {"1", "[0, 1)"}}},
    {dropout_nan, {"td_dropout", {"nan"}}},
    {dropout_negative, {"td_dropout", {"-0.1"}}},
    {sum_axis, {"td_sum", {"axis 2", "x", "(3, 4)"}}},
    {sum_twice, {"td_sum", {"twice"}}},
    {sum_many, {"td_sum", {"77 axes"}}},
    {sum_integers, {"td_sum", {"i32"}}},
    {mean_empty, {"td_mean", {"0 elements", "(0, 4)"}}},
    {max_empty, {"td_max", {"0 elements"}}},
    {argmax_axis, {"td_argmax", {"axis -3", "(3, 4)"}}},
    {argmax_empty, {"td_argmax", {"axis 0", "0 elements"}}},
    {reshape_count, {"td_reshape", {"12", "(5, 3)", "15"}}},
    {reshape_unknown, {"td_reshape", {"(3, 4)", "(-1, 5)"}}},
    {reshape_two, {"td_reshape", {"(-1, -1)"}}},
    {reshape_zero, {"td_reshape", {"(0, -1)"}}},
    {reshape_axes, {"td_reshape", {"-2"}}},
    {permute_twice, {"td_permute", {"axis 1", "twice"}}},
    {permute_axis, {"td_permute", {"axis 2", "(3, 4)"}}},
    {permute_null, {"td_permute", {"no axes"}}},
    {slice_range, {"td_slice", {"[1, 4)", "size 3"}}},
    {slice_order, {"td_slice", {"[2, 1)", "size 3"}}},
    {slice_step, {"td_slice", {"step 0"}}},
    {slice_axis, {"td_slice", {"axis 2"}}},
    {concat_none, {"td_concat", {"0 inputs"}}},
    {concat_sizes, {"td_concat", {"axis 0", "3", "5"}}},
    {concat_dtypes, {"td_concat", {"f32", "bf16"}}},
    {concat_axes, {"td_concat", {"4 axes", "must have 2"}}},
    {split_uneven, {"td_split", {"(3, 4)", "2 equal"}}},
    {split_none, {"td_split", {"0 equal"}}},
    {gather_dtype, {"td_gather", {"f32", "i32 or i64"}}},
    {gather_axes, {"td_gather", {"1 axes", "2"}}},
    {pad_negative, {"td_pad", {"axis 1", "-1"}}},
    {pad_overflow, {"td_pad", {"axis 1", "too long"}}},
    {one_hot_depth, {"td_one_hot", {"depth 0"}}},
    {one_hot_float, {"td_one_hot", {"f32", "i32 or i64"}}},
    {expand_shape, {"td_expand", {"(3, 4)", "(3, 5)"}}},
    {expand_smaller, {"td_expand", {"(3, 4)", "(4)"}}},
    {accuracy_rows, {"td_accuracy", {"(3)", "(5)"}}},
    {accuracy_k, {"td_accuracy", {"5", "4 classes"}}},
    {top_k_k, {"td_top_k", {"k 0", "4 elements"}}},
    {mse_shapes, {"td_mse", {"(3, 4)", "(5, 4)", "y"}}},
    {mse_integers, {"td_mse", {"ids", "i32"}}},
    {huber_delta, {"td_huber", {"delta 0"}}},
    {nll_shapes, {"td_nll", {"(5, 4)", "(3)", "ids"}}},
    {kl_shapes, {"td_kl_div", {"(3, 4)", "(5, 4)"}}},
    {bce_shapes, {"td_bce_with_logits", {"(3, 4)", "(5, 4)"}}},
    {norm_axis, {"td_norm", {"axis 5", "(3, 4)"}}},
    {missing_input, {"td_add", {"input 1", "NULL"}}},
};
/* clang-format on */

TEST(bad_calls_are_refused)
{
    for (int i = 0; i < TD_LEN(BAD_CALLS); i++) {
        world w;
        open_world(&w);
        node_check_refused(w.g, BAD_CALLS[i].make(&w), &BAD_CALLS[i].want);

        /* The error sticks, and later calls are harmless. */
        char first[512];
        strncpy(first, td_graph_error(w.g), sizeof first - 1);
        first[sizeof first - 1] = 0;
        CHECK(!td_relu(w.g, td_add(w.g, w.x, w.y)), "a node in a graph that has failed");
        CHECK(strcmp(first, td_graph_error(w.g)) == 0, "the first error was lost: %s",
              td_graph_error(w.g));
        td_graph_destroy(w.g);
    }
}

TEST(shapes_are_inferred)
{
    world w;
    open_world(&w);
    td_graph *g = w.g;
    td_node *parts[4], *where;
    td_node *many[40];
    for (int i = 0; i < 40; i++)
        many[i] = i % 2 ? w.x : w.y;

    node_check(g, td_add(g, w.x, td_input(g, "column", TD_F32, TD_SHAPE(3, 1))), TD_F32,
               TD_SHAPE(3, 4));
    node_check(g, td_less(g, w.x, w.x), TD_BOOL, TD_SHAPE(3, 4));
    node_check(g, td_sum(g, w.half, NULL, 0, false), TD_F32, TD_SCALAR);
    node_check(g, td_max(g, w.half, (int[]){-1}, 1, true), TD_BF16, TD_SHAPE(3, 1));
    node_check(g, td_argmax(g, w.x, -1), TD_I32, TD_SHAPE(3));
    node_check(g, td_norm(g, w.image, (int[]){2, 3}, 2, false), TD_F32, TD_SHAPE(2, 3));
    node_check(g, td_reshape(g, w.x, TD_SHAPE(2, -1, 3)), TD_F32, TD_SHAPE(2, 2, 3));
    node_check(g, td_permute(g, w.image, (int[]){0, 2, 3, -3}), TD_F32, TD_SHAPE(2, 5, 4, 3));
    node_check(g, td_slice(g, w.image, -1, 1, INT64_MAX, 2), TD_F32, TD_SHAPE(2, 3, 5, 2));
    node_check(g, td_slice(g, w.x, 0, -2, -1, 1), TD_F32, TD_SHAPE(1, 4));
    node_check(g, td_split(g, w.x, 1, 4, parts), TD_F32, TD_SHAPE(3, 1));
    node_check(g, parts[3], TD_F32, TD_SHAPE(3, 1));
    node_check(g, td_concat(g, many, 40, 0), TD_F32, TD_SHAPE(160, 4));
    node_check(g, td_concat(g, many, 1, 0), TD_F32, TD_SHAPE(5, 4));
    node_check(g, td_pad(g, w.x, (int64_t[]){1, 0}, (int64_t[]){2, 3}, 0), TD_F32, TD_SHAPE(6, 7));
    node_check(g, td_one_hot(g, w.ids, 7, TD_BF16), TD_BF16, TD_SHAPE(3, 7));
    node_check(g, td_expand(g, w.ids, TD_SHAPE(2, 3)), TD_I32, TD_SHAPE(2, 3));
    node_check(g, td_accuracy(g, w.half, w.ids, 2), TD_F32, TD_SCALAR);
    node_check(g, td_top_k(g, w.half, 2, &where), TD_BF16, TD_SHAPE(3, 2));
    node_check(g, where, TD_I32, TD_SHAPE(3, 2));
    node_check(g, td_nll(g, w.half, w.ids), TD_F32, TD_SCALAR);
    node_check(g, td_mse(g, w.half, w.x), TD_F32, TD_SCALAR);
    node_check(g, td_kl_div(g, w.x, w.x), TD_F32, TD_SCALAR);
    node_check(g, td_huber(g, w.x, w.x, 1), TD_F32, TD_SCALAR);
    CHECK_OK(td_graph_verify(g));
    td_graph_destroy(g);
}

/* Change one thing about one input. */
static void damage(td_desc *d, uint64_t *state)
{
    static const int64_t SIZES[] = {0, 1, 2, 3, 7, 1 << 20};
    int what = (int)(sample_uniform(state) * 4);
    int64_t size = SIZES[(int)(sample_uniform(state) * TD_LEN(SIZES))];
    int axis = (int)(sample_uniform(state) * (d->shape.ndim ? d->shape.ndim : 1));
    if (what == 0)
        d->dtype = (td_dtype)(sample_uniform(state) * TD_DTYPE_COUNT);
    else if (what == 1 && d->shape.ndim > 0)
        d->shape.dim[--d->shape.ndim] = 0;
    else if (what == 2 && d->shape.ndim < TD_MAX_DIMS)
        d->shape.dim[d->shape.ndim++] = size;
    else
        d->shape.dim[axis] = d->shape.ndim ? size : 0;
}

/* Whatever infer accepts must be a possible tensor; whatever it refuses must say why. */
TEST(damaged_samples_are_answered)
{
    uint64_t state = 4711;
    for (int op = 0; op < TD_OP_COUNT; op++) {
        const td_op_def *def = td__op((td_opcode)op);
        for (int i = 0; i < def->n_samples; i++)
            for (int k = 0; k < 60; k++) {
                const td_op_sample *s = &def->samples[i];
                td_desc in[TD_SAMPLE_MAX_IN], out[TD_MAX_OUT] = {{0}};
                const td_desc *at[TD_SAMPLE_MAX_IN];
                int n_out = 1;
                for (int j = 0; j < s->n_in; j++) {
                    in[j] = s->in[j];
                    at[j] = &in[j];
                }
                for (int j = 0; j <= k % 3; j++)
                    damage(&in[(int)(sample_uniform(&state) * s->n_in)], &state);
                td_op_args a = {.n_in = s->n_in, .in_desc = at, .attr = s->attr};
                td_status st = def->infer(&a, out, &n_out);
                CHECK(!st || *td_last_error(), "%s refuses without a text", def->name);
                CHECK(n_out >= 1 && n_out <= TD_MAX_OUT, "%s: %d outputs", def->name, n_out);
                for (int j = 0; !st && j < n_out; j++)
                    CHECK(out[j].shape.ndim >= 0 && out[j].shape.ndim <= TD_MAX_DIMS &&
                              (unsigned)out[j].dtype < TD_DTYPE_COUNT,
                          "%s: output %d is no tensor", def->name, j);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(shapes_are_inferred),
        cmocka_unit_test(damaged_samples_are_answered),
    };
    return cmocka_run_group_tests_name("ops_infer", tests, NULL, NULL);
}
