/* series.h -- windows over the rows of a table: a time series.
 *
 *     rows       r0 r1 r2 r3 r4 ...                 window 3, horizon 1, stride 1
 *     sample 0   x = r0 r1 r2 (window, width)       y = label of r3
 *     sample 1         x = r1 r2 r3                 y = label of r4
 *
 * As neighbours share rows, splits are ranges in the order of the file, with a gap. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SERIES_H
#define TD_DATA_SERIES_H

#include "data/source.h"
#include "data/table.h"

typedef struct td__series_opts {
    int64_t window, stride; /* rows of a sample; from one sample to the next: 0 means 1 */
    int64_t horizon;        /* rows from the window's last one to that of the label */
    const int64_t *place;   /* (rows) numbers of rows before some were taken out; NULL: none was */
    bool beyond; /* windows whose label would lie behind the last row count too; it is 0 then */
} td__series_opts;

/* rows is taken, also on failure; its label is the field y. Rows of a window and its label are
 * neighbours by their places. TD_EINVAL if there are too few rows. */
TD_NODISCARD td_status td__series_create(td__table *rows, const td__series_opts *o,
                                         td__dataset **out);

/* Windows as the options ask for them; place: as above. */
td__series_opts td__series_of(const td__source_opts *o, const int64_t *place);
/* The rows [*begin, *end) of a sample, that of its label included. */
void td__series_rows(const td__dataset *d, int64_t sample, int64_t *begin, int64_t *end);

#endif
