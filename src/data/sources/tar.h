/* tar.h -- walking over the files of a tar archive in memory: ustar, GNU's long names, and names in
 * pax headers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_TAR_H
#define TD_DATA_TAR_H

#include "tandem/status.h"

enum { TD__TAR_NAME = 4096 };

/* Zero-initialise, with data, nbytes and where set. */
typedef struct td__tar {
    const uint8_t *data;
    size_t nbytes, at;
    const char *where;
    /* The file that was found: */
    char name[TD__TAR_NAME];
    const uint8_t *file;
    size_t file_nbytes;
} td__tar;

/* The next regular file; *end: there is none. TD_EPROTO: not an archive, or damaged. */
TD_NODISCARD td_status td__tar_next(td__tar *t, bool *end);

#endif
