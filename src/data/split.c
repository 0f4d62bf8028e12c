/* split.c -- see split.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/split.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "data/permute.h"

/* How many samples a fraction is: at least one, as somebody asked for the part. */
static int64_t fraction_of(int64_t n, double fraction)
{
    int64_t k = (int64_t)llround((double)n * fraction);
    return fraction > 0 && k == 0 ? 1 : k;
}

/* How the samples of a file are cut in parts. */
typedef struct cut {
    int64_t want[TD_PART_COUNT];
    bool in_order; /* parts are ranges, train first, `gap` samples apart */
    int64_t gap, folds, fold;
    uint64_t seed;
} cut;

/* Fold k of n samples: the first n % folds have one more, as scikit-learn's KFold. */
static int64_t fold_begin(const cut *c, int64_t n, int64_t k)
{
    int64_t more = n % c->folds;
    return n / c->folds * k + (k < more ? k : more);
}

static void mark(uint8_t *role, int64_t begin, int64_t end, int64_t n, int part)
{
    begin = begin < 0 ? 0 : begin;
    end = end > n ? n : end;
    if (begin < end)
        memset(role + begin, part, (size_t)(end - begin));
}

/* The fold of [0, n) that is valid, with gaps around. */
static void mark_fold(const cut *c, uint8_t *role, int64_t n)
{
    int64_t begin = fold_begin(c, n, c->fold), end = fold_begin(c, n, c->fold + 1);

    mark(role, begin - c->gap, end + c->gap, n, TD_PART_COUNT);
    mark(role, begin, end, n, TD_PART_VALID);
}

/* train, gap, valid, gap, test */
static void assign_ranges(const cut *c, uint8_t *role, int64_t n)
{
    for (int p = TD_PART_TEST; p >= TD_PART_VALID; p--) {
        if (!c->want[p])
            continue;
        mark(role, n - c->want[p], n, n, p);
        n -= c->want[p];
        mark(role, n - c->gap, n, n, TD_PART_COUNT);
        n -= c->gap;
    }
    if (c->folds)
        mark_fold(c, role, n);
}

static void assign_drawn(const cut *c, uint8_t *role, int64_t n)
{
    int64_t test = c->want[TD_PART_TEST], begin = test, end = test + c->want[TD_PART_VALID];
    td__permute order;

    if (c->folds) {
        begin = test + fold_begin(c, n - test, c->fold);
        end = test + fold_begin(c, n - test, c->fold + 1);
    }
    td__permute_init(&order, n, c->seed, TD__STREAM_SPLIT, 0);
    for (int64_t i = 0; i < test; i++)
        role[td__permute_at(&order, i)] = TD_PART_TEST;
    for (int64_t i = begin; i < end; i++)
        role[td__permute_at(&order, i)] = TD_PART_VALID;
}

/* Sample i goes to part role[i]; TD_PART_COUNT: to none. */
static td_status assign(const cut *c, int64_t n, uint8_t *role)
{
    int64_t taken = 0;

    for (int p = TD_PART_VALID; p <= TD_PART_TEST; p++)
        taken += c->want[p] ? c->want[p] + c->gap : 0;
    if (taken >= n || (c->folds && c->folds > n - taken))
        return TD_FAIL(TD_EINVAL, "%" PRId64 " samples are too few to split off valid and test", n);
    if (c->in_order)
        assign_ranges(c, role, n);
    else
        assign_drawn(c, role, n);
    return TD_OK;
}

static td_status plan(const td__split *s, int64_t n, bool in_order, int64_t gap, cut *out)
{
    *out = (cut){.folds = s->folds, .fold = s->fold, .seed = s->seed};
    out->in_order = in_order || (s->order && strcmp(s->order, "file") == 0);
    out->gap = in_order ? gap : 0;
    if (s->folds && (s->own[TD_PART_VALID] || s->folds < 2 || s->fold < 0 || s->fold >= s->folds))
        return TD_FAIL(TD_EINVAL, "fold %" PRId64 " of %" PRId64 "%s", s->fold, s->folds,
                       s->own[TD_PART_VALID] ? ": the valid part has a file of its own"
                                             : ": expected 0 to one less than data.split.folds");
    for (int p = TD_PART_VALID; p <= TD_PART_TEST; p++)
        if (!s->own[p] && !(p == TD_PART_VALID && s->folds))
            out->want[p] = fraction_of(n, s->fraction[p]);
    return TD_OK;
}

td_status td__split_roles(const td__split *s, int64_t n, bool in_order, int64_t gap, uint8_t *role,
                          bool *cuts)
{
    cut c;

    TD_TRY(plan(s, n, in_order, gap, &c));
    memset(role, TD_PART_TRAIN, (size_t)n);
    *cuts = c.want[TD_PART_VALID] || c.want[TD_PART_TEST] || c.folds;
    return *cuts ? assign(&c, n, role) : TD_OK;
}
