/* publish.h -- what a run of tandem train leaves to others: its best weights and what is known of
 * them, among the job's artifacts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_PUBLISH_H
#define TD_SERVICE_TRACK_PUBLISH_H

#include "service/track/artifact_list.h"

/* From the run's directory: model.safetensors of the best checkpoint (the newest, if none was
 * better), job.yaml, metrics.jsonl, report.html; what is not there is left out. Files of an earlier
 * attempt are replaced. The job may have put anything there: no link is followed. o: stop, arg and
 * left_out are looked at; may be NULL. */
TD_NODISCARD td_status td__publish_run(const char *run, const char *artifacts,
                                       const td__artifact_opts *o);

#endif
