/* hosts.h -- which hosts take part in a launch, and how many ranks each runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_HOSTS_H
#define TD_LAUNCH_HOSTS_H

#include "tandem/status.h"

typedef struct td__host {
    char name[128];
    int first, count; /* its ranks */
    bool local;       /* needs no ssh */
    bool lost;        /* is not to be used */
} td__host;

typedef struct td__hosts {
    td__host *host;
    int n, size;
} td__hosts;

/* "a:4,b:4" (a host without a number has one slot). size 0: all slots; more than there are is
 * TD_EINVAL. Hosts that get no rank are left out. */
TD_NODISCARD td_status td__hosts_parse(const char *text, int size, td__hosts *out);
/* The same from a file: "a:4" or "a slots=4" per line, # begins a comment. */
TD_NODISCARD td_status td__hosts_read(const char *path, int size, td__hosts *out);
/* At most `size` ranks on the hosts of `all` that are not lost; there must be one. */
TD_NODISCARD td_status td__hosts_place(const td__hosts *all, int size, td__hosts *out);
void td__hosts_fini(td__hosts *h); /* a zeroed struct is allowed */

#endif
