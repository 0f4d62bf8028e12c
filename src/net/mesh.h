/* mesh.h -- the contract between collectives and transports: ranks 0 .. size-1, every two of
 * them joined by an ordered, reliable stream of messages.
 *
 * A transfer is one message of a known size, started by send or recv and moved on by progress.
 * Messages between two ranks arrive in the order they were sent; the nth recv from a peer meets
 * the nth send to us. Both sides name the size and a tag; a difference is TD_EMISMATCH (the text
 * names both sides). Buffers are borrowed until the transfer is done.
 *
 * Threads   One thread at a time drives a mesh; interrupt() may come from any thread.
 * Failure   A dead peer is TD_EPEER from the next progress(), whatever transfers are pending; the
 *           text names the rank. A peer that destroyed a healthy mesh has left: that is an error
 *           only for those who still want something from it. A mesh that failed keeps failing
 *           with the same status, touches no buffer any more, and takes its peers with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_MESH_H
#define TD_NET_MESH_H

#include <stdatomic.h>

#include "base/deadline.h"
#include "tandem/status.h"

typedef struct td__mesh td__mesh;

typedef struct td__xfer {
    void *data; /* never written for sends */
    size_t nbytes;
    uint32_t tag;
    int peer;
    bool done;
    /* The transport's own: */
    bool is_send;
    size_t moved;
    struct td__xfer *next;
} td__xfer;

typedef struct td__mesh_ops {
    const char *name; /* "shm" */
    void (*destroy)(td__mesh *m);
    /* Start; may be done at once. Never blocks. peer != rank. */
    td_status (*send)(td__mesh *m, td__xfer *x);
    td_status (*recv)(td__mesh *m, td__xfer *x);
    /* Move whatever can be moved. If nothing could, wait for a chance (spin, yield, then sleep in
     * the kernel) until `until` at most. Returns TD_OK also when nothing happened. */
    td_status (*progress)(td__mesh *m, td__deadline until);
    /* Make all waits here fail with `st`; the text is kept for the mesh's owner. Any thread. */
    void (*interrupt)(td__mesh *m, td_status st, const char *text);
    /* (optional) Memory that all ranks of this mesh map: base[r] is rank r's part, nbytes each.
     * Collective. NULL: this transport has none. */
    td_status (*share)(td__mesh *m, size_t nbytes, td__deadline until, void **base, uint64_t *id);
    void (*unshare)(td__mesh *m, uint64_t id);
    /* (optional, with share) All ranks have come here: the cheap barrier of shared memory. */
    td_status (*meet)(td__mesh *m, td__deadline until);
} td__mesh_ops;

struct td__mesh {
    const td__mesh_ops *ops;
    int rank, size;
    double alpha, beta; /* seconds per message, per byte: measured at set-up, agreed by all ranks */
    /* Set by any thread: this process has something better to do with the processor than to spin
     * in progress(), which is then to sleep at once. */
    atomic_bool patient;
};

static inline void td__mesh_destroy(td__mesh *m) /* NULL is allowed */
{
    if (m)
        m->ops->destroy(m);
}

/* Start a send and a receive. */
TD_NODISCARD td_status td__mesh_send(td__mesh *m, td__xfer *x, int peer, uint32_t tag,
                                     const void *data, size_t nbytes);
TD_NODISCARD td_status td__mesh_recv(td__mesh *m, td__xfer *x, int peer, uint32_t tag, void *data,
                                     size_t nbytes);
/* Progress until all of x[0..n) are done; TD_ETIMEDOUT names the peers still missing, and the mesh
 * has then failed: no buffer is touched any more. */
TD_NODISCARD td_status td__mesh_wait(td__mesh *m, td__xfer *const *x, int n, td__deadline until);
/* Collective: measure alpha and beta between ranks 0 and 1 and give them to all. */
TD_NODISCARD td_status td__mesh_measure(td__mesh *m, td__deadline until);

#endif
