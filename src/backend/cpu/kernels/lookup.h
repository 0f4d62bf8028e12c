/* lookup.h -- rows of an embedding table: read, summed in bags, and their gradients. The rules for
 * padding and bad ids are in ops/op_embedding.c and ops/op_embedding_bag.c. Tables and their
 * gradients are f32; the other side is f32, bf16 or f16. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_LOOKUP_H
#define TD_BACKEND_CPU_KERNELS_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

typedef struct td__lookup {
    int64_t n, rows, width; /* ids, V, D */
    int64_t bags;
    td_dtype id_dtype, offset_dtype;
    td_dtype dtype; /* of y or dy */
    bool mean;      /* bags: mean instead of sum */
} td__lookup;

/* y (n, D) = table[ids] */
TD_ISA_DECLARE(void, td__lookup_rows,
               (const td__lookup *p, void *y, const void *ids, const float *table));
/* dtable (V, D) = sum of dy (n, D) by id, in order of appearance. scratch: D floats. */
TD_ISA_DECLARE(void, td__lookup_back,
               (const td__lookup *p, float *dtable, const void *ids, const void *dy,
                float *scratch));
/* values (n, D), rows (n): the same, row-sparse. scratch: TD_LOOKUP_SORT_BYTES(n) + D floats. */
TD_ISA_DECLARE(void, td__lookup_sparse,
               (const td__lookup *p, float *values, int32_t *rows, const void *ids, const void *dy,
                void *scratch));
/* y (B, D) from bags; dtable (V, D) or spread (n, D) from dy (B, D). scratch: 2 D floats. */
TD_ISA_DECLARE(void, td__lookup_bags,
               (const td__lookup *p, void *y, const void *ids, const void *offsets,
                const float *table, float *scratch));
TD_ISA_DECLARE(void, td__lookup_bags_back,
               (const td__lookup *p, float *dtable, const void *ids, const void *offsets,
                const void *dy, float *scratch));
TD_ISA_DECLARE(void, td__lookup_bags_spread,
               (const td__lookup *p, void *spread, const void *ids, const void *offsets,
                const void *dy, float *scratch));

/* Two arrays of 64-bit (id, position) pairs. */
#define TD_LOOKUP_SORT_BYTES(n) (2 * (size_t)(n) * sizeof(uint64_t))

#endif
