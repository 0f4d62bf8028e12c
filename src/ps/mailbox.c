/* mailbox.c -- see mailbox.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/mailbox.h"

#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"

typedef struct head {
    uint32_t nbytes, magic;
} head;
#define MAGIC UINT32_C(0x4c49414d)

_Static_assert((TD__MAILBOX_BYTES & (TD__MAILBOX_BYTES - 1)) == 0, "places are found by a mask");

static uint64_t taking(size_t nbytes) /* of the ring */
{
    return sizeof(head) + td__align_up(nbytes, sizeof(head));
}

bool td__mailbox_fits(size_t nbytes)
{
    return nbytes <= TD__MAILBOX_MOST;
}

static void copy_in(td__mailbox *m, uint64_t at, const void *from, size_t nbytes)
{
    size_t i = (size_t)at & (TD__MAILBOX_BYTES - 1);
    size_t first = TD__MAILBOX_BYTES - i < nbytes ? TD__MAILBOX_BYTES - i : nbytes;
    memcpy(m->data + i, from, first);
    memcpy(m->data, (const char *)from + first, nbytes - first);
}

static void copy_out(const td__mailbox *m, uint64_t at, void *to, size_t nbytes)
{
    size_t i = (size_t)at & (TD__MAILBOX_BYTES - 1);
    size_t first = TD__MAILBOX_BYTES - i < nbytes ? TD__MAILBOX_BYTES - i : nbytes;
    memcpy(to, m->data + i, first);
    memcpy((char *)to + first, m->data, nbytes - first);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

typedef bool look_fn(const td__mailbox *m, uint64_t nbytes);

static bool has_message(const td__mailbox *m, uint64_t nbytes)
{
    (void)nbytes;
    return atomic_load_explicit(&m->written, memory_order_acquire) !=
           atomic_load_explicit(&m->taken, memory_order_relaxed);
}

static bool has_room(const td__mailbox *m, uint64_t nbytes)
{
    uint64_t used = atomic_load_explicit(&m->written, memory_order_relaxed) -
                    atomic_load_explicit(&m->taken, memory_order_acquire);
    return TD__MAILBOX_BYTES - used >= nbytes;
}

static void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Is the word still there? Who takes it back answers for the bell. */
static bool take_back(_Atomic uint32_t *sleeps)
{
    uint32_t one = 1;
    return atomic_load_explicit(sleeps, memory_order_relaxed) &&
           atomic_compare_exchange_strong(sleeps, &one, 0);
}

static td_status sleep_until(td__mailbox *m, const td__mailbox_side *s, look_fn *look,
                             uint64_t nbytes, _Atomic uint32_t *sleeps)
{
    char bell;
    for (uint32_t i = 0; i < s->spins; i++) {
        if (look(m, nbytes))
            return TD_OK;
        pause_once();
    }
    while (!look(m, nbytes)) {
        atomic_store_explicit(sleeps, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (look(m, nbytes) && take_back(sleeps))
            return TD_OK;
        td_status st = td_recv(s->link, &bell, 1, TD_U8, s->peer, s->opts);
        if (st) {
            atomic_store_explicit(sleeps, 0, memory_order_relaxed);
            return st;
        }
    }
    return TD_OK;
}

static td_status ring_bell(const td__mailbox_side *s, _Atomic uint32_t *sleeps)
{
    static const char BELL = 1;
    atomic_thread_fence(memory_order_seq_cst);
    return take_back(sleeps) ? td_send(s->link, &BELL, 1, TD_U8, s->peer, s->opts) : TD_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* As of every call of a comm: faults may be asked for here, and a link that has failed stays so. */
static td_status begin(const td__mailbox_side *s, const char *op)
{
    TD_TRY(td__comm_cause(s->link));
    td_status st = td__point(td__comm_points_of(s->link), TD_POINT_COMM, op);
    if (st)
        td__comm_poison_all(s->link, st, td_last_error());
    return st;
}

td_status td__mailbox_put(td__mailbox *m, const td__mailbox_side *s, const void *message,
                          size_t nbytes)
{
    uint64_t need = taking(nbytes), at = atomic_load_explicit(&m->written, memory_order_relaxed);
    head h = {(uint32_t)nbytes, MAGIC};
    TD_TRY(begin(s, "send"));
    if (!has_room(m, need))
        TD_TRY(sleep_until(m, s, has_room, need, &m->writer_sleeps));
    copy_in(m, at, &h, sizeof h);
    copy_in(m, at + sizeof h, message, nbytes);
    atomic_store_explicit(&m->written, at + need, memory_order_release);
    return ring_bell(s, &m->reader_sleeps);
}

td_status td__mailbox_get(td__mailbox *m, const td__mailbox_side *s, void *message, size_t nbytes)
{
    uint64_t at = atomic_load_explicit(&m->taken, memory_order_relaxed);
    head h;
    TD_TRY(begin(s, "recv"));
    TD_TRY(sleep_until(m, s, has_message, 0, &m->reader_sleeps));
    copy_out(m, at, &h, sizeof h);
    if (h.nbytes != nbytes || h.magic != MAGIC) {
        td_status st =
            TD_FAIL(TD_EMISMATCH, "received a message of %u bytes, expected %zu", h.nbytes, nbytes);
        td__comm_poison_all(s->link, st, td_last_error());
        return st;
    }
    copy_out(m, at + sizeof h, message, nbytes);
    atomic_store_explicit(&m->taken, at + taking(nbytes), memory_order_release);
    return ring_bell(s, &m->writer_sleeps);
}
