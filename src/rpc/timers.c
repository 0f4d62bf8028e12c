/* timers.c -- the pairing heap. A timer's children hang in a list: `child` is the first, `next` the
 * following sibling, `prev` the preceding sibling or, of the first child, the parent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/timers.h"

/* Make one heap of two: the later root becomes the first child of the earlier. */
static td__timer *meld(td__timer *a, td__timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->at < a->at) {
        td__timer *t = a;
        a = b;
        b = t;
    }
    b->next = a->child;
    if (b->next)
        b->next->prev = b;
    b->prev = a;
    a->child = b;
    a->next = a->prev = NULL;
    return a;
}

/* Make one heap of a list of siblings: pairs from left to right, then the pairs from right to left.
 * The pairs wait in a list that is linked backwards by `prev`. */
static td__timer *meld_siblings(td__timer *first)
{
    td__timer *pairs = NULL, *root = NULL;

    while (first) {
        td__timer *a = first, *b = a->next;

        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->prev = pairs;
        pairs = a;
    }
    while (pairs) {
        td__timer *pair = pairs;

        pairs = pair->prev;
        pair->prev = NULL;
        root = meld(root, pair);
    }
    return root;
}

void td__timers_add(td__timer **root, td__timer *t)
{
    t->child = t->next = t->prev = NULL;
    *root = meld(*root, t);
}

void td__timers_remove(td__timer **root, td__timer *t)
{
    td__timer *below = meld_siblings(t->child);

    if (*root == t) {
        *root = below;
    } else {
        if (t->prev->child == t)
            t->prev->child = t->next;
        else
            t->prev->next = t->next;
        if (t->next)
            t->next->prev = t->prev;
        *root = meld(*root, below);
    }
    t->child = t->next = t->prev = NULL;
}
