/* rank_tree.c -- see rank_tree.h. The list of additions is what td__grad_plan makes of a stack of
 * all ranks' partials, each with an address that stands for its slot. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rank_tree.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

/* No sub-tree of a range is cut off: what the last micro-batches pass up is left to the whole sum.
 * */
static const int ENDLESS = 1 << 30;

int td__work_partials(td__work_partition d, int micro_batches, int rank, td__subtree out[64])
{
    td__subtree trees[64];
    td__micro_batch_range r = td__work_micro_batches(d, micro_batches, rank);
    return td__micro_batch_subtrees(ENDLESS, r.begin, r.end, out ? out : trees);
}

static int most_partials(const td__rank_tree *t, int batches)
{
    int most = 0;
    for (int r = 0; r < t->size; r++) {
        int n = td__work_partials(t->partition, batches * t->micro_batches, r, NULL);
        most = n > most ? n : most;
    }
    return most;
}

td_status td__rank_tree_init(td__rank_tree *t, td__work_partition partition, int micro_batches,
                             int accumulate)
{
    int size = partition.size;
    *t = (td__rank_tree){.partition = partition,
                         .size = size,
                         .micro_batches = micro_batches,
                         .accumulate = accumulate};
    for (int m = 1; m <= accumulate; m++) {
        int n = most_partials(t, m);
        t->slots = n > t->slots ? n : t->slots;
    }
    t->tags = td__calloc((size_t)t->slots * (size_t)size, sizeof *t->tags);
    if (!t->tags)
        return TD_FAIL(TD_ENOMEM, "no memory for the partial sums of %d ranks", size);
    return TD_OK;
}

void td__rank_tree_fini(td__rank_tree *t)
{
    td__free(t->tags);
    td__free(t->adds);
    *t = (td__rank_tree){.size = 0};
}

/* Has any micro-batch of the sub-tree a row? Only the last batch may have fewer rows than
 * micro-batches. */
static bool has_rows(const td__rank_tree *t, const td__subtree *s)
{
    int64_t first = (int64_t)(t->batches - 1) * t->micro_batches, begin = s->begin;
    int64_t end = begin + ((int64_t)1 << s->level);
    if (begin < first)
        return true;
    return t->last_rows * (end - first) / t->micro_batches >
           t->last_rows * (begin - first) / t->micro_batches;
}

static td__rank_slot slot_of(const td__rank_tree *t, const float *tag)
{
    int i = (int)(tag - t->tags);
    return (td__rank_slot){i % t->size, i / t->size};
}

static td_status add_all(td__rank_tree *t, const td__grad_sum *sum)
{
    if (t->n_adds + sum->n_ops > t->max_adds) {
        int room = 2 * (t->n_adds + sum->n_ops);
        td__rank_add *more = td__realloc(t->adds, (size_t)room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for %d sums", room);
        t->adds = more;
        t->max_adds = room;
    }
    for (int i = 0; i < sum->n_ops; i++)
        t->adds[t->n_adds++] =
            (td__rank_add){slot_of(t, sum->op[i].dst), slot_of(t, sum->op[i].src)};
    return TD_OK;
}

static td_status make_plan(td__rank_tree *t)
{
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack all = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    td__subtree trees[64];

    t->n_adds = 0;
    t->rounds = most_partials(t, t->batches);
    for (int r = 0; r < t->size; r++) {
        int n = td__work_partials(t->partition, t->batches * t->micro_batches, r, trees);
        for (int i = 0; i < n; i++) {
            TD_ASSERT(all.n < all.room, "%d partials", all.n);
            all.at[all.n++] =
                (td__partial){.tree = trees[i],
                              .weight = 1,
                              .dense = has_rows(t, &trees[i]) ? t->tags + i * t->size + r : NULL};
            td__grad_plan(&all, false, &sum);
            TD_TRY(add_all(t, &sum));
        }
    }
    td__grad_plan(&all, true, &sum);
    TD_TRY(add_all(t, &sum));
    TD_ASSERT(all.n == 1 && all.at[0].dense, "%d partials are left", all.n);
    t->total = slot_of(t, all.at[0].dense);
    return TD_OK;
}

td_status td__rank_tree_plan(td__rank_tree *t, int batches, int64_t last_rows, bool *changed)
{
    TD_ASSERT(batches >= 1 && batches <= t->accumulate && last_rows >= 1, "%d batches", batches);
    *changed = t->batches != batches || t->last_rows != last_rows;
    if (!*changed)
        return TD_OK;
    t->batches = batches;
    t->last_rows = last_rows;
    td_status st = make_plan(t);
    if (st)
        t->batches = 0;
    return st;
}
