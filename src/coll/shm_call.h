/* shm_call.h -- how collectives over shared memory begin, and what ranks know of each other then.
 * For the files shm_*.c of this folder.
 *
 * Every call starts with one card per rank on the mesh's board (net/mesh_shm.h). The card says what
 * is called, which is compared, and where the rank's buffers lie: in which registered region, or in
 * private memory. Small calls carry their data with the card and need nothing else. All larger
 * ones look at all cards and so come to the same plan on every rank:
 *
 *     direct   the buffers that others must reach are registered: they are read and written in
 *              place, and a second meeting ends the call
 *     staged   otherwise: through the mesh's staging memory, chunk by chunk
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_SHM_CALL_H
#define TD_COLL_SHM_CALL_H

#include "coll/algo.h"
#include "net/mesh_shm.h"

typedef struct td__shmcall {
    td__coll_ctx *x;
    const td__coll_call *c;
    td__mesh *m;
    int rank, size;
    size_t each; /* bytes of an element */
    bool small;  /* the data came with the cards, */
    bool inside; /* in the cards themselves */
} td__shmcall;

/* Can shared memory serve this call at all? The `can` of all rows. */
bool td__shmcall_can(const td__coll_ctx *x, const td__coll_call *c);
enum { TD_SHM_MOST_RANKS = 1024 };
#define TD_SHM_MEETING 0.7 /* what cards cost compared with a message, for the model */

/* Does so much data travel with the cards? */
static inline bool td__shmcall_is_small(size_t nbytes)
{
    return nbytes <= TD_SHM_SLOT;
}
bool td__shmcall_registered(const td__coll_ctx *x, const void *p, size_t nbytes);

/* Arrive. in and out are what others may reach if it is registered; NULL: nothing. If `most`, the
 * largest in of all ranks, is small, it travels with the card. */
TD_NODISCARD td_status td__shmcall_begin(td__shmcall *s, td__coll_ctx *x, const td__coll_call *c,
                                         const void *in, size_t in_nbytes, const void *out,
                                         size_t out_nbytes, size_t most);
/* The data that came with rank's card. */
const void *td__shmcall_small(const td__shmcall *s, int rank);
/* Where rank's in (which 0) or out (1) lies in this process; NULL if it is private. */
void *td__shmcall_buffer(const td__shmcall *s, int rank, int which);

/* Waits, with the call's deadline. */
TD_NODISCARD td_status td__shmcall_end(td__shmcall *s); /* everybody is done with my memory */
TD_NODISCARD td_status td__shmcall_wait(td__shmcall *s, int rank, td__shm_counter which,
                                        uint64_t at_least);
TD_NODISCARD td_status td__shmcall_wait_all(td__shmcall *s, td__shm_counter which,
                                            uint64_t at_least);

#endif
