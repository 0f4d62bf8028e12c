/* parquet.c -- footer, column chunks and pages of a Parquet file (parquet.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/parquet.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "base/check.h"
#include "base/fail.h"
#include "data/format/thrift.h"

enum { OPTIONAL = 1, REPEATED = 2 };               /* repetition_type */
enum { DECIMAL = 5, UINT_8 = 11, UINT_64 = 14 };   /* converted_type */
enum { NONE = 0, SNAPPY = 1, GZIP = 2, ZSTD = 6 }; /* codec */
enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };
enum { LEVELS_RLE = 3, MOST_SCALE = 18 };
/* Of what a small file may become: cells, bytes of a page. Runs of one value are short in it. */
#define MOST_CELLS(nbytes) ((uint64_t)(nbytes)*1024 + (UINT64_C(1) << 18))
#define MOST_PAGE(nbytes) ((uint64_t)(nbytes)*4096 + (UINT64_C(1) << 16))

typedef struct column {
    td__cell name;
    td__parquet_type type;
    int fixed, scale, converted;
    bool optional;
} column;

typedef struct chunk {
    int64_t codec, values, nbytes, data_at, dictionary_at;
} chunk;

typedef struct file {
    td__records *r;
    const uint8_t *data;
    size_t nbytes;
    column *columns;
    int64_t n_columns;
    int64_t row;   /* rows before the group that is read */
    uint8_t *page; /* decompressed, of numbers; own */
    size_t page_room;
} file;

static td_status damaged(const file *f, const char *what)
{
    return TD_FAIL(TD_EPROTO, "%s: damaged, or not a Parquet file: %s", f->r->where, what);
}

static td_status refuse(const file *f, const char *what)
{
    return TD_FAIL(TD_EINVAL, "%s: %s is not supported; write it again with pyarrow's defaults",
                   f->r->where, what);
}

/* ---- Footer ---------------------------------------------------------------------------------- */

/* One SchemaElement. *children: of a group. */
static bool read_element(td__bytes *b, column *c, int64_t *children, int64_t *repetition)
{
    td__thrift_field f;
    int last = 0;

    *c = (column){.converted = -1, .type = TD_PARQUET_INT96};
    *children = *repetition = 0;
    while (td__thrift_next(b, &last, &f)) {
        switch (f.id) {
        case 1: c->type = f.i >= 0 && f.i <= TD_PARQUET_FIXED ? (int)f.i : TD_PARQUET_INT96; break;
        case 2: c->fixed = f.i > 0 && f.i < INT32_MAX ? (int)f.i : 0; break;
        case 3: *repetition = f.i; break;
        case 4: c->name = (td__cell){(const char *)f.text, (size_t)f.nbytes}; break;
        case 5: *children = f.i; break;
        case 6: c->converted = (int)f.i; break;
        case 7: c->scale = f.i >= 0 && f.i <= MOST_SCALE ? (int)f.i : -1; break;
        default: td__thrift_skip(b, &f);
        }
    }
    c->optional = *repetition == OPTIONAL;
    return !b->bad;
}

static td_status check_column(const file *f, const column *c)
{
    if (c->type == TD_PARQUET_INT96)
        return refuse(f, "a column of INT96");
    if (c->converted == DECIMAL &&
        (c->scale < 0 || (c->type != TD_PARQUET_INT32 && c->type != TD_PARQUET_INT64)))
        return refuse(f, "a column of long decimals");
    if (c->type == TD_PARQUET_FIXED && !c->fixed)
        return damaged(f, "a column of texts without a length");
    return TD_OK;
}

static td_status read_schema(file *f, td__bytes *b, uint64_t n)
{
    int64_t children, repetition, below;
    column root;

    if (!read_element(b, &root, &children, &repetition) || n < 2 || children < 1)
        return damaged(f, "its schema");
    if ((uint64_t)children != n - 1)
        return refuse(f, "a nested column");
    if (n - 1 > TD__MAX_COLUMNS)
        return refuse(f, "a table of so many columns");
    f->columns = td__calloc(n, sizeof *f->columns);
    if (!f->columns)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", f->r->where);
    for (uint64_t i = 0; i < n - 1; i++) {
        column *c = &f->columns[f->n_columns++];
        if (!read_element(b, c, &below, &repetition) || !c->name.text)
            return damaged(f, "a column of its schema");
        if (below > 0 || repetition == REPEATED)
            return refuse(f, "a nested column");
        TD_TRY(check_column(f, c));
    }
    return TD_OK;
}

static bool read_chunk_meta(td__bytes *b, chunk *c)
{
    td__thrift_field f;
    int last = 0;

    while (td__thrift_next(b, &last, &f)) {
        switch (f.id) {
        case 4: c->codec = f.i; break;
        case 5: c->values = f.i; break;
        case 7: c->nbytes = f.i; break;
        case 9: c->data_at = f.i; break;
        case 11: c->dictionary_at = f.i; break;
        default: td__thrift_skip(b, &f);
        }
    }
    return !b->bad;
}

static td_status read_chunk(const file *f, td__bytes *b, chunk *c)
{
    td__thrift_field t;
    int last = 0;
    bool found = false;

    *c = (chunk){0};
    while (td__thrift_next(b, &last, &t)) {
        if (t.id == 1)
            return refuse(f, "a column in another file");
        if (t.id == 8 || t.id == 9)
            return refuse(f, "an encrypted column");
        if (t.id == 3 && t.type == TD_THRIFT_STRUCT)
            found = read_chunk_meta(b, c);
        else
            td__thrift_skip(b, &t);
    }
    return b->bad || !found ? damaged(f, "a column chunk of its footer") : TD_OK;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

typedef struct header {
    int64_t type, whole, stored; /* bytes: decompressed, in the file */
    int64_t values, encoding, levels, levels_nbytes, repeats_nbytes;
    bool compressed;
} header;

static bool read_page_part(td__bytes *b, header *h, bool v2)
{
    td__thrift_field f;
    int last = 0;

    while (td__thrift_next(b, &last, &f)) {
        if (f.id == 1)
            h->values = f.i;
        else if (f.id == (v2 ? 4 : 2))
            h->encoding = f.i;
        else if (f.id == 3 && !v2)
            h->levels = f.i;
        else if (f.id == 5 && v2)
            h->levels_nbytes = f.i;
        else if (f.id == 6 && v2)
            h->repeats_nbytes = f.i;
        else if (f.id == 7 && v2)
            h->compressed = f.i != 0;
        else
            td__thrift_skip(b, &f);
    }
    return !b->bad;
}

static bool read_header(td__bytes *b, header *h)
{
    td__thrift_field f;
    int last = 0;

    *h = (header){.compressed = true, .levels = LEVELS_RLE};
    while (td__thrift_next(b, &last, &f)) {
        bool part = f.type == TD_THRIFT_STRUCT && (f.id == 5 || f.id == 7 || f.id == 8);
        if (f.id == 1)
            h->type = f.i;
        else if (f.id == 2)
            h->whole = f.i;
        else if (f.id == 3)
            h->stored = f.i;
        else if (part)
            read_page_part(b, h, f.id == 8);
        else
            td__thrift_skip(b, &f);
    }
    return !b->bad && h->values >= 0 && h->whole >= 0 && h->stored >= 0 && h->levels_nbytes >= 0;
}

static bool inflate_all(const uint8_t *from, size_t nbytes, uint8_t *to, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .next_out = to};

    if (nbytes > UINT32_MAX || room > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK)
        return false;
    z.avail_in = (uInt)nbytes;
    z.avail_out = (uInt)room;
    int rc = inflate(&z, Z_FINISH);
    bool good = rc == Z_STREAM_END && z.total_out == room;
    inflateEnd(&z);
    return good;
}

static bool decompress(int64_t codec, const uint8_t *from, size_t nbytes, uint8_t *to, size_t room)
{
    size_t n = room;

    if (codec == SNAPPY)
        return snappy_uncompressed_length((const char *)from, nbytes, &n) == SNAPPY_OK &&
               n == room &&
               snappy_uncompress((const char *)from, nbytes, (char *)to, &n) == SNAPPY_OK &&
               n == room;
    if (codec == ZSTD)
        return ZSTD_decompress(to, room, from, nbytes) == room;
    return inflate_all(from, nbytes, to, room);
}

/* What is being read of one column chunk. */
typedef struct reading {
    file *f;
    const column *c;
    chunk at;
    td__parquet_page page;
    void *dictionary; /* own */
    int64_t done;     /* values, missing ones too */
} reading;

/* Memory for a page: texts stay where they are, in the arena; numbers are taken out at once. */
static uint8_t *page_memory(reading *x, size_t nbytes)
{
    file *f = x->f;

    if (x->c->type == TD_PARQUET_BYTES || x->c->type == TD_PARQUET_FIXED)
        return td__arena_alloc(f->r->arena, nbytes);
    return td__reserve(&f->page, &f->page_room, nbytes) ? f->page : NULL;
}

/* The bytes of a page after its levels of version 2, decompressed. */
static td_status open_page(reading *x, const header *h, const uint8_t *p, td__bytes *out)
{
    size_t first = (size_t)h->levels_nbytes, stored = (size_t)h->stored - first;
    size_t room = (size_t)h->whole - first;

    *out = (td__bytes){.p = p + first, .end = p + first + stored};
    if (x->at.codec == NONE || !h->compressed)
        return TD_OK;
    if (x->at.codec != SNAPPY && x->at.codec != GZIP && x->at.codec != ZSTD)
        return refuse(x->f, "this compression");
    if (room > MOST_PAGE(stored))
        return damaged(x->f, "a page grows beyond what is allowed");
    uint8_t *to = page_memory(x, room + 1);
    if (!to)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a page of %zu bytes", x->f->r->where, room);
    if (room && !decompress(x->at.codec, p + first, stored, to, room))
        return damaged(x->f, "a page does not decompress");
    *out = (td__bytes){.p = to, .end = to + room};
    return TD_OK;
}

static td_status read_dictionary(reading *x, const header *h, td__bytes b)
{
    const char *refused;
    uint64_t most = (uint64_t)(b.end - b.p); /* a value has a byte at least */

    if (x->dictionary || (uint64_t)h->values > most || x->c->type == TD_PARQUET_BOOL)
        return damaged(x->f, "a dictionary");
    x->dictionary = td__calloc((size_t)h->values + 1, td__parquet_size(x->c->type));
    if (!x->dictionary)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a dictionary", x->f->r->where);
    x->page.encoding = 0;
    if (!td__parquet_values(&x->page, b, x->dictionary, h->values, &refused))
        return damaged(x->f, "a dictionary");
    x->page.dictionary = x->dictionary;
    x->page.n_dictionary = h->values;
    return TD_OK;
}

static bool is_decimal(const column *c)
{
    return c->converted == DECIMAL && c->scale;
}

static bool is_unsigned(const column *c)
{
    return c->converted >= UINT_8 && c->converted <= UINT_64;
}

/* What a column is in records. A decimal has a point that no binary number can place. */
static td__values_type values_type(const column *c)
{
    if (c->type == TD_PARQUET_FLOAT)
        return TD_VALUES_F32;
    if (c->type == TD_PARQUET_DOUBLE)
        return TD_VALUES_F64;
    if (c->type == TD_PARQUET_BYTES || c->type == TD_PARQUET_FIXED || is_decimal(c))
        return TD_VALUES_CELL;
    return is_unsigned(c) ? TD_VALUES_U64 : TD_VALUES_I64;
}

static td_status decimal_text(const file *f, const column *c, int64_t v, td__cell *out)
{
    uint64_t unit = 1, u = v < 0 ? -(uint64_t)v : (uint64_t)v;

    for (int i = 0; i < c->scale; i++)
        unit *= 10;
    char *text = td__arena_printf(f->r->arena, "%s%" PRIu64 ".%0*" PRIu64, v < 0 ? "-" : "",
                                  u / unit, c->scale, u % unit);
    if (!text)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its cells", f->r->where);
    *out = (td__cell){text, strlen(text)};
    return TD_OK;
}

/* n values, one behind the other, become those of h->values rows, of which levels says which are
 * there: from the last to the first, in place. */
static td_status spread(const reading *x, const header *h, const uint32_t *levels, int64_t n,
                        char *at)
{
    td__records *r = x->f->r;
    int64_t at_column = x->c - x->f->columns, next = n;
    td__values *v = &r->values[at_column];
    size_t each = td__values_size(v->type);
    static const float NO_F32 = NAN;
    static const double NO_F64 = NAN;

    if (v->type == TD_VALUES_I64 || v->type == TD_VALUES_U64)
        TD_TRY(td__records_missable(r, at_column));
    for (int64_t i = h->values - 1; i >= 0; i--) {
        char *to = at + (size_t)i * each;
        if (levels[i] == 1)
            memmove(to, at + (size_t)--next * each, each);
        else if (v->type == TD_VALUES_F32)
            memcpy(to, &NO_F32, each);
        else if (v->type == TD_VALUES_F64)
            memcpy(to, &NO_F64, each);
        else
            memset(to, 0, each);
        if (v->missing)
            v->missing[x->f->row + x->done + i] = levels[i] != 1;
    }
    return TD_OK;
}

/* Values of decimals, as texts. */
static td_status put_decimals(reading *x, td__bytes b, td__cell *to, int64_t n, bool *good,
                              const char **refused)
{
    int64_t *v = td__malloc(((size_t)n + 1) * sizeof *v);
    td_status st = v ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for a page", x->f->r->where);

    *good = v && td__parquet_values(&x->page, b, v, n, refused);
    for (int64_t i = 0; i < n && *good && !st; i++)
        st = decimal_text(x->f, x->c, v[i], &to[i]);
    td__free(v);
    return st;
}

/* levels: (h->values), 1 where a value is there; NULL: all are. */
static td_status put_values(reading *x, const header *h, const uint32_t *levels, td__bytes b)
{
    const char *refused = NULL;
    const td__values *v = &x->f->r->values[x->c - x->f->columns];
    char *to = (char *)v->data + (size_t)(x->f->row + x->done) * td__values_size(v->type);
    int64_t n = levels ? 0 : h->values;
    bool good;

    for (int64_t i = 0; levels && i < h->values; i++)
        n += levels[i] == 1;
    x->page.encoding = (int)h->encoding;
    if (is_decimal(x->c))
        TD_TRY(put_decimals(x, b, (td__cell *)(void *)to, n, &good, &refused));
    else
        good = td__parquet_values(&x->page, b, to, n, &refused);
    if (!good)
        return refused ? refuse(x->f, "an encoding of a column")
                       : damaged(x->f, "values of a page");
    if (v->type == TD_VALUES_U64 && x->c->type == TD_PARQUET_INT32)
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)(void *)to)[i] &= UINT32_MAX;
    return n < h->values ? spread(x, h, levels, n, to) : TD_OK;
}

/* Are these levels one run of ones, as writers leave it where nothing is missing? */
static bool all_there(td__bytes levels, int64_t n)
{
    uint64_t head = td__bytes_varint(&levels), level = td__bytes_little(&levels, 1);

    return !levels.bad && !(head & 1) && head >> 1 >= (uint64_t)n && level == 1;
}

static td_status read_data(reading *x, const header *h, const uint8_t *p, td__bytes b)
{
    uint32_t *levels = NULL;
    td_status st = TD_OK;

    if (h->values > x->at.values - x->done)
        return damaged(x->f, "more values than the chunk has");
    if (x->c->optional) {
        uint64_t nbytes = (uint64_t)h->levels_nbytes;
        const uint8_t *from = p;
        if (h->type == DATA_PAGE) {
            if (h->levels != LEVELS_RLE)
                return refuse(x->f, "an old encoding of missing values");
            nbytes = td__bytes_little(&b, 4);
            from = td__bytes_take(&b, nbytes);
        }
        td__bytes in = {.p = from, .end = from ? from + nbytes : NULL};
        bool some = from && !all_there(in, h->values);
        if (some)
            levels = td__calloc((size_t)h->values + 1, sizeof *levels);
        if (some && !levels)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for a page", x->f->r->where);
        if (!from || (some && !td__parquet_runs(&in, 1, levels, h->values)))
            st = damaged(x->f, "which values of a page are missing");
    }
    if (!st)
        st = put_values(x, h, levels, b);
    td__free(levels);
    x->done += h->values;
    return st;
}

static td_status read_page(reading *x, td__bytes *pages)
{
    td__bytes b;
    header h;

    if (!read_header(pages, &h))
        return damaged(x->f, "the header of a page");
    const uint8_t *p = td__bytes_take(pages, (uint64_t)h.stored);
    if (!p || h.levels_nbytes > h.stored || h.levels_nbytes > h.whole)
        return damaged(x->f, "a page beyond its column");
    if (h.type != DATA_PAGE && h.type != DICTIONARY_PAGE && h.type != DATA_PAGE_V2)
        return TD_OK; /* an index */
    if (h.repeats_nbytes)
        return refuse(x->f, "a nested column");
    TD_TRY(open_page(x, &h, p, &b));
    return h.type == DICTIONARY_PAGE ? read_dictionary(x, &h, b) : read_data(x, &h, p, b);
}

static td_status read_column(file *f, const chunk *at, const column *c, int64_t rows)
{
    reading x = {.f = f, .c = c, .at = *at};
    int64_t from =
        at->dictionary_at > 0 && at->dictionary_at < at->data_at ? at->dictionary_at : at->data_at;
    td_status st = TD_OK;

    if (at->values != rows || from < 4 || (uint64_t)from > f->nbytes || at->nbytes < 0 ||
        (uint64_t)at->nbytes > f->nbytes - (uint64_t)from)
        return damaged(f, "where a column lies");
    td__bytes pages = {.p = f->data + from, .end = f->data + from + at->nbytes};
    x.page = (td__parquet_page){.type = c->type, .fixed = c->fixed, .arena = f->r->arena};
    while (!st && x.done < rows) {
        if (pages.p == pages.end)
            st = damaged(f, "a column ends early");
        else
            st = read_page(&x, &pages);
    }
    td__free(x.dictionary);
    return st;
}

/* ---- Row groups ------------------------------------------------------------------------------ */

static td_status add_rows(file *f, int64_t rows)
{
    uint64_t all;

    if (rows < 0 || __builtin_add_overflow((uint64_t)f->row, (uint64_t)rows, &all) ||
        all > MOST_CELLS(f->nbytes) / (uint64_t)f->n_columns)
        return TD_FAIL(TD_EPROTO, "%s: more rows than a file of %zu bytes may have", f->r->where,
                       f->nbytes);
    return td__records_extend(f->r, rows);
}

static td_status read_group(file *f, td__bytes *b)
{
    chunk *chunks = td__calloc((size_t)f->n_columns, sizeof *chunks);
    td__thrift_field t;
    int last = 0;
    int64_t rows = -1, n = 0;
    td_status st = chunks ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for it", f->r->where);

    while (!st && td__thrift_next(b, &last, &t)) {
        if (t.id == 1 && t.type == TD_THRIFT_LIST && t.item == TD_THRIFT_STRUCT && !n) {
            if (t.n != (uint64_t)f->n_columns)
                st = damaged(f, "a row group with other columns");
            for (; !st && n < f->n_columns; n++)
                st = read_chunk(f, b, &chunks[n]);
        } else {
            if (t.id == 3)
                rows = t.i;
            td__thrift_skip(b, &t);
        }
    }
    if (!st && (b->bad || n != f->n_columns))
        st = damaged(f, "a row group of its footer");
    if (!st)
        st = add_rows(f, rows);
    for (int64_t i = 0; !st && i < n; i++)
        st = read_column(f, &chunks[i], &f->columns[i], rows);
    f->row += rows > 0 ? rows : 0;
    td__free(chunks);
    return st;
}

static td_status name_columns(file *f)
{
    td__cell *names = td__calloc((size_t)f->n_columns + 1, sizeof *names);
    td__values_type *types = td__calloc((size_t)f->n_columns + 1, sizeof *types);
    td_status st =
        names && types ? TD_OK : TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", f->r->where);

    for (int64_t i = 0; i < f->n_columns && !st; i++) {
        names[i] = f->columns[i].name;
        types[i] = values_type(&f->columns[i]);
    }
    if (!st)
        st = td__records_columns(f->r, names, f->n_columns);
    if (!st)
        st = td__records_types(f->r, types);
    td__free(types);
    td__free(names);
    return st;
}

static td_status read_footer(file *f, td__bytes b)
{
    td__thrift_field t;
    int last = 0;

    while (td__thrift_next(&b, &last, &t)) {
        bool list = t.type == TD_THRIFT_LIST && t.item == TD_THRIFT_STRUCT;
        if (t.id == 8)
            return refuse(f, "an encrypted file");
        if (t.id == 2 && list && !f->n_columns) {
            TD_TRY(read_schema(f, &b, t.n));
            TD_TRY(name_columns(f));
        } else if (t.id == 4 && list && f->n_columns) {
            for (uint64_t i = 0; i < t.n; i++)
                TD_TRY(read_group(f, &b));
        } else {
            td__thrift_skip(&b, &t);
        }
    }
    if (b.bad || !f->n_columns)
        return damaged(f, "its footer");
    return f->r->rows ? TD_OK : TD_FAIL(TD_EINVAL, "%s: it has no rows", f->r->where);
}

td_status td__parquet_parse(td__records *r, const td__source_opts *o, const uint8_t *data,
                            size_t nbytes)
{
    file f = {.r = r, .data = data, .nbytes = nbytes};

    (void)o;
    if (nbytes >= 4 && memcmp(data + nbytes - 4, "PARE", 4) == 0)
        return refuse(&f, "an encrypted file");
    if (nbytes < 12 || memcmp(data, "PAR1", 4) != 0 || memcmp(data + nbytes - 4, "PAR1", 4) != 0)
        return damaged(&f, "it does not begin and end with PAR1");
    td__bytes tail = {.p = data + nbytes - 8, .end = data + nbytes};
    uint64_t footer = td__bytes_little(&tail, 4);
    if (footer > nbytes - 12)
        return damaged(&f, "the size of its footer");
    td__bytes b = {.p = data + nbytes - 8 - footer, .end = data + nbytes - 8};
    td_status st = read_footer(&f, b);
    td__free(f.columns);
    td__free(f.page);
    return st;
}
