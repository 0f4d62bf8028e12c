/* block_cache_impl.h -- the inside of a block cache, for block_cache.c and block_set.c. All but the
 * options is under the lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_BLOCK_CACHE_IMPL_H
#define TD_DEVICE_BLOCK_CACHE_IMPL_H

#include <pthread.h>

#include "device/block_cache.h"

/* A place for a block. Places that nobody holds are in a list, from whose end they are taken: a
 * block that was found goes to its front, one that has come in to its end, where those without a
 * block are; one of ARRIVALS that have come in goes to the front. */
typedef struct td__block_slot {
    int64_t block; /* -1: none */
    int newer, older;
    int holds;
    bool hit;      /* it was found here since it was last let go of */
    bool modified; /* host: not as elsewhere */
    bool sole;     /* file: nobody can make it again */
    uint32_t crc;  /* file */
} td__block_slot;

typedef struct td__block_places {
    td__block_slot *slot; /* (n) */
    int n, touched;       /* places; those that were ever used */
    int newest, oldest;   /* of the list; -1: it is empty */
    int filled;           /* that have a block */
    unsigned arrivals;    /* blocks that were let go of without having been found here */
    int *of;              /* (count) by block; -1: not here */
    td_mem mem;           /* (n, each); of the file: none */
} td__block_places;

struct td__block_cache {
    td__block_cache_opts o;
    size_t each; /* bytes from one place to the next */
    td_stream *stream;
    int fd;         /* -1: there is no file */
    bool file_full; /* it takes nothing more */
    bool file_bad;  /* it is read only for what is nowhere else */
    pthread_mutex_t lock;
    td__block_places level[TD_BLOCK_LEVELS];
    td__block_counters count;
};

void *td__block_place(const td__block_cache *c, td__block_level l, int slot);
/* A place that nobody holds, without a block, held once; -1: there is none. */
int td__block_claim(td__block_cache *c, td__block_level l);
void td__block_retain(td__block_cache *c, td__block_level l, int slot);
void td__block_release(td__block_cache *c, td__block_level l, int slot);
/* The place has the block from now on; what it had is elsewhere, or gone. */
void td__block_settle(td__block_cache *c, td__block_level l, int slot, int64_t block);
void td__block_forget(td__block_cache *c, td__block_level l, int slot);
/* The block at a place of the host level to the file; false: it is not there. */
bool td__block_to_file(td__block_cache *c, int slot);
/* From the file to a place of the host level. *found false: it cannot be had. TD_EIO: a block that
 * nobody can make again is damaged. */
TD_NODISCARD td_status td__block_from_file(td__block_cache *c, int64_t block, int slot,
                                           bool *found);

#endif
