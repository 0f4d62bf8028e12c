/* 09 -- one product of matrices over several ranks: A is cut by columns, B by rows, and the partial
 * products are added up.
 *
 *     build/examples/09_product                           one rank, with all pieces
 *     tandem launch -n 4 build/examples/09_product        four ranks: the same bits
 *
 * Every rank makes only the columns and rows that it has, and gets all of C. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { M = 64, N = 48, K = 512, PIECES = 8 };

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

static float a_at(int64_t i, int64_t k)
{
    return (float)((i * 31 + k * 17) % 101) / 101 - 0.5f;
}

static float b_at(int64_t k, int64_t j)
{
    return (float)((k * 13 + j * 29) % 97) / 97 - 0.5f;
}

int main(void)
{
    static float a[M * K], b[K * N], c[M * N];
    td_comm *comm;
    td_product *product;
    int64_t first, count;

    check(td_comm_world(NULL, &comm));
    check(td_product_create(comm, M, N, K, &(td_product_opts){.pieces = PIECES}, &product));
    td_product_columns(product, &first, &count);
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < count; k++)
            a[i * count + k] = a_at(i, first + k);
    for (int64_t k = 0; k < count; k++)
        for (int64_t j = 0; j < N; j++)
            b[k * N + j] = b_at(first + k, j);
    check(td_product_run(product, a, count, b, N, c));

    double worst = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)a_at(i, k) * (double)b_at(k, j);
            worst = fmax(worst, fabs(sum - (double)c[i * N + j]));
        }
    printf("rank %d of %d: columns %lld to %lld of A; C[0][0] = %.9g, at most %.1e off\n",
           td_comm_rank(comm), td_comm_size(comm), (long long)first, (long long)(first + count - 1),
           (double)c[0], worst);

    td_product_destroy(product);
    td_comm_destroy(comm);
    return worst < 1e-4 ? 0 : 1;
}
