/* origin.h -- where people wrote what a param belongs to, "job.yaml:9": carried from the job through
 * all rewrites, for messages about plans and places. Decides nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_ORIGIN_H
#define TD_GRAPH_ORIGIN_H

#include "tandem/graph.h"

/* The origin of the params that are made from now on (copied; NULL: none); returns what it was. */
const char *td__graph_set_origin(td_graph *g, const char *origin);

/* "job.yaml:9", or of two that differ "job.yaml:9 to 12": what lies between them; "" if the first
 * has none. Returns buf. */
enum { TD__ORIGIN = 96 };
char *td__origin_text(const char *first, const char *last, char buf[TD__ORIGIN]);

#endif
