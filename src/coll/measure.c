/* measure.c -- alpha (seconds per message) and beta (seconds per byte) of a mesh.
 *
 * Rank 0 and one partner send a message to and fro: first tiny ones, whose best round trip is
 * 2 alpha, then larger ones, which take 2 (alpha + nbytes beta). The best of several is taken: what
 * disturbs a measurement only ever makes it longer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/measure.h"

#include "base/alloc.h"
#include "base/fail.h"

enum { TAG = 0x6d656173, SMALL = 8, LARGE = 64 << 10, N_SMALL = 12, N_LARGE = 4 };

static const double LEAST = 1e-12; /* clocks are coarse; costs are never 0 */

static td_status one_way(td__mesh *m, int peer, bool send, void *data, size_t n, td__deadline until)
{
    td__xfer x, *const p = &x;
    if (send)
        TD_TRY(td__mesh_send(m, &x, peer, TAG, data, n));
    else
        TD_TRY(td__mesh_recv(m, &x, peer, TAG, data, n));
    return td__mesh_wait(m, &p, 1, until);
}

/* Best round trip in seconds. */
static td_status to_and_fro(td__mesh *m, int peer, void *data, size_t n, int times,
                            td__deadline until, double *best)
{
    *best = 1e9;
    for (int i = 0; i < times; i++) {
        uint64_t t0 = td__clock_ns();
        TD_TRY(one_way(m, peer, m->rank == 0, data, n, until));
        TD_TRY(one_way(m, peer, m->rank != 0, data, n, until));
        double s = 1e-9 * (double)(td__clock_ns() - t0);
        if (s < *best)
            *best = s;
    }
    return TD_OK;
}

static td_status measure(td__mesh *m, int partner, td__deadline until)
{
    if (m->rank != 0 && m->rank != partner)
        return TD_OK;
    int peer = m->rank ? 0 : partner;
    void *data = td__calloc(1, LARGE);
    double small, large;
    td_status st = TD_OK;
    if (!data)
        return TD_FAIL(TD_ENOMEM, "no memory to measure a transport");
    TD_TRY_OR(st, done, to_and_fro(m, peer, data, SMALL, N_SMALL, until, &small));
    TD_TRY_OR(st, done, to_and_fro(m, peer, data, LARGE, N_LARGE, until, &large));
    m->alpha = small / 2 > LEAST ? small / 2 : LEAST;
    m->beta = (large - small) / 2 / LARGE > LEAST ? (large - small) / 2 / LARGE : LEAST;
done:
    td__free(data);
    return st;
}

td_status td__measure_meshes(const td__comm_parts *p, td__deadline until)
{
    int partner = 1;
    while (p->host_of && partner < p->size - 1 && p->host_of[partner] == p->host_of[0])
        partner++;
    if (p->size > 1)
        TD_TRY(measure(p->mesh, partner, until));
    if (p->local && p->local->size > 1)
        TD_TRY(measure(p->local, 1, until));
    if (p->hosts && p->hosts->size > 1)
        TD_TRY(measure(p->hosts, 1, until));
    return TD_OK;
}
