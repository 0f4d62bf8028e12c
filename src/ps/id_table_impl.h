/* id_table_impl.h -- what a table by id is made of, for its two files: rows, and where they are
 * written to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_ID_TABLE_IMPL_H
#define TD_PS_ID_TABLE_IMPL_H

#include "optim/row_optim.h"
#include "ps/id_table.h"
#include "ps/row_store.h"

enum { TD__ID_LAST = 0x7fffffff }; /* steps are counted so far */

#define TD__ID_NONE UINT32_MAX
#define TD__ID_GONE (UINT32_MAX - 1) /* it was dropped, and the index is about to be rebuilt */

/* An id, open addressing: all that is known of it lies in one place, since every place that a push
 * looks at costs as much as its arithmetic. */
typedef struct td__id_entry {
    int64_t id;    /* -1: empty */
    uint32_t slot; /* of its row; TD__ID_NONE: it has none yet */
    /* With a row: the step of the last push (0: none), and whether the row has changed since the
     * last save. Without: how often the id was pulled. */
    uint32_t last : 31, dirty : 1;
} td__id_entry;
_Static_assert(sizeof(td__id_entry) == 16, "four entries in a cache line");

struct td__id_table {
    td__id_table_opts o;
    td__row_optim optim;
    td__row_store store;
    size_t stride;       /* floats: width, and as many for each state */
    td__id_entry *index; /* (cap) */
    size_t cap, used;
    size_t slots, rows, dropped;
    uint32_t *free; /* slots of rows that were dropped */
    size_t n_free, room_free;
    int64_t *gone; /* ids that were dropped since the last save */
    size_t n_gone, room_gone;
    td__id_filter *mine; /* NULL: there are no copies */
    const void *mine_user;
};

static inline bool td__ids_has_row(const td__id_entry *e)
{
    return e->id >= 0 && e->slot != TD__ID_NONE && e->slot != TD__ID_GONE;
}

/* Where the id is, or would be. */
td__id_entry *td__ids_find(const td__id_table *t, int64_t id);
/* An index with room for twice the entries; without those of ids that were dropped. */
TD_NODISCARD td_status td__ids_rebuild(td__id_table *t, size_t entries);
/* Room for n more ids. */
TD_NODISCARD td_status td__ids_reserve(td__id_table *t, size_t n);
/* A slot for the id of an entry; its values are the caller's business. */
TD_NODISCARD td_status td__ids_make_slot(td__id_table *t, td__id_entry *e);
/* The index is to be rebuilt afterwards. */
TD_NODISCARD td_status td__ids_drop(td__id_table *t, td__id_entry *e);

#endif
