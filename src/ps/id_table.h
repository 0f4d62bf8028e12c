/* id_table.h -- one server's part of an embedding table that is larger than anyone wants to hold:
 * rows by id, made when they are first used, each with its optimizer's state.
 *
 * Initial values are a function of seed, name and id: those that an ordinary embedding of that name
 * has, whoever makes the row and when.
 *
 * Filters  min_count: an id has a row in the batch that is so many'th to use it; before, it reads
 *          as zeros and is not trained. Batches are counted by their pushes, which have an order on
 *          all servers; pulls of several workers have none. expire: rows that nobody has pushed to
 *          for so many steps are dropped, and begin anew if they come back.
 * Memory   Rows lie in chunks. Beyond `memory` bytes of them, those that were not used lately are
 *          in a file without a name; the index of ids stays in memory, 32 bytes a row.
 * Saving   By delta: a file has the rows that have changed since the file before it, and the ids
 *          that were dropped; a table is read by all files, in order.
 * Copies   A table may also have the rows of another server, whose pulls it does not see: then
 *          pushes make rows too, by the same filter, so that what a table has is a function of
 *          pushes alone (but for rows that nobody has pushed to, which have their first values).
 *
 * Threads  One at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_ID_TABLE_H
#define TD_PS_ID_TABLE_H

#include "tandem/optim.h"

typedef struct td__id_table td__id_table;
typedef bool td__id_filter(const void *user, int64_t id);

typedef struct td__id_table_opts {
    const char *name; /* copied */
    size_t width;
    double std; /* of the initial values */
    uint64_t seed;
    const td_optim_opts *optim; /* one that has a rule for rows */
    uint32_t min_count;         /* 0: 1 */
    uint64_t expire;            /* steps; 0: never */
    size_t memory;              /* bytes of rows; 0: no limit */
    const char *spill;          /* folder of the file; NULL: that of the system */
} td__id_table_opts;

TD_NODISCARD td_status td__id_table_create(const td__id_table_opts *o, td__id_table **out);
void td__id_table_destroy(td__id_table *t); /* NULL is allowed */

/* The table also has copies of other rows than those that are its own, which it saves. NULL: all
 * are its own. */
void td__id_table_own(td__id_table *t, td__id_filter *mine, const void *user);

/* Rows of n ids (n, width). train: ids that have none get one, by the filter; else they read as
 * they would begin. Ids are not negative. */
TD_NODISCARD td_status td__id_table_pull(td__id_table *t, const int64_t *ids, size_t n, bool train,
                                         float *out);
/* Update the rows of n different ids with gradients (n, width), in step `step` (from 1). Ids that
 * have no row are left out. */
TD_NODISCARD td_status td__id_table_push(td__id_table *t, const int64_t *ids, const float *grads,
                                         size_t n, double lr, uint64_t step);
/* Drop what has expired at this step. */
TD_NODISCARD td_status td__id_table_expire(td__id_table *t, uint64_t step);

typedef struct td__id_table_stats {
    size_t rows;    /* that there are */
    size_t waiting; /* ids that were not used often enough */
    size_t spilled; /* rows that are in the file now */
    size_t dropped; /* since the table was made */
} td__id_table_stats;
td__id_table_stats td__id_table_look(const td__id_table *t);

/* Write what has changed since the last save, or all; `step` is kept in the file. */
TD_NODISCARD td_status td__id_table_save(td__id_table *t, const char *path, uint64_t step,
                                         bool all);
/* Take over the rows of a file; mine (optional): of these ids alone. TD_EPROTO with one line if
 * the file is damaged or of another table. Rows that it brings count as saved. */
TD_NODISCARD td_status td__id_table_load(td__id_table *t, const char *path, td__id_filter *mine,
                                         const void *user);

/* Rows and counts of these ids to another process: as many as there is room for, from *place (0:
 * the first) on; *nbytes 0: there are no more. What was given is put in there; rows that were there
 * stay as they come. TD_EPROTO: that is not what was given. */
TD_NODISCARD td_status td__id_table_give(td__id_table *t, td__id_filter *which, const void *user,
                                         size_t *place, void *out, size_t room, size_t *nbytes);
TD_NODISCARD td_status td__id_table_put(td__id_table *t, const void *rows, size_t nbytes);
size_t td__id_table_row_nbytes(const td__id_table *t); /* of one, given */
/* Rows of other ids are dropped, as if there had never been any. */
TD_NODISCARD td_status td__id_table_keep(td__id_table *t, td__id_filter *which, const void *user);

#endif
