/* intent.h -- the files of a data set of texts and their labels (TEXT_INTENT).
 *
 * What a client uploads: rows of a text and its labels, separated by semicolons. A commit of it:
 * examples.csv, the same with numbers instead of labels, and labels.csv, numbers and labels. A
 * version: the same files, of several commits one after the other, with numbers of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_INTENT_H
#define TD_SERVICE_DATA_INTENT_H

#include "tandem/status.h"

typedef struct td__intent_counts {
    int64_t labels, examples;
} td__intent_counts;

/* Directories exist. TD_EINVAL: the upload is not such a file, with the line. */
TD_NODISCARD td_status td__intent_commit(const char *upload, const char *to,
                                         td__intent_counts *out);
TD_NODISCARD td_status td__intent_version(const char *const *commits, int n, const char *to,
                                          td__intent_counts *out);

#endif
