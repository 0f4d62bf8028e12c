/* peers.c -- see peers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/peers.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"

struct td__peers {
    int rank, size;
    td_mem own, *opened; /* (size) the others' */
};

/* What a rank tells the others: bytes, without holes. */
typedef struct peer_card {
    td__mem_ticket ticket;
    unsigned char good;
} peer_card;
_Static_assert(sizeof(peer_card) == sizeof(td__mem_ticket) + 1, "no holes: it is sent");

void *td__peers_at(const td__peers *p, int rank)
{
    return rank == p->rank ? p->own.at : p->opened[rank].at;
}

static void drop_others(td__peers *p)
{
    for (int r = 0; p->opened && r < p->size; r++)
        td__mem_free(&p->opened[r]);
}

td_status td__peers_leave(td__peers *p, td_comm *comm)
{
    drop_others(p);
    return td_barrier(comm, NULL);
}

void td__peers_close(td__peers *p)
{
    if (!p)
        return;
    drop_others(p);
    td__mem_free(&p->own);
    td__free(p->opened);
    td__free(p);
}

/* false: some rank's part cannot be had. */
static bool open_all(td__peers *p, const peer_card *cards)
{
    for (int r = 0; r < p->size; r++)
        if (!cards[r].good || (r != p->rank && td__mem_open(p->own.device, &cards[r].ticket,
                                                            p->own.nbytes, &p->opened[r])))
            return false;
    return true;
}

/* *good: all ranks have all parts. */
static td_status swap_cards(td_comm *comm, td__peers *p, td_device *device, size_t nbytes,
                            peer_card *cards, int32_t *good)
{
    peer_card own = {.good = 0};
    own.good = !td__mem_alloc(device, TD_MEM_PEER, nbytes, &p->own) &&
               !td__mem_handle(&p->own, &own.ticket);
    TD_TRY(td_all_gather(comm, &own, cards, sizeof own, TD_U8, NULL));
    *good = open_all(p, cards);
    if (!*good)
        TD_LOG(DEBUG, TRAIN, "the GPU is not shared: %s", td_last_error());
    return td_allreduce(comm, good, good, 1, TD_I32, TD_REDUCE_MIN, NULL);
}

td_status td__peers_open(td_comm *comm, td_device *device, size_t nbytes, const char *what,
                         td__peers **out)
{
    int32_t good = 0;
    size_t size = (size_t)td_comm_size(comm);
    td__peers *p = td__calloc(1, sizeof *p);
    td_mem *opened = td__calloc(size, sizeof *opened);
    peer_card *cards = td__calloc(size, sizeof *cards);
    td_status st = TD_OK;

    *out = NULL;
    if (!p || !opened || !cards) {
        st = TD_FAIL(TD_ENOMEM, "no memory for %zu ranks", size);
        td__free(opened);
    } else {
        *p = (td__peers){.rank = td_comm_rank(comm), .size = (int)size, .opened = opened};
        st = swap_cards(comm, p, device, nbytes, cards, &good);
    }
    if (good && !st && p->rank == 0)
        TD_LOG(DEBUG, TRAIN, "%s of %zu ranks go through the memory of their GPUs", what, size);
    td__free(cards);
    if (!st && !good)
        st = td__peers_leave(p, comm);
    if (st || !good)
        td__peers_close(p);
    else
        *out = p;
    return st;
}
