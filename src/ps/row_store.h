/* row_store.h -- rows of equal size by slot number, in chunks: beyond a limit of memory the chunks
 * that were not used lately lie in a file without a name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_ROW_STORE_H
#define TD_PS_ROW_STORE_H

#include "tandem/status.h"

typedef struct td__store_chunk {
    float *rows; /* NULL: in the file */
    bool used;   /* since the hand has passed */
    bool dirty;  /* not as in the file */
} td__store_chunk;

typedef struct td__row_store {
    size_t stride; /* floats of a row */
    int bits;      /* a chunk has 1 << bits rows: few where chunks come and go, many where they lie
                    * in huge pages */
    td__store_chunk *chunk;
    size_t n_chunks, room;
    size_t held, most; /* chunks in memory; that may be, 0: all */
    size_t hand;       /* of the clock that looks for a chunk to put away */
    const char *folder;
    int fd; /* -1: there is no file yet */
} td__row_store;

/* memory: bytes; 0: no limit, else at least two chunks are held. folder: borrowed. */
void td__row_store_init(td__row_store *s, size_t stride, size_t memory, const char *folder);
void td__row_store_fini(td__row_store *s);
/* Room for slots [0, n). */
TD_NODISCARD td_status td__row_store_grow(td__row_store *s, size_t n);
/* The row, until another one is asked for; write: it will be changed. */
TD_NODISCARD td_status td__row_store_at(td__row_store *s, size_t slot, bool write, float **out);
/* Chunks in the file, not in memory. */
size_t td__row_store_spilled(const td__row_store *s);

/* Where there is no limit: the row, without a check. */
static inline float *td__row_store_row(const td__row_store *s, size_t slot)
{
    size_t in = slot & (((size_t)1 << s->bits) - 1);
    return s->chunk[slot >> s->bits].rows + in * s->stride;
}

#endif
