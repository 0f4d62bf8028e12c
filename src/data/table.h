/* table.h -- a dataset whose fields are arrays in memory; what most sources end up as. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_TABLE_H
#define TD_DATA_TABLE_H

#include "base/alloc.h"
#include "base/file.h"
#include "data/dataset.h"

typedef struct td__table {
    td__dataset head;
    char *column[TD__MAX_FIELDS];  /* (count, sample): own, unless borrowed */
    size_t nbytes[TD__MAX_FIELDS]; /* of one sample */
    bool borrowed[TD__MAX_FIELDS]; /* lies in map */
    td__arena *arena;              /* names of classes, and what the source likes; may be NULL */
    td__file_map map;              /* closed with the table */
} td__table;

/* An empty table without fields. */
TD_NODISCARD td_status td__table_create(int64_t count, td__table **out);
static inline void td__table_destroy(td__table *t)
{
    td__dataset_destroy(t ? &t->head : NULL);
}
/* Append a field with zeros. TD_EINVAL if that is more bytes than memory can have. */
TD_NODISCARD td_status td__table_add(td__table *t, const td__field *f);
/* Append a field over memory that lives as long as the table (its map, its arena). */
TD_NODISCARD td_status td__table_add_borrowed(td__table *t, const td__field *f, const void *data);

#endif
