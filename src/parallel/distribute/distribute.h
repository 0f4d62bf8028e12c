/* distribute.h -- the data of a job when its files are on rank 0 alone.
 *
 * Words: a part is the train, valid or test data. A block is some consecutive samples of a part, as
 * many as fill a megabyte or so, all their fields one after the other: the unit that travels.
 *
 * Rank 0 opens the files; the others never look for any. What they get depends on the method, which
 * is one file (distribute_*.c) and one line in distribute.def:
 *
 *   whole       every rank gets all samples, once, before training, and keeps them in memory. They
 *               are sent as the source gives them: splits and map stages are then made by every
 *               rank, from the same samples with the same seeds.
 *   on demand   a rank asks rank 0 for what it needs when it needs it; prefetching threads ask
 *               ahead. Either for finished rows: rank 0 splits, maps and draws for all. Or for
 *               samples as the source gives them (as_source): rank 0 sends what it has measured,
 *               and every rank splits, maps and draws for itself.
 *
 * Either way a sample has the bits that it would have if every rank had the files.
 *
 * Failure   What goes wrong on rank 0 before samples travel (a file is missing, or is not what it
 *           should be) has the same status and text on all ranks. What goes wrong later aborts the
 *           comm with the reason, as everywhere.
 * Threads   Opening and closing: one. Samples may be read by many. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_DISTRIBUTE_H
#define TD_PARALLEL_DISTRIBUTE_H

#include "data/data.h"
#include "data/table.h"
#include "parallel/distribute/desks.h"
#include "tandem/coll.h"

typedef struct td__distribute_opts {
    const char *method; /* a name of distribute.def; NULL, "none": every rank opens the files */
    td_comm *comm;      /* NULL: this rank is alone. Borrowed until closed. */
    size_t block;       /* bytes of a block; 0: 1 MB */
    /* (optional) On rank 0: bytes of a part that are on their way, of all. A failure ends it. */
    td_status (*progress)(void *user, const char *part, uint64_t done, uint64_t all);
    void *user;
} td__distribute_opts;

typedef struct td__distribution td__distribution;
/* Opens the data on all ranks. Collective. *keep holds what the data need as long as they are read:
 * close it, when nobody reads any more, before the data; NULL: nothing. */
TD_NODISCARD td_status td__distribute_open(const td__data_opts *data, const td__distribute_opts *o,
                                           td__distribution **keep, td__data **out);
/* Rank 0 waits, not for long, until the others have closed theirs too. NULL is allowed. */
void td__distribute_close(td__distribution *d);

/* The names, "none" first, i = 0, 1, ...; NULL after the last. */
const char *td__distribute_list(int i);

/* ---- For the methods ------------------------------------------------------------------------- */

/* A part on its way to everybody. */
typedef struct td__spread {
    td_comm *comm;
    int rank, size;
    td__dataset *from; /* rank 0 */
    td__table *to;     /* the others */
    const td__dataset *head;
    int64_t rows, blocks; /* samples in a block; blocks */
    size_t nbytes;        /* of a sample */
    uint32_t crc;         /* of all blocks that were loaded or stored here */
    const char *part;
    const td__distribute_opts *o;
} td__spread;

size_t td__spread_nbytes(const td__spread *s, int64_t block); /* of this block */
size_t td__spread_room(const td__spread *s);                  /* of the largest */
/* Rank 0: the samples of a block into data. In order. */
TD_NODISCARD td_status td__spread_load(td__spread *s, int64_t block, void *data);
/* The others: keep the samples of a block. In order. */
void td__spread_store(td__spread *s, int64_t block, const void *data);
/* Rank 0 with load, the others with store: what a rank does when a block is `data`. */
TD_NODISCARD td_status td__spread_take(td__spread *s, int64_t block, void *data);

/* Samples as one message: field after field. */
void td__rows_at(const td__dataset *head, int64_t n, void *data, void **at);
size_t td__rows_nbytes(const td__dataset *head, int64_t n);
/* Rank 0: samples as the piece of an answer. Numbers that d does not have are TD_EPROTO. */
TD_NODISCARD td_status td__rows_read(td__desk *k, td__dataset *d, const int64_t *index, int64_t n,
                                     const td__draw *draw);
/* An empty table for the samples of head; takes names. */
TD_NODISCARD td_status td__distribute_table(const td__dataset *head, td__arena *names,
                                            td__table **out);

/* On demand: rank 0 answers for the parts of its data, the others ask. */
typedef struct td__serving {
    td_comm *comm;
    td__desks *desks;
    td__data *data; /* rank 0 */
    size_t block;   /* bytes of a block */
    void *own;      /* the method's */
} td__serving;
/* Samples of d in a block. */
int64_t td__serving_rows(const td__serving *v, const td__dataset *d);

typedef struct td__distribute_def {
    const char *name, *help;
    /* Whole: move all blocks of a part. Every rank; collective. NULL: on demand. */
    TD_NODISCARD td_status (*spread)(td__spread *s);
    bool as_source;     /* on demand: parts are those of the source */
    td__desk_fn answer; /* on demand, rank 0: what is asked at a desk; user is the td__serving */
    /* (optional) Rank 0, before the first answer: fill in `own`. */
    TD_NODISCARD td_status (*begin)(td__serving *v);
    /* (optional) Rank 0's half of `remote`. */
    TD_NODISCARD td_status (*tell)(td__serving *v, td__part part, td__dataset *d);
    /* The others: the part that head describes; takes names, the memory of its texts. */
    TD_NODISCARD td_status (*remote)(td__serving *v, td__part part, const td__dataset *head,
                                     td__arena *names, td__dataset **out);
    void (*end)(td__serving *v); /* (optional) after the last answer: free `own` */
} td__distribute_def;

#define TD_DISTRIBUTE(name) extern const td__distribute_def td__distribute_##name;
#include "parallel/distribute/distribute.def"
#undef TD_DISTRIBUTE

#endif
