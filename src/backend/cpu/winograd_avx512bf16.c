/* winograd_avx512bf16.c -- the Winograd transforms where rounding to bf16 is one instruction. */
/* SPDX-License-Identifier: Apache-2.0 */
#define TD_ISA avx512bf16
#define TD_ISA_avx512 1
#include "backend/cpu/winograd_impl.h"
