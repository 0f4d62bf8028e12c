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
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/cache.h"
#include "data/fit_json.h"
#include "data/data_impl.h"
#include "data/split.h"

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

/* How parts without a file are cut from train, as the options say. */
static td__split split_of(const td__data_opts *o)
{
    return (td__split){.fraction = {0, o->valid_fraction, o->test_fraction},
                       .order = o->order,
                       .folds = o->folds,
                       .fold = o->fold,
                       .seed = o->seed,
                       .own = {true, o->source_opts.valid != NULL, o->source_opts.test != NULL}};
}

/* What sources are to measure is measured on what that leaves; NULL: on the whole train file. */
static const td__split *measured_on(const td__data_opts *o, td__split *room)
{
    *room = split_of(o);
    return o->measured && strcmp(o->measured, "train") == 0 ? room : NULL;
}

td_status td__data_open_source(const td__data_opts *o, td__part part, td__dataset **out)
{
    td__split cut;
    return td__source_open(td__source_find(o->source), &o->source_opts, td__part_name(part), o->fit,
                           measured_on(o, &cut), out);
}

/* Cut the parts that have no file of their own from train. */
static td_status split(td__data *d, const td__data_opts *o)
{
    td__dataset *all = d->part[TD_PART_TRAIN];
    td__split how = split_of(o);
    td_status st = TD_OK;
    bool cuts;

    how.own[TD_PART_VALID] = d->part[TD_PART_VALID] != NULL;
    how.own[TD_PART_TEST] = d->part[TD_PART_TEST] && !d->test_aside;
    uint8_t *role = td__malloc((size_t)all->count + 1);
    int64_t *index = td__calloc((size_t)all->count + 1, sizeof *index);
    if (!role || !index) {
        st = TD_FAIL(TD_ENOMEM, "no memory to split %" PRId64 " samples", all->count);
        goto done;
    }
    TD_TRY_OR(st, done, td__split_roles(&how, all->count, all->in_order, all->gap, role, &cuts));
    for (int p = 0; cuts && p < TD_PART_COUNT; p++) {
        td__dataset *part;
        int64_t n = 0;
        for (int64_t i = 0; i < all->count; i++)
            if (role[i] == p)
                index[n++] = i;
        if (p != TD_PART_TRAIN && (!n || d->part[p]))
            continue;
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
    td__split cut;

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
    return td__source_open(def, &with, td__part_name(TD_PART_TEST), o->fit, measured_on(o, &cut),
                           out);
}

static td_status open_part(td__data *d, const td__data_opts *o, td__part part, td__dataset **out)
{
    if (o->open_part)
        return o->open_part(o->open_user, part, out);
    if (part == TD_PART_TEST && o->input)
        return open_input(d, o, d->def, out);
    return td__data_open_source(o, part, out);
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

td_status td__data_add_map(td__data *d, const td__map_opts *o, const td__fit *fit)
{
    td__map *m;

    TD_TRY(td__map_open(o, d->n_maps, any_part(d), fit, &m));
    d->maps[d->n_maps++] = m;
    for (int p = 0; p < TD_PART_COUNT; p++) {
        td__dataset *view;
        if (!d->part[p] || (d->sample && m->def->keep))
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
            TD_TRY(td__data_add_map(
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
    d->hash_whole = opts->hash_whole;
    /* A program's samples may be others in each epoch: its own stages, before these, may draw. */
    d->draws = draws_parts(opts) || strcmp(opts->source, td__source_memory.name) == 0;
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
        TD_TRY_OR(st, fail, td__data_add_map(d, &opts->maps[i], opts->fit));
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
