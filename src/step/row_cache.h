/* row_cache.h -- which of a few places holds what was made for a number of rows; the least recently
 * used one gives way. What lies in the places is the caller's. Zeros are an empty cache. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_ROW_CACHE_H
#define TD_STEP_ROW_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { TD__ROW_PLACES = 8 };

typedef struct td__row_cache {
    int64_t rows[TD__ROW_PLACES];
    uint64_t used[TD__ROW_PLACES], clock; /* used 0: the place is free */
} td__row_cache;

/* The place for `rows`, which is the last that will give way. *found: it is there. Else the place
 * is free, or has what gives way: the caller makes what is missing there, or forgets the place. */
static inline int td__row_cache_find(td__row_cache *c, int64_t rows, bool *found)
{
    int at = 0;
    for (int i = 0; i < TD__ROW_PLACES; i++) {
        bool here = c->used[i] && c->rows[i] == rows;
        if (here || c->used[i] < c->used[at])
            at = i;
        if (here)
            break;
    }
    *found = c->used[at] && c->rows[at] == rows;
    c->rows[at] = rows;
    c->used[at] = ++c->clock;
    return at;
}

static inline void td__row_cache_forget(td__row_cache *c, int place)
{
    c->used[place] = 0;
}

#endif
