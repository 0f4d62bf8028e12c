/* scores.h -- how good predictions are, in the numbers of scikit-learn: confusion matrix,
 * precision, recall and F1 of each class, area under the ROC curve; root mean square error and R2.
 * All are computed in double from all samples at once: they are no means over batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SCORES_H
#define TD_TRAIN_SCORES_H

#include "tandem/status.h"

typedef struct td__class_score {
    int64_t samples;              /* whose true class it is */
    double precision, recall, f1; /* 0 where nothing was predicted, or is there */
    double auc; /* of this class against the others; NaN: all samples are on one side */
} td__class_score;

typedef struct td__scores {
    int64_t samples; /* that counted */
    /* Classes; 0: the target is a number. */
    int64_t classes;
    int64_t *confusion;                          /* (true, predicted); own */
    td__class_score *by_class;                   /* (classes); own */
    double accuracy, precision, recall, f1, auc; /* the last four: means over classes */
    /* Numbers, over all their elements. */
    double mae, rmse, r2;
} td__scores;

/* Probabilities (n, classes), or any numbers that order the samples likewise, of samples with these
 * classes; those outside 0 .. classes-1 do not count. */
TD_NODISCARD td_status td__scores_classes(const float *probabilities, const int64_t *class,
                                          int64_t n, int64_t classes, td__scores *out);
/* n predicted numbers, and the true ones. */
void td__scores_numbers(const double *predicted, const double *true_values, int64_t n,
                        td__scores *out);
void td__scores_fini(td__scores *s); /* a zeroed struct is allowed */

#endif
