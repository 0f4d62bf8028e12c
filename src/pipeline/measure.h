/* measure.h -- what the runs of a pipeline take: sums over a run, and the last batch run by run,
 * for the trace and the report. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_MEASURE_H
#define TD_PIPELINE_MEASURE_H

#include "plan/plan.h"
#include "run/pipeline_report.h"
#include "run/span_log.h"
#include "tandem/coll.h"

typedef struct td__measure td__measure;

/* spans: where the trace is kept, NULL: nowhere; borrowed. */
TD_NODISCARD td_status td__measure_create(int chunks, int stage, td__span_log *spans,
                                          td__measure **out);
void td__measure_destroy(td__measure *m); /* NULL is allowed */

/* A batch that follows `list` begins in a step, and ends. What the first one takes does not count
 * where others follow: it makes what later ones use. */
TD_NODISCARD td_status td__measure_begin(td__measure *m, const td__plan_list *list, uint32_t step);
void td__measure_end(td__measure *m);
/* An operation of the list was carried out: a run; a message, seen to be over at end_ns. number: of
 * the micro-batch in the step. */
void td__measure_op(td__measure *m, int op, int number, uint64_t begin_ns, uint64_t end_ns);
/* A part of run `op` that was carried out before it: the stage was not idle. */
void td__measure_ahead(td__measure *m, int op, uint64_t begin_ns, uint64_t end_ns);
/* Nothing could be run. */
void td__measure_idle(td__measure *m, uint64_t begin_ns, uint64_t end_ns);

/* Of the ranks of a whole model, the same on all; plan: of the last batch, which gets the times.
 * What it holds lives as long as m. Collective over comm. */
TD_NODISCARD td_status td__measure_report(td__measure *m, td_comm *comm, td__plan *plan,
                                          td__pipeline_report *out);

#endif
