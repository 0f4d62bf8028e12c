/* elementwise.h -- the argument of the elementwise kernels: a straight-line program over broadcast
 * inputs, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_ELEMENTWISE_H
#define TD_BACKEND_CUDA_KERNELS_ELEMENTWISE_H

#include "backend/cuda/kernels/io.h"

enum { TD__EW_IN = 10, TD__EW_OUT = 4, TD__EW_INSTR = 24 };
/* How an input is indexed: as the output, a single number, by steps. */
enum td__ew_kind { TD__EW_SAME, TD__EW_ONE, TD__EW_STEPS };

typedef struct td__ew_args {
    td__io io;
    long long n; /* elements of an output */
    int n_in, n_out, n_instr, ndim;
    int in_dtype[TD__EW_IN], in_kind[TD__EW_IN];
    int out_dtype[TD__EW_OUT], out_operand[TD__EW_OUT];
    long long dim[TD__IO_DIMS]; /* of the output, in memory order */
    long long step[TD__EW_IN][TD__IO_DIMS];
    /* Operand r < n_in is input r, n_in + j the result of instruction j. */
    struct {
        int op; /* td_opcode */
        int src[3];
        double num[2];
    } instr[TD__EW_INSTR];
} td__ew_args;

#endif
