/* scores.h -- how good predictions are, in the numbers of scikit-learn: confusion matrix,
 * precision, recall and F1 of each class, area under the ROC curve; root mean square error and R2.
 * All are computed in double from all samples at once: they are no means over batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SCORES_H
#define TD_TRAIN_SCORES_H

#include "run/result.h"

/* Probabilities (n, classes), or any numbers that order the samples likewise, of samples with these
 * classes; those outside 0 .. classes-1 do not count. */
TD_NODISCARD td_status td__scores_classes(const float *probabilities, const int64_t *class,
                                          int64_t n, int64_t classes, td__scores *out);
/* n predicted numbers, and the true ones. */
void td__scores_numbers(const double *predicted, const double *true_values, int64_t n,
                        td__scores *out);
/* Of n numbers, after td__scores_numbers: points of a picture, and the worst samples. */
TD_NODISCARD td_status td__scores_points(td__scores *s, const double *predicted,
                                         const double *true_values, int64_t n);
/* "f1", "r2", ...; NaN: there is none of that name. */
double td__scores_value(const td__scores *s, const char *name);
void td__scores_fini(td__scores *s); /* a zeroed struct is allowed */

#endif
