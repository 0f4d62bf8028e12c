/* human.h -- sizes, counts and times as people write them. Each fills buf and returns it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_HUMAN_H
#define TD_BASE_HUMAN_H

#include "tandem/types.h"

enum { TD__HUMAN = 32 }; /* bytes that always suffice */

char *td__human_bytes(double nbytes, char buf[TD__HUMAN]); /* "1.50 MB": powers of 1000 */
char *td__human_count(int64_t n, char buf[TD__HUMAN]);     /* "1,234,567" */
char *td__human_si(double v, char buf[TD__HUMAN]);         /* "1.23 M" */
char *td__human_seconds(double s, char buf[TD__HUMAN]);    /* "41 ms", "12.3 s", "3 min 05 s" */

/* One unit for all values of a column, so that they can be compared by eye: that of the largest,
 * with three digits of it. A value far below has more digits after the point, but at most four. */
typedef struct td__unit {
    double size, most; /* what one of it is; from so many on the next unit is taken */
    const char *name;  /* " MB" */
    bool whole;        /* whole values have no digits after the point */
    int digits;        /* after the point, of the largest */
} td__unit;

td__unit td__unit_bytes(double largest);
td__unit td__unit_si(double largest);
td__unit td__unit_seconds(double largest); /* us, ms, s, min, h */
char *td__unit_text(td__unit u, double v, char buf[TD__HUMAN]);

/* A value of the metric called `name`: accuracies as per cent. */
char *td__human_metric(const char *name, double v, char buf[TD__HUMAN]);

#endif
