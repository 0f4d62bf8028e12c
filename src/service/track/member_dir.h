/* member_dir.h -- a group as files in a directory where its members run, for systems that only know
 * how to run a script (Slurm, ssh). DIR/TOKEN holds
 *
 *     member-M.sh  what member M runs (td__launch_script)
 *     task.sh      runs it: sh task.sh M COMMAND..., and writes down what becomes of it:
 *     pid-M        it runs (or has); the number of its session
 *     exit-M       its exit status, when it has ended
 *     out-M        its output
 *     again-M      it is to be run once more; over: nothing is
 *
 * A member that fails stays for a minute, if the job allows restarts, in case it is run again. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_MEMBER_DIR_H
#define TD_SERVICE_TRACK_MEMBER_DIR_H

#include "service/track/cluster.h"

/* Scripts for sh, to be run where the members are; `dir` is DIR/TOKEN.
 * create: makes the directory and its files for members [first, first + n); prints "old" and ends
 * the script if it was made before. What a script that was cut off has left is completed.
 * made: after create, and what the script does then: it is not done again; prints "new", last of
 * all, since whoever reads it may be gone. */
void td__member_dir_made(td__text *out);
TD_NODISCARD td_status td__member_dir_create(const td__launch *l, const td__group_place *place,
                                             const char *dir, int first, int n, td__text *out);
/* state: a line for each of them, "M ended STATUS", "M running", "M gone" or "M waiting"; nothing
 * if the directory is not there. alive: a member whose processes are not there any more is gone. */
void td__member_dir_state(const char *dir, int first, int n, bool alive, td__text *out);
/* signal: to the members' sessions, where they are on this host; restart: runs one again. */
void td__member_dir_signal(const char *dir, int first, int n, td__track_signal what, td__text *out);
void td__member_dir_restart(const char *dir, int member, td__text *out);
/* How a member is run: sh DIR/task.sh M COMMAND..., with its arguments quoted. */
void td__member_dir_run(const td__launch *l, const char *dir, const char *member, td__text *out);

/* What `state` printed. Members that it does not name stay as they are. */
void td__member_dir_seen(const char *text, td__seen *seen, int members);

#endif
