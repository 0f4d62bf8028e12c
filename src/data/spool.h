/* spool.h -- samples that come one after the other, kept in a temporary file: as many as the disk
 * has room for; memory holds those that are being written or read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SPOOL_H
#define TD_DATA_SPOOL_H

#include "data/dataset.h"
#include "tandem/data.h"

/* Calls `next` until the end. The file is in $TMPDIR (/tmp) and has no name: it goes with the
 * dataset, also if the process is killed. */
TD_NODISCARD td_status td__spool_create(const td__field *fields, int n_fields, td_next_fn next,
                                        void *user, td__dataset **out);

/* A file without a name, in TMPDIR, for the samples of `what`; and bytes at its end. */
TD_NODISCARD td_status td__unnamed_file(int *fd, const char *what);
TD_NODISCARD td_status td__unnamed_write(int fd, const void *data, size_t nbytes, const char *what);

#endif
