/* artifact_list.h -- a job's artifacts with their sha256: the supervisor writes the list when the
 * job has succeeded, before it says so; "SHA256 BYTES NAME" in each line. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_ARTIFACT_LIST_H
#define TD_SERVICE_TRACK_ARTIFACT_LIST_H

#include "base/sha256.h"
#include "tandem/status.h"

#define TD__ARTIFACT_LIST "artifacts"

typedef struct td__artifact_line {
    char sha256[TD_SHA256_HEX];
    int64_t nbytes;
    char name[1024]; /* relative to the artifacts' directory */
} td__artifact_line;

/* Hash every file below `artifacts` and write the list to `path`, whole or not at all. Links, what
 * cannot be read and names that are too long or have control characters are left out; `all`: they
 * are errors, and `artifacts` itself may be a link. */
TD_NODISCARD td_status td__artifact_list_write(const char *artifacts, const char *path, bool all);
/* The line at *at, which is moved on; false at the end and for what is not a line. */
bool td__artifact_list_next(const char *text, size_t nbytes, size_t *at, td__artifact_line *out);

#endif
