/* plugin.h -- the plug-ins of a job (tandem/plugin.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_PLUGIN_H
#define TD_JOB_PLUGIN_H

#include "tandem/plugin.h"
#include "job/job_impl.h"

/* NULL: no plug-in of the job has it. */
const td_plugin_layer *td__plugin_layer(const td__job *j, const char *name);
const td_plugin_loss *td__plugin_loss(const td__job *j, const char *name);
const td_plugin_metric *td__plugin_metric(const td__job *j, const char *name);
const td_plugin_map *td__plugin_map(const td__job *j, const char *name);
const td_plugin_sync *td__plugin_sync(const td__job *j, const char *name);

/* A failure: no plug-in has a `what` of the name that `at` is; or none was loaded, and why. */
TD_NODISCARD td_status td__plugin_missing(const td__job *j, const char *what, const td__tree *at);

#endif
