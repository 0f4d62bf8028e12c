/* name_index.h -- finding the members of a file by name: an array sorted by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TENSOR_NAME_INDEX_H
#define TD_TENSOR_NAME_INDEX_H

typedef struct td__named {
    const char *name;
    int index; /* of the member */
} td__named;

void td__names_sort(td__named *names, int count);
/* The index under this name in a sorted array, or -1. */
int td__names_find(const td__named *names, int count, const char *name);

#endif
