/* op_normalise.h -- what the normalisations (batch, layer, group, rms) share: checks, the
 * gradient's nodes, and the maths of one row.
 *
 * A row is what one mean and one rstd are taken over: M elements in order. gamma and beta have one
 * number for each `repeat` elements of it: 1 where every element has its own (layer), the size of
 * an image where a channel has one (group).
 *
 *     mean = sum x / M,   rstd = 1 / sqrt(sum (x - mean)^2 / M + eps),   z = (x - mean) rstd
 *     y = gamma z + beta
 *
 * With h = gamma dy:
 *
 *     dx = rstd (h - sum h / M - z sum(h z) / M),   dgamma += dy z,   dbeta += dy */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_NORMALISE_H
#define TD_OPS_OP_NORMALISE_H

#include "ops/op_check.h"

typedef struct td__norm_row {
    int64_t m, repeat;
    const double *x, *gamma; /* (M), (M / repeat) */
} td__norm_row;

/* Give y (M), *mean and *rstd; beta is like gamma. */
void td__norm_row_ref(const td__norm_row *r, const double *beta, double eps, double *y,
                      double *mean, double *rstd);
/* Give dx (M), and add to dgamma and dbeta. */
void td__norm_row_back_ref(const td__norm_row *r, double mean, double rstd, const double *dy,
                           double *dx, double *dgamma, double *dbeta);

/* eps is a number of at least 0. */
TD_NODISCARD td_status td__norm_check_eps(const td_attr_norm *at);
/* And input 0 (`what`) has rows: it is floating and has a last axis. */
TD_NODISCARD td_status td__norm_check_rows(const td_op_args *a, const char *what);
/* Input i has one number for each channel of input 0 (N, C, ...). */
TD_NODISCARD td_status td__norm_want_channels(const td_op_args *a, int i, const char *what);

/* The gradients of a node with inputs x, gamma (, beta) and outputs y and `n_stats` statistics: the
 * outputs, in order, of a node `back` of dy, x, gamma and the statistics. */
void td__norm_grad(const td_grad_args *ga, td_opcode back, int n_stats);

#endif
