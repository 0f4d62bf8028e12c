/* mirror_ring.c -- see mirror_ring.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/mirror_ring.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/shards.h"

static td_status fill_in(const td__ownership *m, const int *host_of, int rank, td__plan_ring *r)
{
    td__mirror_place place;
    td__optim_range *own;
    int n;
    TD_TRY(td__mirror_place_of(host_of, rank, m->ranks, &place));
    TD_TRY(td__ownership_ranges(m, (td__holding){m->ranks, rank, -1}, &own, &n));
    *r = (td__plan_ring){.to = place.mirrored_by,
                         .from = place.mirror,
                         .sends_first = place.place % 2 == 0,
                         .nbytes = td__calloc((size_t)n + 1, sizeof *r->nbytes),
                         .n = n};
    for (int i = 0; r->nbytes && i < n; i++)
        r->nbytes[i] = (own[i].end - own[i].begin) * sizeof(float);
    td__free(own);
    return r->nbytes ? TD_OK
                     : TD_FAIL(TD_ENOMEM, "no memory for the messages of %d ranks", m->ranks);
}

td_status td__ring_of(const td__ownership *m, const int *host_of, td__plan_ring **out)
{
    td_status st = TD_OK;
    *out = td__calloc((size_t)m->ranks, sizeof **out);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for the messages of %d ranks", m->ranks);
    for (int r = 0; r < m->ranks && !st; r++)
        st = fill_in(m, host_of, r, &(*out)[r]);
    if (st) {
        td__ring_free(*out, m->ranks);
        *out = NULL;
    }
    return st;
}

void td__ring_free(td__plan_ring *ring, int ranks)
{
    for (int r = 0; ring && r < ranks; r++)
        td__free(ring[r].nbytes);
    td__free(ring);
}
