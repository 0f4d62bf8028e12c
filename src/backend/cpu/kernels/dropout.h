/* dropout.h -- zero with probability p, scale the rest; see ops/op_dropout.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_DROPOUT_H
#define TD_BACKEND_CPU_KERNELS_DROPOUT_H

#include "backend/cpu/isa.h"
#include "base/rng.h"
#include "tandem/types.h"

/* Element i is kept where its 32 random bits are >= threshold. y may be x. */
typedef void td__dropout_fn(void *y, const void *x, td_dtype t, int64_t n, const td__rng_key *key,
                            uint32_t threshold, float scale);
TD_ISA_DECLARE(void, td__dropout,
               (void *y, const void *x, td_dtype t, int64_t n, const td__rng_key *key,
                uint32_t threshold, float scale));

#endif
