/* source_cifar.c -- CIFAR-10 and CIFAR-100 in their binary form.
 *
 *     CIFAR-10    label | 3072 bytes (3, 32, 32)         data_batch_1.bin .. _5.bin, test_batch.bin
 *     CIFAR-100   coarse label | fine label | 3072 bytes  train.bin, test.bin
 *
 * The files are in dir, or in the folder that the archive makes there. x is u8 (3, 32, 32), y the
 * (fine) class. There is no valid part. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/table.h"

enum { IMAGE = 3 * 32 * 32, MAX_FILES = 5 };

typedef struct kind {
    int64_t classes;
    size_t labels; /* bytes of labels before an image; the last one is taken */
    const char *folder, *names;
    const char *train[MAX_FILES], *test[MAX_FILES];
    const char *expected;
} kind;

static const kind KINDS[] = {
    {.classes = 10,
     .labels = 1,
     .folder = "cifar-10-batches-bin",
     .names = "batches.meta.txt",
     .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
               "data_batch_5.bin"},
     .test = {"test_batch.bin"},
     .expected = "data_batch_1.bin to data_batch_5.bin and test_batch.bin: get the binary version "
                 "of CIFAR-10 and set data.dir to its directory"},
    {.classes = 100,
     .labels = 2,
     .folder = "cifar-100-binary",
     .names = "fine_label_names.txt",
     .train = {"train.bin"},
     .test = {"test.bin"},
     .expected = "train.bin and test.bin: get the binary version of CIFAR-100 and set data.dir to "
                 "its directory"},
};

static td_status find_file(const kind *k, const char *dir, const char *name, char path[TD__PATH])
{
    char inner[128];

    snprintf(inner, sizeof inner, "%s/%s", k->folder, name);
    TD_TRY(td__data_path(dir, inner, path));
    if (!td__is_file(path))
        TD_TRY(td__data_path(dir, name, path));
    return TD_OK;
}

/* One name per line. Without the file, or with too few lines, classes have no names. */
static td_status read_names(const kind *k, const char *dir, td__table *t, td__field *y)
{
    const char **names = td__arena_alloc(t->arena, (size_t)k->classes * sizeof *names);
    char path[TD__PATH];
    td__file_map m;
    int64_t n = 0;

    if (!names)
        return TD_FAIL(TD_ENOMEM, "cifar: no memory for names");
    TD_TRY(find_file(k, dir, k->names, path));
    if (!td__is_file(path) || td__file_map_open(&m, path))
        return TD_OK;
    for (size_t at = 0; at < m.nbytes && n < k->classes;) {
        const char *line = (const char *)m.data + at, *stop = memchr(line, '\n', m.nbytes - at);
        size_t len = stop ? (size_t)(stop - line) : m.nbytes - at;
        if (len)
            names[n++] = td__arena_printf(t->arena, "%.*s", (int)(len < 256 ? len : 256), line);
        if (len && !names[n - 1])
            break;
        at += len + 1;
    }
    td__file_map_close(&m);
    if (n == k->classes && names[n - 1])
        y->class_names = names;
    return TD_OK;
}

static td_status copy_images(const kind *k, const td__file_map *m, const char *path, td__table *t,
                             int64_t *at)
{
    size_t record = k->labels + IMAGE;

    for (size_t i = 0; i < m->nbytes / record; i++, ++*at) {
        const uint8_t *p = m->data + i * record;
        if (p[k->labels - 1] >= k->classes)
            return TD_FAIL(TD_EPROTO, "%s: image %zu has label %d of %" PRId64 " classes", path, i,
                           p[k->labels - 1], k->classes);
        memcpy(t->column[0] + *at * IMAGE, p + k->labels, IMAGE);
        ((int32_t *)(void *)t->column[1])[*at] = p[k->labels - 1];
    }
    return TD_OK;
}

static td_status open_files(const kind *k, const char *dir, const char *const *names,
                            td__file_map *maps, char (*paths)[TD__PATH], int64_t *count)
{
    size_t record = k->labels + IMAGE;

    for (int i = 0; i < MAX_FILES && names[i]; i++) {
        TD_TRY(find_file(k, dir, names[i], paths[i]));
        TD_TRY(td__data_map(paths[i], k->expected, &maps[i]));
        if (maps[i].nbytes == 0 || maps[i].nbytes % record)
            return TD_FAIL(TD_EPROTO,
                           "%s: %zu bytes are not a multiple of %zu, an image with its labels",
                           paths[i], maps[i].nbytes, record);
        *count += (int64_t)(maps[i].nbytes / record);
    }
    return TD_OK;
}

static td_status cifar_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    bool train = strcmp(part, "train") == 0;
    const kind *k = o->classes == 100 ? &KINDS[1] : &KINDS[0];
    char paths[MAX_FILES][TD__PATH];
    td__file_map maps[MAX_FILES] = {{0}};
    td__field x = {.name = "x", .dtype = TD_U8, .shape = TD_SHAPE(3, 32, 32)};
    td__field y = {.name = "y", .dtype = TD_I32, .classes = k->classes};
    int64_t count = 0, at = 0;
    td__table *t = NULL;
    td_status st = TD_OK;

    *out = NULL;
    if (o->classes && o->classes != 10 && o->classes != 100)
        return TD_FAIL(TD_EINVAL, "cifar: classes is %" PRId64 ", expected 10 or 100", o->classes);
    if (!train && strcmp(part, "test") != 0)
        return TD_FAIL(TD_ENOTSUP, "cifar: there are no files for part %s", part);
    TD_TRY_OR(st, done, open_files(k, o->dir, train ? k->train : k->test, maps, paths, &count));
    TD_TRY_OR(st, done, td__table_create(count, &t));
    TD_TRY_OR(st, done, td__arena_create(&t->arena));
    TD_TRY_OR(st, done, read_names(k, o->dir, t, &y));
    TD_TRY_OR(st, done, td__table_add(t, &x));
    TD_TRY_OR(st, done, td__table_add(t, &y));
    for (int i = 0; i < MAX_FILES && maps[i].nbytes; i++)
        TD_TRY_OR(st, done, copy_images(k, &maps[i], paths[i], t, &at));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    for (int i = 0; i < MAX_FILES; i++)
        td__file_map_close(&maps[i]);
    return st;
}

const td__source_def td__source_cifar = {
    .name = "cifar",
    .help = "CIFAR-10 (classes 10) or CIFAR-100 (classes 100), binary version",
    .reads = "dir classes",
    .open = cifar_open,
};
