/* direct.c -- see direct.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/direct.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/runner.h"

enum { PAGE = 4096 };

bool td__direct_opens(td_device *device)
{
    td_mem page = {0};
    td__mem_ticket ticket;
    bool opens =
        td__device_host_reads(device) ||
        (!td__mem_alloc(device, TD_MEM_PEER, PAGE, &page) && !td__mem_handle(&page, &ticket));
    td__mem_free(&page);
    return opens;
}

td_status td__direct_possible(td_comm *comm, td_device *device, bool *out)
{
    td__peers *probe;
    *out = td__device_host_reads(device);
    if (*out)
        return TD_OK;
    TD_TRY(td__peers_open(comm, device, PAGE, "messages", &probe));
    *out = probe;
    td_status st = probe ? td__peers_leave(probe, comm) : TD_OK;
    td__peers_close(probe);
    return st;
}

/* Memory of every stage, as this one sees it. */
static td_status share(td__direct *d, td_device *device, size_t nbytes)
{
    void *const *base = NULL;
    int stages = td_comm_size(d->comm);
    if (!td__device_host_reads(device)) {
        TD_TRY(td__peers_open(d->comm, device, nbytes, "activations", &d->peers));
        d->stream = td__device_stream(device);
    } else {
        TD_TRY(td_comm_alloc(d->comm, nbytes, &d->mine));
        base = td__comm_shared(d->comm, d->mine);
    }
    if (!base && !d->peers)
        return TD_OK;
    d->base = td__calloc((size_t)stages, sizeof *d->base);
    if (!d->base)
        return TD_FAIL(TD_ENOMEM, "no memory for %d stages", stages);
    for (int s = 0; s < stages; s++)
        d->base[s] = base ? base[s] : td__peers_at(d->peers, s);
    return TD_OK;
}

td_status td__direct_open(td__direct *d, td_comm *comm, td_device *device, const td__cut *cut,
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
    return share(d, device, most);
}

td_status td__direct_leave(td__direct *d)
{
    if (!d->peers)
        return TD_OK;
    TD_TRY(td__stream_sync(d->stream));
    return td__peers_leave(d->peers, d->comm);
}

void td__direct_close(td__direct *d)
{
    if (d->comm && d->mine)
        td_comm_free(d->comm, d->mine);
    td__peers_close(d->peers);
    td__free(d->base);
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

void td__direct_copy(const td__direct *d, void *to, const void *value, size_t nbytes)
{
    if (d->stream)
        td__stream_copy(d->stream, to, value, nbytes);
    else
        memcpy(to, value, nbytes);
}

td_status td__direct_flush(const td__direct *d)
{
    return d->stream ? td__stream_sync(d->stream) : TD_OK;
}

bool td__direct_fits(const td__direct *d, const int *slots)
{
    for (int c = 0; d->base && c < d->chunks; c++)
        if (slots[c] > d->slots[c])
            return false;
    return d->base != NULL;
}
