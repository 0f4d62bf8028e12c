/* row_optim.h -- an optimizer's update of single rows that lie anywhere in the host's memory, each
 * with its states behind it: for tables that are not a param of a program. The bits are those of
 * td__optim_apply_rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_ROW_OPTIM_H
#define TD_OPTIM_ROW_OPTIM_H

#include "optim/optimizer.h"

typedef struct td__row_optim {
    const td__optim_def *def;
    td_optim_opts opts; /* resolved */
    int n_states;
    float first; /* what the first state begins with */
    td_stream *on;
} td__row_optim;

/* TD_ENOTSUP if the optimizer has no rule for rows. */
TD_NODISCARD td_status td__row_optim_init(td__row_optim *r, const td_optim_opts *opts);
/* The numbers of step t (from 1). */
void td__row_optim_begin(const td__row_optim *r, double lr, uint64_t t, td__optim_hyper *h);
/* row: `width` values, then each state's. */
void td__row_optim_new(const td__row_optim *r, float *row, size_t width); /* the states */
void td__row_optim_update(const td__row_optim *r, const td__optim_hyper *h, float *row,
                          const float *grad, size_t width);

#endif
