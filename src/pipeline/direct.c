/* direct.c -- see direct.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/direct.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/runner.h"

enum { PAGE = 4096 };

td_status td__direct_open(td__direct *d, td_comm *comm, const td__cut *cut,
                          const td__pipeline_shape *shape, const int *slots)
{
    size_t chunks = (size_t)cut->n_pieces, most = PAGE;
    *d = (td__direct){.comm = comm, .chunks = cut->n_pieces};
    d->stage = td__calloc(chunks, sizeof *d->stage);
    d->slots = td__calloc(chunks, sizeof *d->slots);
    d->at = td__calloc(chunks, sizeof *d->at);
    d->nbytes = td__calloc(chunks, sizeof *d->nbytes);
    if (!d->stage || !d->slots || !d->at || !d->nbytes)
        return TD_FAIL(TD_ENOMEM, "no memory for the messages of %d chunks", d->chunks);
    for (int c = 0; c < d->chunks; c++) {
        d->stage[c] = td__schedule_stage(shape->schedule, shape->stages, c);
        d->slots[c] = slots[c];
        d->nbytes[c] = td__align_up(td__program_inputs(cut->pieces[c].program), PAGE);
        for (int k = 0; k < c; k++)
            if (d->stage[k] == d->stage[c])
                d->at[c] += d->nbytes[k] * (size_t)d->slots[k];
        size_t end = d->at[c] + d->nbytes[c] * (size_t)d->slots[c];
        most = end > most ? end : most;
    }
    TD_TRY(td_comm_alloc(comm, most, &d->mine));
    d->base = td__comm_shared(comm, d->mine);
    return d->base ? TD_OK
                   : TD_FAIL(TD_ENOTSUP,
                             "the stages of a pipeline share no memory, and the world does");
}

void td__direct_close(td__direct *d)
{
    if (d->comm && d->mine)
        td_comm_free(d->comm, d->mine);
    td__free(d->stage);
    td__free(d->slots);
    td__free(d->at);
    td__free(d->nbytes);
    *d = (td__direct){0};
}

void *td__direct_inputs(const td__direct *d, int chunk, int slot, size_t nbytes)
{
    if (!d->base || slot >= d->slots[chunk] || nbytes > d->nbytes[chunk])
        return NULL;
    return (char *)d->base[d->stage[chunk]] + d->at[chunk] + d->nbytes[chunk] * (size_t)slot;
}

bool td__direct_fits(const td__direct *d, const int *slots)
{
    for (int c = 0; d->base && c < d->chunks; c++)
        if (slots[c] > d->slots[c])
            return false;
    return d->base != NULL;
}
