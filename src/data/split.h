/* split.h -- which samples of the train file are for which part.
 *
 * A part that has no file of its own is cut from train: drawn by the seed, or the last samples of
 * the file, or one of several folds. The same for everybody who asks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SPLIT_H
#define TD_DATA_SPLIT_H

#include "data/data.h"

typedef struct td__split {
    double fraction[TD_PART_COUNT]; /* of parts without a file; train: not looked at */
    const char *order;              /* "file": the last samples; NULL, "random": drawn */
    int64_t folds, fold;            /* valid is that fold of what test leaves; 0: a fraction */
    uint64_t seed;
    bool own[TD_PART_COUNT]; /* has a file of its own */
} td__split;

/* role[i] is the part of sample i of n, TD_PART_COUNT: none, since it lies between two parts. Where
 * neighbours share rows (in_order), parts are ranges in the order of the file, `gap` samples apart.
 * *cuts: false: all are for training. */
TD_NODISCARD td_status td__split_roles(const td__split *s, int64_t n, bool in_order, int64_t gap,
                                       uint8_t *role, bool *cuts);

#endif
