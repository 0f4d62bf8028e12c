/* scratch_plan.c -- where kernels have their scratch.
 *
 * A step needs its scratch while it runs, and the block of activations is as large as the step with
 * the most of them wants: most of the time there is room in it. So large scratch lies there, in a
 * gap between the values that are alive; all other scratch shares one place, which is as large as
 * the largest of them. Steps on a branch (branches.c) run beside those that follow, and have a
 * shared place of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/program_impl.h"

/* Less is not worth a search. Libraries want whole lines of memory. */
enum { LARGE = 1 << 20, ALIGN = 512 };

typedef struct held {
    size_t begin, end;
    int first, last; /* node ids, both included */
} held;

typedef struct room {
    td_program *p;
    held *all; /* in order of where they begin */
    int n;
} room;

static int by_begin(const void *a, const void *b)
{
    const held *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void find_values(room *r, const int *last)
{
    const td_graph *g = r->p->g;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out && !td__op(n->op)->is_view; k++) {
            const td__location *l = td__location_of(r->p, n, k);
            if (!td__is_leaf(n) && l->space == TD_SPACE_ACTIVATION)
                r->all[r->n++] = (held){l->offset, l->offset + td__desc_bytes(&n->out[k]), i,
                                        last[i * TD_MAX_OUT + k]};
        }
    }
    qsort(r->all, (size_t)r->n, sizeof *r->all, by_begin);
}

/* Put s into the first gap that it fits in; false: there is none. */
static bool fit(const room *r, held *s)
{
    size_t nbytes = s->end, at = 0;
    for (int i = 0; i < r->n; i++) {
        const held *v = &r->all[i];
        if (v->first > s->last || s->first > v->last || v->end <= at)
            continue;
        if (v->begin >= at + nbytes)
            break;
        at = td__align_up(v->end, ALIGN);
    }
    s->begin = at;
    s->end = at + nbytes;
    return s->end <= r->p->space_bytes[TD_SPACE_ACTIVATION];
}

static void hold(room *r, held s)
{
    int k = r->n++;
    for (; k > 0 && r->all[k - 1].begin > s.begin; k--)
        r->all[k] = r->all[k - 1];
    r->all[k] = s;
}

/* Those of branches come first: they are in the way of all others that run meanwhile. */
static void place(room *r, bool branch)
{
    td_program *p = r->p;
    size_t *shared = branch ? &p->beside_scratch : &p->scratch;
    for (int i = 0; i < p->n_steps; i++) {
        td__step *step = &p->steps[i];
        int id = step->node->id, done = td__beside(p, step->node);
        size_t nbytes = step->kernel.scratch;
        if ((done != 0) != branch)
            continue;
        held s = {.end = nbytes, .first = id, .last = done ? done : id};
        step->scratch_in_block = r->all && nbytes >= LARGE && fit(r, &s);
        step->scratch_offset = step->scratch_in_block ? s.begin : 0;
        if (step->scratch_in_block && branch)
            hold(r, s);
        if (!step->scratch_in_block && nbytes > *shared)
            *shared = nbytes;
    }
}

td_status td__plan_scratch(td_program *p, bool no_reuse)
{
    size_t n = (size_t)p->g->n_nodes * TD_MAX_OUT + 1;
    room r = {.p = p};
    int *last = NULL;
    if (!no_reuse) { /* else values keep their memory to the end */
        last = td__calloc(n, sizeof *last);
        r.all = td__calloc(n + (size_t)p->n_steps, sizeof *r.all);
        if (!last || !r.all) {
            td__free(last);
            td__free(r.all);
            return TD_FAIL(TD_ENOMEM, "no memory to plan %d nodes", p->g->n_nodes);
        }
        td__value_lives(p, last);
        find_values(&r, last);
    }
    place(&r, true);
    place(&r, false);
    td__free(last);
    td__free(r.all);
    return TD_OK;
}
