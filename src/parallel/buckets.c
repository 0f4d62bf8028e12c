/* buckets.c -- see buckets.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/buckets.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"

/* Where pieces of a range that is cut may begin: as params do. */
enum { UNIT = TD_ALIGN_FLOATS };

static void add(td__buckets *b, size_t begin, size_t end, bool exact)
{
    if (begin < end)
        b->at[b->n++] = (td__bucket){begin, end - begin, exact};
}

static size_t pieces_of(size_t count, size_t most)
{
    return (count + most - 1) / most;
}

/* Equal pieces of at most `most` elements, a multiple of UNIT. */
static void add_pieces(td__buckets *b, size_t begin, size_t end, size_t most, bool exact)
{
    size_t n = pieces_of(end - begin, most), units = pieces_of(end - begin, UNIT);
    for (size_t i = 0; i < n; i++) {
        size_t from = begin + units * i / n * UNIT, to = begin + units * (i + 1) / n * UNIT;
        add(b, from, i + 1 == n ? end : to, exact);
    }
}

/* What a bucket may have whose begin is so far from the end: half of it. */
static size_t most_here(size_t left, size_t most)
{
    size_t least = most / (1 << TD__BUCKET_HALVINGS), half = left / 2;
    return half > most ? most : half < least ? least : half;
}

/* An upper bound: buckets end where params do, or are pieces of one. */
static size_t room_for(const td_params *ps, size_t most)
{
    return 3 * (size_t)td_params_count(ps) + pieces_of(td__params_total(ps), most) + 4;
}

/* The part of `r`, of one param, that this rank has: all, nothing or the pieces that it has. */
static td__param_range own_part(const td__param_range *own, int n_own, td__param_range r)
{
    for (int i = 0; i < n_own; i++) {
        size_t begin = own[i].begin > r.begin ? own[i].begin : r.begin;
        size_t end = own[i].end < r.end ? own[i].end : r.end;
        if (begin < end)
            return (td__param_range){begin, end};
    }
    return own ? (td__param_range){r.end, r.end} : r;
}

/* Statistics of states, which lie behind the dense gradients. */
static void add_states(td__buckets *b, const td_params *ps, const td__param_range *own, int n_own,
                       size_t most)
{
    size_t dense = td__params_dense(ps), trainable = td_params_trainable(ps);
    if (!own)
        add_pieces(b, dense, dense + td__params_total(ps) - trainable, most, true);
    for (int i = 0; i < n_own; i++)
        if (own[i].begin >= trainable)
            add_pieces(b, own[i].begin - trainable + dense, own[i].end - trainable + dense, most,
                       true);
}

td_status td__buckets_init(td__buckets *b, const td_params *ps, const td__param_range *own,
                           int n_own, size_t nbytes)
{
    size_t most = td__align_up((nbytes ? nbytes : TD__BUCKET_NBYTES) / sizeof(float), UNIT);
    size_t begin = 0, end = 0, dense = td__params_dense(ps);
    most = most < UNIT ? UNIT : most;
    *b = (td__buckets){.at = td__calloc(room_for(ps, most), sizeof *b->at)};
    if (!b->at)
        return TD_FAIL(TD_ENOMEM, "no memory for a list of buckets");
    for (int i = 0; i < td_params_count(ps) && end < dense; i++) {
        td_param_info info = td_params_info(ps, i);
        size_t next = info.offset + td__align_up(info.count, UNIT);
        td__param_range all = {info.offset, info.offset + info.count};
        td__param_range part = own_part(own, n_own, all);
        if (part.begin != all.begin || part.end != all.end) {
            add(b, begin, end, false);
            add_pieces(b, part.begin, part.end, most, false);
            begin = end = next;
            continue;
        }
        if (next - begin > most_here(dense - begin, most)) {
            add(b, begin, end, false); /* what came before */
            begin = end;
        }
        if (next - begin > most) {
            add_pieces(b, begin, next, most, false);
            begin = next;
        }
        end = next;
    }
    add(b, begin, end, false);
    add_states(b, ps, own, n_own, most);
    return TD_OK;
}

void td__buckets_fini(td__buckets *b)
{
    td__free(b->at);
    *b = (td__buckets){.n = 0};
}
