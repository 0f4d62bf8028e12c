/* tree.c -- see tree.h. A rank has a few segments under way: it receives the next ones while it
 * passes the current one on, so a long array costs its length once, not once for each level. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/algos/tree.h"

#include "coll/exchange.h"

enum { SEGMENT = 128 << 10, AHEAD = 4 };

size_t td__tree_segment(const td__coll_call *c)
{
    size_t each = td__segment_count(c, SEGMENT);
    return each < c->count ? each : c->count ? c->count : 1;
}

td__tree td__tree_binomial(int rank, int size, int root, int list[TD_TREE_CHILDREN])
{
    int v = (rank - root + size) % size;
    td__tree t = {.parent = -1, .children = list};

    for (int d = 1; d < size; d *= 2) {
        if (v & d) {
            t.parent = (v - d + root) % size;
            break;
        }
        if (v + d < size)
            list[t.n_children++] = (v + d + root) % size;
    }
    return t;
}

td_status td__tree_down(td__coll_ctx *x, const td__coll_call *c, td__tree t, void *data)
{
    size_t each = td__tree_segment(c), segments = td__segments(c->count, each);
    size_t ahead = segments < AHEAD ? segments : AHEAD;
    int n = t.n_children;
    td__xfer *recvs = x->xfers, *sends = x->xfers + AHEAD; /* (AHEAD, n) */
    td__span all = {0, c->count};

    for (size_t k = 0; k < ahead && t.parent >= 0; k++) {
        td__span s = td__segment(all, each, k);
        TD_TRY(td__coll_recv(x, x->mesh, &recvs[k], t.parent, td__at(c, data, s.begin),
                             td__nbytes(c, s.count)));
    }
    for (size_t k = 0; k < segments; k++) {
        td__span s = td__segment(all, each, k), later = td__segment(all, each, k + AHEAD);
        td__xfer *to = sends + k % AHEAD * (size_t)n;
        if (t.parent >= 0) {
            TD_TRY(td__coll_wait(x, x->mesh, &recvs[k % AHEAD], 1));
            if (k + AHEAD < segments)
                TD_TRY(td__coll_recv(x, x->mesh, &recvs[k % AHEAD], t.parent,
                                     td__at(c, data, later.begin), td__nbytes(c, later.count)));
        }
        if (k >= AHEAD)
            TD_TRY(td__coll_wait(x, x->mesh, to, n));
        for (int i = n - 1; i >= 0; i--) /* the deepest sub-tree first */
            TD_TRY(td__coll_send(x, x->mesh, &to[i], t.children[i], td__at(c, data, s.begin),
                                 td__nbytes(c, s.count)));
    }
    return td__coll_wait(x, x->mesh, sends, (int)ahead * n);
}

static td_status post_children(td__coll_ctx *x, const td__coll_call *c, td__tree t, size_t each,
                               size_t k, char *scratch)
{
    td__span s = td__segment((td__span){0, c->count}, each, k);
    td__xfer *recvs = x->xfers + (int)(k % 2) * t.n_children;

    for (int i = 0; i < t.n_children; i++)
        TD_TRY(td__coll_recv(x, x->mesh, &recvs[i], t.children[i],
                             scratch + td__nbytes(c, each) * (size_t)i, td__nbytes(c, s.count)));
    return TD_OK;
}

td_status td__tree_up(td__coll_ctx *x, const td__coll_call *c, td__tree t, void *sum)
{
    size_t each = td__tree_segment(c), segments = td__segments(c->count, each);
    int n = t.n_children;
    size_t half = td__align_up(td__nbytes(c, each) * (size_t)(n + 1), 64);
    char *scratch = td__coll_scratch(x, 2 * half); /* (2, n + 1, each) the last for sums */
    td__xfer *up = x->xfers + 2 * n;               /* (2) */

    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "%s: scratch of %d segments", td__coll_name(c->kind),
                       2 * (n + 1));
    up[0] = up[1] = (td__xfer){.is_send = true, .done = true};
    if (segments)
        TD_TRY(post_children(x, c, t, each, 0, scratch));
    for (size_t k = 0; k < segments; k++) {
        td__span s = td__segment((td__span){0, c->count}, each, k);
        char *here = scratch + k % 2 * half;
        const void *own = td__at(c, c->in, s.begin);
        void *into = sum ? td__at(c, sum, s.begin) : here + td__nbytes(c, each) * (size_t)n;
        if (k + 1 < segments)
            TD_TRY(post_children(x, c, t, each, k + 1, scratch + (k + 1) % 2 * half));
        TD_TRY(td__coll_wait(x, x->mesh, x->xfers + (int)(k % 2) * n, n));
        TD_TRY(td__coll_wait(x, x->mesh, &up[k % 2], 1));
        for (int i = 0; i < n; i++) {
            td__reduce(into, own, here + td__nbytes(c, each) * (size_t)i, s.count, c->dtype, c->op);
            own = into;
        }
        if (t.parent >= 0)
            TD_TRY(td__coll_send(x, x->mesh, &up[k % 2], t.parent, own, td__nbytes(c, s.count)));
        else if (n == 0)
            td__coll_copy(into, own, td__nbytes(c, s.count));
    }
    return td__coll_wait(x, x->mesh, up, 2);
}
