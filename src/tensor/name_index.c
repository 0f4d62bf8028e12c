/* name_index.c -- see name_index.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/name_index.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const td__named *)a)->name, ((const td__named *)b)->name);
}

void td__names_sort(td__named *names, int count)
{
    if (count > 0)
        qsort(names, (size_t)count, sizeof *names, compare_names);
}

int td__names_find(const td__named *names, int count, const char *name)
{
    int lo = 0, hi = count;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        int order = strcmp(name, names[mid].name);
        if (order == 0)
            return names[mid].index;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}
