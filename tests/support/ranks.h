/* ranks.h -- one function on several ranks, as threads or as processes, within a deadline.
 *
 * A body that finds something wrong says so with RANK_CHECK, which records the text and leaves the
 * body; its comm is then aborted, so that the others do not wait for it. ranks_run fails the test
 * with the first text of all ranks, or with what they were doing when the deadline passed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_RANKS_H
#define TD_TESTS_SUPPORT_RANKS_H

#include "tandem/coll.h"

typedef struct ranks_ctx {
    td_comm *comm;
    int rank, size;
    void *arg;
    char *text; /* of the first failure; "" */
} ranks_ctx;

typedef void (*ranks_body)(ranks_ctx *r);

typedef struct ranks_opts {
    const char *transport; /* "inproc" (default), "shm", "tcp" */
    bool processes;        /* fork; not for inproc */
    const char *tls_dir;   /* connections use the certificate there; not for inproc */
    int per_host;          /* ranks of a simulated host; 0: all on one */
    unsigned deadline_ms;  /* 280,000; more under sanitizers */
    td_comm_opts comm;
} ranks_opts;

/* opts may be NULL. */
void ranks_run(int size, const ranks_opts *opts, ranks_body body, void *arg);

/* Guarded memory (check.h), each of its `count` numbers the rank + 1. */
float *ranks_floats(const ranks_ctx *r, size_t count);

#define RANK_CHECK(r, cond, ...)                                     \
    do {                                                             \
        if (!(cond)) {                                               \
            ranks_fail((r), __FILE__, __LINE__, #cond, __VA_ARGS__); \
            return;                                                  \
        }                                                            \
    } while (0)
#define RANK_OK(r, call)                                                               \
    do {                                                                               \
        td_status st_ = (call);                                                        \
        RANK_CHECK((r), st_ == TD_OK, "%s: %s", td_status_name(st_), td_last_error()); \
    } while (0)
#define RANK_STATUS(r, call, want)                                                       \
    do {                                                                                 \
        td_status st_ = (call);                                                          \
        RANK_CHECK((r), st_ == (want), "%s (%s)", td_status_name(st_), td_last_error()); \
    } while (0)

void ranks_fail(ranks_ctx *r, const char *file, int line, const char *cond, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
