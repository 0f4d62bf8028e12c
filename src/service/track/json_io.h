/* json_io.h -- JSON of other systems' APIs: written into texts, read line by line from streams. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_JSON_IO_H
#define TD_SERVICE_TRACK_JSON_IO_H

#include <jansson.h>

#include "base/text.h"

/* To the end of the text, on one line. */
void td__json_write(const json_t *j, td__text *out);
/* The text of that key; "" where there is none. */
const char *td__json_text(const json_t *object, const char *key);

/* Lines of JSON, as streams of events send them: each whole one is handed over. Zero-initialise. */
typedef struct td__json_lines {
    td__text rest;
    bool (*line)(void *user, json_t *object); /* borrowed; false: no more */
    void *user;
} td__json_lines;
bool td__json_lines_feed(void *lines, const void *data, size_t nbytes);
void td__json_lines_fini(td__json_lines *l);

#endif
