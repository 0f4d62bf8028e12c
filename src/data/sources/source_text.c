/* source_text.c -- a text file as tokens: its characters or its bytes.
 *
 * char   The vocabulary is the set of characters (UTF-8 code points) of the train file, in rising
 *        order; the other parts may have no others.
 * byte   Every byte is a token; 256 of them.
 *
 * x is (context), y the same one character further. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/fit_json.h"
#include "data/windows.h"

enum { CODE_POINTS = 0x110000, MAX_VOCAB = 65536 };

#define EXPECTED \
    "a text file, UTF-8 for unit char: set data.dir to its directory, or data.train to the file"

/* Characters of the train file. */
typedef struct vocabulary {
    int32_t *id; /* (CODE_POINTS); -1: none */
    int64_t count;
    const char *const *names; /* (count), in the arena */
} vocabulary;

/* The next character; -1 if the bytes are not UTF-8. */
static int32_t next_char(const uint8_t *p, size_t left, size_t *length)
{
    static const int32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t b = p[0];
    size_t n = b < 0x80 ? 1 : b >> 5 == 6 ? 2 : b >> 4 == 14 ? 3 : b >> 3 == 30 ? 4 : 0;

    *length = n;
    if (n == 0 || n > left)
        return -1;
    if (n == 1)
        return b;
    int32_t c = b & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    return c < LEAST[n] || c >= CODE_POINTS ? -1 : c;
}

static td_status not_utf8(const char *path, size_t at)
{
    return TD_FAIL(TD_EPROTO, "%s: byte %zu is not UTF-8; set data.unit to byte", path, at);
}

static td_status make_names(vocabulary *v, td__arena *arena)
{
    char **names = td__arena_alloc(arena, (size_t)v->count * sizeof *names);
    if (!names)
        return TD_FAIL(TD_ENOMEM, "text: no memory for a vocabulary");
    for (int32_t c = 0; c < CODE_POINTS; c++) {
        if (v->id[c] < 0)
            continue;
        char utf8[5] = {(char)c};
        if (c >= 0x10000)
            snprintf(utf8, sizeof utf8, "%c%c%c%c", 0xf0 | c >> 18, 0x80 | (c >> 12 & 0x3f),
                     0x80 | (c >> 6 & 0x3f), 0x80 | (c & 0x3f));
        else if (c >= 0x800)
            snprintf(utf8, sizeof utf8, "%c%c%c", 0xe0 | c >> 12, 0x80 | (c >> 6 & 0x3f),
                     0x80 | (c & 0x3f));
        else if (c >= 0x80)
            snprintf(utf8, sizeof utf8, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
        names[v->id[c]] = td__arena_strdup(arena, utf8);
        if (!names[v->id[c]])
            return TD_FAIL(TD_ENOMEM, "text: no memory for a vocabulary");
    }
    v->names = (const char *const *)names;
    return TD_OK;
}

static td_status make_vocabulary(vocabulary *v, const td__file_map *m, const char *path,
                                 td__arena *arena)
{
    size_t length;

    v->id = td__malloc(CODE_POINTS * sizeof *v->id);
    if (!v->id)
        return TD_FAIL(TD_ENOMEM, "text: no memory for a vocabulary");
    memset(v->id, 0xff, CODE_POINTS * sizeof *v->id);
    for (size_t at = 0; at < m->nbytes; at += length) {
        int32_t c = next_char(m->data + at, m->nbytes - at, &length);
        if (c < 0)
            return not_utf8(path, at);
        v->id[c] = 0;
    }
    for (int32_t c = 0; c < CODE_POINTS; c++)
        if (v->id[c] == 0)
            v->id[c] = (int32_t)v->count++;
    if (v->count > MAX_VOCAB)
        return TD_FAIL(TD_EINVAL, "%s: %" PRId64 " different characters; set data.unit to byte",
                       path, v->count);
    return make_names(v, arena);
}

/* The characters of the file that a model was trained on. */
static td_status load_vocabulary(vocabulary *v, const td__fit *fit, td__arena *arena)
{
    td__field fields[TD__MAX_FIELDS];
    size_t length;
    int n;

    TD_TRY(td__fit_fields(fit, arena, fields, &n));
    if (n < 1 || !fields[0].class_names || fields[0].classes > MAX_VOCAB)
        return td__fit_bad(fit, "its characters");
    v->id = td__malloc(CODE_POINTS * sizeof *v->id);
    if (!v->id)
        return TD_FAIL(TD_ENOMEM, "text: no memory for a vocabulary");
    memset(v->id, 0xff, CODE_POINTS * sizeof *v->id);
    for (; v->count < fields[0].classes; v->count++) {
        const char *name = fields[0].class_names[v->count];
        size_t nbytes = strlen(name);
        int32_t c = nbytes ? next_char((const uint8_t *)name, nbytes, &length) : 0;
        if (c < 0 || (nbytes && length != nbytes) || v->id[c] >= 0)
            return td__fit_bad(fit, "its characters");
        v->id[c] = (int32_t)v->count;
    }
    v->names = fields[0].class_names;
    return TD_OK;
}

/* The file's characters as numbers, in the arena. */
static td_status encode(const vocabulary *v, const td__file_map *m, const char *path, int width,
                        td__arena *arena, td__run *run)
{
    size_t length;
    uint8_t *narrow = td__arena_alloc(arena, m->nbytes * (size_t)width + 1);
    uint16_t *wide = (uint16_t *)(void *)narrow;

    if (!narrow)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %zu characters", path, m->nbytes);
    for (size_t at = 0; at < m->nbytes; at += length) {
        int32_t c = next_char(m->data + at, m->nbytes - at, &length);
        if (c < 0)
            return not_utf8(path, at);
        if (v->id[c] < 0)
            return TD_FAIL(TD_EINVAL,
                           "%s: the character U+%04X at byte %zu does not occur in the train file",
                           path, (unsigned)c, at);
        if (width == 1)
            narrow[run->count++] = (uint8_t)v->id[c];
        else
            wide[run->count++] = (uint16_t)v->id[c];
    }
    run->tokens = narrow;
    return TD_OK;
}

static td_status open_chars(const char *train_path, const char *path, const td__fit *fit,
                            td__windows_opts *w, td__run *run)
{
    td__file_map train = {0}, own = {0};
    vocabulary v = {0};
    td_status st = TD_OK;

    if (fit) {
        TD_TRY_OR(st, done, load_vocabulary(&v, fit, w->arena));
    } else {
        TD_TRY_OR(st, done, td__data_map(train_path, EXPECTED, &train));
        TD_TRY_OR(st, done, make_vocabulary(&v, &train, train_path, w->arena));
    }
    TD_TRY_OR(st, done, td__data_map(path, EXPECTED, &own));
    w->vocab = v.count;
    w->names = v.names;
    w->width = v.count <= 256 ? 1 : 2;
    TD_TRY_OR(st, done, encode(&v, &own, path, w->width, w->arena, run));
done:
    td__free(v.id);
    td__file_map_close(&own);
    td__file_map_close(&train);
    return st;
}

static td_status open_bytes(const char *path, td__windows_opts *w, td__run *run)
{
    TD_TRY(td__data_map(path, EXPECTED, &run->map));
    w->vocab = 256;
    w->width = 1;
    run->tokens = run->map.data;
    run->count = (int64_t)run->map.nbytes;
    return TD_OK;
}

static td_status open_part(const td__source_opts *o, const char *part, const td__fit *fit,
                           td__dataset **out)
{
    const char *unit = o->unit ? o->unit : "char", *name, *train;
    td__windows_opts w = {.context = o->context, .stride = o->stride};
    char path[TD__PATH], train_path[TD__PATH];
    td_status st = TD_OK;
    td__run *run = NULL;

    *out = NULL;
    TD_TRY(td__part_file("text", o, part, EXPECTED, &name));
    TD_TRY(td__part_file("text", o, "train", EXPECTED, &train));
    TD_TRY(td__data_path(o->dir, name, path));
    TD_TRY(td__data_path(o->dir, train, train_path));
    if (strcmp(unit, "char") != 0 && strcmp(unit, "byte") != 0)
        return TD_FAIL(TD_EINVAL, "text: unit is '%s', expected char or byte", unit);
    TD_TRY(td__arena_create(&w.arena));
    run = td__arena_alloc(w.arena, sizeof *run);
    if (!run) {
        st = TD_FAIL(TD_ENOMEM, "no memory for a text");
        goto fail;
    }
    TD_TRY_OR(st, fail,
              strcmp(unit, "byte") == 0 ? open_bytes(path, &w, run)
                                        : open_chars(train_path, path, fit, &w, run));
    TD_TRY_OR(st, fail, td__windows_create(path, &w, run, 1, out));
    return TD_OK;
fail:
    if (run)
        td__file_map_close(&run->map);
    td__arena_destroy(w.arena);
    return st;
}

static td_status text_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return open_part(o, part, NULL, out);
}

const td__source_def td__source_text = {
    .name = "text",
    .help = "a text file as characters or bytes: x is `context` of them, y the same shifted by one",
    .reads = "dir train valid test unit context stride",
    .open = text_open,
    .open_fitted = open_part,
};
