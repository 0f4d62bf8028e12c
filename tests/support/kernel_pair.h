/* kernel_pair.h -- one node, planned by the CPU backend and by the reference backend, run on the
 * same inputs, outputs compared. For the tests of kernels at shapes and in variants that matter to
 * them, beyond the operators' own samples. All buffers have guard bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_KERNEL_PAIR_H
#define TD_TESTS_SUPPORT_KERNEL_PAIR_H

#include "graph/backend.h"

typedef struct kernel_pair {
    const char *name;
    td_opcode op;
    const void *attr;
    int n_in;
    td_desc in[TD_SAMPLE_MAX_IN];
    unsigned positive; /* bit i: input i is filled from [0.5, 1.5), else from [-1, 1) */
    unsigned params;   /* bit i: input i is a param */
    int64_t below;     /* integer inputs are filled from [0, below) */
    double tol;        /* largest difference, as a share of the largest value of an output */
} kernel_pair;

/* Fails the test where the two differ; `impl`, unless NULL, must occur in the CPU kernel's impl. */
void kernel_pair_check(const kernel_pair *p, const char *impl);

#endif
