/* order.h -- an ordered set of structs in their owner's storage, with ranks: a treap. Queues, users
 * and timers of the scheduler are such sets.
 *
 * A member of a struct is its node in one set. `before` says which of two comes first; it must be
 * a total order that does not change while both are in the set. Nothing allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SCHED_ORDER_H
#define TD_SERVICE_SCHED_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/types.h"

typedef struct td__order_node td__order_node;
struct td__order_node {
    td__order_node *left, *right, *parent;
    uint32_t weight; /* of the heap over nodes; 0: not in a set */
    int count;       /* nodes below and itself */
};

typedef struct td__order {
    td__order_node *root;
    bool (*before)(const td__order_node *a, const td__order_node *b);
    uint64_t seed; /* of weights */
} td__order;

/* The struct whose `member` is at n. */
#define TD_ORDER_OF(n, type, member) ((type *)(void *)((char *)(n)-offsetof(type, member)))

static inline bool td__order_has(const td__order_node *n)
{
    return n->weight != 0;
}

static inline int td__order_count(const td__order *o)
{
    return o->root ? o->root->count : 0;
}

void td__order_insert(td__order *o, td__order_node *n);
void td__order_remove(td__order *o, td__order_node *n); /* one that is in none is allowed */
td__order_node *td__order_first(const td__order *o);
td__order_node *td__order_next(const td__order_node *n);
/* How many come before n, which is in the set. */
int td__order_rank(const td__order_node *n);

#endif
