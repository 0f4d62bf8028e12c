/* pool.c -- see pool.h. Idle blocks are in one list, the longest idle first; there are few. What
 * the list knows of a block lies in the block: giving one back needs no memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/pool.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

/* The beginning of a block. */
typedef struct idle {
    struct idle *next;
    size_t nbytes; /* of the block */
    bool marked;   /* to be released at the next request */
} idle;

_Static_assert(sizeof(idle) <= TD__PARKED, "it lies in the part that may be touched");

struct td__pool_blocks {
    size_t threshold;
    pthread_mutex_t lock; /* of the following */
    idle *first, **end;
    size_t unmarked; /* idle bytes that are not marked */
    td__device_counters count;
};

td_status td__pool_blocks_create(size_t threshold, td__pool_blocks **out)
{
    td__pool_blocks *p = *out = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for a pool of blocks");
    p->threshold = threshold;
    p->end = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    return TD_OK;
}

/* The idle block that *at points to leaves the list. */
static idle *unlink_idle(td__pool_blocks *p, idle **at)
{
    idle *b = *at;
    *at = b->next;
    if (p->end == &b->next)
        p->end = at;
    p->count.idle -= b->nbytes;
    if (!b->marked)
        p->unmarked -= b->nbytes;
    return b;
}

static void release(td__pool_blocks *p, idle *b)
{
    td__block_free_parked(b, b->nbytes);
    p->count.released++;
}

static void release_all(td__pool_blocks *p, bool marked_only)
{
    for (idle **at = &p->first; *at;) {
        if (marked_only && !(*at)->marked)
            at = &(*at)->next;
        else
            release(p, unlink_idle(p, at));
    }
}

void td__pool_blocks_destroy(td__pool_blocks *p)
{
    if (!p)
        return;
    release_all(p, false);
    pthread_mutex_destroy(&p->lock);
    td__free(p);
}

/* An idle block of this size; NULL: none, or a failure on demand. */
static void *take_idle(td__pool_blocks *p, size_t nbytes)
{
    void *block = NULL;
    pthread_mutex_lock(&p->lock);
    p->count.requests++;
    idle **at = &p->first;
    while (*at && (*at)->nbytes != nbytes)
        at = &(*at)->next;
    if (*at && td__block_unpark(*at, nbytes)) {
        block = unlink_idle(p, at);
        p->count.reused++;
        p->count.used += nbytes;
    }
    release_all(p, true);
    pthread_mutex_unlock(&p->lock);
    if (block)
        memset(block, 0, nbytes);
    return block;
}

/* Release what is idle; false: nothing is. */
static bool make_room(td__pool_blocks *p)
{
    pthread_mutex_lock(&p->lock);
    bool some = p->first;
    release_all(p, false);
    pthread_mutex_unlock(&p->lock);
    return some;
}

void *td__pool_blocks_take(td__pool_blocks *p, size_t nbytes)
{
    void *block = take_idle(p, nbytes);
    if (block)
        return block;
    block = td__alloc_block(nbytes);
    if (!block && make_room(p))
        block = td__alloc_block(nbytes);
    if (!block)
        return NULL;
    pthread_mutex_lock(&p->lock);
    p->count.used += nbytes;
    if (p->count.used + p->count.idle > p->count.peak)
        p->count.peak = p->count.used + p->count.idle;
    pthread_mutex_unlock(&p->lock);
    return block;
}

void td__pool_blocks_give(td__pool_blocks *p, void *block, size_t nbytes)
{
    idle *b = block;
    pthread_mutex_lock(&p->lock);
    td__block_park(block, nbytes);
    *b = (idle){.nbytes = nbytes};
    *p->end = b;
    p->end = &b->next;
    p->count.used -= nbytes;
    p->count.idle += nbytes;
    p->unmarked += nbytes;
    for (idle *old = p->first; old && p->unmarked > p->threshold; old = old->next)
        if (!old->marked) {
            old->marked = true;
            p->unmarked -= old->nbytes;
        }
    pthread_mutex_unlock(&p->lock);
}

td__device_counters td__pool_blocks_count(td__pool_blocks *p)
{
    pthread_mutex_lock(&p->lock);
    td__device_counters c = p->count;
    pthread_mutex_unlock(&p->lock);
    return c;
}
