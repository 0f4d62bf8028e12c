/* block_cache.h -- blocks of equal size, by number, in three levels: memory of a device, pinned
 * memory of the host, and a file.
 *
 *     device   a copy of a block that lies, or lay, in the host level; dropped without a trace
 *     host     where blocks come in, and where modified ones stay until they are written back
 *     file     blocks that have gone cold in the host level; without a name, gone with the cache
 *
 * A block is looked up in that order. What is found in the host level is copied to the device level
 * on a stream of the cache, and what is found in the file is read into the host level before. What
 * makes room in the host level is written to the file, unless the file has it already. A file that
 * is full takes nothing more, but for modified blocks, which take the place of others.
 *
 * Room      In both levels of memory a block that was found there stays longest, and of others the
 *           one that came in last makes room first. An epoch reads every sample once: if the oldest
 *           made room, a level of half the samples would have lost most of them just before they
 *           are read again; so it has nearly half. One of 32 blocks that come in counts as found,
 *           so that a level follows users whose blocks change.
 *
 * Clean     A block is clean if somebody else can make it again, or if the file has it. A clean
 *           block may be gone when it is looked for again: the user makes it anew. A modified
 *           block is not lost: where it cannot be written back, it stays in the host level.
 * Holds     A set is what a user works with: some blocks, which stay where they are while they are
 *           held. A level all of whose blocks are held takes no more: those blocks pass by, as if
 *           there were no cache.
 * Failure   A file that cannot be written or has other bytes than were written (each block has its
 *           crc32c) is a warning, once, and the cache goes on without that level, unless the only
 *           copy of a modified block is lost.
 * Threads   All may use a cache, each with sets of its own. A block that another thread is filling
 *           counts as absent, so that nobody waits for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_BLOCK_CACHE_H
#define TD_DEVICE_BLOCK_CACHE_H

#include "device/device.h"

typedef enum td__block_level {
    TD_BLOCK_DEVICE,
    TD_BLOCK_HOST,
    TD_BLOCK_FILE,
    TD_BLOCK_LEVELS
} td__block_level;

const char *td__block_level_name(td__block_level l); /* "device" */

typedef struct td__block_cache_opts {
    td_device *device;             /* retained */
    int64_t count;                 /* blocks are 0 .. count-1 */
    size_t nbytes;                 /* of a block */
    size_t level[TD_BLOCK_LEVELS]; /* bytes; 0: none. The host level is needed */
    const char *folder;            /* of the file; NULL: $TMPDIR, /tmp. Borrowed */
    const char *name;              /* of the keys, "data.blocks": begins messages. Borrowed */
} td__block_cache_opts;

typedef struct td__block_counters {
    uint64_t hits[TD_BLOCK_LEVELS], misses;
    uint64_t evicted[TD_BLOCK_LEVELS]; /* that have made room for others */
    uint64_t passed;                   /* misses that found no room */
    size_t used[TD_BLOCK_LEVELS];      /* bytes */
} td__block_counters;

/* The share of lookups that found their block in a level. */
double td__block_hit_rate(const td__block_counters *c, td__block_level l);

typedef struct td__block_cache td__block_cache;
/* Would create() refuse these? */
TD_NODISCARD td_status td__block_cache_check(const td__block_cache_opts *o);
TD_NODISCARD td_status td__block_cache_create(const td__block_cache_opts *o, td__block_cache **out);
void td__block_cache_destroy(td__block_cache *c); /* no set is left; NULL is allowed */
td__block_counters td__block_cache_count(td__block_cache *c);
int td__block_cache_room(const td__block_cache *c, td__block_level l); /* in blocks */
int td__block_cache_file(const td__block_cache *c); /* its descriptor; -1: none. For tests */

/* A block of a set. at NULL: absent. level: where it was found; absent: TD_BLOCK_LEVELS. */
typedef struct td__held_block {
    int64_t id;
    void *at; /* in memory of the device, or pinned */
    td__block_level level;
    int slot[2]; /* in the levels of memory, held; -1: none */
    bool fresh;  /* taken, and not known to others yet */
} td__held_block;

typedef struct td__block_set {
    td__block_cache *cache; /* borrowed */
    size_t room, n;
    td__held_block *held; /* (room) */
    td_mem list;          /* (room) pinned: copies to the device level */
    bool copies;          /* some blocks are in the device level: */
    td_event copied;      /* from here on */
} td__block_set;

TD_NODISCARD td_status td__block_set_init(td__block_set *s, td__block_cache *c, size_t room);
void td__block_set_fini(td__block_set *s); /* a zeroed one is allowed; lets go */
/* Look for n blocks, and hold those that are there. The set is empty before. */
TD_NODISCARD td_status td__block_set_hold(td__block_set *s, const int64_t *ids, size_t n);
/* Room in the host level for block i of the set, which is absent: the caller fills it before
 * ready(). NULL: there is none. */
void *td__block_set_take(td__block_set *s, size_t i);
/* What was taken is filled. Blocks are copied to the device level, as far as there is room: then
 * their addresses there are valid in streams that wait for `copied`. */
void td__block_set_ready(td__block_set *s);
/* Where a held block may be written by the host; it is modified from now on. Nobody else holds it,
 * and the set is not made ready afterwards. */
TD_NODISCARD td_status td__block_set_modify(td__block_set *s, size_t i, void **out);
/* Nobody uses the blocks any more; what was taken without ready() is forgotten. */
TD_NODISCARD td_status td__block_set_let_go(td__block_set *s);

#endif
