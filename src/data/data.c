/* data.c -- the data of a job: parts of a source, split, filtered and mapped.
 *
 *     source part ->  subset (split by fraction)  ->  stages in order  ->  part
 *                                                     (cache before the first that draws)
 *
 * Every box is a dataset over the one before it. Splits come before stages so that what a stage
 * measures, it measures on train alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/cache.h"
#include "data/fit_json.h"
#include "data/data_impl.h"
#include "data/permute.h"

const char *td__part_name(td__part part)
{
    static const char *const NAMES[TD_PART_COUNT] = {"train", "valid", "test"};
    return NAMES[part];
}

const char *td__data_source(const td__data *d)
{
    return d->source;
}

td__dataset *td__data_part(td__data *d, td__part part)
{
    return d->part[part];
}

td__dataset *td__data_source_part(td__data *d, td__part part)
{
    return d->source_part[part];
}

bool td__data_draws(const td__data *d)
{
    return d->draws;
}

/* The train part; where only new samples were opened, those. */
static td__dataset *any_part(const td__data *d)
{
    return d->part[TD_PART_TRAIN] ? d->part[TD_PART_TRAIN] : d->part[TD_PART_TEST];
}

int td__data_fields(const td__data *d, const td__field **out)
{
    const td__dataset *any = any_part(d);

    *out = any->fields;
    return any->n_fields;
}

/* The new top of a part's chain. */
static void push(td__data *d, td__part part, td__dataset *top)
{
    TD_ASSERT(d->n_owned < TD__MAX_OWNED, "%d datasets", d->n_owned);
    d->owned[d->n_owned++] = top;
    d->part[part] = top;
}

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
    memset(role, TD_PART_TRAIN, (size_t)n);
    if (c->in_order)
        assign_ranges(c, role, n);
    else
        assign_drawn(c, role, n);
    return TD_OK;
}

static td_status plan_cut(const td__data *d, const td__data_opts *o, cut *out)
{
    const td__dataset *all = d->part[TD_PART_TRAIN];
    const double fraction[TD_PART_COUNT] = {0, o->folds ? 0 : o->valid_fraction, o->test_fraction};

    *out = (cut){.folds = o->folds, .fold = o->fold, .seed = o->seed};
    out->in_order = all->in_order || (o->order && strcmp(o->order, "file") == 0);
    out->gap = all->in_order ? all->gap : 0;
    if (o->folds && (d->part[TD_PART_VALID] || o->folds < 2 || o->fold < 0 || o->fold >= o->folds))
        return TD_FAIL(TD_EINVAL, "fold %" PRId64 " of %" PRId64 "%s", o->fold, o->folds,
                       d->part[TD_PART_VALID] ? ": the valid part has a file of its own"
                                              : ": expected 0 to one less than data.split.folds");
    for (int p = TD_PART_VALID; p <= TD_PART_TEST; p++)
        if (!d->part[p] || (p == TD_PART_TEST && d->test_aside))
            out->want[p] = fraction_of(all->count, fraction[p]);
    return TD_OK;
}

/* Cut the parts that have no file of their own from train. */
static td_status split(td__data *d, const td__data_opts *o)
{
    td__dataset *all = d->part[TD_PART_TRAIN];
    td_status st = TD_OK;
    cut c;

    TD_TRY(plan_cut(d, o, &c));
    if (!c.want[TD_PART_VALID] && !c.want[TD_PART_TEST] && !c.folds)
        return TD_OK;
    uint8_t *role = td__malloc((size_t)all->count + 1);
    int64_t *index = td__calloc((size_t)all->count + 1, sizeof *index);
    if (!role || !index) {
        st = TD_FAIL(TD_ENOMEM, "no memory to split %" PRId64 " samples", all->count);
        goto done;
    }
    TD_TRY_OR(st, done, assign(&c, all->count, role));
    for (int p = 0; p < TD_PART_COUNT; p++) {
        td__dataset *part;
        int64_t n = 0;
        bool wanted = c.want[p] || (p == TD_PART_VALID && c.folds);
        if (p != TD_PART_TRAIN && (!wanted || d->part[p]))
            continue;
        for (int64_t i = 0; i < all->count; i++)
            if (role[i] == p)
                index[n++] = i;
        TD_TRY_OR(st, done, td__dataset_subset(all, index, n, &part));
        push(d, (td__part)p, part);
    }
done:
    td__free(index);
    td__free(role);
    return st;
}

static bool same_fields(const td__dataset *a, const td__dataset *b)
{
    if (a->n_fields != b->n_fields)
        return false;
    for (int f = 0; f < a->n_fields; f++)
        if (strcmp(a->fields[f].name, b->fields[f].name) != 0 ||
            a->fields[f].dtype != b->fields[f].dtype ||
            a->fields[f].classes != b->fields[f].classes ||
            !td_shape_equal(&a->fields[f].shape, &b->fields[f].shape))
            return false;
    return true;
}

/* New samples as the test part. */
static td_status open_input(td__data *d, const td__data_opts *o, const td__source_def *def,
                            td__dataset **out)
{
    td__source_opts with = o->source_opts;

    if (!strstr(def->reads, "test"))
        return TD_FAIL(TD_EINVAL, "the source %s cannot read %s: it has no file for its test part",
                       def->name, o->input);
    if (!with.test && !o->fit) {
        td__dataset *own = NULL;
        td_status st = def->open(&with, td__part_name(TD_PART_TEST), &own);
        td__dataset_destroy(own);
        if (st && st != TD_ENOTSUP)
            return st;
        d->test_aside = st == TD_ENOTSUP;
    }
    with.test = o->input;
    with.unlabelled = !o->input_labelled;
    return td__source_open(def, &with, td__part_name(TD_PART_TEST), o->fit, out);
}

static td_status open_part(td__data *d, const td__data_opts *o, td__part part, td__dataset **out)
{
    if (o->open_part)
        return o->open_part(o->open_user, part, out);
    if (part == TD_PART_TEST && o->input)
        return open_input(d, o, d->def, out);
    return td__source_open(d->def, &o->source_opts, td__part_name(part), o->fit, out);
}

static td_status open_parts(td__data *d, const td__data_opts *o)
{
    d->def = td__source_find(o->source);
    if (!d->def)
        return TD_FAIL(TD_EINVAL, "unknown data source '%s'", o->source);
    for (int p = o->fit && o->input ? TD_PART_TEST : 0; p < TD_PART_COUNT; p++) {
        td__dataset *part = NULL;
        td_status st = open_part(d, o, (td__part)p, &part);
        if (st == TD_ENOTSUP && p != TD_PART_TRAIN)
            continue;
        TD_TRY(st);
        push(d, (td__part)p, part);
        d->source_part[p] = part;
        if (!same_fields(any_part(d), part))
            return TD_FAIL(TD_EINVAL, "%s: the samples of %s have other fields than those of train",
                           o->source, td__part_name((td__part)p));
    }
    if (!any_part(d))
        return TD_FAIL(TD_EINVAL, "%s: there are no samples", o->source);
    return o->fit ? td__fit_check_fields(o->fit, any_part(d)) : TD_OK;
}

/* One stage over all parts. */
static td_status add_map(td__data *d, const td__map_opts *o, const td__fit *fit)
{
    td__map *m;

    TD_TRY(td__map_open(o, d->n_maps, any_part(d), fit, &m));
    d->maps[d->n_maps++] = m;
    for (int p = 0; p < TD_PART_COUNT; p++) {
        td__dataset *view;
        if (!d->part[p])
            continue;
        TD_TRY(td__map_view(m, d->part[p], &view));
        push(d, (td__part)p, view);
    }
    return TD_OK;
}

static td_status add_cache(td__data *d, const td__data_opts *o)
{
    for (int p = 0; p < TD_PART_COUNT; p++) {
        td__dataset *cached;
        if (!d->part[p])
            continue;
        TD_TRY(td__cache_open(d->part[p], o, (td__part)p, &cached));
        push(d, (td__part)p, cached);
    }
    return TD_OK;
}

/* Bytes that no stage has turned into numbers: models want 0 .. 1. */
static td_status scale_bytes(td__data *d)
{
    const td__dataset *any = any_part(d);

    for (int f = 0; f < any->n_fields; f++)
        if (any->fields[f].dtype == TD_U8 && any->fields[f].classes == 0)
            TD_TRY(add_map(
                d, &(td__map_opts){.name = "normalize", .field = any->fields[f].name, .b = 1},
                NULL));
    return TD_OK;
}

/* Ids beyond those of train, which a model has no rows for. */
static td_status check_known(const td__data *d)
{
    for (int p = 0; p < TD_PART_COUNT; p++)
        for (int f = 0; d->part[p] && f < d->part[p]->n_fields; f++) {
            const td__field *at = &d->part[p]->fields[f];
            if (at->unknown)
                return TD_FAIL(TD_EINVAL,
                               "%s: id %" PRId64 " of %s does not occur in train (numbers, not "
                               "ids, are for the map stage normalize)",
                               d->source, at->unknown, at->name);
        }
    return TD_OK;
}

/* Does the source itself draw? Its images are then kept as they are decoded, below that. */
static bool draws_parts(const td__data_opts *o)
{
    return o->source_opts.resize && !strcmp(o->source_opts.resize, "random");
}

static td_status check_opts(const td__data_opts *o)
{
    double v = o->valid_fraction, t = o->test_fraction;

    if (!o->source)
        return TD_FAIL(TD_EINVAL, "the data has no source");
    if (!(v >= 0) || !(t >= 0) || !(v + t < 1))
        return TD_FAIL(TD_EINVAL,
                       "fractions %g for valid and %g for test: expected 0 or more, and "
                       "less than 1 together",
                       v, t);
    if (o->cache && draws_parts(o) && strcmp(o->cache, "memory") != 0)
        return TD_FAIL(TD_EINVAL,
                       "data.cache: %s: not with data.resize: random, which takes "
                       "another part of an image in each epoch: `memory` keeps whole "
                       "images",
                       o->cache);
    if (o->n_maps < 0 || o->n_maps > TD__MAX_MAPS)
        return TD_FAIL(TD_EINVAL, "%d map stages: at most %d", o->n_maps, TD__MAX_MAPS);
    return TD_OK;
}

td_status td__data_open(const td__data_opts *opts, td__data **out)
{
    td_status st = TD_OK;
    td__data_opts with = *opts;

    *out = NULL;
    TD_TRY(check_opts(opts));
    with.source_opts.keep_images = opts->cache && !opts->input && draws_parts(opts);
    bool cached = !opts->cache || opts->input || with.source_opts.keep_images;
    opts = &with;
    td__data *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for data");
    snprintf(d->source, sizeof d->source, "%s", opts->source);
    d->draws = draws_parts(opts);
    TD_TRY_OR(st, fail, open_parts(d, opts));
    if (d->part[TD_PART_TRAIN])
        TD_TRY_OR(st, fail, split(d, opts));
    for (int i = 0; i < opts->n_maps; i++) {
        const td__map_def *def = td__map_find(opts->maps[i].name), *own = opts->maps[i].def;
        d->draws = d->draws || (def && def->draws) || (own && own->draws);
        if (!cached && def && def->draws) {
            TD_TRY_OR(st, fail, add_cache(d, opts));
            cached = true;
        }
        TD_TRY_OR(st, fail, add_map(d, &opts->maps[i], opts->fit));
    }
    /* Bytes are cached as bytes: a fourth of the memory, and scaling costs little. */
    if (!cached)
        TD_TRY_OR(st, fail, add_cache(d, opts));
    TD_TRY_OR(st, fail, scale_bytes(d));
    TD_TRY_OR(st, fail, check_known(d));
    for (int p = 0; p < TD_PART_COUNT; p++)
        if (d->part[p] && d->part[p]->count == 0) {
            st = TD_FAIL(TD_EINVAL, "%s: part %s has no samples", opts->source,
                         td__part_name((td__part)p));
            goto fail;
        }
    *out = d;
    return TD_OK;
fail:
    td__data_close(d);
    return st;
}

td_status td__data_of(const char *source, td__dataset *const part[TD_PART_COUNT], td__data **out)
{
    td__data *d = *out = td__calloc(1, sizeof *d);

    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for data");
    snprintf(d->source, sizeof d->source, "%s", source);
    memcpy(d->part, part, sizeof d->part);
    d->draws = true;
    return TD_OK;
}

void td__data_close(td__data *d)
{
    if (!d)
        return;
    while (d->n_owned)
        td__dataset_destroy(d->owned[--d->n_owned]);
    while (d->n_maps)
        td__map_close(d->maps[--d->n_maps]);
    td__free(d);
}
