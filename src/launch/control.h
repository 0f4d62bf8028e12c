/* control.h -- where a running elastic job takes orders: an abstract socket of the launcher, and a
 * file (mode 0600) that says which, with a secret (not the job's) that it takes to be heard.
 *
 * A question and its answer are one line each: "scale 4" -> "ok ..." or "error ...", "status" ->
 * "ok {...}". */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_CONTROL_H
#define TD_LAUNCH_CONTROL_H

#include <poll.h>

#include "base/deadline.h"
#include "base/text.h"
#include "tandem/status.h"

enum { TD_CONTROL_CALLERS = 4, TD_CONTROL_FDS = 1 + TD_CONTROL_CALLERS, TD_CONTROL_LINE = 4096 };

typedef struct td__control td__control;

/* job: its mark. file NULL: none until td__control_offer. */
TD_NODISCARD td_status td__control_create(const char *job, const char *file, td__control **out);
void td__control_destroy(td__control *c); /* removes the file; NULL is allowed */
/* Write DIR/control, if no file was written yet. */
void td__control_offer(td__control *c, const char *dir);

void td__control_poll(td__control *c, struct pollfd p[TD_CONTROL_FDS]);
void td__control_serve(td__control *c, const struct pollfd p[TD_CONTROL_FDS],
                       void (*answer)(void *user, const char *question, td__text *out), void *user);

/* The other side: ask the job whose file this is, or whose run's folder; the answer is appended. */
TD_NODISCARD td_status td__control_ask(const char *run, const char *question, td__deadline until,
                                       td__text *out);

#endif
