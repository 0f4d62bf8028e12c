/* variants.h -- variants of a job: a name and overrides, as --set takes them. They come from a
 * table of names (variants.def), from files with some keys, or from values of one key. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_VARIANTS_H
#define TD_CMD_VARIANTS_H

#include "base/alloc.h"
#include "command.h"
#include "run/compare.h"

typedef struct td__variant {
    const char *name; /* fit to be a directory's; no two have the same */
    const char *what; /* the overrides as one text */
    const char **sets;
    int n_sets, ranks;
} td__variant;

typedef struct td__variants {
    td__variant *at;
    int n;
    td__compare_absent *left_out; /* (n_left_out) rules that --sync all has no variant of */
    int n_left_out;
} td__variants;

/* From --base, --sync, --runs, --parallel, --vary, --ranks and --set (for all). TD_EINVAL: one
 * of them is not valid. */
TD_NODISCARD td_status td__variants_make(td__arena *arena, const td__args *a, td__variants *out);

/* The table. */
typedef struct td__named_variant {
    const char *name, *sets, *help;
} td__named_variant;

#endif
