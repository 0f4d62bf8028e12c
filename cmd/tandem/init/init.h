/* init.h -- a first job for data that the user points at: `tandem init`. One writer per kind of
 * data appends the job's text; what all have in common is here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_INIT_H
#define TD_CMD_INIT_H

#include <limits.h>

#include "base/text.h"

typedef struct td__init {
    const char *path;     /* of the data, as the user gave it */
    char seen[PATH_MAX];  /* the same as the job file is to name it */
    char name[64];        /* of the job */
    const char *label;    /* --label; NULL: found by its name, or the last column */
    td__text text;        /* the job */
    int64_t batch, steps; /* for the summary */
} td__init;

/* The sizes of training for so many samples of the train part. */
typedef struct td__init_sizes {
    int64_t samples, batch, micro_batches, epochs, steps, warmup;
} td__init_sizes;
td__init_sizes td__init_size(int64_t samples, int64_t most_batch, int64_t want_steps);

/* A text in YAML, quoted where it must be; safe in comments too. */
void td__init_word(td__text *t, const char *s);
/* "train:" with AdamW at the rate `lr`. */
void td__init_train(td__init *in, const td__init_sizes *z, const char *lr, const char *watch);

TD_NODISCARD td_status td__init_table(td__init *in, bool jsonl);
TD_NODISCARD td_status td__init_text(td__init *in);
TD_NODISCARD td_status td__init_images(td__init *in, bool tar);

#endif
