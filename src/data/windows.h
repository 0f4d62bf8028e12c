/* windows.h -- samples cut from long runs of tokens: x is `context` tokens, y the same one further.
 *
 *     tokens     t0 t1 t2 t3 t4 t5 t6 t7 ...        context 3, stride 3
 *     sample 0   x = t0 t1 t2   y = t1 t2 t3
 *     sample 1            x = t3 t4 t5   y = t4 t5 t6
 *
 * Tokens come in runs (files) that windows do not cross. As neighbours share tokens, splits are
 * ranges with a gap. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_WINDOWS_H
#define TD_DATA_WINDOWS_H

#include "base/alloc.h"
#include "base/file.h"
#include "data/source.h"

typedef struct td__run {
    const void *tokens; /* unsigned, of `width` bytes each, aligned to them */
    int64_t count;
    int64_t first;    /* window of the dataset that begins it; set by create */
    td__file_map map; /* closed with the dataset; may be empty */
} td__run;

typedef struct td__windows_opts {
    int64_t context, stride; /* 0: 64; context */
    int width;               /* bytes of a token: 1, 2 or 4 */
    int64_t vocab;
    const char *const *names; /* of tokens; may be NULL */
    td__arena *arena;         /* taken: holds runs, tokens, names as the source likes */
} td__windows_opts;

/* runs is an array in the arena. On failure arena and maps are still the caller's. */
TD_NODISCARD td_status td__windows_create(const char *source, const td__windows_opts *o,
                                          td__run *runs, int n_runs, td__dataset **out);

#endif
