/* output.h -- the ranks' output as the user sees it: every line whole, after "[rank] "; a log file
 * for each rank; and the last lines of each, for when it fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_OUTPUT_H
#define TD_LAUNCH_OUTPUT_H

#include "launch/launch.h"

typedef struct td__output td__output;

/* Reads log_dir, which is made if it does not exist, out, err, plain and terminal. */
TD_NODISCARD td_status td__output_create(int size, const td__launch_opts *opts, td__output **ret);
/* There are at least `size` ranks now. */
TD_NODISCARD td_status td__output_room(td__output *o, int size, const td__launch_opts *opts);
void td__output_destroy(td__output *o); /* NULL is allowed */
/* While `fd` is readable (a signal has come) nothing waits for a reader who does not read: what it
 * would have to wait for is dropped then, and from then on. */
void td__output_interrupt(td__output *o, int fd);
/* Whole lines of a rank. Ranks go on where these cannot be written, as a program that prints does:
 * td__output_status tells of it at the end. TD_EPEER: nobody reads our standard output any more,
 * and the ranks are of a program that may print for ever (not `plain`). */
TD_NODISCARD td_status td__output_lines(td__output *o, int rank, bool is_err, const char *text,
                                        size_t nbytes);
/* TD_EIO: some output was lost, and why. */
TD_NODISCARD td_status td__output_status(const td__output *o);
/* Write the rank's last lines to err again. */
void td__output_tail(td__output *o, int rank);
/* A line of the launcher's own. */
void td__output_say(td__output *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
