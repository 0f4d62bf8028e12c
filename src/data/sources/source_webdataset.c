/* source_webdataset.c -- images in tar archives, as WebDataset has them: neighbouring files with
 * one name up to the first dot are a sample, NAME.jpg (or .jpeg, .png, .webp) its image, NAME.cls
 * its class, a number from 0 on or a name. A part is one archive, or several:
 * train-{000..011}.tar. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "data/files.h"
#include "data/image/image.h"
#include "data/image/images.h"
#include "data/shards.h"
#include "data/sources/tar.h"

enum { MOST_CLASSES = 1 << 20, MOST_LABEL = 256 };

#define EXPECTED "a tar archive of images and classes (NAME.jpg, NAME.cls)"

/* The samples of a part while they are read. */
typedef struct reader {
    td__image_list *list;
    const char **labels; /* (list->room): texts; NULL: there is none */
    int64_t labels_room;
    bool unlabelled;
    /* The sample at hand. */
    char key[TD__TAR_NAME];
    td__image_item image;
    const char *label;
} reader;

/* ---- Samples --------------------------------------------------------------------------------- */

static td_status end_sample(reader *r)
{
    td__image_list *l = r->list;

    if (!r->key[0])
        return TD_OK;
    if (!r->image.data) { /* a sample of something else, or a file beside the samples */
        r->key[0] = 0;
        r->label = NULL;
        return TD_OK;
    }
    if (!r->label && !r->unlabelled)
        return TD_FAIL(TD_EPROTO, "%s: there is no %s.cls beside it", r->image.name, r->key);
    TD_TRY(td__image_list_add(l, &r->image));
    if (l->room > r->labels_room) {
        const char **more = td__realloc(r->labels, (size_t)l->room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "webdataset: no memory for %" PRId64 " labels", l->room);
        r->labels = more;
        r->labels_room = l->room;
    }
    r->labels[l->count - 1] = r->label;
    r->key[0] = 0;
    r->image = (td__image_item){0};
    r->label = NULL;
    return TD_OK;
}

static td_status take_label(reader *r, const td__tar *t)
{
    const char *p = (const char *)t->file, *end = p + t->file_nbytes;

    while (end > p && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
        end--;
    if (end == p || end - p > MOST_LABEL || memchr(p, 0, (size_t)(end - p)))
        return TD_FAIL(TD_EPROTO, "%s: %s is not a class", t->where, t->name);
    r->label = td__arena_printf(r->list->arena, "%.*s", (int)(end - p), p);
    return r->label ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for a label", t->where);
}

static td_status take_file(reader *r, const td__tar *t)
{
    const char *slash = strrchr(t->name, '/'), *base = slash ? slash + 1 : t->name;
    const char *dot = strchr(base, '.');

    if (!dot || dot == base)
        return TD_OK;
    size_t n = (size_t)(dot - t->name);
    if (strlen(r->key) != n || strncmp(r->key, t->name, n) != 0) {
        TD_TRY(end_sample(r));
        snprintf(r->key, sizeof r->key, "%.*s", (int)n, t->name);
    }
    if (!strcmp(dot, ".cls"))
        return take_label(r, t);
    if (!td__image_name(base) || r->image.data)
        return TD_OK;
    r->image =
        (td__image_item){.data = t->file,
                         .nbytes = t->file_nbytes,
                         .name = td__arena_printf(r->list->arena, "%s: %s", t->where, t->name)};
    return r->image.name ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for a name", t->where);
}

static td_status read_shards(reader *r, const char *name)
{
    td__image_list *l = r->list;

    for (int i = 0; i < l->n_maps; i++) {
        td__tar t = {.data = l->maps[i].data, .nbytes = l->maps[i].nbytes, .where = name};
        bool end;
        for (;;) {
            TD_TRY(td__tar_next(&t, &end));
            if (end)
                break;
            TD_TRY(take_file(r, &t));
        }
        TD_TRY(end_sample(r));
    }
    return TD_OK;
}

/* ---- Classes --------------------------------------------------------------------------------- */

static bool is_number(const char *s, int64_t *out)
{
    char *end;

    *out = strtol(s, &end, 10);
    return *s >= '0' && *s <= '9' && *end == 0 && *out < MOST_CLASSES;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Numbers, or the different names in their order. */
static td_status decide_classes(reader *r)
{
    td__image_list *l = r->list;
    bool numbers = true;
    int64_t v, kept = 0;

    for (int64_t i = 0; i < l->count && numbers; i++) {
        numbers = r->labels[i] && is_number(r->labels[i], &v);
        l->n_classes = numbers && v >= l->n_classes ? v + 1 : l->n_classes;
    }
    if (numbers)
        return TD_OK;
    l->classes = td__arena_alloc(l->arena, ((size_t)l->count + 1) * sizeof *l->classes);
    if (!l->classes)
        return TD_FAIL(TD_ENOMEM, "webdataset: no memory for class names");
    memcpy(l->classes, r->labels, (size_t)l->count * sizeof *l->classes);
    qsort(l->classes, (size_t)l->count, sizeof *l->classes, by_text);
    for (int64_t i = 0; i < l->count; i++)
        if (!i || strcmp(l->classes[i], l->classes[kept - 1]) != 0)
            l->classes[kept++] = l->classes[i];
    l->n_classes = kept;
    return TD_OK;
}

static td_status set_labels(reader *r)
{
    td__image_list *l = r->list;

    for (int64_t i = 0; i < l->count; i++) {
        int64_t label = 0;
        if (r->labels[i] && l->classes)
            label = td__image_list_class(l, r->labels[i]);
        else if (r->labels[i] && (!is_number(r->labels[i], &label) || label >= l->n_classes))
            label = -1;
        if (label < 0 && !r->unlabelled)
            return TD_FAIL(TD_EINVAL, "%s: the class '%s' does not occur in training",
                           l->items[i].name, r->labels[i]);
        l->items[i].label = label < 0 ? 0 : (int32_t)label;
    }
    return TD_OK;
}

static td_status read_part(reader *r, const td__source_opts *o, const char *part)
{
    const char *name;

    TD_TRY(td__part_file("webdataset", o, part, EXPECTED, &name));
    TD_TRY(td__arena_create(&r->list->arena));
    TD_TRY(td__shards_open("webdataset", o->dir, name, EXPECTED, &r->list->maps, &r->list->n_maps));
    return read_shards(r, name);
}

/* The classes of the train part, for another one; their texts move into its arena. */
static td_status classes_of_train(td__image_list *l, const td__source_opts *o)
{
    td__image_list train = {0};
    reader r = {.list = &train};
    td_status st = TD_OK;

    TD_TRY_OR(st, done, read_part(&r, o, "train"));
    TD_TRY_OR(st, done, decide_classes(&r));
    l->n_classes = train.n_classes;
    if (train.classes)
        l->classes = td__arena_alloc(l->arena, (size_t)l->n_classes * sizeof *l->classes);
    for (int64_t c = 0; l->classes && c < l->n_classes; c++) {
        l->classes[c] = td__arena_printf(l->arena, "%s", train.classes[c]);
        if (!l->classes[c])
            st = TD_FAIL(TD_ENOMEM, "webdataset: no memory for class names");
    }
    if (train.classes && !l->classes)
        st = TD_FAIL(TD_ENOMEM, "webdataset: no memory for class names");
done:
    td__free(r.labels);
    td__image_list_fini(&train);
    return st;
}

static td_status webdataset_open_fitted(const td__source_opts *o, const char *part,
                                        const td__fit *fit, td__dataset **out)
{
    td__image_list l = {0};
    reader r = {.list = &l, .unlabelled = o->unlabelled && !strcmp(part, "test")};
    td_status st = TD_OK;

    *out = NULL;
    TD_TRY_OR(st, done, read_part(&r, o, part));
    if (fit)
        st = td__image_list_fitted(&l, fit);
    else
        st = strcmp(part, "train") != 0 ? classes_of_train(&l, o) : decide_classes(&r);
    if (st)
        goto done;
    TD_TRY_OR(st, done, set_labels(&r));
    TD_TRY_OR(st, done, td__images_create(&l, "webdataset", o, out));
done:
    td__free(r.labels);
    td__image_list_fini(&l);
    return st;
}

static td_status webdataset_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return webdataset_open_fitted(o, part, NULL, out);
}

const td__source_def td__source_webdataset = {
    .name = "webdataset",
    .help = "images in tar archives as WebDataset has them: NAME.jpg and NAME.cls; "
            "train-{000..011}.tar names several",
    .reads = "dir train valid test size width channels resize",
    .open = webdataset_open,
    .open_fitted = webdataset_open_fitted,
};
