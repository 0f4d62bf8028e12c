/* mesh_shm.c -- messages through shared memory, and the operations of the mesh.
 *
 * Per ordered pair of ranks there is a ring of bytes with one writer and one reader. A message is a
 * head (size, tag) and its bytes, put in piece by piece as there is room; the receiver copies
 * straight from the ring into the buffer of the receive that is first in line. Pieces are a
 * quarter of the ring at most, so that both sides work at once and the ring stays in the cache.
 *
 * What was sent before a peer gave up still arrives: a failure that others recorded ends only waits
 * in which nothing moves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "net/shm_segment.h"

typedef struct message_head {
    uint64_t nbytes;
    uint32_t tag, magic;
} message_head;
enum { HEAD = sizeof(message_head) };
#define MESSAGE_MAGIC 0x4d534754u

/* moved: head and payload together. */

static void ring_put(shm_ring *ring, size_t cap, uint64_t at, const void *data, size_t nbytes)
{
    size_t i = (size_t)at & (cap - 1), first = cap - i < nbytes ? cap - i : nbytes;
    memcpy(ring->data + i, data, first);
    memcpy(ring->data, (const uint8_t *)data + first, nbytes - first);
}

static void ring_get(const shm_ring *ring, size_t cap, uint64_t at, void *data, size_t nbytes)
{
    size_t i = (size_t)at & (cap - 1), first = cap - i < nbytes ? cap - i : nbytes;
    memcpy(data, ring->data + i, first);
    memcpy((uint8_t *)data + first, ring->data, nbytes - first);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void finished(shm_mesh *m, shm_queue *q, td__xfer *x)
{
    q->first = x->next;
    if (!q->first)
        q->last = &q->first;
    x->next = NULL;
    x->done = true;
    m->pending--;
}

/* Put in what there is room for; did anything move? */
static bool push(shm_mesh *m, int peer)
{
    shm_queue *q = &m->sends[peer];
    shm_ring *ring = shm_ring_of(m, m->mesh.rank, peer);
    size_t cap = m->at.ring_nbytes;
    bool moved = false;
    while (q->first) {
        td__xfer *x = q->first;
        uint64_t written = ring->written; /* only this rank writes it */
        size_t room = cap - (size_t)(written - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE));
        if (x->moved == 0) {
            if (room < HEAD)
                break;
            message_head head = {x->nbytes, x->tag, MESSAGE_MAGIC};
            ring_put(ring, cap, written, &head, HEAD);
            written += HEAD;
            room -= HEAD;
            x->moved = HEAD;
        }
        size_t n = smaller(x->nbytes + HEAD - x->moved, smaller(room, cap / 4));
        if (n == 0 && x->moved < x->nbytes + HEAD && written == ring->written)
            break;
        if (n)
            ring_put(ring, cap, written, (const uint8_t *)x->data + (x->moved - HEAD), n);
        x->moved += n;
        __atomic_store_n(&ring->written, written + n, __ATOMIC_RELEASE);
        td__shm_notify(m, peer);
        moved = true;
        if (x->moved == x->nbytes + HEAD)
            finished(m, q, x);
    }
    return moved;
}

static td_status check_head(shm_mesh *m, const td__xfer *x, const message_head *head)
{
    if (head->magic != MESSAGE_MAGIC)
        return td__shm_fail(m, TD_EPROTO, "rank %d sent a malformed message to rank %d", x->peer,
                            m->mesh.rank);
    if (head->nbytes == x->nbytes && head->tag == x->tag)
        return TD_OK;
    return td__shm_fail(
        m, TD_EMISMATCH,
        "rank %d sent %llu bytes with tag %u, rank %d expects %zu bytes with tag %u", x->peer,
        (unsigned long long)head->nbytes, head->tag, m->mesh.rank, x->nbytes, x->tag);
}

/* Take out what is there for receives in line. */
static td_status pull(shm_mesh *m, int peer, bool *any)
{
    shm_queue *q = &m->recvs[peer];
    shm_ring *ring = shm_ring_of(m, peer, m->mesh.rank);
    size_t cap = m->at.ring_nbytes;
    while (q->first) {
        td__xfer *x = q->first;
        uint64_t taken = ring->taken; /* only this rank writes it */
        size_t there = (size_t)(__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) - taken);
        if (there > cap)
            return td__shm_fail(m, TD_EPROTO, "the ring from rank %d is damaged", peer);
        if (there == 0)
            break;
        if (x->moved == 0) { /* a head is always whole */
            message_head head;
            ring_get(ring, cap, taken, &head, HEAD);
            TD_TRY(check_head(m, x, &head));
            taken += HEAD;
            there -= HEAD;
            x->moved = HEAD;
        }
        size_t n = smaller(x->nbytes + HEAD - x->moved, smaller(there, cap / 4));
        if (n)
            ring_get(ring, cap, taken, (uint8_t *)x->data + (x->moved - HEAD), n);
        x->moved += n;
        __atomic_store_n(&ring->taken, taken + n, __ATOMIC_RELEASE);
        td__shm_notify(m, peer);
        *any = true;
        if (x->moved == x->nbytes + HEAD)
            finished(m, q, x);
    }
    return TD_OK;
}

static td_status start(td__mesh *mesh, td__xfer *x, bool is_send)
{
    shm_mesh *m = shm_of(mesh);
    TD_TRY(td__poison_check(&m->poison));
    if (x->peer < 0 || x->peer >= mesh->size || x->peer == mesh->rank)
        return TD_FAIL(TD_EINVAL, "no peer %d for rank %d of %d", x->peer, mesh->rank, mesh->size);
    x->done = false;
    x->is_send = is_send;
    x->moved = 0;
    x->next = NULL;
    shm_queue *q = is_send ? &m->sends[x->peer] : &m->recvs[x->peer];
    bool first = !q->first, any = false;
    *q->last = x;
    q->last = &x->next;
    m->pending++;
    if (!first)
        return TD_OK;
    if (!is_send)
        return pull(m, x->peer, &any);
    push(m, x->peer);
    return TD_OK;
}

static td_status shm_send(td__mesh *mesh, td__xfer *x)
{
    return start(mesh, x, true);
}

static td_status shm_recv(td__mesh *mesh, td__xfer *x)
{
    return start(mesh, x, false);
}

static bool can_move(shm_mesh *m, const void *arg)
{
    (void)arg;
    for (int r = 0; r < m->mesh.size; r++) {
        if (m->recvs[r].first) {
            const shm_ring *ring = shm_ring_of(m, r, m->mesh.rank);
            if (__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) != ring->taken)
                return true;
        }
        if (m->sends[r].first) {
            const shm_ring *ring = shm_ring_of(m, m->mesh.rank, r);
            uint64_t used = ring->written - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE);
            if (m->at.ring_nbytes - (size_t)used >= HEAD)
                return true;
        }
    }
    return false;
}

/* A peer that left and still owes us something. */
static td_status check_left(shm_mesh *m)
{
    for (int r = 0; r < m->mesh.size; r++) {
        if (!m->recvs[r].first && !m->sends[r].first)
            continue;
        if (__atomic_load_n(&m->ranks[r].state, __ATOMIC_ACQUIRE) == STATE_LEFT &&
            !can_move(m, NULL))
            return td__shm_fail(m, TD_EPEER, "rank %d left with messages of rank %d unfinished", r,
                                m->mesh.rank);
    }
    return TD_OK;
}

static td_status shm_progress(td__mesh *mesh, td__deadline until)
{
    shm_mesh *m = shm_of(mesh);
    TD_TRY(td__poison_check(&m->poison));
    for (;;) {
        bool any = false;
        for (int r = 0; r < mesh->size && m->pending; r++) {
            if (m->sends[r].first)
                any |= push(m, r);
            if (m->recvs[r].first)
                TD_TRY(pull(m, r, &any));
        }
        if (any || td__deadline_passed(until))
            return TD_OK;
        /* Short waits, so that goodbyes are noticed even if the waiting is for anybody. */
        td__deadline look = td__deadline_in_ms(20);
        td_status st = td__shm_wait(m, can_move, NULL, WAITS_ANY, look < until ? look : until);
        if (st && st != TD_ETIMEDOUT)
            return st;
        if (st)
            TD_TRY(check_left(m));
    }
}

static void shm_destroy(td__mesh *mesh)
{
    shm_mesh *m = shm_of(mesh);
    if (m->map) {
        __atomic_store_n(&m->ranks[mesh->rank].state, STATE_LEFT, __ATOMIC_RELEASE);
        td__shm_notify(m, -1);
        munmap(m->map, m->at.total);
    }
    while (m->region)
        td__shm_unshare(mesh, m->region->id);
    for (int r = 0; r < mesh->size; r++) {
        if (m->pidfd && m->pidfd[r] >= 0)
            close(m->pidfd[r]);
        if (m->channel && m->channel[r] >= 0)
            close(m->channel[r]);
    }
    if (m->epoll >= 0)
        close(m->epoll);
    td__free(m->pidfd);
    td__free(m->channel);
    td__free(m->sends);
    td__free(m->recvs);
    td__free(m);
}

const td__mesh_ops td__mesh_shm_ops = {
    .name = "shm",
    .destroy = shm_destroy,
    .send = shm_send,
    .recv = shm_recv,
    .progress = shm_progress,
    .interrupt = td__shm_interrupt,
    .share = td__shm_share,
    .unshare = td__shm_unshare,
    .meet = td__shm_meet,
};

bool td__mesh_is_shm(const td__mesh *m)
{
    return m && m->ops == &td__mesh_shm_ops;
}
