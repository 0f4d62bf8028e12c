/* source.h -- where samples come from: one td__source_def in one file and one line in sources.def.
 *
 * A source opens one part of its data ("train", "valid", "test") as a dataset. A source that has no
 * file for a part says so with TD_ENOTSUP, and the part is then cut from "train" by fraction
 * (data.h). Errors about files are TD_EINVAL or TD_EPROTO, one line that names the file, what was
 * expected and, where a file is missing, what to get. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SOURCE_H
#define TD_DATA_SOURCE_H

#include "data/dataset.h"
#include "data/fit.h"
#include "tandem/data.h"

/* What sources may be told; which of it a source reads is in its def. */
typedef td_source_opts td__source_opts;

struct td__split; /* split.h */

typedef struct td__source_def {
    const char *name;
    const char *help;  /* one line: what it reads, which files it looks for */
    const char *reads; /* the options it takes, separated by spaces: "dir context stride" */
    td_status (*open)(const td__source_opts *o, const char *part, td__dataset **out);
    /* The same by what was measured when a model was trained, without a look at the train part.
     * NULL: what parts are does not depend on it. */
    td_status (*open_fitted)(const td__source_opts *o, const char *part, const td__fit *fit,
                             td__dataset **out);
    /* The same, where what is measured is measured on the samples of the train file that `cut`
     * leaves for training. NULL: nothing is measured there. */
    td_status (*open_cut)(const td__source_opts *o, const char *part, const struct td__split *cut,
                          td__dataset **out);
} td__source_def;

const td__source_def *td__source_find(const char *name); /* NULL if there is none */
const td__source_def *td__source_list(int i);            /* NULL after the last */
/* One part of a source; fit NULL: nothing was measured before; cut NULL: nothing is cut off what is
 * measured. */
TD_NODISCARD td_status td__source_open(const td__source_def *def, const td__source_opts *o,
                                       const char *part, const td__fit *fit,
                                       const struct td__split *cut, td__dataset **out);

#define TD_SOURCE(name) extern const td__source_def td__source_##name;
#include "data/sources.def"
#undef TD_SOURCE

#endif
