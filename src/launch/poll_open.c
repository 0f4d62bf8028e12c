/* poll_open.c -- see poll_open.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/poll_open.h"

int td__poll_open(struct pollfd *p, int n, int ms)
{
    struct pollfd *some = p + n;
    nfds_t used = 0;
    for (int i = 0; i < n; i++) {
        p[i].revents = 0;
        if (p[i].fd >= 0)
            some[used++] = p[i];
    }
    int found = poll(some, used, ms);
    used = 0;
    for (int i = 0; i < n; i++)
        if (p[i].fd >= 0)
            p[i].revents = found > 0 ? some[used++].revents : 0;
    return found;
}
