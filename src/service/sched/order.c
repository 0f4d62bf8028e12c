/* order.c -- a treap with parents and counts; see order.h.
 *
 * Binary search tree by `before`, and heap by weights that look random: its depth is logarithmic
 * whatever the order of insertion. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sched/order.h"

static int count_of(const td__order_node *n)
{
    return n ? n->count : 0;
}

static void recount(td__order_node *n)
{
    n->count = 1 + count_of(n->left) + count_of(n->right);
}

/* Splitmix64: the same sequence in every run. */
static uint32_t next_weight(td__order *o)
{
    uint64_t z = o->seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32) | 1;
}

static void replace_child(td__order *o, td__order_node *parent, const td__order_node *old,
                          td__order_node *child)
{
    if (!parent)
        o->root = child;
    else if (parent->left == old)
        parent->left = child;
    else
        parent->right = child;
    if (child)
        child->parent = parent;
}

/* n takes the place of its parent, which becomes its child. */
static void rotate_up(td__order *o, td__order_node *n)
{
    td__order_node *p = n->parent, *moved;

    replace_child(o, p->parent, p, n);
    if (p->left == n) {
        moved = n->right;
        p->left = moved;
        n->right = p;
    } else {
        moved = n->left;
        p->right = moved;
        n->left = p;
    }
    p->parent = n;
    if (moved)
        moved->parent = p;
    recount(p);
    recount(n);
}

void td__order_insert(td__order *o, td__order_node *n)
{
    td__order_node *parent = NULL, **at = &o->root;

    while (*at) {
        parent = *at;
        parent->count++;
        at = o->before(n, parent) ? &parent->left : &parent->right;
    }
    *n = (td__order_node){.parent = parent, .weight = next_weight(o), .count = 1};
    *at = n;
    while (n->parent && n->parent->weight < n->weight)
        rotate_up(o, n);
}

void td__order_remove(td__order *o, td__order_node *n)
{
    if (!td__order_has(n))
        return;
    while (n->left && n->right)
        rotate_up(o, n->left->weight > n->right->weight ? n->left : n->right);
    td__order_node *parent = n->parent;
    replace_child(o, parent, n, n->left ? n->left : n->right);
    for (; parent; parent = parent->parent)
        parent->count--;
    *n = (td__order_node){0};
}

td__order_node *td__order_first(const td__order *o)
{
    td__order_node *n = o->root;

    while (n && n->left)
        n = n->left;
    return n;
}

td__order_node *td__order_next(const td__order_node *n)
{
    if (n->right) {
        td__order_node *down = n->right;
        while (down->left)
            down = down->left;
        return down;
    }
    while (n->parent && n->parent->right == n)
        n = n->parent;
    return n->parent;
}

int td__order_rank(const td__order_node *n)
{
    int rank = count_of(n->left);

    for (; n->parent; n = n->parent)
        if (n->parent->right == n)
            rank += 1 + count_of(n->parent->left);
    return rank;
}
