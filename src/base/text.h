/* text.h -- a text that grows: for files made of text (JSON lines, pages, tables). A failed
 * allocation is kept: append any number of times, look once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_TEXT_H
#define TD_BASE_TEXT_H

#include "tandem/status.h"

/* Zero-initialise. */
typedef struct td__text {
    char *data; /* ends with a 0; NULL while nothing was appended */
    size_t used, room;
    bool failed;
} td__text;

void td__text_fini(td__text *t);
void td__text_clear(td__text *t); /* keeps the memory */
void td__text_append(td__text *t, const char *s, size_t nbytes);
void td__text_add(td__text *t, const char *s);
void td__text_printf(td__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "..." with what JSON asks to be escaped. */
void td__text_json(td__text *t, const char *s);
/* A JSON number, short but exact to `digits`; null for what JSON has no number for. */
void td__text_json_number(td__text *t, double v, int digits);
/* For HTML, in text and in attributes. */
void td__text_html(td__text *t, const char *s);
/* For terminals: control characters as \x1b. */
void td__text_printable(td__text *t, const char *s);
/* TD_ENOMEM if anything did not fit. */
TD_NODISCARD td_status td__text_status(const td__text *t);

/* A member of an object that is not its first: `, "key": value`. NULL is "". */
void td__text_member(td__text *t, const char *key, const char *value);
void td__text_member_number(td__text *t, const char *key, double value, int digits);
void td__text_member_int(td__text *t, const char *key, int64_t value);

#endif
