/* append_file.h -- a file that is written at its end only, each write at once: what a killed run
 * has said stays said.
 *
 * Of a run whose ranks hold its state a full disk is no reason to end: its files hold what there is
 * no room for, and write it first when there is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_APPEND_FILE_H
#define TD_RUN_APPEND_FILE_H

#include "base/text.h"
#include "run/run_dir.h"

typedef struct td__append_file {
    int fd;    /* -1: not open */
    int error; /* of the last write that failed */
    char path[TD__PATH];
    bool holds;    /* what there is no room for */
    td__text held; /* and is still to be written */
} td__append_file;

/* Opens dir/file, made if it is not there, cut to its first `keep` bytes. */
TD_NODISCARD td_status td__append_open(td__append_file *f, const char *dir, const char *file,
                                       uint64_t keep);
TD_NODISCARD td_status td__append_write(td__append_file *f, const void *data, size_t nbytes);
/* Keep the first `keep` bytes alone. */
TD_NODISCARD td_status td__append_cut(td__append_file *f, uint64_t keep);
/* What is held, or TD_EIO. */
TD_NODISCARD td_status td__append_flush(td__append_file *f);
void td__append_close(td__append_file *f);

#endif
