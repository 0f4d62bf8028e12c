/* cache.c -- samples kept as they come out of the stages below: in memory, or in a file.
 *
 * Memory   One array per field; a sample is read into its place by the first thread that wants it.
 *          Its state goes from absent over filling to present. A thread that finds a sample which
 *          another is filling reads it from below without keeping it, rather than wait.
 *
 * File     Made whole at open, replaced atomically, then mapped. One per part, PATH.train and so
 *          on. Little-endian:
 *
 *              "TDCACHE1" | key (32 bytes) | count (u64) | n_fields (u64) | bytes of a sample of
 *              each field (u64) | zeros up to a multiple of 64 | the fields' arrays, each padded to
 *              a multiple of 64 | crc32c of the arrays (u32)
 *
 *          The key is the sha256 of everything that decides the samples: source and stages with
 *          their options, seeds, fields, size and time of the files that the options name, and the
 *          bytes of some samples, which tells changed files apart. A file with another key is made
 *          anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/cache.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "data/files.h"

enum { ABSENT, FILLING, PRESENT };
enum { ALIGN = 64, PROBES = 64, CHUNK = 64 };

static const char MAGIC[9] = "TDCACHE1";

typedef struct cache {
    td__dataset head;
    td__dataset *base;
    char *field[TD__MAX_FIELDS]; /* (count, sample) */
    size_t nbytes[TD__MAX_FIELDS];
    _Atomic uint8_t *state; /* memory: one per sample; NULL: all are present */
    td__file_map map;       /* file */
} cache;

static void cache_destroy(td__dataset *d)
{
    cache *c = (cache *)d;

    if (c->state)
        for (int f = 0; f < d->n_fields; f++)
            td__free_block(c->field[f], c->nbytes[f] * (size_t)d->count);
    td__free((void *)c->state);
    td__file_map_close(&c->map);
    td__free(c);
}

static bool take(cache *c, int64_t i)
{
    uint8_t absent = ABSENT;
    return atomic_compare_exchange_strong(&c->state[i], &absent, FILLING);
}

/* Sample i straight from below into at, or into its place in the cache. */
static td_status fetch(cache *c, int64_t i, void *const *at)
{
    void *place[TD__MAX_FIELDS];

    if (!take(c, i))
        return td__dataset_read(c->base, &i, 1, NULL, at);
    for (int f = 0; f < c->head.n_fields; f++)
        place[f] = c->field[f] + (size_t)i * c->nbytes[f];
    td_status st = td__dataset_read(c->base, &i, 1, NULL, place);
    atomic_store(&c->state[i], st ? ABSENT : PRESENT);
    TD_TRY(st);
    for (int f = 0; f < c->head.n_fields; f++)
        memcpy(at[f], place[f], c->nbytes[f]);
    return TD_OK;
}

static td_status cache_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                            void *const *out)
{
    cache *c = (cache *)d;
    void *at[TD__MAX_FIELDS];

    (void)draw; /* stages that draw are above */
    for (int64_t i = 0; i < n; i++) {
        bool present = !c->state || atomic_load(&c->state[index[i]]) == PRESENT;
        for (int f = 0; f < d->n_fields; f++) {
            at[f] = (char *)out[f] + (size_t)i * c->nbytes[f];
            if (present)
                memcpy(at[f], c->field[f] + (size_t)index[i] * c->nbytes[f], c->nbytes[f]);
        }
        if (!present)
            TD_TRY(fetch(c, index[i], at));
    }
    return TD_OK;
}

static const char *cache_name(const td__dataset *d, int64_t i)
{
    return td__dataset_name(((const cache *)d)->base, i);
}

static const td__dataset_ops OPS = {
    .destroy = cache_destroy, .read = cache_read, .name = cache_name};

static td_status open_memory(cache *c)
{
    int64_t n = c->head.count;

    c->state = td__calloc((size_t)n + 1, sizeof *c->state);
    if (!c->state)
        return TD_FAIL(TD_ENOMEM, "no memory to cache %" PRId64 " samples", n);
    for (int f = 0; f < c->head.n_fields; f++) {
        size_t nbytes;
        if (!td__size_mul(c->nbytes[f], (size_t)n, &nbytes))
            return TD_FAIL(TD_EINVAL, "cache: %" PRId64 " samples are too large", n);
        c->field[f] = td__alloc_block(nbytes);
        if (!c->field[f])
            return TD_FAIL(TD_ENOMEM,
                           "cache: no memory for %zu bytes of field %s; a file "
                           "(cache: PATH) needs none",
                           nbytes, c->head.fields[f].name);
    }
    return TD_OK;
}

/* A list of texts and numbers, hashed so that no two lists look alike. */
static void add_text(td__sha256 *h, const char *s)
{
    size_t n = s ? strlen(s) + 1 : 0;
    td__sha256_update(h, &n, sizeof n);
    td__sha256_update(h, s ? s : "", n);
}

static void add_number(td__sha256 *h, double x)
{
    td__sha256_update(h, &x, sizeof x);
}

static void add_int(td__sha256 *h, int64_t x)
{
    td__sha256_update(h, &x, sizeof x);
}

static void add_file(td__sha256 *h, const char *dir, const char *name)
{
    char path[TD__PATH];
    struct stat info;

    if (!name || td__data_path(dir, name, path) || stat(path, &info) != 0)
        return;
    add_int(h, (int64_t)info.st_size);
    add_int(h, (int64_t)info.st_mtim.tv_sec);
    add_int(h, (int64_t)info.st_mtim.tv_nsec);
}

static void add_options(td__sha256 *h, const td__data_opts *o, td__part part)
{
    const td__source_opts *s = &o->source_opts;
    const char *const texts[] = {o->source, s->dir,   s->train,  s->valid,
                                 s->test,   s->label, s->target, s->unit};
    const int64_t ints[] = {(int64_t)part,
                            (int64_t)o->seed,
                            s->delimiter,
                            s->no_header,
                            s->context,
                            s->stride,
                            s->vocab,
                            s->count,
                            s->classes,
                            (int64_t)s->seed,
                            s->n_columns,
                            o->n_maps,
                            s->window,
                            s->horizon,
                            o->folds,
                            o->fold,
                            o->order && *o->order == 'f'};

    for (int i = 0; i < TD_LEN(texts); i++)
        add_text(h, texts[i]);
    for (int i = 0; i < TD_LEN(ints); i++)
        add_int(h, ints[i]);
    for (int i = 0; i < s->n_columns; i++)
        add_text(h, s->columns[i]);
    add_file(h, s->dir, s->train);
    add_file(h, s->dir, s->valid);
    add_file(h, s->dir, s->test);
    add_number(h, s->noise);
    add_number(h, o->valid_fraction);
    add_number(h, o->test_fraction);
    for (int i = 0; i < o->n_maps; i++) {
        const td__map_opts *m = &o->maps[i];
        add_text(h, m->name);
        add_text(h, m->field);
        add_text(h, m->text);
        add_number(h, m->a);
        add_number(h, m->b);
        add_int(h, m->size);
        add_int(h, m->size2);
        add_int(h, m->pad);
    }
}

/* Room for n samples of every field, freed at once. */
static td_status alloc_samples(const cache *c, int64_t n, void **block)
{
    for (int f = 0; f < c->head.n_fields; f++) {
        block[f] = td__malloc(c->nbytes[f] * (size_t)n + 1);
        if (!block[f])
            return TD_FAIL(TD_ENOMEM, "cache: no memory for %" PRId64 " samples", n);
    }
    return TD_OK;
}

static void free_samples(void **block)
{
    for (int f = 0; f < TD__MAX_FIELDS; f++)
        td__free(block[f]);
}

static td_status make_key(cache *c, const td__data_opts *o, td__part part,
                          uint8_t key[TD_SHA256_BYTES])
{
    td__sha256 h = {0};
    void *block[TD__MAX_FIELDS] = {0};
    td_status st = TD_OK;
    int64_t n = c->head.count, probes = n < PROBES ? n : PROBES;

    TD_TRY(td__sha256_init(&h));
    TD_TRY_OR(st, done, alloc_samples(c, 1, block));
    add_options(&h, o, part);
    add_text(&h, c->head.measured); /* what columns are, and what stands for missing cells */
    add_int(&h, n);
    for (int f = 0; f < c->head.n_fields; f++) {
        add_text(&h, c->head.fields[f].name);
        add_int(&h, (int64_t)c->head.fields[f].dtype);
        add_int(&h, (int64_t)c->nbytes[f]);
    }
    for (int64_t i = 0; i < probes; i++) {
        int64_t at = probes > 1 ? (n - 1) / (probes - 1) * i : 0;
        TD_TRY_OR(st, done, td__dataset_read(c->base, &at, 1, NULL, block));
        for (int f = 0; f < c->head.n_fields; f++)
            td__sha256_update(&h, block[f], c->nbytes[f]);
    }
    td__sha256_final(&h, key);
done:
    td__sha256_fini(&h);
    free_samples(block);
    return st;
}

/* The header: its bytes, padded. */
typedef struct header {
    char magic[8];
    uint8_t key[TD_SHA256_BYTES];
    uint64_t count, n_fields, nbytes[TD__MAX_FIELDS];
    uint8_t zeros[ALIGN - (8 + TD_SHA256_BYTES + 16 + 8 * TD__MAX_FIELDS) % ALIGN];
} header;
_Static_assert(sizeof(header) % ALIGN == 0, "arrays begin on a cache line");

static size_t padded(const cache *c, int f)
{
    return td__align_up(c->nbytes[f] * (size_t)c->head.count, ALIGN);
}

/* Fields one after the other: each is one pass over the samples below. */
static td_status write_file(cache *c, const header *h, const char *path)
{
    static const uint8_t ZEROS[ALIGN];
    void *block[TD__MAX_FIELDS] = {0};
    int64_t index[CHUNK], n = c->head.count;
    uint32_t crc = 0;
    td__file_out out;
    td_status st = TD_OK;

    TD_TRY(td__file_out_open(&out, path));
    TD_TRY_OR(st, done, alloc_samples(c, CHUNK, block));
    td__file_out_write(&out, h, sizeof *h);
    for (int f = 0; f < c->head.n_fields; f++) {
        for (int64_t begin = 0; begin < n; begin += CHUNK) {
            int64_t k = n - begin < CHUNK ? n - begin : CHUNK;
            for (int64_t i = 0; i < k; i++)
                index[i] = begin + i;
            TD_TRY_OR(st, done, td__dataset_read(c->base, index, k, NULL, block));
            crc = td__crc32c(crc, block[f], c->nbytes[f] * (size_t)k);
            td__file_out_write(&out, block[f], c->nbytes[f] * (size_t)k);
        }
        td__file_out_write(&out, ZEROS, padded(c, f) - c->nbytes[f] * (size_t)n);
    }
    td__file_out_write(&out, &crc, sizeof crc);
done:
    free_samples(block);
    if (!st)
        return td__file_out_commit(&out);
    td__file_out_abandon(&out);
    return st;
}

/* Is the mapped file the cache that we want, and whole? */
static bool accept(cache *c, const header *want)
{
    size_t at = sizeof *want, total = at + sizeof(uint32_t);
    uint32_t crc = 0, stored;

    for (int f = 0; f < c->head.n_fields; f++)
        total += padded(c, f);
    if (c->map.nbytes != total || memcmp(c->map.data, want, sizeof *want) != 0)
        return false;
    for (int f = 0; f < c->head.n_fields; f++) {
        c->field[f] = (char *)(uintptr_t)(c->map.data + at);
        crc = td__crc32c(crc, c->field[f], c->nbytes[f] * (size_t)c->head.count);
        at += padded(c, f);
    }
    memcpy(&stored, c->map.data + at, sizeof stored);
    return crc == stored;
}

static td_status open_file(cache *c, const td__data_opts *o, td__part part)
{
    header h = {.count = (uint64_t)c->head.count, .n_fields = (uint64_t)c->head.n_fields};
    char path[4096];

    int len = snprintf(path, sizeof path, "%s.%s", o->cache, td__part_name(part));
    if (len < 0 || (size_t)len >= sizeof path)
        return TD_FAIL(TD_EINVAL, "the path of the cache is too long: %zu bytes", strlen(o->cache));
    for (int f = 0; f < c->head.n_fields; f++) {
        size_t all;
        if (!td__size_mul(c->nbytes[f], (size_t)c->head.count, &all) || all > SIZE_MAX / 64)
            return TD_FAIL(TD_EINVAL, "%s: the samples are too large to cache", path);
        h.nbytes[f] = c->nbytes[f];
    }
    memcpy(h.magic, MAGIC, sizeof h.magic);
    TD_TRY(make_key(c, o, part, h.key));
    if (!td__file_map_open(&c->map, path) && accept(c, &h))
        return TD_OK;
    td__file_map_close(&c->map);
    TD_TRY(write_file(c, &h, path));
    TD_TRY(td__file_map_open(&c->map, path));
    if (!accept(c, &h))
        return TD_FAIL(TD_EIO, "%s: its contents differ from what was written; check the disk",
                       path);
    return TD_OK;
}

td_status td__cache_open(td__dataset *base, const td__data_opts *o, td__part part,
                         td__dataset **out)
{
    *out = NULL;
    cache *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for a cache");
    c->head = *base;
    c->head.ops = &OPS;
    c->base = base;
    for (int f = 0; f < base->n_fields; f++)
        c->nbytes[f] = td__field_nbytes(&base->fields[f]);
    td_status st = strcmp(o->cache, "memory") == 0 ? open_memory(c) : open_file(c, o, part);
    if (st) {
        cache_destroy(&c->head);
        return st;
    }
    *out = &c->head;
    return TD_OK;
}
