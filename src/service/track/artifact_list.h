/* artifact_list.h -- a job's artifacts with their sha256: the supervisor writes the list when the
 * job has succeeded, before it says so; "SHA256 BYTES NAME" in each line. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_ARTIFACT_LIST_H
#define TD_SERVICE_TRACK_ARTIFACT_LIST_H

#include "base/sha256.h"
#include "tandem/status.h"

#define TD__ARTIFACT_LIST "artifacts"

enum { TD__ARTIFACT_LIST_BYTES = 256 << 20 }; /* more of a list is not read */

typedef struct td__artifact_line {
    char sha256[TD_SHA256_HEX];
    int64_t nbytes;
    char name[1024]; /* relative to the artifacts' directory */
} td__artifact_line;

/* What was left out of a list: the first of them by its name. */
typedef struct td__left_out {
    int n;
    char first[300]; /* "NAME: WHY", printable */
} td__left_out;

void td__left_out_add(td__left_out *l, const char *name, const char *why);
/* "left out of its artifacts: NAME: WHY, and 2 more"; "": nothing was. */
void td__left_out_show(const td__left_out *l, char *out, size_t nbytes);

typedef struct td__artifact_opts {
    bool all;                /* what cannot be listed is an error; the directory may be a link */
    bool (*stop)(void *arg); /* asked for every piece of a file; true: TD_EABORTED. May be NULL */
    void *arg;
    td__left_out *left_out; /* may be NULL; links are not told */
} td__artifact_opts;

/* Hash every file below `artifacts` and write the list to `path`, whole or not at all. Links, what
 * cannot be read and names that are too long or have control characters are left out. o: may be
 * NULL. */
TD_NODISCARD td_status td__artifact_list_write(const char *artifacts, const char *path,
                                               const td__artifact_opts *o);
/* The line at *at, which is moved on; false at the end and for what is not a line. */
bool td__artifact_list_next(const char *text, size_t nbytes, size_t *at, td__artifact_line *out);

#endif
