/* store_table.h -- the keys of a store: text to bytes, with who waits for them. A chained hash
 * table that doubles; an entry without a value exists only for its waiters. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_STORE_TABLE_H
#define TD_NET_STORE_TABLE_H

#include "tandem/status.h"

typedef struct td__store_waiter td__store_waiter; /* the server's */

typedef struct td__store_entry {
    struct td__store_entry *next;
    uint64_t hash;
    void *value; /* NULL: none yet; never NULL for an empty value */
    size_t nbytes;
    td__store_waiter *waiters;
    char key[];
} td__store_entry;

typedef struct td__store_table {
    td__store_entry **bucket;
    size_t n_buckets, n_entries, n_bytes;
} td__store_table;

enum { TD_STORE_MOST_KEYS = 1000000 };
#define TD_STORE_MOST_BYTES ((size_t)512 << 20)

/* A zeroed table is empty. */
void td__store_table_fini(td__store_table *t); /* waiters must be gone */
td__store_entry *td__store_find(const td__store_table *t, const char *key); /* NULL: none */
/* Find or add; NULL when there is no memory or the limit is reached. */
td__store_entry *td__store_enter(td__store_table *t, const char *key);
/* Give it a value (copied); false when there is no memory or the limit is reached. */
bool td__store_put(td__store_table *t, td__store_entry *e, const void *value, size_t nbytes);
/* Take the value away; the entry too if nobody waits for it. */
void td__store_drop(td__store_table *t, td__store_entry *e);

#endif
