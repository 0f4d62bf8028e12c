/* lr_range.h -- what a learning-rate range test says (Smith, "Cyclical Learning Rates", 2017): the
 * rate grows by the same factor in every step, and the loss falls where rates are useful, fastest
 * in the middle of them, and grows where they are too high. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_LR_RANGE_H
#define TD_TRAIN_LR_RANGE_H

#include "tandem/status.h"

typedef struct td__lr_range {
    int n;            /* steps so far */
    int room;         /* of the arrays */
    double *lr;       /* (room): own */
    double *loss;     /* (room) smoothed: own */
    double mean, sum; /* of the moving average, and its weight */
    double least;     /* of loss */
} td__lr_range;

TD_NODISCARD td_status td__lr_range_init(td__lr_range *r, int steps);
void td__lr_range_fini(td__lr_range *r);
/* A step was made with this rate and had this loss. true: there is no point in going on, as the
 * loss has grown far beyond its start. */
bool td__lr_range_step(td__lr_range *r, double lr, double loss);

typedef struct td__lr_advice {
    double lr;       /* where the loss falls fastest; NaN: it never falls */
    double least_at; /* the rate of the smallest loss */
    double grows_at; /* from here on the loss is above its start; NaN: it never is */
} td__lr_advice;
td__lr_advice td__lr_range_advice(const td__lr_range *r);

#endif
