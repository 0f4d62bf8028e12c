/* mesh.c -- what all transports have in common: starting transfers, waiting for them, and measuring
 * what a message costs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

static td_status check_peer(const td__mesh *m, int peer, const char *what)
{
    if (peer < 0 || peer >= m->size || peer == m->rank)
        return TD_FAIL(TD_EINVAL, "%s: rank %d cannot %s rank %d of %d", m->ops->name, m->rank,
                       what, peer, m->size);
    return TD_OK;
}

td_status td__mesh_send(td__mesh *m, td__xfer *x, int peer, uint32_t tag, const void *data,
                        size_t nbytes)
{
    TD_TRY(check_peer(m, peer, "send to"));
    *x = (td__xfer){
        .data = (void *)(uintptr_t)data, /* never written for sends */
        .nbytes = nbytes,
        .tag = tag,
        .peer = peer,
        .is_send = true,
    };
    return m->ops->send(m, x);
}

td_status td__mesh_recv(td__mesh *m, td__xfer *x, int peer, uint32_t tag, void *data, size_t nbytes)
{
    TD_TRY(check_peer(m, peer, "receive from"));
    *x = (td__xfer){.data = data, .nbytes = nbytes, .tag = tag, .peer = peer};
    return m->ops->recv(m, x);
}

/* "deadline passed; still missing: from rank 3 (4096 bytes, tag 7), to rank 1 (..)" */
static void missing_text(const td__mesh *m, td__xfer *const *x, int n, char *text, size_t nbytes)
{
    int used = snprintf(text, nbytes, "%s: rank %d timed out", m->ops->name, m->rank);

    for (int i = 0; i < n && used >= 0 && (size_t)used < nbytes; i++) {
        if (x[i]->done)
            continue;
        used += snprintf(text + used, nbytes - (size_t)used, "; %s rank %d (%zu bytes, tag %u)",
                         x[i]->is_send ? "to" : "from", x[i]->peer, x[i]->nbytes, x[i]->tag);
    }
}

td_status td__mesh_wait(td__mesh *m, td__xfer *const *x, int n, td__deadline until)
{
    for (int i = 0; i < n; i++) {
        while (!x[i]->done) {
            TD_TRY(m->ops->progress(m, until));
            if (!x[i]->done && td__deadline_passed(until)) {
                char text[300];
                missing_text(m, x, n, text, sizeof text);
                /* The buffers go back to the caller: nothing may touch them any more. */
                m->ops->interrupt(m, TD_ETIMEDOUT, text);
                td_status st = m->ops->progress(m, until);
                return st ? st : TD_FAIL(TD_ETIMEDOUT, "%s", text);
            }
        }
    }
    return TD_OK;
}

enum { PINGS = 32, BULK_BYTES = 1 << 20, MEASURE_TAG = 0x6d656173 };

static td_status swap(td__mesh *m, int peer, bool first, void *data, size_t nbytes,
                      td__deadline until)
{
    td__xfer x, *const p = &x;

    for (int i = 0; i < 2; i++) {
        TD_TRY((i == 0) == first ? td__mesh_send(m, &x, peer, MEASURE_TAG, data, nbytes)
                                 : td__mesh_recv(m, &x, peer, MEASURE_TAG, data, nbytes));
        TD_TRY(td__mesh_wait(m, &p, 1, until));
    }
    return TD_OK;
}

/* Best one-way times between ranks 0 and 1, of a few bytes and of BULK_BYTES. */
static td_status ping_pong(td__mesh *m, void *data, td__deadline until, double out[2])
{
    static const size_t NBYTES[] = {4, BULK_BYTES};

    for (int k = 0; k < 2; k++) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < PINGS >> (2 * k); i++) {
            uint64_t t = td__clock_ns();
            TD_TRY(swap(m, 1 - m->rank, m->rank == 0, data, NBYTES[k], until));
            t = td__clock_ns() - t;
            best = t < best ? t : best;
        }
        out[k] = 0.5e-9 * (double)best;
    }
    return TD_OK;
}

td_status td__mesh_measure(td__mesh *m, td__deadline until)
{
    double seconds[2] = {0, 0};
    td__xfer x, *const p = &x;

    if (m->size < 2)
        return TD_OK;
    if (m->rank < 2) {
        void *data = td__calloc(1, BULK_BYTES);
        if (!data)
            return TD_FAIL(TD_ENOMEM, "measuring a transport: %d bytes", BULK_BYTES);
        td_status st = ping_pong(m, data, until, seconds);
        td__free(data);
        TD_TRY(st);
    }
    /* All ranks must choose alike, so all take the numbers of rank 0. */
    if (m->rank > 0) {
        TD_TRY(td__mesh_recv(m, &x, 0, MEASURE_TAG, seconds, sizeof seconds));
        TD_TRY(td__mesh_wait(m, &p, 1, until));
    } else {
        for (int r = 1; r < m->size; r++) {
            TD_TRY(td__mesh_send(m, &x, r, MEASURE_TAG, seconds, sizeof seconds));
            TD_TRY(td__mesh_wait(m, &p, 1, until));
        }
    }
    m->alpha = seconds[0];
    double bulk = seconds[1] - seconds[0];
    m->beta = (bulk > 1e-6 ? bulk : 1e-6) / BULK_BYTES;
    return TD_OK;
}
