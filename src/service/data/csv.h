/* csv.h -- rows of comma-separated texts, as the book's data service reads and writes them.
 * Reading: fields may be quoted, a quote in a quoted field is doubled or follows a backslash,
 * blanks before a field are ignored. Writing: every field is quoted. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_CSV_H
#define TD_SERVICE_DATA_CSV_H

#include "base/file.h"
#include "base/text.h"

typedef struct td__csv {
    const char *at, *end; /* what is left */
    int line;             /* of the row that was read last; from 1 */
    td__text row;         /* its fields, each ended by a 0 */
    int n_fields;
    int next_line;
} td__csv;

void td__csv_init(td__csv *c, const void *data, size_t nbytes);
void td__csv_fini(td__csv *c);
/* The next row that is not empty. false: the end, or out of memory (c->row.failed). */
bool td__csv_next(td__csv *c);
const char *td__csv_field(const td__csv *c, int i); /* "" beyond the last */

/* "a","b" and a newline. */
void td__csv_write(td__file_out *f, const char *a, const char *b);

#endif
