/* shm_call.c -- the beginning and the waits of collectives over shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/shm_call.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

/* A place in registered memory as one word: region in the upper 16 bits (0: private), offset below.
 * Regions with larger numbers count as private. */
enum { OFFSET_BITS = 48 };

bool td__shmcall_can(const td__coll_ctx *x, const td__coll_call *c)
{
    return c->kind < TD_COLL_SEND && td__mesh_is_shm(x->mesh) && x->mesh->size <= TD_SHM_MOST_RANKS;
}

static uint64_t place_of(const td__coll_ctx *x, const void *p, size_t nbytes)
{
    const td__region *g = p && nbytes ? td__comm_region(x->comm, p, nbytes) : NULL;
    if (!g || g->mesh != x->mesh || g->id >= UINT64_C(1) << (64 - OFFSET_BITS))
        return 0;
    return g->id << OFFSET_BITS | (uint64_t)((uintptr_t)p - (uintptr_t)g->mine);
}

bool td__shmcall_registered(const td__coll_ctx *x, const void *p, size_t nbytes)
{
    return place_of(x, p, nbytes) != 0;
}

void *td__shmcall_buffer(const td__shmcall *s, int rank, int which)
{
    uint64_t place = td__shm_card_of(s->m, rank)->where[which];
    if (!place)
        return NULL;
    for (const td__region *r = s->x->comm->regions; r; r = r->next)
        if (r->mesh == s->m && r->id == place >> OFFSET_BITS)
            return (uint8_t *)r->base[rank] + (place & ((UINT64_C(1) << OFFSET_BITS) - 1));
    return NULL;
}

/* ---- agreement ---- */

static void put_agree(const td__coll_ctx *x, const td__coll_call *c, uint64_t agree[2])
{
    agree[0] = (uint64_t)x->tag << 32 | (uint64_t)c->kind << 28 | (uint64_t)c->dtype << 24 |
               (uint64_t)c->op << 20 | ((uint64_t)(uint32_t)c->root & 0xfffff);
    agree[1] = c->count;
}

static void agree_text(const uint64_t agree[2], uint64_t sequence, char *buf, size_t nbytes)
{
    td__comm_activity a = {
        .in_call = true,
        .sequence = sequence,
        .kind = (td__coll)(agree[0] >> 28 & 15),
        .dtype = (td_dtype)(agree[0] >> 24 & 15),
        .op = (td_reduce_op)(agree[0] >> 20 & 15),
        .root = (int)(agree[0] & 0xfffff),
        .count = agree[1],
        .algo = "shm",
    };
    td__comm_activity_text(&a, buf, nbytes);
}

static td_status disagreement(const td__shmcall *s, int other)
{
    char a[160], b[160], text[400];
    agree_text(td__shm_card_of(s->m, 0)->agree, s->c->sequence, a, sizeof a);
    agree_text(td__shm_card_of(s->m, other)->agree, s->c->sequence, b, sizeof b);
    snprintf(text, sizeof text, "rank 0 calls %s, rank %d calls %s", a, other, b);
    s->m->ops->interrupt(s->m, TD_EMISMATCH, text);
    return TD_FAIL(TD_EMISMATCH, "%s", text);
}

/* ---- waits ---- */

enum { WATCH_MS = 20, CARD = TD_SHM_COUNTERS };

static td_status timed_out(const td__shmcall *s)
{
    td__comm_activity a;
    char call[160], who[200];
    snprintf(who, sizeof who, "%s", td_last_error());
    td__comm_activity_get(s->x->comm, &a);
    return TD_FAIL(TD_ETIMEDOUT, "%s, in %s", who, td__comm_activity_text(&a, call, sizeof call));
}

static td_status await(const td__shmcall *s, int rank, int what, uint64_t at_least,
                       td__deadline until)
{
    return what == CARD ? td__shm_await_card(s->m, rank, until)
                        : td__shm_await(s->m, rank, (td__shm_counter)what, at_least, until);
}

/* As td__coll_wait: after a while the others can see for whom this rank waits, after the comm's
 * stall time they are asked what they are doing; who was waited for is blamed. The coarse clock
 * rounds every wait to ticks, but right on average, which is what sums of many need. */
static td_status wait_watched(const td__shmcall *s, int rank, int what, uint64_t at_least)
{
    td_comm *comm = s->x->comm;
    td__deadline limit = s->x->deadline;
    uint64_t start = td__clock_coarse_ns(), watch = start + WATCH_MS * 1000000u;
    uint64_t stall_ns = (uint64_t)comm->stall_ms * 1000000u, ask = start + stall_ns;
    td__crossed_wait crossed = {.since_ns = start};
    td__xfer missing = {.peer = rank};
    bool watched = false;
    td_status st;
    while ((st = await(s, rank, what, at_least, watch < limit ? watch : limit)) == TD_ETIMEDOUT) {
        uint64_t now = td__clock_ns();
        if (now >= limit)
            return timed_out(s);
        td__comm_waiting(comm, s->m, &missing, 1);
        td__comm_looked(comm);
        if (now >= ask) {
            td__comm_ask(comm);
            ask = now + stall_ns;
        }
        td__crossed_look(comm, &crossed, now);
        watch = now + td__comm_look_ns(comm);
        watched = true;
    }
    if (watched)
        td__comm_waiting(comm, s->m, NULL, 0);
    td__comm_blame(comm, rank, td__clock_coarse_ns() - start);
    return st;
}

td_status td__shmcall_wait(td__shmcall *s, int rank, td__shm_counter which, uint64_t at_least)
{
    return td__shm_reached(s->m, rank, which, at_least) ? TD_OK
                                                        : wait_watched(s, rank, which, at_least);
}

td_status td__shmcall_wait_all(td__shmcall *s, td__shm_counter which, uint64_t at_least)
{
    for (int i = 1; i < s->size; i++)
        TD_TRY(td__shmcall_wait(s, (s->rank + i) % s->size, which, at_least));
    return TD_OK;
}

td_status td__shmcall_end(td__shmcall *s)
{
    uint64_t number = td__shm_come(s->m);
    return td__shmcall_wait_all(s, TD_SHM_MET, number);
}

td_status td__shmcall_begin(td__shmcall *s, td__coll_ctx *x, const td__coll_call *c, const void *in,
                            size_t in_nbytes, const void *out, size_t out_nbytes, size_t most)
{
    *s = (td__shmcall){
        .x = x,
        .c = c,
        .m = x->mesh,
        .rank = x->mesh->rank,
        .size = x->mesh->size,
        .each = td_dtype_size(c->dtype),
        .small = td__shmcall_is_small(most),
        .inside = most <= TD_SHM_INLINE,
    };
    td__shm_card card = {0};
    put_agree(x, c, card.agree);
    card.where[0] = s->small ? 0 : place_of(x, in, in_nbytes);
    card.where[1] = s->small ? 0 : place_of(x, out, out_nbytes);
    if (s->inside && in)
        memcpy(card.data, in, in_nbytes);
    else if (s->small && in)
        memcpy(td__shm_slot(s->m), in, in_nbytes);
    td__shm_post(s->m, &card);
    for (int i = 1; i < s->size; i++) {
        int r = (s->rank + i) % s->size;
        if (!td__shm_has_card(s->m, r))
            TD_TRY(wait_watched(s, r, CARD, 0));
    }
    int differs;
    TD_TRY(td__shm_see(s->m, s->x->deadline, &differs));
    return differs < 0 ? TD_OK : disagreement(s, differs);
}

const void *td__shmcall_small(const td__shmcall *s, int rank)
{
    return s->inside ? (const void *)td__shm_card_of(s->m, rank)->data
                     : td__shm_payload_of(s->m, rank);
}
