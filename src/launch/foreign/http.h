/* http.h -- the HTTP server that agents need for Horovod. The library has none: a program that has
 * one gives it to its agents (td__launch_opts.http, td__agent_run). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_HTTP_H
#define TD_LAUNCH_FOREIGN_HTTP_H

#include "base/text.h"
#include "tandem/status.h"

enum { TD_FOREIGN_HTTP_ADDRESS = 128 };

/* GET, PUT or DELETE of /scope/key: the status, and a body in *out. On the server's thread; may
 * block for a moment. */
typedef unsigned td__foreign_answer(void *user, const char *method, const char *scope,
                                    const char *key, const void *body, size_t nbytes,
                                    td__text *out);

typedef struct td__foreign_http {
    /* Listen at "127.0.0.1:0"; address receives where. */
    td_status (*start)(const char *listen, td__foreign_answer *answer, void *user, void **server,
                       char address[TD_FOREIGN_HTTP_ADDRESS]);
    void (*stop)(void *server);
} td__foreign_http;

#endif
