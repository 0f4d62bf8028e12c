/* alloc.h -- the counted allocator and the arena. All memory of the library comes from here, so
 * that tests can count it, and can make the nth allocation fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_ALLOC_H
#define TD_BASE_ALLOC_H

#include "tandem/status.h"

/* malloc / calloc / realloc / free with counting; NULL when out of memory or told to fail.
 * td__free(NULL) is allowed. */
void *td__malloc(size_t nbytes) __attribute__((malloc));
/* Overflow gives NULL. */
void *td__calloc(size_t count, size_t nbytes_each) __attribute__((malloc));
void *td__realloc(void *p, size_t nbytes);
void td__free(void *p);
char *td__strdup(const char *s);
/* Have room for nbytes in *buf, of which *cap are there: grown by doubling, so that many small
 * growths cost little. false: out of memory, and nothing has changed. */
bool td__reserve(uint8_t **buf, size_t *cap, size_t nbytes);

/* Large blocks: aligned to 64 bytes (2 MB with transparent huge pages asked for from 4 MB up),
 * zero-filled. Freed with td__free_block and the same size. */
void *td__alloc_block(size_t nbytes);
void td__free_block(void *p, size_t nbytes);
/* A block that its owner keeps for later use ("parked") does not count as allocated, and only its
 * first TD__PARKED bytes may be touched. To use it again is an allocation, which may fail; its
 * contents are undefined then. */
enum { TD__PARKED = 64 };
void td__block_park(void *block, size_t nbytes);
bool td__block_unpark(void *block, size_t nbytes);
void td__block_free_parked(void *block, size_t nbytes);
/* A block of which parts will be given back: from now on it is made of small pages. */
void td__block_thin(void *block, size_t nbytes);
/* Give the whole pages in [p, p + nbytes), part of a block, back to the system. They read as zeros,
 * and are taken again when they are written. */
void td__block_give_back(void *p, size_t nbytes);
/* Could nbytes more be had now? For libraries that do not look whether they got what they asked for
 * (RLIMIT_AS, or no memory to promise): they are called only if they would. */
bool td__room_for(size_t nbytes);

/* An arena: many small objects that die together. Memory is zero-filled, aligned to 16 bytes. */
typedef struct td__arena td__arena;
TD_NODISCARD td_status td__arena_create(td__arena **out);
void td__arena_destroy(td__arena *a);               /* NULL is allowed */
void *td__arena_alloc(td__arena *a, size_t nbytes); /* NULL when out of memory */
char *td__arena_strdup(td__arena *a, const char *s);
char *td__arena_printf(td__arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
