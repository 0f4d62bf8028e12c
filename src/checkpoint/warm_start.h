/* warm_start.h -- first weights from those of another model: tensors of a safetensors file that
 * have the name and the shape of a param take its place; the others stay as they were drawn. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_WARM_START_H
#define TD_CHECKPOINT_WARM_START_H

#include "tandem/program.h"

typedef struct td__warm_start {
    int taken, kept;     /* params and states: from the file, and as they were */
    char first_kept[80]; /* a name of those; "" */
} td__warm_start;

typedef struct td__warm_start_opts {
    const char *const *fresh; /* patterns of params that are not looked for (base/pattern.h) */
    int n_fresh;
    const char *const (*rename)[2]; /* beginnings of names: in the file, and here */
    int n_renames;
} td__warm_start_opts;

/* TD_EINVAL, and nothing is changed, where no tensor fits. */
TD_NODISCARD td_status td__warm_start_load(td_params *ps, const char *path,
                                           const td__warm_start_opts *o, td__warm_start *out);

#endif
