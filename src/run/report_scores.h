/* report_scores.h -- the part of report.html on how good the model is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_SCORES_H
#define TD_RUN_REPORT_SCORES_H

#include "base/text.h"
#include "run/run_dir.h"

/* Nothing where the options have no scores. */
void td__report_scores(td__text *t, const td__report_opts *o);

#endif
