/* launch.h -- one attempt of a job as a copy that a tracker's threads may keep: td__group is
 * borrowed for the time of a call. Also the shell script that a member runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_LAUNCH_H
#define TD_SERVICE_TRACK_LAUNCH_H

#include "base/text.h"
#include "service/group_env.h"

typedef struct td__launch {
    td__arena *arena;
    td__group g; /* all of it lies in the arena, the spec apart */
    td__job_spec *spec;
    int members;
} td__launch;

TD_NODISCARD td_status td__launch_copy(const td__group *g, td__launch **out);
void td__launch_destroy(td__launch *l); /* NULL is allowed */

/* The environment of member m with one process: what all share, and what is its own. */
TD_NODISCARD td_status td__launch_env(const td__launch *l, const td__group_place *p, int member,
                                      td__texts *out);
/* A script for sh that runs the member's processes, each with its environment and an equal share of
 * the member's GPUs, as far as there is one for each; it passes SIGTERM on to them, and ends with
 * the first status that is not 0, after which it ends the others. The command is its arguments
 * ("$@"). shared: also what all processes share, for who has no other way to hand it over. */
TD_NODISCARD td_status td__launch_script(const td__launch *l, const td__group_place *p, int member,
                                         bool shared, td__text *out);
/* 'text' for sh, with its quotes escaped. */
void td__shell_quote(td__text *to, const char *text);

/* compat.names with {job}, {ms} and {name} replaced, of characters that names of containers may
 * have; dns: of those that names of hosts may have. */
void td__launch_name(const td__launch *l, const char *format, int64_t now_ms, bool dns, char *out,
                     size_t nbytes);

#endif
