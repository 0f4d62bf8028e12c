/* pool.c -- see pool.h. What the pool knows of a block lies beside it, since the host may not touch
 * the memory of a GPU; it is made with the block, so that giving one back needs no memory. Idle
 * blocks are in one list, the longest idle first; there are few. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/pool.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

typedef struct block {
    struct block *next;
    void *at;
    size_t nbytes;
    bool marked; /* idle, to be released at the next request */
} block;

_Static_assert(sizeof(block) <= TD__PARKED, "of an idle block it is read and written");

struct td__pool_blocks {
    size_t threshold;
    const td__pool_source *source;
    void *user;
    pthread_mutex_t lock; /* of the following */
    block *used;
    block *first, **end; /* idle */
    size_t unmarked;     /* idle bytes that are not marked */
    td__device_counters count;
};

td_status td__pool_blocks_create(size_t threshold, const td__pool_source *source, void *user,
                                 td__pool_blocks **out)
{
    td__pool_blocks *p = *out = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for a pool of blocks");
    p->threshold = threshold;
    p->source = source;
    p->user = user;
    p->end = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    return TD_OK;
}

/* The idle block that *at points to leaves the list. */
static block *unlink_idle(td__pool_blocks *p, block **at)
{
    block *b = *at;
    *at = b->next;
    if (p->end == &b->next)
        p->end = at;
    p->count.idle -= b->nbytes;
    if (!b->marked)
        p->unmarked -= b->nbytes;
    return b;
}

static void release(td__pool_blocks *p, block *b)
{
    p->source->free(p->user, b->at, b->nbytes);
    p->count.released++;
    td__block_free_parked(b, sizeof *b);
}

static void release_all(td__pool_blocks *p, bool marked_only)
{
    for (block **at = &p->first; *at;) {
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
    TD_ASSERT(!p->used, "a block of %zu bytes was not given back", p->used->nbytes);
    release_all(p, false);
    pthread_mutex_destroy(&p->lock);
    td__free(p);
}

static void enter_used(td__pool_blocks *p, block *b)
{
    b->marked = false;
    b->next = p->used;
    p->used = b;
    p->count.used += b->nbytes;
}

/* An idle block, and what is known of it, count as allocated again; false: a failure on demand. */
static bool unpark(const td__pool_blocks *p, block *b)
{
    if (!td__block_unpark(b, sizeof *b))
        return false;
    if (!p->source->unpark || p->source->unpark(p->user, b->at, b->nbytes))
        return true;
    td__block_park(b, sizeof *b);
    return false;
}

/* An idle block of this size; NULL: none, or a failure on demand. */
static void *take_idle(td__pool_blocks *p, size_t nbytes)
{
    void *found = NULL;
    pthread_mutex_lock(&p->lock);
    p->count.requests++;
    block **at = &p->first;
    while (*at && (*at)->nbytes != nbytes)
        at = &(*at)->next;
    if (*at && unpark(p, *at)) {
        block *b = unlink_idle(p, at);
        found = b->at;
        p->count.reused++;
        enter_used(p, b);
    }
    release_all(p, true);
    pthread_mutex_unlock(&p->lock);
    if (found && !p->source->zero(p->user, found, nbytes)) {
        td__pool_blocks_give(p, found, nbytes);
        return NULL;
    }
    return found;
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
    void *at = take_idle(p, nbytes);
    if (at)
        return at;
    block *b = td__alloc_block(sizeof *b);
    if (!b)
        return NULL;
    at = p->source->alloc(p->user, nbytes);
    if (!at && make_room(p))
        at = p->source->alloc(p->user, nbytes);
    if (!at) {
        td__free_block(b, sizeof *b);
        return NULL;
    }
    *b = (block){.at = at, .nbytes = nbytes};
    pthread_mutex_lock(&p->lock);
    enter_used(p, b);
    if (p->count.used + p->count.idle > p->count.peak)
        p->count.peak = p->count.used + p->count.idle;
    pthread_mutex_unlock(&p->lock);
    return at;
}

void td__pool_blocks_give(td__pool_blocks *p, void *at, size_t nbytes)
{
    pthread_mutex_lock(&p->lock);
    block **of = &p->used, *b;
    while (*of && (*of)->at != at)
        of = &(*of)->next;
    TD_ASSERT(*of && (*of)->nbytes == nbytes, "a block of %zu bytes is not of this pool", nbytes);
    b = *of;
    *of = b->next;
    b->next = NULL;
    if (p->source->park)
        p->source->park(p->user, at, nbytes);
    td__block_park(b, sizeof *b);
    *p->end = b;
    p->end = &b->next;
    p->count.used -= nbytes;
    p->count.idle += nbytes;
    p->unmarked += nbytes;
    for (block *old = p->first; old && p->unmarked > p->threshold; old = old->next)
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

/* ---- The process's memory -------------------------------------------------------------------- */

static void *host_alloc(void *user, size_t nbytes)
{
    (void)user;
    return td__alloc_block(nbytes);
}

static void host_free(void *user, void *at, size_t nbytes)
{
    (void)user;
    td__block_free_parked(at, nbytes);
}

static void host_park(void *user, void *at, size_t nbytes)
{
    (void)user;
    td__block_park(at, nbytes);
}

static bool host_unpark(void *user, void *at, size_t nbytes)
{
    (void)user;
    return td__block_unpark(at, nbytes);
}

static bool host_zero(void *user, void *at, size_t nbytes)
{
    (void)user;
    memset(at, 0, nbytes);
    return true;
}

const td__pool_source td__pool_host = {.alloc = host_alloc,
                                       .free = host_free,
                                       .park = host_park,
                                       .unpark = host_unpark,
                                       .zero = host_zero};
