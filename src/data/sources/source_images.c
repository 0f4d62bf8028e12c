/* source_images.c -- a folder of images: a folder below it per class, which gives the class its
 * name; images may lie deeper. A part is the folder that data.train, data.valid or data.test names,
 * else DIR/train, DIR/valid (or DIR/val) and DIR/test where they are there, else DIR is train. New
 * samples are an image or a folder of images, also without classes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/log.h"
#include "data/files.h"
#include "data/image/image.h"
#include "data/image/images.h"

enum { MOST_DEPTH = 16, MOST_CLASSES = 1 << 20 };

#define EXPECTED "a folder with a folder of images for each class"

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in a folder, sorted: which order the file system has does not matter. */
typedef struct names {
    td__arena *arena;
    const char **name;
    size_t n, room;
} names;

static td_status read_names(DIR *from, const char *folder, names *to)
{
    for (const struct dirent *e = readdir(from); e; e = readdir(from)) {
        if (e->d_name[0] == '.')
            continue;
        if (to->n == to->room) {
            size_t room = to->room ? to->room * 2 : 64;
            const char **more = td__realloc(to->name, room * sizeof *more);
            if (!more)
                return TD_FAIL(TD_ENOMEM, "%s: no memory for its files", folder);
            to->name = more;
            to->room = room;
        }
        to->name[to->n] = td__arena_printf(to->arena, "%s", e->d_name);
        if (!to->name[to->n++])
            return TD_FAIL(TD_ENOMEM, "%s: no memory for its files", folder);
    }
    if (to->n)
        qsort(to->name, to->n, sizeof *to->name, by_name);
    return TD_OK;
}

/* The entries of a folder, sorted, one after the other. */
typedef td_status (*entry_fn)(void *context, const char *path, const char *name);
static td_status each_entry(const char *folder, entry_fn see, void *context)
{
    DIR *from = opendir(folder);
    names list = {0};
    char path[TD__PATH];

    if (!from)
        return TD_FAIL(TD_EINVAL, "%s: %s; expected " EXPECTED, folder, strerror(errno));
    td_status st = td__arena_create(&list.arena);
    if (!st)
        st = read_names(from, folder, &list);
    closedir(from);
    for (size_t i = 0; i < list.n && !st; i++) {
        st = td__data_path(folder, list.name[i], path);
        if (!st)
            st = see(context, path, list.name[i]);
    }
    td__free(list.name);
    td__arena_destroy(list.arena);
    return st;
}

typedef struct walk {
    td__image_list *list;
    int32_t label;
    int depth;
} walk;

static td_status add_file(td__image_list *l, const char *path, int32_t label)
{
    td__image_item item = {.name = td__arena_printf(l->arena, "%s", path), .label = label};

    if (!item.name)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its name", path);
    return td__image_list_add(l, &item);
}

static td_status see_image(void *context, const char *path, const char *name)
{
    walk *w = context;

    if (td__image_name(name) && td__is_file(path))
        return add_file(w->list, path, w->label);
    if (!is_folder(path))
        return TD_OK;
    if (w->depth == MOST_DEPTH)
        return TD_FAIL(TD_EINVAL, "%s: folders within folders, more than %d deep", path,
                       MOST_DEPTH);
    w->depth++;
    td_status st = each_entry(path, see_image, w);
    w->depth--;
    return st;
}

/* ---- Classes --------------------------------------------------------------------------------- */

typedef struct naming {
    td__image_list *list;
    int64_t room;
} naming;

static td_status see_class(void *context, const char *path, const char *name)
{
    naming *n = context;
    td__image_list *l = n->list;

    if (!is_folder(path))
        return TD_OK;
    if (l->n_classes == MOST_CLASSES)
        return TD_FAIL(TD_EINVAL, "%s: more than %d classes", path, MOST_CLASSES);
    if (l->n_classes == n->room) {
        int64_t room = n->room ? n->room * 2 : 64;
        const char **more = td__arena_alloc(l->arena, (size_t)room * sizeof *more);
        if (more && l->n_classes)
            memcpy(more, l->classes, (size_t)l->n_classes * sizeof *more);
        l->classes = more;
        n->room = room;
    }
    if (l->classes)
        l->classes[l->n_classes] = td__arena_printf(l->arena, "%s", name);
    if (!l->classes || !l->classes[l->n_classes])
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its name", path);
    l->n_classes++;
    return TD_OK;
}

static td_status find_classes(td__image_list *l, const char *folder)
{
    naming n = {.list = l};

    TD_TRY(each_entry(folder, see_class, &n));
    return l->n_classes >= 2 ? TD_OK
                             : TD_FAIL(TD_EINVAL, "%s: %" PRId64 " folders; expected " EXPECTED,
                                       folder, l->n_classes);
}

static td_status see_labelled(void *context, const char *path, const char *name)
{
    td__image_list *l = context;
    walk w = {.list = l};

    if (!is_folder(path))
        return TD_OK;
    int64_t label = td__image_list_class(l, name);
    if (label < 0)
        return TD_FAIL(TD_EINVAL, "%s: the class '%s' does not occur in training", path, name);
    w.label = (int32_t)label;
    return each_entry(path, see_image, &w);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static td_status part_folder(const td__source_opts *o, const char *part, char path[TD__PATH])
{
    const char *name = !strcmp(part, "train")   ? o->train
                       : !strcmp(part, "valid") ? o->valid
                                                : o->test;

    if (name)
        return td__data_path(o->dir, name, path);
    TD_TRY(td__data_path(o->dir, part, path));
    if (is_folder(path))
        return TD_OK;
    if (!strcmp(part, "valid")) {
        TD_TRY(td__data_path(o->dir, "val", path));
        if (is_folder(path))
            return TD_OK;
    }
    if (strcmp(part, "train") != 0)
        return TD_FAIL(TD_ENOTSUP, "images: no folder for part %s", part);
    if (!o->dir)
        return TD_FAIL(TD_EINVAL, "images: no folder is named: set data.dir to " EXPECTED);
    return td__data_path(NULL, o->dir, path);
}

/* New samples: an image, images side by side, or folders of classes. */
static td_status fill_new(td__image_list *l, const char *path)
{
    walk w = {.list = l};

    if (!is_folder(path))
        return td__is_file(path)
                   ? add_file(l, path, 0)
                   : TD_FAIL(TD_EINVAL, "%s: expected an image or a folder of images", path);
    return each_entry(path, see_image, &w);
}

/* A class of which there is nothing to learn is more often a mistake than meant. */
static td_status warn_of_empty(const td__image_list *l, const char *folder)
{
    int64_t *images = td__calloc((size_t)l->n_classes + 1, sizeof *images);

    if (!images)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to count its classes", folder);
    for (int64_t i = 0; i < l->count; i++)
        images[l->items[i].label]++;
    for (int64_t c = 0; c < l->n_classes; c++)
        if (!images[c])
            TD_LOG(WARN, DATA, "%s/%s: a class without an image (JPEG, PNG or WebP)", folder,
                   l->classes[c]);
    td__free(images);
    return TD_OK;
}

static td_status fill(td__image_list *l, const td__source_opts *o, const char *part,
                      const td__fit *fit)
{
    char train[TD__PATH], path[TD__PATH];

    TD_TRY(part_folder(o, part, path));
    TD_TRY(td__arena_create(&l->arena));
    if (fit) {
        TD_TRY(td__image_list_fitted(l, fit));
    } else {
        TD_TRY(part_folder(o, "train", train));
        TD_TRY(find_classes(l, train));
    }
    if (o->unlabelled && !strcmp(part, "test"))
        return fill_new(l, path);
    TD_TRY(each_entry(path, see_labelled, l));
    return fit || strcmp(part, "train") != 0 ? TD_OK : warn_of_empty(l, path);
}

static td_status images_open_fitted(const td__source_opts *o, const char *part, const td__fit *fit,
                                    td__dataset **out)
{
    td__image_list l = {0};

    *out = NULL;
    td_status st = fill(&l, o, part, fit);
    if (!st)
        st = td__images_create(&l, "images", o, out);
    td__image_list_fini(&l);
    return st;
}

static td_status images_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return images_open_fitted(o, part, NULL, out);
}

const td__source_def td__source_images = {
    .name = "images",
    .help = "a folder of JPEG, PNG and WebP images with a folder for each class; DIR/train, "
            "DIR/valid, DIR/test where they are there",
    .reads = "dir train valid test size width channels resize",
    .open = images_open,
    .open_fitted = images_open_fitted,
};
