/* op_recurrent.h -- what lstm and gru share: checks, one step's product, states, the gradient of
 * the recurrent weight. Gates lie side by side: `gates` of them in rows of gates H elements. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_RECURRENT_H
#define TD_OPS_OP_RECURRENT_H

#include "ops/op_check.h"

/* Input 0 is gx (T, B, gates H), floating, with at least one step; gives H. */
TD_NODISCARD td_status td__recurrent_check(const td_op_args *a, int gates, int64_t *h);
/* Input i is w_hh (gates H, H). */
TD_NODISCARD td_status td__recurrent_check_weight(const td_op_args *a, int i, int gates, int64_t h);

/* Input 0 is dy (T, B, H), floating; gives the shapes (B, H) of a state and (T, B, 4H) of the gates
 * that both cells keep. */
TD_NODISCARD td_status td__recurrent_check_back(const td_op_args *a, td_shape *state,
                                                td_shape *gates);

/* out (B, rows) = add + h w' + bias, for h (B, H), w (rows, H), bias (rows); add may be NULL. */
void td__recurrent_gates(double *out, const double *add, const double *h, const double *w,
                         const double *bias, int64_t batch, int64_t rows, int64_t width);
/* dh (B, H) = d (B, rows) w. */
void td__recurrent_back(double *dh, const double *d, const double *w, int64_t batch, int64_t rows,
                        int64_t width);

/* state itself, or zeros (B, H) where it is NULL; gx and w_hh tell the sizes. */
td_node *td__recurrent_state(td_graph *g, const char *call, td_node *state, td_node *gx,
                             td_node *w_hh);
/* b_hh itself, or zeros where it is NULL. */
td_node *td__recurrent_bias(td_graph *g, td_node *b_hh, td_node *w_hh);
/* The last step of (T, B, H) as (B, H). */
td_node *td__recurrent_last(td_graph *g, td_node *y);
/* Set the gradients of w_hh (input `w`) and b_hh (the one after it) of ga->y, from the gradient of
 * all steps' gates and the states before each step: h0, then y but for its last step. */
void td__recurrent_weight_grad(const td_grad_args *ga, td_node *dgates, td_node *h0, int w);

#endif
