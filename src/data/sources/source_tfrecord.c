/* source_tfrecord.c -- TFRecord files of tf.train.Example messages. Features of numbers
 * (data.columns, by default all but the label, by their names) stand side by side in x; a feature
 * of bytes that is an image (image/encoded) gives images. The label is data.label, else `label`,
 * `image/class/label` or `y`. The first record decides what features are; all must be like it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/fit_json.h"
#include "data/image/images.h"
#include "data/shards.h"
#include "data/table.h"
#include "data/format/tfrecord.h"

enum { MOST_FEATURES = 4096, MOST_CLASSES = 1 << 24, MOST_WIDTH = 1 << 24 };

#define EXPECTED "a TFRecord file of tf.train.Example"

typedef struct column {
    char *name;
    td__example_kind kind;
    int64_t count, at; /* values, and where they stand in x */
} column;

/* A part while it is read. */
typedef struct reader {
    const td__source_opts *o;
    const char *name; /* of the file, in texts */
    td__arena *arena;
    td__file_map *maps;
    int n_maps;
    column *columns; /* (n): sorted by name; of images the one */
    int n;
    column label;
    bool images, unlabelled;
    int64_t width, rows, classes;
    td__image_list list; /* images */
    td__table *table;    /* numbers; NULL in the first pass */
    /* The record at hand. */
    int64_t number;
    int found;
    bool labelled, wrong;
    double label_value;
    double *values; /* (width) */
} reader;

static bool is_name(const td__example_feature *f, const char *name)
{
    return strlen(name) == f->name_nbytes && !memcmp(f->name, name, f->name_nbytes);
}

/* ---- The first record ------------------------------------------------------------------------ */

static bool see_first(void *user, const td__example_feature *f)
{
    reader *r = user;

    if (r->n == MOST_FEATURES || f->name_nbytes > 1024)
        return false;
    r->columns[r->n] = (column){.kind = f->kind, .count = f->count};
    r->columns[r->n].name = td__arena_printf(r->arena, "%.*s", (int)f->name_nbytes, f->name);
    return r->columns[r->n++].name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const column *)a)->name, ((const column *)b)->name);
}

static const column *find_column(const reader *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->columns[i].name, name))
            return &r->columns[i];
    return NULL;
}

static td_status choose_label(reader *r)
{
    static const char *const USUAL[] = {"label", "image/class/label", "y"};
    const column *c = r->o->label ? find_column(r, r->o->label) : NULL;

    for (int i = 0; i < TD_LEN(USUAL) && !r->o->label && !c; i++)
        c = find_column(r, USUAL[i]);
    if (!c && r->unlabelled)
        return TD_OK;
    if (!c)
        return TD_FAIL(TD_EINVAL, "%s: there is no feature '%s'; data.label names the label",
                       r->name, r->o->label ? r->o->label : "label");
    bool number = r->o->target && !strcmp(r->o->target, "number");
    if (c->count != 1 || (c->kind != TD_EXAMPLE_INTS && !(number && c->kind == TD_EXAMPLE_FLOATS)))
        return TD_FAIL(TD_EINVAL, "%s: the label '%s' is not one %s", r->name, c->name,
                       number ? "number" : "int64; for numbers set data.target to number");
    r->label = *c;
    return TD_OK;
}

static bool is_asked_for(const reader *r, const column *c)
{
    for (int i = 0; i < r->o->n_columns; i++)
        if (!strcmp(r->o->columns[i], c->name))
            return true;
    return false;
}

/* What stays of the columns: those that are asked for, an image, or all numbers. */
static td_status choose_columns(reader *r)
{
    int kept = 0, images = 0, image = -1;

    for (int i = 0; i < r->o->n_columns; i++)
        if (!find_column(r, r->o->columns[i]))
            return TD_FAIL(TD_EINVAL, "%s: there is no feature '%s'", r->name, r->o->columns[i]);
    for (int i = 0; i < r->n; i++) {
        const column *c = &r->columns[i];
        bool wanted = r->o->n_columns ? is_asked_for(r, c) : c->kind != TD_EXAMPLE_NONE;
        if (!wanted || (r->label.name && !strcmp(c->name, r->label.name)))
            continue;
        bool bytes = c->kind == TD_EXAMPLE_BYTES;
        bool picture =
            bytes && (r->o->n_columns || strstr(c->name, "encoded") || !strcmp(c->name, "image"));
        images += picture;
        image = picture ? kept : image;
        if (!bytes || picture)
            r->columns[kept++] = *c;
    }
    r->n = kept;
    r->images = images == 1;
    if (r->images)
        r->columns[0] = r->columns[image];
    r->n = r->images ? 1 : r->n;
    if (images > 1 || !r->n)
        return TD_FAIL(TD_EINVAL, "%s: %s; data.columns names what to take", r->name,
                       images ? "several features are images" : "no feature is a number or image");
    for (int i = 0; i < r->n && !r->images; i++) {
        r->columns[i].at = r->width;
        r->width += r->columns[i].count;
    }
    return r->images || (r->width >= 1 && r->width <= MOST_WIDTH)
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "%s: %" PRId64 " values in a sample", r->name, r->width);
}

static td_status decide(reader *r, const td__tfrecords *t)
{
    r->columns = td__calloc(MOST_FEATURES, sizeof *r->columns);
    if (!r->columns)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its features", r->name);
    if (!td__example_walk(t->record, t->record_nbytes, see_first, r))
        return TD_FAIL(TD_EPROTO, "%s: its first record is not a tf.train.Example", r->name);
    qsort(r->columns, (size_t)r->n, sizeof *r->columns, by_name);
    TD_TRY(choose_label(r));
    TD_TRY(choose_columns(r));
    r->values = td__calloc((size_t)r->width + 1, sizeof *r->values);
    return r->values ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for a sample", r->name);
}

/* ---- Every record ---------------------------------------------------------------------------- */

static bool see_feature(void *user, const td__example_feature *f)
{
    reader *r = user;

    if (r->label.name && is_name(f, r->label.name)) {
        r->wrong = r->wrong || f->kind != r->label.kind || f->count != 1 || r->labelled;
        if (!r->wrong)
            td__example_numbers(f, &r->label_value);
        r->labelled = true;
        return true;
    }
    for (int i = 0; i < r->n; i++) {
        const column *c = &r->columns[i];
        if (!is_name(f, c->name))
            continue;
        r->wrong = r->wrong || f->kind != c->kind || (!r->images && f->count != c->count);
        r->found++;
        if (r->wrong || r->found > r->n)
            return true;
        if (r->images) {
            td__image_item item = {.label = 0};
            item.data = td__example_bytes(f, &item.nbytes);
            item.name = td__arena_printf(r->arena, "%s: record %" PRId64, r->name, r->number);
            r->wrong = !item.data || !item.name || td__image_list_add(&r->list, &item);
        } else {
            td__example_numbers(f, r->values + c->at);
        }
        break;
    }
    return true;
}

static td_status take_label(reader *r, bool number)
{
    double v = r->label_value;

    if (!r->label.name || number)
        return TD_OK;
    if (v < 0 || v >= MOST_CLASSES)
        return TD_FAIL(TD_EPROTO, "%s: record %" PRId64 ": the class is %g, expected 0 to %d",
                       r->name, r->number, v, MOST_CLASSES - 1);
    r->classes = (int64_t)v >= r->classes ? (int64_t)v + 1 : r->classes;
    return TD_OK;
}

/* As floats: what is too large for one is infinite. */
static td_status check_finite(const reader *r)
{
    bool finite = isfinite((float)r->label_value);

    for (int64_t i = 0; !r->images && i < r->width; i++)
        finite = finite && isfinite((float)r->values[i]);
    return finite ? TD_OK
                  : TD_FAIL(TD_EPROTO,
                            "%s: record %" PRId64 " has a value that is not a finite number",
                            r->name, r->number);
}

/* Into the table, in the second pass. */
static void put_row(reader *r, int64_t row, bool number)
{
    float *x = (float *)(void *)r->table->column[0] + row * r->width;

    for (int64_t i = 0; i < r->width; i++)
        x[i] = (float)r->values[i];
    if (number)
        ((float *)(void *)r->table->column[1])[row] = (float)r->label_value;
    else
        ((int32_t *)(void *)r->table->column[1])[row] = (int32_t)r->label_value;
}

static td_status take_record(reader *r, const td__tfrecords *t, bool number)
{
    r->number = t->number;
    r->found = 0;
    r->labelled = r->wrong = false;
    r->label_value = 0;
    if (!td__example_walk(t->record, t->record_nbytes, see_feature, r))
        return TD_FAIL(TD_EPROTO, "%s: record %" PRId64 " is not a tf.train.Example", r->name,
                       r->number);
    if (r->wrong || r->found != r->n || (r->label.name && !r->labelled))
        return TD_FAIL(TD_EPROTO,
                       "%s: record %" PRId64 " has other features than the first: all need the "
                       "same names, kinds and counts",
                       r->name, r->number);
    TD_TRY(check_finite(r));
    TD_TRY(take_label(r, number));
    if (r->images)
        r->list.items[r->list.count - 1].label = (int32_t)r->label_value;
    if (r->table)
        put_row(r, r->rows, number);
    r->rows++;
    return TD_OK;
}

static td_status read_all(reader *r)
{
    bool number = r->o->target && !strcmp(r->o->target, "number"), end;

    r->rows = 0;
    for (int i = 0; i < r->n_maps; i++) {
        td__tfrecords t = {.data = r->maps[i].data, .nbytes = r->maps[i].nbytes, .where = r->name};
        if (td__is_gzip(t.data, t.nbytes))
            return TD_FAIL(TD_EPROTO, "%s: compressed; unpack it", r->name);
        for (;;) {
            TD_TRY(td__tfrecord_next(&t, &end));
            if (end)
                break;
            if (!r->columns)
                TD_TRY(decide(r, &t));
            TD_TRY(take_record(r, &t, number));
        }
    }
    return r->rows ? TD_OK : TD_FAIL(TD_EPROTO, "%s: no records", r->name);
}

static void reader_fini(reader *r)
{
    td__image_list_fini(&r->list);
    for (int i = 0; i < r->n_maps; i++)
        td__file_map_close(&r->maps[i]);
    td__free(r->maps);
    td__free(r->columns);
    td__free(r->values);
    td__table_destroy(r->table);
    td__arena_destroy(r->arena);
}

static td_status open_part(reader *r, const char *part)
{
    TD_TRY(td__part_file("tfrecord", r->o, part, EXPECTED, &r->name));
    TD_TRY(td__arena_create(&r->arena));
    TD_TRY(td__shards_open("tfrecord", r->o->dir, r->name, EXPECTED, &r->maps, &r->n_maps));
    return read_all(r);
}

/* How many classes there are: the model's, those of the train part, or those found here. */
static td_status count_classes(reader *r, const char *part, const td__fit *fit)
{
    int64_t own = r->classes;

    if (fit) {
        td__field fields[TD__MAX_FIELDS];
        int n;
        TD_TRY(td__fit_fields(fit, r->arena, fields, &n));
        for (int i = 0; i < n; i++)
            r->classes = strcmp(fields[i].name, "y") ? r->classes : fields[i].classes;
    } else if (strcmp(part, "train") != 0) {
        reader train = {.o = r->o};
        td_status st = open_part(&train, "train");
        r->classes = train.classes;
        reader_fini(&train);
        TD_TRY(st);
    }
    r->classes = r->o->classes > r->classes ? r->o->classes : r->classes;
    return own <= r->classes
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "%s: class %" PRId64 " does not occur in training", r->name,
                         own - 1);
}

static td_status make_table(reader *r, bool number, td__dataset **out)
{
    td__field x = {.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(r->width)};
    td__field y = {.name = "y", .dtype = number ? TD_F32 : TD_I32, .classes = r->classes};

    if (number) {
        y.shape = TD_SHAPE(1);
        y.classes = 0;
    }
    TD_TRY(td__table_create(r->rows, &r->table));
    TD_TRY(td__table_add(r->table, &x));
    TD_TRY(td__table_add(r->table, &y));
    TD_TRY(read_all(r));
    *out = &r->table->head;
    r->table = NULL;
    return TD_OK;
}

static td_status make_images(reader *r, td__dataset **out)
{
    r->list.arena = r->arena;
    r->list.maps = r->maps;
    r->list.n_maps = r->n_maps;
    r->list.n_classes = r->classes;
    r->arena = NULL;
    r->maps = NULL;
    r->n_maps = 0;
    return td__images_create(&r->list, "tfrecord", r->o, out);
}

static td_status tfrecord_open_fitted(const td__source_opts *o, const char *part,
                                      const td__fit *fit, td__dataset **out)
{
    bool number = o->target && !strcmp(o->target, "number");
    reader r = {.o = o, .unlabelled = o->unlabelled && !strcmp(part, "test")};
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY_OR(st, done, open_part(&r, part));
    if (!number)
        TD_TRY_OR(st, done, count_classes(&r, part, fit));
    if (r.images && number)
        st = TD_FAIL(TD_EINVAL, "%s: images have classes, not numbers", r.name);
    else
        st = r.images ? make_images(&r, out) : make_table(&r, number, out);
done:
    reader_fini(&r);
    return st;
}

static td_status tfrecord_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return tfrecord_open_fitted(o, part, NULL, out);
}

const td__source_def td__source_tfrecord = {
    .name = "tfrecord",
    .help = "TFRecord files of tf.train.Example: features of numbers, or images; "
            "train-{00000..00007}-of-00008 names several",
    .reads = "dir train valid test label columns target classes size width channels resize",
    .open = tfrecord_open,
    .open_fitted = tfrecord_open_fitted,
};
