/* watch.h -- following a job of a training service until it ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_CLIENT_WATCH_H
#define TD_CMD_CLIENT_WATCH_H

#include "client/client.h"

/* Prints what happens to the job; the exit status is 0 if it succeeds, 1 if not. */
int td__watch_job(td__client *c, int job);

/* Server-sent events, piece by piece. Zero-initialise; `fn` gets each event. */
typedef struct td__sse {
    bool (*fn)(void *arg, const char *event, const char *data, const char *id); /* false: enough */
    void *arg;
    td__text line;
    char event[64], id[32];
    td__text data;
} td__sse;
bool td__sse_feed(void *sse, const void *bytes, size_t nbytes); /* a td__http_sink */
void td__sse_fini(td__sse *s);

#endif
