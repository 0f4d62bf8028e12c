/* rewrite_unsplit.c -- the gradient of a split is a concatenation.
 *
 * A value that was cut in slices gets its gradient back as a sum of slice_backs, each zero but for
 * its own part: q, k and v of one projection are the usual case. Where the slices lie side by side
 * and cover the whole axis, the sum is the concatenation of their gradients, which reads and writes
 * every element once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/rewrite.h"

/* The leaves of a tree of sums whose inner nodes nobody else reads, if all are slice_backs. */
typedef struct slices {
    const td_node *part[TD_MAX_IN];
    int n;
} slices;

static bool collect(const td_node *n, const int *uses, bool is_top, slices *s)
{
    if (n->op == TD_OP_ADD && (is_top || uses[n->id] == 1))
        return collect(n->in[0], uses, false, s) && collect(n->in[1], uses, false, s);
    if (n->op != TD_OP_SLICE_BACK || s->n == TD_MAX_IN)
        return false;
    int at = s->n++;
    const td_attr_slice *a = n->attr;
    while (at > 0 && ((const td_attr_slice *)s->part[at - 1]->attr)->start > a->start) {
        s->part[at] = s->part[at - 1];
        at--;
    }
    s->part[at] = n;
    return true;
}

/* Do the slices, in order of their starts, tile one axis? */
static bool tile(const slices *s)
{
    const td_attr_slice *first = s->part[0]->attr;
    int64_t next = 0;
    for (int i = 0; i < s->n; i++) {
        const td_attr_slice *a = s->part[i]->attr;
        if (a->axis != first->axis || a->step != 1 || a->start != next)
            return false;
        next = a->start + s->part[i]->in[0]->out[0].shape.dim[a->axis];
    }
    return next == first->input.dim[first->axis];
}

td_status td__rewrite_unsplit(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    int *uses = td__use_counts(g);
    if (!uses)
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to count uses");
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        slices s = {.n = 0};
        if (n->op != TD_OP_ADD || !collect(n, uses, true, &s) || !tile(&s)) {
            td__rewrite_copy(&rw, n);
            continue;
        }
        td_node *in[TD_MAX_IN];
        for (int k = 0; k < s.n; k++)
            in[k] = rw.map[s.part[k]->in[0]->id];
        rw.map[i] = td_concat(rw.to, in, s.n, ((const td_attr_slice *)s.part[0]->attr)->axis);
    }
    td__free(uses);
    return td__rewrite_end(&rw, out);
}
