/* httpd_thread.c -- see httpd_thread.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/httpd_thread.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"

struct td__httpd_thread {
    td__loop *loop;
    td__httpd *http;
    pthread_t thread;
    bool running;
};

static void *run(void *arg)
{
    td__httpd_thread *t = arg;
    if (td__loop_run(t->loop))
        TD_LOG(WARN, NET, "%s", td_last_error());
    return NULL;
}

td_status td__httpd_thread_start(const td__httpd_opts *o, td__httpd_thread **out)
{
    td__httpd_thread *t = td__calloc(1, sizeof *t);
    td_status st = TD_OK;
    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for an HTTP server");
    TD_TRY_OR(st, fail, td__loop_create(&t->loop));
    TD_TRY_OR(st, fail, td__httpd_create(t->loop, o, &t->http));
    int rc = pthread_create(&t->thread, NULL, run, t);
    if (rc)
        TD_TRY_OR(st, fail, TD_FAIL(TD_EIO, "cannot start an HTTP server: %s", strerror(rc)));
    t->running = true;
    *out = t;
    return TD_OK;
fail:
    td__httpd_thread_stop(t);
    return st;
}

void td__httpd_thread_stop(td__httpd_thread *t)
{
    if (!t)
        return;
    if (t->running) {
        td__loop_stop(t->loop);
        pthread_join(t->thread, NULL);
    }
    td__httpd_destroy(t->http);
    td__loop_destroy(t->loop);
    td__free(t);
}

const char *td__httpd_thread_address(const td__httpd_thread *t)
{
    return td__httpd_address(t->http);
}
