/* launch.h -- one attempt of a job as a copy that a tracker's threads may keep: td__group is
 * borrowed for the time of a call. Also the shell script that a member runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_LAUNCH_H
#define TD_SERVICE_TRACK_LAUNCH_H

#include "base/text.h"
#include "service/group_env.h"

/* Members [first, first + n) are on one host, of those that the tracker has. */
typedef struct td__part {
    int host, first, n;
} td__part;

typedef struct td__launch {
    td__arena *arena;
    td__part *parts; /* NULL: its system knows where members are */
    int n_parts;
    int *gpus;       /* (members times spec->gpus) of each member's host; NULL: not known here */
    bool renumbered; /* a member finds its GPUs numbered from 0, whatever they are */
    td__group g;     /* all of it lies in the arena, the spec apart */
    td__job_spec *spec;
    int members;
} td__launch;

TD_NODISCARD td_status td__launch_copy(const td__group *g, td__launch **out);
/* All of it, for a thread that may outlive the group. */
TD_NODISCARD td_status td__launch_clone(const td__launch *from, td__launch **out);
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
