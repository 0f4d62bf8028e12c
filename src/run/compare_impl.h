/* compare_impl.h -- what the table and the page of a comparison share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_COMPARE_IMPL_H
#define TD_RUN_COMPARE_IMPL_H

#include "base/human.h"
#include "run/compare.h"

enum { TD__COMPARE_CELLS = 12, TD__COMPARE_CELL = 128 };

/* As td__html_head takes them. */
extern const char *const td__compare_columns[TD__COMPARE_CELLS + 1];

/* The run that stands for variant v; the first variant that went well, NULL if none did. */
const td__compare_run *td__compare_variant(const td__compare_opts *o, int v);
const td__compare_run *td__compare_first(const td__compare_opts *o);

/* What the lines of a table have in common: the variant that speeds and bytes are relative to, and
 * the units of the columns. */
typedef struct td__compare_scale {
    const td__compare_run *first;
    td__unit steps, samples, seconds, step_nbytes, memory;
} td__compare_scale;

td__compare_scale td__compare_scale_of(const td__compare_opts *o);
/* One line of the table. A run that failed has only its name. */
void td__compare_cells(const td__compare_run *r, const td__compare_scale *s,
                       char cell[TD__COMPARE_CELLS][TD__COMPARE_CELL]);
/* Samples per second and compute thread of variant v, relative to those of the variant with the
 * same changes on the fewest ranks; NaN where all of these have the same number of ranks. */
double td__compare_efficiency(const td__compare_opts *o, int v);

#endif
