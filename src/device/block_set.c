/* block_set.c -- blocks that are held together; see block_cache.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "device/block_cache_impl.h"

td_status td__block_set_init(td__block_set *s, td__block_cache *c, size_t room)
{
    *s = (td__block_set){.cache = c, .room = room};
    s->held = td__calloc(room + 1, sizeof *s->held);
    if (!s->held)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a set of %zu blocks", c->o.name, room);
    return td__mem_alloc(c->o.device, TD_MEM_PINNED, (room + 1) * sizeof(td__copy_piece), &s->list);
}

void td__block_set_fini(td__block_set *s)
{
    if (s->cache && td__block_set_let_go(s))
        td__stream_drain(s->cache->stream); /* a failure that nobody waits for any more */
    td__mem_free(&s->list);
    td__free(s->held);
    *s = (td__block_set){.cache = NULL};
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* A block that lies in a level of memory. */
static void keep(td__block_cache *c, td__held_block *h, td__block_level l, int slot)
{
    td__block_retain(c, l, slot);
    h->slot[l] = slot;
    h->at = td__block_place(c, l, slot);
}

static td_status bring(td__block_cache *c, td__held_block *h)
{
    bool found = false;
    int from = c->level[TD_BLOCK_FILE].of[h->id];
    /* Held, so that what makes room in the host level does not take its place in the file. */
    td__block_retain(c, TD_BLOCK_FILE, from);
    int slot = td__block_claim(c, TD_BLOCK_HOST);
    td_status st = slot < 0 ? TD_OK : td__block_from_file(c, h->id, slot, &found);
    td__block_release(c, TD_BLOCK_FILE, from);
    if (slot < 0)
        return TD_OK;
    if (found) {
        td__block_settle(c, TD_BLOCK_HOST, slot, h->id);
        keep(c, h, TD_BLOCK_HOST, slot);
    }
    td__block_release(c, TD_BLOCK_HOST, slot);
    return st;
}

/* May the file be asked for the block? */
static bool in_file(const td__block_cache *c, int64_t id)
{
    const td__block_places *p = &c->level[TD_BLOCK_FILE];
    return p->of[id] >= 0 && (!c->file_bad || p->slot[p->of[id]].sole);
}

static td_status find(td__block_cache *c, td__held_block *h)
{
    td_status st = TD_OK;
    for (int l = 0; l < TD_BLOCK_FILE && !h->at; l++)
        if (c->level[l].of[h->id] >= 0) {
            keep(c, h, (td__block_level)l, c->level[l].of[h->id]);
            h->level = (td__block_level)l;
            c->level[l].slot[h->slot[l]].hit = true;
        }
    if (!h->at && in_file(c, h->id)) {
        st = bring(c, h);
        h->level = h->at ? TD_BLOCK_FILE : TD_BLOCK_LEVELS;
    }
    ++*(h->at ? &c->count.hits[h->level] : &c->count.misses);
    return st;
}

td_status td__block_set_hold(td__block_set *s, const int64_t *ids, size_t n)
{
    td__block_cache *c = s->cache;
    td_status st = TD_OK;
    TD_ASSERT(!s->n && n <= s->room, "%zu blocks in a set of %zu, which has %zu", n, s->room, s->n);
    for (; !st && s->n < n; s->n++) {
        td__held_block *h = &s->held[s->n];
        *h = (td__held_block){.id = ids[s->n], .level = TD_BLOCK_LEVELS, .slot = {-1, -1}};
        TD_ASSERT(h->id >= 0 && h->id < c->o.count, "block %lld", (long long)h->id);
        pthread_mutex_lock(&c->lock);
        st = find(c, h);
        pthread_mutex_unlock(&c->lock);
    }
    return st;
}

void *td__block_set_take(td__block_set *s, size_t i)
{
    td__block_cache *c = s->cache;
    td__held_block *h = &s->held[i];
    TD_ASSERT(i < s->n && !h->at, "block %zu of a set is there", i);
    pthread_mutex_lock(&c->lock);
    int slot = td__block_claim(c, TD_BLOCK_HOST);
    c->count.passed += slot < 0;
    pthread_mutex_unlock(&c->lock);
    if (slot < 0)
        return NULL;
    h->slot[TD_BLOCK_HOST] = slot;
    h->fresh = true;
    return h->at = td__block_place(c, TD_BLOCK_HOST, slot);
}

/* ---- To the device --------------------------------------------------------------------------- */

/* A block in the host level is to be used on the device; false: it is there, or has no room. */
static bool promote(td__block_cache *c, td__held_block *h, td__copy_piece *out)
{
    td__block_places *d = &c->level[TD_BLOCK_DEVICE];
    int slot = d->of[h->id];
    if (!d->n)
        return false;
    if (slot >= 0) { /* another set, or another block of this one, was faster */
        keep(c, h, TD_BLOCK_DEVICE, slot);
        return false;
    }
    slot = td__block_claim(c, TD_BLOCK_DEVICE);
    if (slot < 0)
        return false;
    td__block_settle(c, TD_BLOCK_DEVICE, slot, h->id);
    *out = (td__copy_piece){
        .to = td__block_place(c, TD_BLOCK_DEVICE, slot), .from = h->at, .nbytes = c->o.nbytes};
    h->slot[TD_BLOCK_DEVICE] = slot;
    h->at = out->to;
    return true;
}

/* The lock is kept until the copies are in the stream: who finds a block in the device level and
 * records an event later waits for them. */
void td__block_set_ready(td__block_set *s)
{
    td__block_cache *c = s->cache;
    td__copy_piece *list = s->list.at;
    size_t n = 0;
    bool some = false;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < s->n; i++) {
        td__held_block *h = &s->held[i];
        if (h->fresh && c->level[TD_BLOCK_HOST].of[h->id] < 0)
            td__block_settle(c, TD_BLOCK_HOST, h->slot[TD_BLOCK_HOST], h->id);
        h->fresh = false;
        if (h->slot[TD_BLOCK_HOST] >= 0 && h->slot[TD_BLOCK_DEVICE] < 0)
            n += promote(c, h, &list[n]);
        some = some || h->slot[TD_BLOCK_DEVICE] >= 0;
    }
    td__stream_copies(c->stream, list, n);
    if (some)
        td__event_record(c->stream, &s->copied);
    pthread_mutex_unlock(&c->lock);
    s->copies = some;
}

/* ---- Modified blocks ------------------------------------------------------------------------- */

/* A block that is in the device level alone also gets a place in the host level. */
static td_status bring_back(td__block_cache *c, td__held_block *h)
{
    int slot = td__block_claim(c, TD_BLOCK_HOST);
    if (slot < 0)
        return TD_FAIL(TD_ENOMEM, "%s.host: no room for a modified block", c->o.name);
    void *to = td__block_place(c, TD_BLOCK_HOST, slot);
    td_status st = td__stream_sync(c->stream);
    if (!st)
        st = td__mem_read(c->o.device, to, h->at, c->o.nbytes);
    if (!st) {
        td__block_settle(c, TD_BLOCK_HOST, slot, h->id);
        keep(c, h, TD_BLOCK_HOST, slot);
    }
    td__block_release(c, TD_BLOCK_HOST, slot);
    return st;
}

td_status td__block_set_modify(td__block_set *s, size_t i, void **out)
{
    td__block_cache *c = s->cache;
    td__held_block *h = &s->held[i];
    td_status st = TD_OK;
    int device, host;
    TD_ASSERT(i < s->n && h->at && !h->fresh, "block %zu of a set is not there", i);
    pthread_mutex_lock(&c->lock);
    host = c->level[TD_BLOCK_HOST].of[h->id];
    if (h->slot[TD_BLOCK_HOST] < 0 && host >= 0)
        keep(c, h, TD_BLOCK_HOST, host);
    else if (h->slot[TD_BLOCK_HOST] < 0)
        st = bring_back(c, h);
    if (!st) {
        device = c->level[TD_BLOCK_DEVICE].of[h->id];
        if (device >= 0)
            td__block_forget(c, TD_BLOCK_DEVICE, device);
        if (h->slot[TD_BLOCK_DEVICE] >= 0)
            td__block_release(c, TD_BLOCK_DEVICE, h->slot[TD_BLOCK_DEVICE]);
        h->slot[TD_BLOCK_DEVICE] = -1;
        c->level[TD_BLOCK_HOST].slot[h->slot[TD_BLOCK_HOST]].modified = true;
        c->level[TD_BLOCK_HOST].slot[h->slot[TD_BLOCK_HOST]].hit = true;
        *out = h->at = td__block_place(c, TD_BLOCK_HOST, h->slot[TD_BLOCK_HOST]);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* ---- The end --------------------------------------------------------------------------------- */

td_status td__block_set_let_go(td__block_set *s)
{
    td__block_cache *c = s->cache;
    td_status st = TD_OK;
    if (s->copies)
        st = td__event_sync(&s->copied, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS));
    s->copies = false;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < s->n; i++)
        for (int l = 0; l < TD_BLOCK_FILE; l++)
            if (s->held[i].slot[l] >= 0)
                td__block_release(c, (td__block_level)l, s->held[i].slot[l]);
    s->n = 0;
    pthread_mutex_unlock(&c->lock);
    return st;
}
