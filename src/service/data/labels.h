/* labels.h -- labels and their numbers, in the order in which they came; and the order in which the
 * book's service writes them, that of a hash map of Java: it decides which number a label has in a
 * version of a data set. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_LABELS_H
#define TD_SERVICE_DATA_LABELS_H

#include "base/alloc.h"

typedef struct td__label {
    const char *text;
    uint32_t hash;          /* Java's String.hashCode, spread as its HashMap does */
    int number;             /* 1, 2, ... in the order of adding */
    struct td__label *next; /* of the same bucket, in the order of adding */
} td__label;

typedef struct td__labels {
    td__arena *arena;
    td__label **buckets; /* as many as Java's map has: doubled when it is three quarters full */
    int n_buckets, n;
} td__labels;

TD_NODISCARD td_status td__labels_init(td__labels *l);
void td__labels_fini(td__labels *l);
/* The label of that text, which is added if it is new. NULL: out of memory. */
td__label *td__labels_add(td__labels *l, const char *text);
/* NULL: there is none. */
td__label *td__labels_find(const td__labels *l, const char *text);
/* In the map's order: the first with NULL; NULL after the last. */
td__label *td__labels_next(const td__labels *l, const td__label *after);

#endif
