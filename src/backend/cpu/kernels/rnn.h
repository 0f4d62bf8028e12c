/* rnn.h -- one row (one sequence of the batch) of one step of lstm and gru: what happens to the
 * gates after the matrix product. The formulas are in ops/op_lstm.c and ops/op_gru.c. `dtype` is
 * f32 or bf16; everything typed float is f32 whatever it is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_RNN_H
#define TD_BACKEND_CPU_KERNELS_RNN_H

#include "backend/cpu/isa.h"
#include "tandem/types.h"

typedef struct td__lstm_cell {
    int64_t h;
    td_dtype dtype;
    float *sums;         /* (4H): h_(t-1) w_hh' + b_hh; overwritten */
    const void *gx;      /* (4H) */
    const float *c_prev; /* (H) */
    void *gates;         /* (4H) */
    float *c;            /* (H) */
    void *y;             /* (H) */
    float *scratch;      /* (4H) */
} td__lstm_cell;
TD_ISA_DECLARE(void, td__lstm_cell_run, (const td__lstm_cell *a));

typedef struct td__lstm_cell_back {
    int64_t h;
    td_dtype dtype;
    const void *dy, *gates;  /* (H), (4H) */
    const float *c, *c_prev; /* (H) */
    const float *dh;         /* (H): from the step after */
    float *dc;               /* (H): likewise; becomes what goes to the step before */
    void *dgx;               /* (4H) */
    float *scratch;          /* (9H) */
} td__lstm_cell_back;
TD_ISA_DECLARE(void, td__lstm_cell_back_run, (const td__lstm_cell_back *a));

typedef struct td__gru_cell {
    int64_t h;
    td_dtype dtype;
    float *sums;        /* (3H): h_(t-1) w_hh' + b_hh; overwritten */
    const void *gx;     /* (3H) */
    const void *h_prev; /* (H) */
    void *gates;        /* (4H) */
    void *y;            /* (H) */
    float *scratch;     /* (8H) */
} td__gru_cell;
TD_ISA_DECLARE(void, td__gru_cell_run, (const td__gru_cell *a));

typedef struct td__gru_cell_back {
    int64_t h;
    td_dtype dtype;
    const void *dy, *gates, *h_prev; /* (H), (4H), (H) */
    float *dh;                       /* (H): from the step after; becomes dh z */
    void *dgx, *dgh;                 /* (3H) */
    float *scratch;                  /* (12H) */
} td__gru_cell_back;
TD_ISA_DECLARE(void, td__gru_cell_back_run, (const td__gru_cell_back *a));

#endif
