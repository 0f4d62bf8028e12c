/* nearest.h -- "did you mean": the name that a user's word is closest to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_NEAREST_H
#define TD_BASE_NEAREST_H

#include <stddef.h>

/* How many letters must be added, left out, changed or swapped with a neighbour to turn a into b;
 * without regard to case. Texts beyond 63 bytes are compared up to there. */
int td__edit_distance(const char *a, const char *b);

/* Offer the names one by one; best is the closest so far, NULL while none is close enough (about a
 * third of the word's letters wrong) to be worth a question. */
typedef struct td__nearest {
    const char *word, *best;
    int distance;
} td__nearest;
void td__nearest_offer(td__nearest *n, const char *name);

#endif
