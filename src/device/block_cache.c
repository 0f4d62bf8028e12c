/* block_cache.c -- see block_cache.h: the levels, their places, and the file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/block_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/unnamed_file.h"
#include "device/block_cache_impl.h"

enum { ALIGN = 64, ARRIVALS = 32 };

const char *td__block_level_name(td__block_level l)
{
    static const char *const NAMES[] = {
        [TD_BLOCK_DEVICE] = "device", [TD_BLOCK_HOST] = "host", [TD_BLOCK_FILE] = "file"};
    return NAMES[l];
}

double td__block_hit_rate(const td__block_counters *c, td__block_level l)
{
    uint64_t all = c->misses;
    for (int i = 0; i < TD_BLOCK_LEVELS; i++)
        all += c->hits[i];
    return all ? (double)c->hits[l] / (double)all : 0;
}

static const char *folder_of(const td__block_cache *c)
{
    return c->o.folder ? c->o.folder : td__temp_dir();
}

/* ---- Places ---------------------------------------------------------------------------------- */

void *td__block_place(const td__block_cache *c, td__block_level l, int slot)
{
    return (char *)c->level[l].mem.at + (size_t)slot * c->each;
}

static void unlink_slot(td__block_places *p, int i)
{
    td__block_slot *s = &p->slot[i];
    *(s->newer < 0 ? &p->newest : &p->slot[s->newer].older) = s->older;
    *(s->older < 0 ? &p->oldest : &p->slot[s->older].newer) = s->newer;
}

static void link_slot(td__block_places *p, int i, bool newest)
{
    td__block_slot *s = &p->slot[i];
    s->newer = newest ? -1 : p->oldest;
    s->older = newest ? p->newest : -1;
    *(s->newer < 0 ? &p->newest : &p->slot[s->newer].older) = i;
    *(s->older < 0 ? &p->oldest : &p->slot[s->older].newer) = i;
}

void td__block_retain(td__block_cache *c, td__block_level l, int slot)
{
    if (!c->level[l].slot[slot].holds++)
        unlink_slot(&c->level[l], slot);
}

void td__block_release(td__block_cache *c, td__block_level l, int slot)
{
    td__block_slot *s = &c->level[l].slot[slot];
    TD_ASSERT(s->holds > 0, "place %d is not held", slot);
    if (--s->holds)
        return;
    bool front = s->block >= 0 && (s->hit || l == TD_BLOCK_FILE);
    if (s->block >= 0 && !front)
        front = ++c->level[l].arrivals % ARRIVALS == 0;
    s->hit = false;
    link_slot(&c->level[l], slot, front);
}

void td__block_settle(td__block_cache *c, td__block_level l, int slot, int64_t block)
{
    td__block_places *p = &c->level[l];
    TD_ASSERT(p->slot[slot].block < 0 && p->of[block] < 0, "block %" PRId64 " is there", block);
    p->slot[slot].block = block;
    p->of[block] = slot;
    p->filled++;
}

void td__block_forget(td__block_cache *c, td__block_level l, int slot)
{
    td__block_places *p = &c->level[l];
    td__block_slot *s = &p->slot[slot];
    if (s->block < 0)
        return;
    p->of[s->block] = -1;
    p->filled--;
    s->block = -1;
    s->modified = s->sole = false;
}

/* May the block at a place that nobody holds go? Out of the host level it goes to the file. */
static bool may_go(td__block_cache *c, td__block_level l, int slot)
{
    const td__block_slot *s = &c->level[l].slot[slot];
    if (l == TD_BLOCK_FILE)
        return !s->sole;
    if (l == TD_BLOCK_DEVICE || s->block < 0)
        return true;
    return td__block_to_file(c, slot) || !s->modified;
}

int td__block_claim(td__block_cache *c, td__block_level l)
{
    td__block_places *p = &c->level[l];
    int i;
    if (p->touched < p->n && (p->oldest < 0 || p->slot[p->oldest].block >= 0)) {
        i = p->touched++;
        p->slot[i] = (td__block_slot){.block = -1, .holds = 1};
        return i;
    }
    for (i = p->oldest; i >= 0 && !may_go(c, l, i);)
        i = p->slot[i].newer;
    if (i < 0)
        return -1;
    c->count.evicted[l] += p->slot[i].block >= 0;
    td__block_forget(c, l, i);
    td__block_retain(c, l, i);
    return i;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A place in the file for a block, held; -1: none. Only a modified one takes that of another. */
static int file_place(td__block_cache *c, const td__block_slot *of)
{
    const td__block_places *p = &c->level[TD_BLOCK_FILE];
    int slot = p->of[of->block];
    if (slot >= 0)
        td__block_retain(c, TD_BLOCK_FILE, slot);
    else if (p->touched < p->n || of->modified)
        slot = td__block_claim(c, TD_BLOCK_FILE);
    return slot;
}

bool td__block_to_file(td__block_cache *c, int slot)
{
    td__block_slot *from = &c->level[TD_BLOCK_HOST].slot[slot];
    td__block_places *p = &c->level[TD_BLOCK_FILE];
    if (c->fd < 0)
        return false;
    if (!from->modified && p->of[from->block] >= 0)
        return true;
    int to = c->file_full || c->file_bad ? -1 : file_place(c, from);
    if (to < 0)
        return false;
    const void *at = td__block_place(c, TD_BLOCK_HOST, slot);
    if (!td__unnamed_put(c->fd, (uint64_t)to * c->each, at, c->o.nbytes)) {
        TD_LOG(WARN, DATA,
               "%s: the file in %s takes no more than %d blocks: %s; going on with "
               "them",
               c->o.name, folder_of(c), p->filled, strerror(errno));
        c->file_full = true;
        td__block_release(c, TD_BLOCK_FILE, to);
        return false;
    }
    if (p->slot[to].block < 0)
        td__block_settle(c, TD_BLOCK_FILE, to, from->block);
    p->slot[to].crc = td__crc32c(0, at, c->o.nbytes);
    p->slot[to].sole = p->slot[to].sole || from->modified;
    td__block_release(c, TD_BLOCK_FILE, to);
    from->modified = false;
    return true;
}

td_status td__block_from_file(td__block_cache *c, int64_t block, int slot, bool *found)
{
    td__block_places *p = &c->level[TD_BLOCK_FILE];
    int from = p->of[block];
    void *at = td__block_place(c, TD_BLOCK_HOST, slot);
    const char *why = "its bytes are not those that were written";
    bool read = td__unnamed_get(c->fd, (uint64_t)from * c->each, at, c->o.nbytes);
    *found = read && td__crc32c(0, at, c->o.nbytes) == p->slot[from].crc;
    if (*found)
        return TD_OK;
    if (!read)
        why = errno ? strerror(errno) : "the file is short";
    if (p->slot[from].sole)
        return TD_FAIL(TD_EIO,
                       "%s: block %" PRId64 " in the file in %s is lost: %s; check the disk",
                       c->o.name, block, folder_of(c), why);
    TD_LOG(WARN, DATA,
           "%s: block %" PRId64 " in the file in %s is damaged: %s; check the disk; "
           "going on without the file",
           c->o.name, block, folder_of(c), why);
    c->file_bad = true;
    return TD_OK;
}

int td__block_cache_room(const td__block_cache *c, td__block_level l)
{
    return c->level[l].n;
}

int td__block_cache_file(const td__block_cache *c)
{
    return c->fd;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static size_t each_of(const td__block_cache_opts *o)
{
    return td__align_up(o->nbytes ? o->nbytes : 1, ALIGN);
}

td_status td__block_cache_check(const td__block_cache_opts *o)
{
    size_t each = each_of(o);

    if (o->count < 0 || o->count > INT_MAX)
        return TD_FAIL(TD_EINVAL, "%s: %" PRId64 " blocks: at most %d", o->name, o->count, INT_MAX);
    for (int l = 0; l < TD_BLOCK_LEVELS; l++)
        if (o->level[l] < each && (o->level[l] || l == TD_BLOCK_HOST))
            return TD_FAIL(TD_EINVAL,
                           "%s.%s_mb: a block has %zu bytes, and there is room for %zu%s", o->name,
                           td__block_level_name((td__block_level)l), each, o->level[l],
                           l == TD_BLOCK_HOST ? "; the other levels need this one" : "");
    return TD_OK;
}

static td_status make_level(td__block_cache *c, td__block_level l)
{
    static const td_mem_kind KIND[] = {
        [TD_BLOCK_DEVICE] = TD_MEM_OWN, [TD_BLOCK_HOST] = TD_MEM_PINNED};
    td__block_places *p = &c->level[l];
    size_t n = c->o.level[l] / c->each;
    n = n < (size_t)c->o.count ? n : (size_t)c->o.count;
    p->n = n < INT_MAX ? (int)n : INT_MAX;
    p->newest = p->oldest = -1;
    p->slot = td__calloc((size_t)p->n + 1, sizeof *p->slot);
    p->of = td__malloc(((size_t)c->o.count + 1) * sizeof *p->of);
    if (!p->slot || !p->of)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to list %" PRId64 " blocks", c->o.name,
                       c->o.count);
    for (int64_t i = 0; i < c->o.count; i++)
        p->of[i] = -1;
    if (l != TD_BLOCK_FILE)
        return p->n ? td__mem_alloc(c->o.device, KIND[l], (size_t)p->n * c->each, &p->mem) : TD_OK;
    if (p->n && (c->fd = td__unnamed_open(c->o.folder)) < 0)
        TD_LOG(WARN, DATA, "%s: no file in %s: %s; going on without it", c->o.name, folder_of(c),
               strerror(errno));
    return TD_OK;
}

td_status td__block_cache_create(const td__block_cache_opts *o, td__block_cache **out)
{
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY(td__block_cache_check(o));
    td__block_cache *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "%s: no memory", o->name);
    c->o = *o;
    c->fd = -1;
    c->each = each_of(o);
    pthread_mutex_init(&c->lock, NULL);
    td__device_retain(o->device);
    TD_TRY_OR(st, fail, td__stream_create(o->device, &c->stream));
    for (int l = 0; l < TD_BLOCK_LEVELS; l++)
        TD_TRY_OR(st, fail, make_level(c, (td__block_level)l));
    *out = c;
    return TD_OK;
fail:
    td__block_cache_destroy(c);
    return st;
}

void td__block_cache_destroy(td__block_cache *c)
{
    if (!c)
        return;
    td__stream_destroy(c->stream); /* what it copies from and to is there until it is done */
    for (int l = 0; l < TD_BLOCK_LEVELS; l++) {
        td__mem_free(&c->level[l].mem);
        td__free(c->level[l].slot);
        td__free(c->level[l].of);
    }
    if (c->fd >= 0)
        close(c->fd);
    td__device_release(c->o.device);
    pthread_mutex_destroy(&c->lock);
    td__free(c);
}

td__block_counters td__block_cache_count(td__block_cache *c)
{
    pthread_mutex_lock(&c->lock);
    td__block_counters all = c->count;
    for (int l = 0; l < TD_BLOCK_LEVELS; l++)
        all.used[l] = (size_t)c->level[l].filled * c->each;
    pthread_mutex_unlock(&c->lock);
    return all;
}
