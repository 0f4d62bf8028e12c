/* Views and strided copies against index arithmetic done by hand; conversions against known answers
 * and against rounding in one step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "tandem/alloc.h"
#include "tandem/tensor.h"

/* (2, 3, 4) with element (i, j, k) = 12i + 4j + k. */
static td_tensor rising(void)
{
    td_tensor t;
    CHECK_OK(td_tensor_init(&t, TD_I32, TD_SHAPE(2, 3, 4)));
    for (int32_t i = 0; i < 24; i++)
        ((int32_t *)t.data)[i] = i;
    return t;
}

static int32_t at(const td_tensor *t, int64_t i, int64_t j, int64_t k)
{
    int64_t index[] = {i, j, k}, offset = 0;
    for (int a = 0; a < t->shape.ndim; a++)
        offset += index[a] * t->stride[a];
    return ((const int32_t *)t->data)[offset];
}

static void check_shape(const td_tensor *t, td_shape want)
{
    char a[128], b[128];
    CHECK(td_shape_equal(&t->shape, &want), "%s, not %s", td_shape_text(&t->shape, a, sizeof a),
          td_shape_text(&want, b, sizeof b));
}

TEST(init_and_wrap)
{
    td_tensor t, w;
    float data[6] = {0};
    uint64_t live = td_alloc_get_stats().live;

    CHECK_OK(td_tensor_init(&t, TD_F32, TD_SHAPE(3, 5)));
    CHECK((uintptr_t)t.data % 64 == 0, "not aligned");
    CHECK_EQ_INT(td_tensor_count(&t), 15);
    CHECK_EQ_INT(td_tensor_nbytes(&t), 60);
    CHECK(td_tensor_is_contiguous(&t), "not contiguous");
    td_tensor_fini(&t);
    td_tensor_fini(&t);
    CHECK_OK(td_tensor_wrap(&w, TD_F32, TD_SHAPE(2, 3), data));
    CHECK(w.data == data && w.stride[0] == 3 && w.stride[1] == 1, "wrong strides");
    td_tensor_fini(&w);
    CHECK_STATUS(td_tensor_init(&t, TD_F32, TD_SHAPE(INT64_MAX)), TD_EINVAL);
    CHECK_STATUS(td_tensor_init(&t, TD_F32, TD_SHAPE(-1)), TD_EINVAL);
    CHECK_STATUS(td_tensor_init(&t, (td_dtype)50, TD_SHAPE(1)), TD_EINVAL);
    CHECK_STATUS(td_tensor_init(&t, TD_U8, TD_SHAPE(INT64_C(1) << 60)), TD_ENOMEM);
    td_tensor_fini(&t);
    CHECK_OK(td_tensor_init(&t, TD_F64, TD_SHAPE(INT64_MAX, 0, INT64_MAX)));
    CHECK(td_tensor_is_contiguous(&t) && td_tensor_nbytes(&t) == 0, "empty");
    td_tensor_fini(&t);
    CHECK_EQ_INT(td_alloc_get_stats().live, live);
}

/* Every start, stop and step around the size, against a loop that follows Python's words. */
TEST(slices_as_in_python)
{
    td_tensor t = rising(), s;

    for (int64_t start = -6; start <= 6; start++)
        for (int64_t stop = -6; stop <= 6; stop++)
            for (int64_t step = -3; step <= 3; step++) {
                if (!step)
                    continue;
                int64_t n = 4, lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
                int64_t a = start < 0 ? start + n : start, b = stop < 0 ? stop + n : stop;
                a = a < lo ? lo : a > hi ? hi : a;
                b = b < lo ? lo : b > hi ? hi : b;
                CHECK_OK(td_tensor_slice(&t, -1, start, stop, step, &s));
                int64_t count = 0;
                for (int64_t k = a; step > 0 ? k < b : k > b; k += step, count++)
                    if (count < s.shape.dim[2])
                        CHECK_EQ_INT(at(&s, 1, 2, count), 20 + k);
                CHECK_EQ_INT(s.shape.dim[2], count);
                td_tensor_fini(&s);
            }
    CHECK_STATUS(td_tensor_slice(&t, 3, 0, 1, 1, &s), TD_EINVAL);
    CHECK_STATUS(td_tensor_slice(&t, 0, 0, 1, 0, &s), TD_EINVAL);
    CHECK_STATUS(td_tensor_slice(&t, 0, 0, 1, INT64_MIN, &s), TD_EINVAL);
    CHECK_OK(td_tensor_slice(&t, 1, INT64_MIN, INT64_MAX, INT64_MAX, &s));
    check_shape(&s, TD_SHAPE(2, 1, 4));
    td_tensor_fini(&t); /* the view keeps the memory */
    CHECK_EQ_INT(at(&s, 1, 0, 3), 15);
    td_tensor_fini(&s);
}

TEST(permute_and_reshape)
{
    td_tensor t = rising(), p, r, c, s, flat;

    CHECK_OK(td_tensor_permute(&t, (int[]){2, 0, -2}, &p));
    check_shape(&p, TD_SHAPE(4, 2, 3));
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 3; j++)
                CHECK_EQ_INT(at(&p, k, i, j), 12 * i + 4 * j + k);
    CHECK(!td_tensor_is_contiguous(&p), "permuted yet contiguous");
    CHECK_STATUS(td_tensor_permute(&t, (int[]){0, 0, 1}, &r), TD_EINVAL);
    CHECK_STATUS(td_tensor_permute(&t, (int[]){0, 1, 3}, &r), TD_EINVAL);

    /* (4, 2, 3): the last two axes lie without gaps, all three do not. */
    CHECK_OK(td_tensor_reshape(&p, TD_SHAPE(4, 1, 6), &r));
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 6; i++)
            CHECK_EQ_INT(at(&r, k, 0, i), 4 * i + k);
    td_tensor_fini(&r);
    CHECK_OK(td_tensor_reshape(&p, TD_SHAPE(2, 2, 3, 1, 2), &r));
    td_tensor_fini(&r);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(24), &r), TD_ENOTSUP);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(8, 3), &r), TD_ENOTSUP);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(5, -1), &r), TD_EINVAL);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(-1, -1), &r), TD_EINVAL);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(0, -1), &r), TD_EINVAL);
    CHECK_STATUS(td_tensor_reshape(&p, TD_SHAPE(23), &r), TD_EINVAL);

    CHECK_OK(td_tensor_contiguous(&p, &c));
    CHECK_OK(td_tensor_reshape(&c, TD_SHAPE(3, -1), &r));
    check_shape(&r, TD_SHAPE(3, 8));
    for (int i = 0; i < 24; i++)
        CHECK_EQ_INT(((int32_t *)c.data)[i], 12 * (i / 3 % 2) + 4 * (i % 3) + i / 6);
    td_tensor_fini(&r);

    /* One element and none. */
    CHECK_OK(td_tensor_slice(&t, 0, 0, 0, 1, &s));
    CHECK_OK(td_tensor_reshape(&s, TD_SHAPE(7, 0), &flat));
    td_tensor_fini(&flat);
    td_tensor_fini(&s);
    CHECK_OK(td_tensor_init(&s, TD_F32, TD_SCALAR));
    CHECK_OK(td_tensor_reshape(&s, TD_SHAPE(1, 1, 1), &flat));
    td_tensor_fini(&flat);
    td_tensor_fini(&s);
    td_tensor_fini(&c);
    td_tensor_fini(&p);
    td_tensor_fini(&t);
}

/* Copy between all pairs of permutations and step signs, between guards. */
TEST(strided_copies_touch_only_their_elements)
{
    static const int PERM[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    td_tensor t = rising();

    for (int p = 0; p < 6; p++)
        for (int sign = -1; sign <= 1; sign += 2) {
            td_tensor view, reversed, whole, target;
            int32_t *memory = check_alloc_guarded(2 * 24 * sizeof *memory);
            CHECK_OK(td_tensor_permute(&t, PERM[p], &view));
            CHECK_OK(
                td_tensor_slice(&view, 1, sign > 0 ? 0 : -1, sign > 0 ? 9 : -9, sign, &reversed));
            td_shape twice = reversed.shape;
            twice.dim[2] *= 2;
            memset(memory, 0xff, 2 * 24 * sizeof *memory);
            CHECK_OK(td_tensor_wrap(&whole, TD_I32, twice, memory));
            CHECK_OK(td_tensor_slice(&whole, 2, 1, INT64_MAX, 2, &target)); /* every second */
            CHECK_OK(td_tensor_copy(&reversed, &target));
            for (int64_t i = 0; i < twice.dim[0]; i++)
                for (int64_t j = 0; j < twice.dim[1]; j++)
                    for (int64_t k = 0; k < twice.dim[2]; k++)
                        CHECK_EQ_INT(at(&whole, i, j, k), k % 2 ? at(&reversed, i, j, k / 2) : -1);
            check_free_guarded(memory);
            td_tensor_fini(&reversed);
            td_tensor_fini(&view);
        }
    td_tensor other;
    CHECK_OK(td_tensor_init(&other, TD_I32, TD_SHAPE(2, 3)));
    CHECK_STATUS(td_tensor_copy(&t, &other), TD_EINVAL);
    td_tensor_fini(&other);
    td_tensor_fini(&t);
}

/* The one number at x, converted to `to`, as a double. */
static double convert(td_dtype dtype, void *x, td_dtype to)
{
    td_tensor from, out, back;
    CHECK_OK(td_tensor_wrap(&from, dtype, TD_SCALAR, x));
    CHECK_OK(td_tensor_convert(&from, to, &out));
    CHECK_OK(td_tensor_convert(&out, TD_F64, &back));
    double y = *(double *)back.data;
    td_tensor_fini(&out);
    td_tensor_fini(&back);
    return y;
}

static double convert_f64(double x, td_dtype to)
{
    return convert(TD_F64, &x, to);
}

static double convert_i64(int64_t x, td_dtype to)
{
    return convert(TD_I64, &x, to);
}

TEST(conversions_known_answers)
{
    static const struct {
        double x;
        td_dtype to;
        double want;
    } CASES[] = {
        {3.99, TD_I32, 3},
        {-3.99, TD_I32, -3},
        {1e10, TD_I32, INT32_MAX},
        {-1e10, TD_I32, INT32_MIN},
        {NAN, TD_I32, 0},
        {NAN, TD_I64, 0},
        {-INFINITY, TD_I64, -0x1p63},
        {1e300, TD_I64, 0x1p63},
        {300, TD_U8, 255},
        {-1, TD_U8, 0},
        {254.9, TD_U8, 254},
        {0.1, TD_BOOL, 1},
        {0, TD_BOOL, 0},
        {NAN, TD_BOOL, 1},
        {-0.0, TD_BOOL, 0},
        {1e300, TD_F32, INFINITY},
        {1e300, TD_F16, INFINITY},
        {-1e39, TD_BF16, -INFINITY},
        /* Rounding twice, by way of f32, would give the other neighbour. */
        {1 + 0x1p-11 + 0x1p-40, TD_F16, 1 + 0x1p-10},
        {1 + 0x1p-8 + 0x1p-40, TD_BF16, 1 + 0x1p-7},
        {1 + 0x1p-8, TD_BF16, 1},
        {0x1p-25 + 0x1p-60, TD_F16, 0x1p-24},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        double got = convert_f64(CASES[i].x, CASES[i].to);
        CHECK(got == CASES[i].want, "%a to %s is %a", CASES[i].x, td_dtype_name(CASES[i].to), got);
    }
    CHECK(isnan(convert_f64(NAN, TD_F16)) && isnan(convert_f64(NAN, TD_BF16)), "NaN is lost");
    CHECK(convert_i64(INT64_MAX, TD_I32) == INT32_MAX, "no saturation");
    CHECK(convert_i64(-5, TD_U8) == 0, "no saturation");
    CHECK(convert_i64(7, TD_BOOL) == 1, "bool");
    CHECK(convert_i64((INT64_C(1) << 24) + 1, TD_F32) == 0x1p24, "tie to even");
    CHECK(convert_i64((INT64_C(1) << 62) + (INT64_C(1) << 54) + 1, TD_BF16) == 0x1p62 + 0x1p55,
          "rounded twice");
    CHECK(convert_i64(INT64_MIN, TD_BF16) == -0x1p63, "smallest");
    CHECK(convert_i64(65519, TD_F16) == 65504 && isinf(convert_i64(65520, TD_F16)), "f16 edge");
}

/* All pairs of types on small integers, which all of them hold exactly, over more than one tile. */
TEST(all_pairs_of_types)
{
    enum { N = 1000 };
    td_tensor small, from, to, back;

    CHECK_OK(td_tensor_init(&small, TD_U8, TD_SHAPE(N)));
    for (int i = 0; i < N; i++)
        ((uint8_t *)small.data)[i] = (uint8_t)(i * 7 % 100);
    for (int a = 0; a < TD_DTYPE_COUNT; a++)
        for (int b = 0; b < TD_DTYPE_COUNT; b++) {
            CHECK_OK(td_tensor_convert(&small, (td_dtype)a, &from));
            CHECK_OK(td_tensor_convert(&from, (td_dtype)b, &to));
            CHECK_OK(td_tensor_convert(&to, TD_U8, &back));
            for (int i = 0; i < N; i++) {
                int x = ((uint8_t *)small.data)[i], y = ((uint8_t *)back.data)[i];
                int want = a == TD_BOOL || b == TD_BOOL ? x != 0 : x;
                CHECK(y == want, "%s to %s: %d became %d", td_dtype_name((td_dtype)a),
                      td_dtype_name((td_dtype)b), x, y);
            }
            td_tensor_fini(&from);
            td_tensor_fini(&to);
            td_tensor_fini(&back);
        }
    td_tensor_fini(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_wrap),
        cmocka_unit_test(slices_as_in_python),
        cmocka_unit_test(permute_and_reshape),
        cmocka_unit_test(strided_copies_touch_only_their_elements),
        cmocka_unit_test(conversions_known_answers),
        cmocka_unit_test(all_pairs_of_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
