/* tandem/product.h -- one product of matrices over the ranks of a communicator.
 *
 *     C = A B        A (m, k), B (k, n), C (m, n), f32, row-major
 *
 * A is cut by columns and B by the same rows into pieces; a rank has some of them, multiplies each
 * piece of A by its piece of B, and the partial products are added up over all: every rank gets C.
 *
 *     td_product_create, td_product_columns; then td_product_run as often as one likes
 *
 * Bits      Partial products are made by the piece and added up in one tree over the pieces (0+1,
 *           2+3, then pairs of pairs): any number of ranks that divides them gives the same bits,
 *           if both are powers of two.
 * Threads   One at a time, and the comm's.
 * Failure   As of collectives (tandem/coll.h); every wait has the comm's deadline. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PRODUCT_H
#define TD_PRODUCT_H

#include "tandem/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_product td_product;

typedef struct td_product_opts {
    int pieces;          /* 1 to 8, a multiple of the ranks; 0: one per rank */
    const char *backend; /* "cpu", "cuda", "ref"; NULL: cpu */
} td_product_opts;

/* comm may be NULL: one rank; borrowed while the product lives. All ranks give the same sizes and
 * options, each at least 1, k at least the pieces. opts may be NULL. */
TD_NODISCARD TD_API td_status td_product_create(td_comm *comm, int64_t m, int64_t n, int64_t k,
                                                const td_product_opts *opts, td_product **out);
TD_API void td_product_destroy(td_product *p); /* NULL is allowed */

/* The columns of A and rows of B that this rank has: [*first, *first + *count). */
TD_API void td_product_columns(const td_product *p, int64_t *first, int64_t *count);

/* Collective. a: this rank's columns, rows lda elements apart; b: its rows, ldb elements apart; so
 * that both may lie in the whole matrices. c: (m, n), all of C. */
TD_NODISCARD TD_API td_status td_product_run(td_product *p, const float *a, int64_t lda,
                                             const float *b, int64_t ldb, float *c);

#ifdef __cplusplus
}
#endif

#endif
