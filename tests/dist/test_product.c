/* tandem/product.h: a product cut by columns of A and rows of B, on any number of ranks the same
 * bits, and the product but for rounding. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/ranks.h"
#include "tandem/product.h"

enum { M = 9, N = 7, K = 50, PIECES = 4 };

typedef struct matrices {
    float a[M * K], b[K * N], one[M * N]; /* one: C of one rank */
} matrices;

static td_status multiply(const matrices *x, td_comm *comm, int pieces, float *c)
{
    td_product *p;
    int64_t first, count;
    td_status st = td_product_create(comm, M, N, K, &(td_product_opts){.pieces = pieces}, &p);
    if (st)
        return st;
    td_product_columns(p, &first, &count);
    for (int again = 0; again < 2 && !st; again++)
        st = td_product_run(p, x->a + first, K, x->b + first * N, N, c);
    td_product_destroy(p);
    return st;
}

static void fill(matrices *x)
{
    for (int i = 0; i < M * K; i++)
        x->a[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < K * N; i++)
        x->b[i] = (float)(i * 53 % 97) / 48 - 1;
}

static void body(ranks_ctx *r)
{
    const matrices *x = r->arg;
    float c[M * N];
    RANK_OK(r, multiply(x, r->comm, PIECES, c));
    RANK_CHECK(r, memcmp(c, x->one, sizeof c) == 0, "another product on %d ranks", r->size);
}

static void test_any_number_of_ranks(void **state)
{
    static matrices x;
    (void)state;
    fill(&x);
    CHECK_OK(multiply(&x, NULL, PIECES, x.one));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)x.a[i * K + k] * (double)x.b[k * N + j];
            CHECK(fabs(sum - (double)x.one[i * N + j]) < 1e-5, "C[%d][%d] is %g, not %g", i, j,
                  (double)x.one[i * N + j], sum);
        }
    ranks_run(1, NULL, body, &x);
    ranks_run(2, NULL, body, &x);
    ranks_run(4, NULL, body, &x);
    ranks_run(4, &(ranks_opts){.transport = "shm"}, body, &x);
    ranks_run(2, &(ranks_opts){.transport = "tcp"}, body, &x);
}

static void three(ranks_ctx *r)
{
    static const matrices X;
    float c[M * N];
    RANK_OK(r, multiply(&X, r->comm, 0, c)); /* a piece each */
    RANK_STATUS(r, multiply(&X, r->comm, 4, c), TD_EINVAL);
    RANK_CHECK(r, strstr(td_last_error(), "4 pieces on 3 ranks"), "%s", td_last_error());
}

static void test_what_does_not_fit(void **state)
{
    td_product *p;
    static const float ZEROS[M * K];
    float c[M * N];
    (void)state;
    ranks_run(3, NULL, three, NULL);
    CHECK_STATUS(td_product_create(NULL, 0, N, K, NULL, &p), TD_EINVAL);
    CHECK_STATUS(td_product_create(NULL, M, N, 3, &(td_product_opts){.pieces = 4}, &p), TD_EINVAL);
    CHECK_STATUS(td_product_create(NULL, M, N, K, &(td_product_opts){.pieces = 9}, &p), TD_EINVAL);
    CHECK_OK(td_product_create(NULL, M, N, K, NULL, &p));
    CHECK_STATUS(td_product_run(p, ZEROS, K - 1, ZEROS, N, c), TD_EINVAL);
    CHECK_STATUS(td_product_run(p, ZEROS, K, ZEROS, N - 1, c), TD_EINVAL);
    td_product_destroy(p);
    td_product_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
