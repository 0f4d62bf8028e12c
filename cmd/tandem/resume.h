/* resume.h -- which run `tandem train --resume` goes on with, and whether it may. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_RESUME_H
#define TD_CMD_RESUME_H

#include "session.h"

/* Compares the job with the one that the run in `dir` was made from; TD_EINVAL naming the first key
 * that decides the numbers and differs. */
TD_NODISCARD td_status td__resume_check(const td__session *s, const char *dir);

/* How the run ended: "done", "early", "interrupted", or "" if it was cut off. */
typedef struct td__run_end {
    char how[16], digest[80];
    uint64_t step;
} td__run_end;
TD_NODISCARD td_status td__resume_end(const char *dir, td__run_end *out);

#endif
