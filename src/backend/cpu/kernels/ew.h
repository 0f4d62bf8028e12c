/* ew.h -- elementwise programs: what the planner prepares and the kernel runs.
 *
 * An elementwise node, or a fused chain of them, is a straight-line program over blocks. A block is
 * some hundred consecutive elements of the output; every operand of the program has its values for
 * the block in one array of floats, in a register (an array in scratch that stays in the
 * first-level cache) or, where it needs no conversion, directly in the tensor. An instruction is
 * one vectorised loop over the block. So a chain of any length reads and writes memory once.
 *
 * The output is walked as rows x inner, after merging all axes along which the inputs step alike.
 * Inputs are of three kinds:
 *   CONTIGUOUS  steps with the output: the bias-free majority
 *   FIXED       the same in every block, expanded once before the first: a number, or a vector
 *               along a short inner axis (a bias of few channels)
 *   ROWS        anything else: each row starts at sum(index[axis] * step[axis]) and inside a row
 *               the input steps by one or stays put */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_EW_H
#define TD_BACKEND_CPU_KERNELS_EW_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "ops/attr.h"
#include "ops/node.h"

typedef enum td__ew_kind { TD_EW_CONTIGUOUS, TD_EW_FIXED, TD_EW_ROWS } td__ew_kind;

typedef struct td__ew_input {
    td__ew_kind kind;
    td_dtype dtype;
    int reg;                   /* -1: read where it lies */
    int64_t inner_step;        /* 0 or 1 */
    int64_t step[TD_MAX_DIMS]; /* per outer axis, in elements */
} td__ew_input;

typedef struct td__ew_instr {
    td_opcode op;
    int src[3]; /* operands: inputs, then results, as in td_attr_fused */
    int reg;    /* -1: write to output `direct` */
    int direct;
    float num[2];
} td__ew_instr;

typedef struct td__ew_output {
    int operand;
    td_dtype dtype;
} td__ew_output;

typedef struct td__ew {
    int n_in, n_instr, n_out, n_reg, n_outer;
    int64_t outer[TD_MAX_DIMS]; /* sizes of the outer axes */
    int64_t rows, inner;        /* product of outer; elements per row */
    int64_t block_rows, block;  /* rows per block (1 if a row fills several); its elements */
    td__ew_input in[TD_FUSED_MAX_IN];
    td__ew_instr instr[TD_FUSED_MAX_INSTR];
    td__ew_output out[TD_FUSED_MAX_OUT];
} td__ew;

/* scratch: n_reg * block floats, 64-byte aligned. Output 0 may lie in a CONTIGUOUS input. */
typedef void td__ew_run_fn(const td__ew *p, const void *const *in, void *const *out,
                           float *scratch);
TD_ISA_DECLARE(void, td__ew_run,
               (const td__ew *p, const void *const *in, void *const *out, float *scratch));

#endif
