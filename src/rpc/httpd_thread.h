/* httpd_thread.h -- an HTTP server on a thread of its own, for a program whose main thread does
 * something else. Handlers run on that thread, and may block it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_HTTPD_THREAD_H
#define TD_RPC_HTTPD_THREAD_H

#include "rpc/httpd.h"

typedef struct td__httpd_thread td__httpd_thread;

/* o is borrowed until the end, but for o itself. */
TD_NODISCARD td_status td__httpd_thread_start(const td__httpd_opts *o, td__httpd_thread **out);
void td__httpd_thread_stop(td__httpd_thread *t); /* NULL is allowed */
const char *td__httpd_thread_address(const td__httpd_thread *t);

#endif
