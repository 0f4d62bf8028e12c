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
/* A value of the metric called `name`: accuracies as per cent. */
char *td__human_metric(const char *name, double v, char buf[TD__HUMAN]);

#endif
