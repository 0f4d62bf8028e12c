/* data_digest.c -- the digest of a part; see data_digest.h.
 *
 * It is the sha256 of the names of its fields and classes and of its samples, as the source gives
 * them: what does not change a sample (a file's date, a column that nobody reads) does not count.
 * Images count with the bytes of their files and their class, so that nothing is decoded. All
 * samples are hashed of parts up to 1 GB; of larger parts, whose number of samples is compared too,
 * BLOCKS evenly spaced blocks of samples and the last one. Samples that are generated cannot
 * change.
 *
 * How a part was hashed stands beside its digest:
 *   "whole"   all its samples
 *   "block"   otherwise: samples of a block; 1 where it is not said, as older programs had it
 *   "stored"  the bytes of files, not what they are decoded to */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/digest/data_digest.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/key.h"
#include "base/sha256.h"

enum { ROWS = 64, BLOCKS = 256, BLOCK_BYTES = 1 << 18, MOST_BLOCK = 1 << 20 };
#define WHOLE_BYTES (UINT64_C(1) << 30)

typedef struct method {
    bool whole, stored;
    int64_t block; /* samples; unless whole */
} method;

typedef struct hashing {
    td__dataset *part;
    method how;
    td__sha256 sha;
    void *rows[TD__MAX_FIELDS]; /* (ROWS) */
} hashing;

/* ---- How ------------------------------------------------------------------------------------- */

/* Where a block begins among so many samples. */
static int64_t block_begin(int64_t count, int64_t block)
{
    return (int64_t)((double)(count - 1) * (double)block / BLOCKS);
}

/* Bytes of a sample; of files the mean of some. */
static td_status sample_bytes(td__dataset *d, bool stored, uint64_t *out)
{
    uint64_t n = 0, sum = 0;

    *out = 0;
    for (int f = 0; f < d->n_fields && !stored; f++)
        *out += td__field_nbytes(&d->fields[f]);
    for (int64_t b = 0; b < BLOCKS && b < d->count && stored; b++, n++) {
        td__stored s;
        TD_TRY(d->ops->stored(d, block_begin(d->count, b), &s));
        sum += s.nbytes;
        td__file_map_close(&s.map);
    }
    *out = n ? sum / n : *out;
    return TD_OK;
}

static td_status choose(const td__data *d, td__dataset *part, method *out)
{
    uint64_t most = d->hash_whole ? d->hash_whole : WHOLE_BYTES, each;

    *out = (method){.stored = part->ops->stored != NULL};
    TD_TRY(sample_bytes(part, out->stored, &each));
    out->whole = !each || (uint64_t)part->count <= most / each;
    out->block = each && each < BLOCK_BYTES ? (int64_t)(BLOCK_BYTES / each) : 1;
    return TD_OK;
}

static method method_of(const json_t *before)
{
    const json_t *block = json_object_get(before, "block");
    json_int_t n = block ? json_integer_value(block) : 1;

    return (method){.whole = json_is_true(json_object_get(before, "whole")),
                    .stored = json_is_true(json_object_get(before, "stored")),
                    .block = n < 1            ? 1
                             : n > MOST_BLOCK ? MOST_BLOCK
                                              : n};
}

/* ---- Hashing --------------------------------------------------------------------------------- */

static void hash_fields(hashing *h)
{
    const td__dataset *d = h->part;

    for (int f = 0; f < d->n_fields; f++) {
        const td__field *field = &d->fields[f];
        td__sha256_update(&h->sha, field->name, strlen(field->name) + 1);
        for (int64_t c = 0; field->class_names && c < field->classes; c++)
            td__sha256_update(&h->sha, field->class_names[c], strlen(field->class_names[c]) + 1);
    }
}

static td_status hash_stored(hashing *h, int64_t i)
{
    td__stored s;

    TD_TRY(h->part->ops->stored(h->part, i, &s));
    uint64_t nbytes = s.nbytes;
    td__sha256_update(&h->sha, &nbytes, sizeof nbytes);
    td__sha256_update(&h->sha, s.data, s.nbytes);
    td__sha256_update(&h->sha, &s.label, sizeof s.label);
    td__file_map_close(&s.map);
    return TD_OK;
}

/* Samples [begin, end). */
static td_status hash_rows(hashing *h, int64_t begin, int64_t end)
{
    const td__dataset *d = h->part;
    int64_t number[ROWS];

    for (; begin < end && h->how.stored; begin++)
        TD_TRY(hash_stored(h, begin));
    while (begin < end) {
        int64_t n = end - begin < ROWS ? end - begin : ROWS;
        for (int64_t i = 0; i < n; i++)
            number[i] = begin + i;
        TD_TRY(td__dataset_read(h->part, number, n, NULL, h->rows));
        for (int f = 0; f < d->n_fields; f++)
            td__sha256_update(&h->sha, h->rows[f], (size_t)n * td__field_nbytes(&d->fields[f]));
        begin += n;
    }
    return TD_OK;
}

static td_status hash_samples(hashing *h)
{
    int64_t count = h->part->count, block = h->how.block < count ? h->how.block : count;

    if (h->how.whole)
        return hash_rows(h, 0, count);
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t begin = block_begin(count, b);
        TD_TRY(hash_rows(h, begin, begin + block < count ? begin + block : count));
    }
    return hash_rows(h, count - block, count);
}

static td_status digest(td__dataset *d, const method *how, char hex[TD_SHA256_HEX])
{
    hashing h = {.part = d, .how = *how};
    uint8_t bytes[TD_SHA256_BYTES];
    td_status st = TD_OK;

    for (int f = 0; f < d->n_fields && !st; f++) {
        h.rows[f] = td__malloc(td__field_nbytes(&d->fields[f]) * ROWS + 1);
        if (!h.rows[f])
            st = TD_FAIL(TD_ENOMEM, "no memory for a digest of the data");
    }
    if (!st)
        st = td__sha256_init(&h.sha);
    if (!st) {
        hash_fields(&h);
        st = hash_samples(&h);
    }
    if (!st) {
        td__sha256_final(&h.sha, bytes);
        td__sha256_hex(bytes, hex);
    }
    td__sha256_fini(&h.sha);
    for (int f = 0; f < d->n_fields; f++)
        td__free(h.rows[f]);
    return st;
}

/* ---- A part ---------------------------------------------------------------------------------- */

static bool is_generated(const td__data *d)
{
    return !td__has_word(d->def->reads, "dir") && d->def != &td__source_memory;
}

td_status td__data_describe(const td__data *d, td__dataset *part, const json_t *before,
                            json_t **out)
{
    const char *text = json_string_value(json_object_get(before, "sha256"));
    char hex[TD_SHA256_HEX] = "";
    method how = method_of(before);

    *out = NULL;
    if (!before)
        TD_TRY(choose(d, part, &how));
    bool elsewhere = how.stored && !part->ops->stored;
    if (!is_generated(d) && !elsewhere)
        TD_TRY(digest(part, &how, hex));
    *out = json_pack("{s:I, s:b, s:s}", "count", (json_int_t)part->count, "whole", (int)how.whole,
                     "sha256", elsewhere && text ? text : hex);
    if (how.stored)
        json_object_set_new(*out, "stored", json_true());
    if (!how.whole && (!before || json_object_get(before, "block")))
        json_object_set_new(*out, "block", json_integer(how.block));
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a digest of the data");
}
