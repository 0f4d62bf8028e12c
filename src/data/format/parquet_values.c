/* parquet_values.c -- the encodings of values in pages (parquet.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/format/parquet.h"

enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, DELTA = 5, DELTA_LENGTH = 6, DELTA_BYTES = 7 };
enum { RLE_DICTIONARY = 8 };
/* Bytes of texts that the prefixes of a page of so many bytes may become. */
#define MOST_TEXTS(nbytes) ((uint64_t)(nbytes)*1024 + (UINT64_C(1) << 16))

const uint8_t *td__bytes_take(td__bytes *b, uint64_t nbytes)
{
    const uint8_t *at = b->p;

    if (b->bad || nbytes > (uint64_t)(b->end - b->p)) {
        b->bad = true;
        return NULL;
    }
    b->p += nbytes;
    return at;
}

uint64_t td__bytes_little(td__bytes *b, int nbytes)
{
    const uint8_t *p = td__bytes_take(b, (uint64_t)nbytes);
    uint64_t v = 0;

    for (int i = nbytes - 1; p && i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

uint64_t td__bytes_varint(td__bytes *b)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = td__bytes_take(b, 1);
        if (!p)
            return 0;
        v |= (uint64_t)(*p & 0x7f) << shift;
        if (*p < 0x80)
            return v;
    }
    b->bad = true;
    return 0;
}

static int64_t zigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

size_t td__parquet_size(td__parquet_type type)
{
    if (type == TD_PARQUET_FLOAT)
        return sizeof(float);
    return type == TD_PARQUET_BYTES || type == TD_PARQUET_FIXED ? sizeof(td__cell)
                                                                : sizeof(int64_t);
}

/* Number i of those that are packed in `bits` bits each, the lowest bits first; p: (nbytes). */
static uint64_t packed(const uint8_t *p, uint64_t nbytes, int bits, int64_t i)
{
    uint64_t at = (uint64_t)i * (uint64_t)bits, v = 0;

    if (at / 8 + 8 <= nbytes && bits <= 56) { /* in eight bytes, which is little-endian's word */
        memcpy(&v, p + at / 8, 8);
        return v >> (at % 8) & ((UINT64_C(1) << bits) - 1);
    }
    for (int k = 0; k < bits; k++, at++)
        v |= (uint64_t)(p[at / 8] >> (at % 8) & 1) << k;
    return v;
}

bool td__parquet_runs(td__bytes *b, int bits, uint32_t *out, int64_t n)
{
    if (bits > 32)
        return false;
    for (int64_t i = 0; i < n;) {
        uint64_t head = td__bytes_varint(b), count = head >> 1;
        if (b->bad || !count || count > (uint64_t)INT64_MAX / 64)
            return false;
        if (head & 1) { /* groups of eight */
            uint64_t nbytes = count * (uint64_t)bits;
            /* The last group may be cut where the values end. */
            uint64_t need = ((uint64_t)(n - i) * (uint64_t)bits + 7) / 8;
            uint64_t left = (uint64_t)(b->end - b->p);
            uint64_t got = nbytes <= left || need > left ? nbytes : left;
            const uint8_t *p = td__bytes_take(b, got);
            if (!p)
                return false;
            for (uint64_t k = 0; k < 8 * count && i < n; k++)
                out[i++] = (uint32_t)packed(p, got, bits, (int64_t)k);
        } else {
            uint32_t v = (uint32_t)td__bytes_little(b, (bits + 7) / 8);
            if (b->bad)
                return false;
            for (uint64_t k = 0; k < count && i < n; k++)
                out[i++] = v;
        }
    }
    return true;
}

/* Values as they are in memory, on processors that have the low byte first. */
static bool plain(const td__parquet_page *g, td__bytes *b, void *out, int64_t n)
{
    const uint8_t *p;

    switch (g->type) {
    case TD_PARQUET_BOOL:
        p = td__bytes_take(b, ((uint64_t)n + 7) / 8);
        for (int64_t i = 0; p && i < n; i++)
            ((int64_t *)out)[i] = p[i / 8] >> (i % 8) & 1;
        return p != NULL;
    case TD_PARQUET_INT32:
        p = td__bytes_take(b, 4 * (uint64_t)n);
        for (int64_t i = 0; p && i < n; i++) {
            int32_t v;
            memcpy(&v, p + 4 * i, sizeof v);
            ((int64_t *)out)[i] = v;
        }
        return p != NULL;
    case TD_PARQUET_INT64:
    case TD_PARQUET_FLOAT:
    case TD_PARQUET_DOUBLE:
        p = td__bytes_take(b, td__parquet_size(g->type) * (uint64_t)n);
        if (p)
            memcpy(out, p, td__parquet_size(g->type) * (size_t)n);
        return p != NULL;
    case TD_PARQUET_BYTES:
    case TD_PARQUET_FIXED:
        for (int64_t i = 0; i < n && !b->bad; i++) {
            td__cell *c = (td__cell *)out + i;
            c->nbytes = g->type == TD_PARQUET_FIXED ? (size_t)g->fixed : td__bytes_little(b, 4);
            c->text = (const char *)td__bytes_take(b, c->nbytes);
        }
        return !b->bad;
    case TD_PARQUET_INT96: break;
    }
    return false;
}

static bool dictionary(const td__parquet_page *g, td__bytes *b, void *out, int64_t n)
{
    const uint8_t *bits = td__bytes_take(b, 1);
    uint32_t *at = bits && g->dictionary ? td__malloc(((size_t)n + 1) * sizeof *at) : NULL;
    bool good = at && td__parquet_runs(b, *bits, at, n);
    size_t each = td__parquet_size(g->type);

    for (int64_t i = 0; i < n && good; i++)
        good = at[i] < g->n_dictionary;
    if (good && each == sizeof(float))
        for (int64_t i = 0; i < n; i++)
            ((float *)out)[i] = ((const float *)g->dictionary)[at[i]];
    else if (good && each == sizeof(int64_t))
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)out)[i] = ((const int64_t *)g->dictionary)[at[i]];
    else if (good)
        for (int64_t i = 0; i < n; i++)
            ((td__cell *)out)[i] = ((const td__cell *)g->dictionary)[at[i]];
    td__free(at);
    return good;
}

/* DELTA_BINARY_PACKED: a first value, then blocks of differences, packed by mini-blocks above the
 * least of the block. */
static bool deltas(td__bytes *b, int64_t *out, int64_t n)
{
    uint64_t block = td__bytes_varint(b), minis = td__bytes_varint(b), all = td__bytes_varint(b);
    uint64_t last = (uint64_t)zigzag(td__bytes_varint(b));

    if (b->bad || all != (uint64_t)n || !minis || !block || block > 1 << 20 || block % 128 != 0 ||
        block % minis != 0 || block / minis % 32 != 0)
        return false;
    int64_t per = (int64_t)(block / minis), i = 0;
    if (n > 0)
        out[i++] = (int64_t)last;
    while (i < n) {
        uint64_t least = (uint64_t)zigzag(td__bytes_varint(b));
        const uint8_t *widths = td__bytes_take(b, minis);
        for (uint64_t m = 0; m < minis && i < n; m++) {
            if (!widths || widths[m] > 64)
                return false;
            const uint8_t *p = td__bytes_take(b, (uint64_t)per * widths[m] / 8);
            if (!p)
                return false;
            for (int64_t k = 0; k < per && i < n; k++) {
                last += least + packed(p, (uint64_t)per * widths[m] / 8, widths[m], k);
                out[i++] = (int64_t)last;
            }
        }
        if (b->bad)
            return false;
    }
    return true;
}

static bool delta_numbers(const td__parquet_page *g, td__bytes *b, int64_t *out, int64_t n)
{
    if ((g->type != TD_PARQUET_INT32 && g->type != TD_PARQUET_INT64) || !deltas(b, out, n))
        return false;
    for (int64_t i = 0; i < n && g->type == TD_PARQUET_INT32; i++)
        out[i] = (int32_t)out[i];
    return true;
}

/* Lengths, then all bytes; with `prefix`, each text begins with so many bytes of the one before. */
static bool delta_texts(const td__parquet_page *g, td__bytes *b, td__cell *out, int64_t n,
                        bool prefixes)
{
    int64_t *length = td__calloc(2 * (size_t)n + 1, sizeof *length), *prefix = length + n;
    bool good = length && (g->type == TD_PARQUET_BYTES || g->type == TD_PARQUET_FIXED);
    uint64_t room = MOST_TEXTS((size_t)(b->end - b->p));

    good = good && (!prefixes || deltas(b, prefix, n)) && deltas(b, length, n);
    for (int64_t i = 0; i < n && good; i++) {
        const uint8_t *p = length[i] >= 0 ? td__bytes_take(b, (uint64_t)length[i]) : NULL;
        int64_t before = prefixes ? prefix[i] : 0;
        good =
            p && before >= 0 && (before == 0 || (i > 0 && (uint64_t)before <= out[i - 1].nbytes));
        if (!good)
            break;
        out[i].text = (const char *)p;
        out[i].nbytes = (size_t)(before + length[i]);
        if (before && !length[i]) {
            out[i].text = out[i - 1].text;
        } else if (before) {
            good = out[i].nbytes <= room;
            if (!good)
                break;
            room -= out[i].nbytes;
            char *text = td__arena_alloc(g->arena, out[i].nbytes + 1);
            good = text != NULL;
            if (good) {
                memcpy(text, out[i - 1].text, (size_t)before);
                memcpy(text + before, p, (size_t)length[i]);
                out[i].text = text;
            }
        }
    }
    td__free(length);
    return good;
}

static bool rle_booleans(const td__parquet_page *g, td__bytes *b, int64_t *out, int64_t n)
{
    uint64_t nbytes = td__bytes_little(b, 4);
    const uint8_t *p = td__bytes_take(b, nbytes);
    td__bytes inner = {.p = p, .end = p ? p + nbytes : NULL};
    uint32_t *v = p && g->type == TD_PARQUET_BOOL ? td__calloc((size_t)n + 1, sizeof *v) : NULL;
    bool good = v && td__parquet_runs(&inner, 1, v, n);

    for (int64_t i = 0; i < n && good; i++)
        out[i] = v[i];
    td__free(v);
    return good;
}

bool td__parquet_values(const td__parquet_page *g, td__bytes b, void *out, int64_t n,
                        const char **refused)
{
    *refused = NULL;
    if (n == 0 && g->encoding >= PLAIN && g->encoding <= RLE_DICTIONARY)
        return true; /* all are missing: what is there does not matter */
    switch (g->encoding) {
    case PLAIN: return plain(g, &b, out, n);
    case PLAIN_DICTIONARY:
    case RLE_DICTIONARY: return dictionary(g, &b, out, n);
    case RLE: return rle_booleans(g, &b, out, n);
    case DELTA: return delta_numbers(g, &b, out, n);
    case DELTA_LENGTH: return delta_texts(g, &b, out, n, false);
    case DELTA_BYTES: return delta_texts(g, &b, out, n, true);
    default: *refused = "an encoding"; return false;
    }
}
