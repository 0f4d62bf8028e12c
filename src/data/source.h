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

/* What sources may be told; zero means default. Which of them a source reads is in its def. */
typedef struct td__source_opts {
    const char *dir;                  /* folder of the files; relative names start there */
    const char *train, *valid, *test; /* files, where the source does not know their names */
    const char *label;                /* csv, jsonl: column or key of the target */
    const char *const *columns;       /* csv, jsonl: features to take; all others by default */
    int n_columns;
    bool unlabelled;    /* csv, jsonl, npy: a test file without the label is fine; y is then 0 */
    const char *target; /* csv, jsonl: "class" (default) or "number" */
    char delimiter;     /* csv: ',' */
    bool no_header;     /* csv: columns are then named c0, c1, ... */
    const char *unit;   /* text: "char" (default) or "byte" */
    int64_t context;    /* text, tokens: length of a sample; intents: padded to */
    int64_t stride;     /* text, tokens: from one sample to the next; context */
    int64_t vocab;      /* intents: words kept; tokens: size of the vocabulary */
    int64_t count;      /* digits, spirals: samples of the train part */
    int64_t classes;    /* spirals; cifar: 10 or 100 */
    double noise;       /* digits, spirals */
    uint64_t seed;      /* digits, spirals */
} td__source_opts;

typedef struct td__source_def {
    const char *name;
    const char *help;  /* one line: what it reads, which files it looks for */
    const char *reads; /* the options it takes, separated by spaces: "dir context stride" */
    td_status (*open)(const td__source_opts *o, const char *part, td__dataset **out);
} td__source_def;

const td__source_def *td__source_find(const char *name); /* NULL if there is none */
const td__source_def *td__source_list(int i);            /* NULL after the last */

#define TD_SOURCE(name) extern const td__source_def td__source_##name;
#include "data/sources.def"
#undef TD_SOURCE

#endif
