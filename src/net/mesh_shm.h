/* mesh_shm.h -- ranks of one host joined by shared memory: the mesh, and the tools with which
 * collectives work in that memory directly.
 *
 * The segment is a memfd that rank 0 makes and hands to the others over an abstract unix socket
 * (same user and a token only), sealed against resizing. It has no name anywhere, so nothing is
 * left when all ranks are killed. With it every rank gets a pidfd of every other, by which a wait
 * notices a death.
 *
 * Besides messages there is the board: each rank puts up a card and waits for the others' cards.
 * That is arrival, agreement on what is called, and for small calls the data as well, in one
 * step. Cards are numbered by their order, so all ranks must use the board in the same order;
 * two cards with unequal agree[] words are the sign that they did not.
 *
 * Threads   As mesh.h says. Failure: as mesh.h says; all functions here fail alike. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_MESH_SHM_H
#define TD_NET_MESH_SHM_H

#include "net/mesh.h"
#include "net/store.h"

/* Where ranks meet to get the segment. */
typedef struct td__shm_door {
    int listener;     /* rank 0 only, otherwise -1 */
    td__store *store; /* (optional) who may end the waiting: td__store_may_wait */
    char name[32];
    uint8_t token[16];
} td__shm_door;
TD_NODISCARD td_status td__shm_door_open(td__shm_door *out);

/* Collective: ranks 0 .. size-1 of this host. The door goes through the store under `prefix`. */
TD_NODISCARD td_status td__mesh_shm_create(td__store *s, const char *prefix, int rank, int size,
                                           td__deadline until, td__mesh **out);
/* The same with a door that all ranks know already. Rank 0's listener is taken. */
TD_NODISCARD td_status td__mesh_shm_join(const td__shm_door *door, int rank, int size,
                                         td__deadline until, td__mesh **out);

bool td__mesh_is_shm(const td__mesh *m);

/* ---- the board ---- */

enum { TD_SHM_INLINE = 24, TD_SHM_SLOT = 1024 };

typedef struct td__shm_card {
    uint64_t number;   /* of the card: written last */
    uint64_t agree[2]; /* what all ranks must say alike */
    uint64_t where[2]; /* the caller's: where this rank's buffers are */
    uint8_t data[TD_SHM_INLINE];
} td__shm_card;

/* The payload of this rank's next card, to be filled before putting it up: TD_SHM_SLOT bytes. It
 * may be written at once: everybody has read the card before the last. */
void *td__shm_slot(td__mesh *m);
/* Put up this rank's card; card->number is set here. Never blocks. */
void td__shm_post(td__mesh *m, const td__shm_card *card);
bool td__shm_has_card(const td__mesh *m, int rank);
/* Wait until the rank's card of the same number is there. */
TD_NODISCARD td_status td__shm_await_card(td__mesh *m, int rank, td__deadline until);
/* Wait until everybody's card of the same number is there. Cards and payloads can be read until
 * this rank posts again. *differs (may be NULL): the lowest rank whose agree[] is not rank 0's, or
 * -1. */
TD_NODISCARD td_status td__shm_see(td__mesh *m, td__deadline until, int *differs);
const td__shm_card *td__shm_card_of(const td__mesh *m, int rank);
const void *td__shm_payload_of(const td__mesh *m, int rank);

/* ---- counters and staging memory, for data that is larger than a slot ---- */

/* Each rank has a few counters that only it raises and all others can wait for. Collectives that
 * use them keep raising them from call to call, by equal amounts on all ranks. */
typedef enum td__shm_counter {
    TD_SHM_STAGED,  /* chunks put into my staging memory */
    TD_SHM_REDUCED, /* chunks whose slice I reduced */
    TD_SHM_COPIED,  /* chunks I am done with: the staging memory of others may be reused */
    TD_SHM_MET,     /* times I came to meet() */
    TD_SHM_COUNTERS
} td__shm_counter;

uint64_t td__shm_count(const td__mesh *m, td__shm_counter which); /* mine */
void td__shm_raise(td__mesh *m, td__shm_counter which, uint64_t to);
TD_NODISCARD td_status td__shm_await(td__mesh *m, int rank, td__shm_counter which,
                                     uint64_t at_least, td__deadline until);

bool td__shm_reached(const td__mesh *m, int rank, td__shm_counter which, uint64_t at_least);
/* The first half of meet(): raise TD_SHM_MET; to what, everybody's must come. */
uint64_t td__shm_come(td__mesh *m);

/* Staging memory of `rank`: TD_SHM_STAGES buffers of TD_SHM_STAGE bytes each, used in turn. */
enum { TD_SHM_STAGE = 1 << 18, TD_SHM_STAGES = 3 };
void *td__shm_stage(const td__mesh *m, int rank, uint64_t chunk);

#endif
