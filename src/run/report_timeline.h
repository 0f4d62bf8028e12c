/* report_timeline.h -- the part of report.html on ranks that came and went: how many there were
 * when, which were lost and why, how long the others waited. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_TIMELINE_H
#define TD_RUN_REPORT_TIMELINE_H

#include "base/text.h"
#include "run/report_data.h"

/* From ranks.jsonl in the run's directory, which the launcher writes; nothing where it tells of
 * no change. */
TD_NODISCARD td_status td__report_timeline(td__text *t, const char *dir, const td__report_data *d);

#endif
