/* shm_segment.h -- what lies in the shared segment, and a rank's view of it. For the files of the
 * shared-memory mesh only.
 *
 * Layout, each part aligned to a page:
 *     head      failure, number of sleepers
 *     ranks     per rank: doorbell, state, counters, each on cache lines of its own
 *     boards    per rank: two cards with their payloads
 *     stages    per rank: TD_SHM_STAGES staging buffers
 *     rings     per ordered pair (from, to): a ring of bytes with its two ends
 * Pages that are never touched cost nothing, so sizes are generous.
 *
 * Waiting   A rank that must wait looks again some times (its policy says how often), then says on
 *           its line for whom it waits and sleeps on its doorbell. Who raises a counter looks at
 *           the number of sleepers, one line that hardly ever changes, and only if there are any
 *           at their lines. Both sides put a full fence between their write and their look, so that
 *           not both can miss each other. Sleeps are short enough to look for deaths in between. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_SHM_SEGMENT_H
#define TD_NET_SHM_SEGMENT_H

#include <sched.h>

#include "net/backoff.h"
#include "net/mesh_shm.h"
#include "net/poison.h"

enum { LINE = 64, PAGE = 4096, FAIL_TEXT = sizeof((td__poison){0}.text) };
#define TD_SHM_MAGIC UINT64_C(0x314d485344544e54) /* changes with the layout */

typedef struct shm_head {
    uint64_t magic;
    uint32_t size;
    _Alignas(LINE) uint32_t sleepers;
    _Alignas(LINE) td__poison poison;
} shm_head;

enum { STATE_NEW, STATE_HERE, STATE_LEFT };
enum { WAITS_NONE, WAITS_ANY, WAITS_RANK }; /* WAITS_RANK + r: for rank r */

typedef struct shm_rank {
    _Alignas(LINE) _Atomic uint32_t bell;
    uint32_t waits_for;
    _Alignas(LINE) uint32_t state;
    int32_t pid;
    _Alignas(LINE) cpu_set_t cpus;
    struct {
        _Alignas(LINE) uint64_t value;
    } counter[TD_SHM_COUNTERS];
} shm_rank;

typedef struct shm_board {
    _Alignas(LINE) td__shm_card card;
    uint8_t payload[TD_SHM_SLOT];
} shm_board;
_Static_assert(sizeof(td__shm_card) == LINE, "a card is one cache line");

typedef struct shm_ring {
    _Alignas(LINE) uint64_t written; /* bytes ever put in, by the sender */
    _Alignas(LINE) uint64_t taken;   /* bytes ever taken out, by the receiver */
    _Alignas(LINE) uint8_t data[];
} shm_ring;

typedef struct shm_layout {
    size_t ranks, boards, stages, rings, ring_stride, total; /* bytes */
    size_t ring_nbytes;                                      /* a power of two */
} shm_layout;

typedef struct shm_region {
    uint64_t id;
    void *map;
    size_t nbytes;
    struct shm_region *next;
} shm_region;

typedef struct shm_queue { /* transfers to or from one peer, in order */
    td__xfer *first, **last;
} shm_queue;

typedef struct shm_mesh {
    td__mesh mesh;
    shm_layout at;
    uint8_t *map;
    shm_head *head;
    shm_rank *ranks;
    int *pidfd;   /* by rank; -1 for myself */
    int *channel; /* rank 0: a socket to each; others: [0] to rank 0, the rest -1 */
    int epoll;    /* over the pidfds */
    uint64_t last_look;
    bool crowded;
    uint64_t cards; /* so far */
    uint64_t regions;
    shm_region *region;
    shm_queue *sends, *recvs; /* by peer */
    int pending;
    td__poison poison; /* of this rank alone: what interrupt() said */
} shm_mesh;

static inline shm_mesh *shm_of(const td__mesh *m)
{
    return (shm_mesh *)(uintptr_t)m;
}

extern const td__mesh_ops td__mesh_shm_ops;

/* Where the rank's card of that number lies. Ranks change places from card to card: who has read a
 * place has it in its cache and writes there next without a round trip. */
static inline shm_board *shm_board_of(const shm_mesh *m, int rank, uint64_t number)
{
    unsigned size = (unsigned)m->mesh.size;
    unsigned place = (unsigned)((uint64_t)rank + (number >> 1)) % size;
    return (shm_board *)(void *)(m->map + m->at.boards) + 2 * place + (number & 1);
}
static inline shm_ring *shm_ring_of(const shm_mesh *m, int from, int to)
{
    size_t i = (size_t)from * (size_t)m->mesh.size + (size_t)to;
    return (shm_ring *)(void *)(m->map + m->at.rings + i * m->at.ring_stride);
}

/* Raise waiting peers: all that wait for me or for anybody, `to` alone if it is not -1. */
void td__shm_notify(shm_mesh *m, int to);
/* Wait until ready(m, arg). waits_for: WAITS_ANY or WAITS_RANK + r, and who is named when time is
 * up. TD_ETIMEDOUT is not recorded as a failure: the caller decides. */
TD_NODISCARD td_status td__shm_wait(shm_mesh *m, bool (*ready)(shm_mesh *m, const void *arg),
                                    const void *arg, uint32_t waits_for, td__deadline until);
/* TD_OK, or the recorded failure with its text. */
TD_NODISCARD td_status td__shm_health(shm_mesh *m);
/* Record that this mesh failed, for all ranks, and wake them; the first one counts. Gives the
 * status to return. */
td_status td__shm_fail(shm_mesh *m, td_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void td__shm_interrupt(td__mesh *m, td_status st, const char *text);

/* Descriptors over the channel of rank 0: one message with `nbytes` of data and up to `n` fds. */
TD_NODISCARD td_status td__shm_send_fds(int sock, const void *data, size_t nbytes, const int *fd,
                                        int n);
/* Waits in steps, looking for failures if m is not NULL. *n: in, room; out, how many came. */
TD_NODISCARD td_status td__shm_recv_fds(shm_mesh *m, int sock, void *data, size_t nbytes, int *fd,
                                        int *n, td__deadline until);

TD_NODISCARD td_status td__shm_share(td__mesh *m, size_t nbytes, td__deadline until, void **base,
                                     uint64_t *id);
void td__shm_unshare(td__mesh *m, uint64_t id);
TD_NODISCARD td_status td__shm_meet(td__mesh *m, td__deadline until);

#endif
