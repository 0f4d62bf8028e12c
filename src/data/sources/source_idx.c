/* source_idx.c -- MNIST and its relatives: images and labels in IDX files, packed or not.
 *
 * Files     train-images-idx3-ubyte and train-labels-idx1-ubyte for train, t10k-... for test, each
 *           also with ".gz", or with a dot before "idx". There is no valid part.
 * Fields    x: u8 (1, rows, columns), or what the file has behind its first axis; y: the class. How
 *           many classes there are, the train labels say. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/sources/idx.h"
#include "data/source.h"
#include "data/table.h"

enum { FORMS = 4 }; /* of a name: with "-" or ".", packed or not */

/* An IDX file: the mapping and what is in it. */
typedef struct idx_file {
    td__file_map map;
    td__idx idx;
    char path[TD__PATH];
} idx_file;

static void close_file(idx_file *f)
{
    td__idx_fini(&f->idx);
    td__file_map_close(&f->map);
}

static td_status open_file(idx_file *f, const char *dir, const char *stem, const char *kind)
{
    char name[64], expected[160];

    for (int i = 0; i < FORMS; i++) {
        snprintf(name, sizeof name, "%s%c%s-ubyte%s", stem, i < 2 ? '-' : '.', kind,
                 i & 1 ? ".gz" : "");
        TD_TRY(td__data_path(dir, name, f->path));
        if (td__is_file(f->path))
            break;
        if (i + 1 == FORMS) {
            snprintf(name, sizeof name, "%s-%s-ubyte", stem, kind);
            TD_TRY(td__data_path(dir, name, f->path));
        }
    }
    snprintf(expected, sizeof expected,
             "%s-%s-ubyte or the same with .gz: get the four files of MNIST and set data.dir to "
             "their directory",
             stem, kind);
    TD_TRY(td__data_map(f->path, expected, &f->map));
    return td__idx_parse(&f->idx, f->map.data, f->map.nbytes, f->path);
}

static td_status count_classes(const char *dir, int64_t *classes)
{
    idx_file labels = {0};
    td_status st = open_file(&labels, dir, "train-labels", "idx1");

    *classes = 0;
    for (size_t i = 0; !st && i < labels.idx.nbytes; i++)
        if (labels.idx.data[i] >= *classes)
            *classes = labels.idx.data[i] + 1;
    close_file(&labels);
    return st;
}

static td_status check_files(const idx_file *images, const idx_file *labels, int64_t classes)
{
    if (labels->idx.shape.ndim != 1)
        return TD_FAIL(TD_EPROTO, "%s: labels have one axis, not %d", labels->path,
                       labels->idx.shape.ndim);
    if (images->idx.shape.ndim < 2)
        return TD_FAIL(TD_EPROTO, "%s: images have more than one axis", images->path);
    if (images->idx.shape.dim[0] != labels->idx.shape.dim[0])
        return TD_FAIL(TD_EPROTO, "%s: %" PRId64 " images, but %" PRId64 " labels in %s",
                       images->path, images->idx.shape.dim[0], labels->idx.shape.dim[0],
                       labels->path);
    for (size_t i = 0; i < labels->idx.nbytes; i++)
        if (labels->idx.data[i] >= classes)
            return TD_FAIL(TD_EPROTO, "%s: label %d of sample %zu does not occur in train",
                           labels->path, labels->idx.data[i], i);
    return TD_OK;
}

/* Images without a channel axis get one. */
static td_shape sample_shape(const td_shape *s)
{
    td_shape out = {.ndim = s->ndim - 1};

    for (int i = 1; i < s->ndim; i++)
        out.dim[i - 1] = s->dim[i];
    return s->ndim == 3 ? TD_SHAPE(1, s->dim[1], s->dim[2]) : out;
}

static td_status fill(td__table *t, idx_file *images, idx_file *labels, int64_t classes)
{
    td__field x = {.name = "x", .dtype = TD_U8, .shape = sample_shape(&images->idx.shape)};
    td__field y = {.name = "y", .dtype = TD_I32, .classes = classes};

    if (images->idx.own) {
        TD_TRY(td__table_add(t, &x));
        if (images->idx.nbytes)
            memcpy(t->column[0], images->idx.data, images->idx.nbytes);
    } else {
        TD_TRY(td__table_add_borrowed(t, &x, images->idx.data));
        t->map = images->map; /* taken */
        images->map = (td__file_map){0};
    }
    TD_TRY(td__table_add(t, &y));
    for (size_t i = 0; i < labels->idx.nbytes; i++)
        ((int32_t *)(void *)t->column[1])[i] = labels->idx.data[i];
    return TD_OK;
}

static td_status idx_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    bool train = strcmp(part, "train") == 0;
    idx_file images = {0}, labels = {0};
    int64_t classes;
    td__table *t = NULL;
    td_status st = TD_OK;

    *out = NULL;
    if (!train && strcmp(part, "test") != 0)
        return TD_FAIL(TD_ENOTSUP, "idx: there are no files for part %s", part);
    TD_TRY(count_classes(o->dir, &classes));
    TD_TRY_OR(st, done, open_file(&images, o->dir, train ? "train-images" : "t10k-images", "idx3"));
    TD_TRY_OR(st, done, open_file(&labels, o->dir, train ? "train-labels" : "t10k-labels", "idx1"));
    TD_TRY_OR(st, done, check_files(&images, &labels, classes));
    TD_TRY_OR(st, done, td__table_create(images.idx.shape.dim[0], &t));
    TD_TRY_OR(st, done, fill(t, &images, &labels, classes));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    close_file(&labels);
    close_file(&images);
    return st;
}

const td__source_def td__source_idx = {
    .name = "idx",
    .help = "MNIST and similar: {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] in dir",
    .reads = "dir",
    .open = idx_open,
};
