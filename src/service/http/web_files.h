/* web_files.h -- the files of web/, which the build puts into the program (cmake/service.cmake). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_HTTP_WEB_FILES_H
#define TD_SERVICE_HTTP_WEB_FILES_H

#include <stddef.h>

typedef struct td__web_file {
    const char *name; /* "app.js" */
    const unsigned char *data;
    const size_t *nbytes;
} td__web_file;

extern const td__web_file td__web_files[]; /* ends with a name of NULL */

#endif
