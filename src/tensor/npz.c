/* npz.c -- .npz: a zip archive of .npy members.
 *
 * From the end of the file: the end record says where the central directory is, its entries say
 * where the members are. Sizes and checksums are taken from the central directory alone: writers
 * that stream (NumPy among them) leave placeholders in the header in front of a member.
 *
 *     local header (30 + name + extra) | bytes      for each member
 *     central header (46 + name + extra + comment)  for each member
 *     end record (22 + comment)
 *
 * The format is little-endian; all offsets below are those of the PKWARE application note. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "tandem/tensor.h"
#include "tensor/name_index.h"
#include "tensor/npy.h"

#define LOCAL_SIGN UINT32_C(0x04034b50)
#define CENTRAL_SIGN UINT32_C(0x02014b50)
#define END_SIGN UINT32_C(0x06054b50)

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    COMMENT_MAX = 0xffff,
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1,
    FLAG_UTF8 = 1 << 11,
    VERSION = 20, /* needed to extract: deflate */
    DATE = 0x21,  /* 1980-01-01: the same tensors give the same bytes */
    MEMBERS_MAX = 0xfffe,
    INFLATE_RATIO_MAX = 1032 /* the most that deflate can save */
};

typedef struct member {
    char *name;          /* without ".npy" */
    const uint8_t *data; /* as stored */
    uint32_t packed, nbytes, crc;
    int method;
} member;

struct td_npz {
    td__file_map map;
    td__arena *arena;
    char *path;
    member *members;    /* in the order of the central directory */
    td__named *by_name; /* sorted */
    int count;
};

static uint32_t get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static void put16(uint8_t *p, uint32_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static void put32(uint8_t *p, uint32_t x)
{
    put16(p, x);
    put16(p + 2, x >> 16);
}

/* The end record: the last place where signature and comment length fit the end of the file. */
static td_status find_end(const td_npz *z, size_t *at)
{
    size_t n = z->map.nbytes;

    for (size_t back = END_BYTES; back <= n && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = z->map.data + n - back;
        if (get32(p) == END_SIGN && get16(p + 20) == back - END_BYTES) {
            *at = n - back;
            return TD_OK;
        }
    }
    return TD_FAIL(TD_EPROTO, "%s: not a zip archive, or truncated", z->path);
}

/* Check the local header at `offset` and find the member's bytes, which end before `limit`. */
static td_status locate(const td_npz *z, member *m, uint32_t offset, size_t limit)
{
    if (offset > limit || limit - offset < LOCAL_BYTES || get32(z->map.data + offset) != LOCAL_SIGN)
        return TD_FAIL(TD_EPROTO, "%s: member '%s' is not at its recorded offset", z->path,
                       m->name);
    const uint8_t *p = z->map.data + offset;
    size_t skip = LOCAL_BYTES + (size_t)get16(p + 26) + get16(p + 28);
    if (limit - offset < skip || limit - offset - skip < m->packed)
        return TD_FAIL(TD_EPROTO, "%s: member '%s' extends beyond the end of the file", z->path,
                       m->name);
    if (get16(p + 8) != (uint32_t)m->method)
        return TD_FAIL(TD_EPROTO, "%s: member '%s': headers disagree", z->path, m->name);
    m->data = p + skip;
    return TD_OK;
}

/* Read the central header at *at, which lies before `end`, and move on. */
static td_status read_member(td_npz *z, member *m, size_t *at, size_t dir, size_t end)
{
    const uint8_t *p = z->map.data + *at;

    if (end - *at < CENTRAL_BYTES || get32(p) != CENTRAL_SIGN)
        return TD_FAIL(TD_EPROTO, "%s: damaged directory", z->path);
    size_t name_len = get16(p + 28);
    size_t total = CENTRAL_BYTES + name_len + get16(p + 30) + get16(p + 32);
    const char *name = (const char *)p + CENTRAL_BYTES;
    if (end - *at < total || name_len == 0 || memchr(name, 0, name_len))
        return TD_FAIL(TD_EPROTO, "%s: damaged directory", z->path);

    size_t keep = name_len;
    if (keep > 4 && memcmp(name + keep - 4, ".npy", 4) == 0)
        keep -= 4;
    m->name = td__arena_printf(z->arena, "%.*s", (int)keep, name);
    if (!m->name)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its directory", z->path);
    m->method = (int)get16(p + 10);
    m->crc = get32(p + 16);
    m->packed = get32(p + 20);
    m->nbytes = get32(p + 24);
    uint32_t offset = get32(p + 42);

    if (get16(p + 8) & FLAG_ENCRYPTED)
        return TD_FAIL(TD_ENOTSUP, "%s: member '%s' is encrypted", z->path, m->name);
    if (m->method != STORED && m->method != DEFLATED)
        return TD_FAIL(TD_ENOTSUP, "%s: member '%s' has compression method %d", z->path, m->name,
                       m->method);
    if (m->packed == UINT32_MAX || m->nbytes == UINT32_MAX || offset == UINT32_MAX)
        return TD_FAIL(TD_ENOTSUP, "%s: member '%s' needs zip64", z->path, m->name);
    if ((m->method == STORED && m->packed != m->nbytes) ||
        m->nbytes / INFLATE_RATIO_MAX > m->packed)
        return TD_FAIL(TD_EPROTO, "%s: member '%s' has impossible sizes", z->path, m->name);
    TD_TRY(locate(z, m, offset, dir));
    *at += total;
    return TD_OK;
}

static td_status read_directory(td_npz *z)
{
    size_t end;
    TD_TRY(find_end(z, &end));

    const uint8_t *p = z->map.data + end;
    uint32_t count = get16(p + 10), dir_bytes = get32(p + 12), dir = get32(p + 16);
    if (count > MEMBERS_MAX || dir == UINT32_MAX || dir_bytes == UINT32_MAX)
        return TD_FAIL(TD_ENOTSUP, "%s: zip64 archives are not supported", z->path);
    if (get16(p + 4) != 0 || get16(p + 6) != 0 || get16(p + 8) != count || dir > end ||
        dir_bytes != end - dir)
        return TD_FAIL(TD_EPROTO, "%s: damaged end record", z->path);

    z->members = td__arena_alloc(z->arena, count * sizeof *z->members);
    z->by_name = td__arena_alloc(z->arena, count * sizeof *z->by_name);
    if (!z->members || !z->by_name)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its directory", z->path);
    size_t at = dir;
    for (z->count = 0; z->count < (int)count; z->count++) {
        TD_TRY(read_member(z, &z->members[z->count], &at, dir, end));
        z->by_name[z->count] = (td__named){z->members[z->count].name, z->count};
    }
    if (at != end)
        return TD_FAIL(TD_EPROTO, "%s: damaged directory", z->path);

    td__names_sort(z->by_name, z->count);
    for (int i = 1; i < z->count; i++)
        if (strcmp(z->by_name[i].name, z->by_name[i - 1].name) == 0)
            return TD_FAIL(TD_EPROTO, "%s: two members '%s'", z->path, z->by_name[i].name);
    return TD_OK;
}

td_status td_npz_open(const char *path, td_npz **out)
{
    td__arena *arena = NULL;
    td_npz *z = NULL;
    td_status st;

    *out = NULL;
    TD_TRY(td__arena_create(&arena));
    z = td__arena_alloc(arena, sizeof *z);
    char *copy = z ? td__arena_strdup(arena, path) : NULL;
    if (!copy) {
        td__arena_destroy(arena);
        return TD_FAIL(TD_ENOMEM, "%s: no memory to open it", path);
    }
    z->arena = arena;
    z->path = copy;
    TD_TRY_OR(st, fail, td__file_map_open(&z->map, path));
    TD_TRY_OR(st, fail, read_directory(z));
    *out = z;
    return TD_OK;
fail:
    td_npz_close(z);
    return st;
}

void td_npz_close(td_npz *z)
{
    if (!z)
        return;
    td__file_map_close(&z->map);
    td__arena_destroy(z->arena);
}

int td_npz_count(const td_npz *z)
{
    return z->count;
}

const char *td_npz_name(const td_npz *z, int i)
{
    return i >= 0 && i < z->count ? z->members[i].name : NULL;
}

int td_npz_find(const td_npz *z, const char *name)
{
    return td__names_find(z->by_name, z->count, name);
}

/* zlib's memory comes from us too: counted, and failing on demand. */
static void *zlib_alloc(void *opaque, unsigned count, unsigned size)
{
    (void)opaque;
    return td__calloc(count, size);
}

static void zlib_free(void *opaque, void *p)
{
    (void)opaque;
    td__free(p);
}

/* Exactly m->nbytes into `to`. */
static td_status inflate_member(const td_npz *z, const member *m, uint8_t *to)
{
    z_stream s = {
        .zalloc = zlib_alloc,
        .zfree = zlib_free,
        .next_in = (Bytef *)(uintptr_t)m->data,
        .avail_in = m->packed,
        .next_out = to,
        .avail_out = m->nbytes,
    };
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK) /* raw: no zlib header */
        return TD_FAIL(TD_ENOMEM, "%s: no memory to inflate '%s'", z->path, m->name);
    int rc = inflate(&s, Z_FINISH);
    uLong made = s.total_out;
    inflateEnd(&s);
    if (rc == Z_MEM_ERROR)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to inflate '%s'", z->path, m->name);
    if (rc != Z_STREAM_END || made != m->nbytes)
        return TD_FAIL(TD_EPROTO, "%s: member '%s' is damaged", z->path, m->name);
    return TD_OK;
}

td_status td_npz_load(const td_npz *z, int i, td_tensor *out)
{
    td_status st = TD_OK;
    uint8_t *inflated = NULL;

    *out = (td_tensor){0};
    if (i < 0 || i >= z->count)
        return TD_FAIL(TD_EINVAL, "%s: no member %d of %d", z->path, i, z->count);
    const member *m = &z->members[i];
    const uint8_t *data = m->data;
    if (m->method == DEFLATED) {
        inflated = td__alloc_block(m->nbytes);
        if (!inflated)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for '%s'", z->path, m->name);
        TD_TRY_OR(st, done, inflate_member(z, m, inflated));
        data = inflated;
    }
    if (crc32_z(0, data, m->nbytes) != m->crc)
        st = TD_FAIL(TD_EPROTO, "%s: member '%s' has a wrong checksum", z->path, m->name);
    else
        st = td__npy_parse(data, m->nbytes, m->name, out);
done:
    td__free_block(inflated, m->nbytes);
    return st;
}

/* What a member becomes: header and elements, perhaps deflated into `packed`. */
typedef struct pack {
    uint8_t header[TD_NPY_HEADER_MAX];
    size_t header_bytes;
    td_tensor dense;
    uint8_t *packed; /* NULL: stored */
    size_t packed_room;
    uint32_t nbytes, packed_bytes, crc;
} pack;

static void pack_fini(pack *k)
{
    td__free_block(k->packed, k->packed_room);
    td_tensor_fini(&k->dense);
}

static td_status deflate_pack(pack *k)
{
    z_stream s = {.zalloc = zlib_alloc, .zfree = zlib_free};

    if (deflateInit2(&s, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        return TD_FAIL(TD_ENOMEM, "no memory to deflate");
    k->packed_room = deflateBound(&s, k->nbytes) + 64; /* two inputs may cost one more block */
    k->packed = k->packed_room < UINT32_MAX ? td__alloc_block(k->packed_room) : NULL;
    if (!k->packed) {
        deflateEnd(&s);
        return TD_FAIL(TD_ENOMEM, "no memory for %zu deflated bytes", k->packed_room);
    }
    s.next_out = k->packed;
    s.avail_out = (uInt)k->packed_room;
    s.next_in = k->header;
    s.avail_in = (uInt)k->header_bytes;
    int rc = deflate(&s, Z_NO_FLUSH);
    s.next_in = k->dense.data;
    s.avail_in = (uInt)td_tensor_nbytes(&k->dense);
    if (rc == Z_OK)
        rc = deflate(&s, Z_FINISH);
    k->packed_bytes = (uint32_t)s.total_out;
    deflateEnd(&s);
    TD_ASSERT(rc == Z_STREAM_END, "deflate gave %d with room to spare", rc);
    return TD_OK;
}

static td_status pack_init(pack *k, const td_named_tensor *item, bool compress)
{
    td_status st;

    *k = (pack){0};
    TD_TRY(td__npy_header(item->tensor, k->header, &k->header_bytes));
    size_t nbytes = k->header_bytes + td_tensor_nbytes(item->tensor);
    if (nbytes >= UINT32_MAX)
        return TD_FAIL(TD_ENOTSUP, "'%s': %zu bytes need zip64", item->name, nbytes);
    TD_TRY(td_tensor_contiguous(item->tensor, &k->dense));
    k->nbytes = k->packed_bytes = (uint32_t)nbytes;
    uLong crc = crc32_z(0, k->header, k->header_bytes);
    if (td_tensor_nbytes(&k->dense)) /* for no bytes at NULL, zlib would start anew */
        crc = crc32_z(crc, k->dense.data, td_tensor_nbytes(&k->dense));
    k->crc = (uint32_t)crc;
    if (compress)
        TD_TRY_OR(st, fail, deflate_pack(k));
    return TD_OK;
fail:
    pack_fini(k);
    return st;
}

/* The fields that local and central header share, from "version needed" on. */
static void put_common(uint8_t *p, const pack *k, size_t name_len)
{
    put16(p, VERSION);
    put16(p + 2, FLAG_UTF8);
    put16(p + 4, k->packed ? DEFLATED : STORED);
    put16(p + 6, 0);
    put16(p + 8, DATE);
    put32(p + 10, k->crc);
    put32(p + 14, k->packed_bytes);
    put32(p + 18, k->nbytes);
    put16(p + 22, (uint32_t)name_len);
    put16(p + 24, 0);
}

static void write_name(td__file_out *f, const char *name)
{
    td__file_out_write(f, name, strlen(name));
    td__file_out_write(f, ".npy", 4);
}

/* Write one member and prepare its central header. */
static td_status write_member(td__file_out *f, const td_named_tensor *item, bool compress,
                              uint8_t central[CENTRAL_BYTES])
{
    uint8_t local[LOCAL_BYTES] = {0};
    size_t name_len = strlen(item->name) + 4;
    uint64_t offset = f->offset;
    pack k;

    TD_TRY(pack_init(&k, item, compress));
    put32(local, LOCAL_SIGN);
    put_common(local + 4, &k, name_len);
    td__file_out_write(f, local, sizeof local);
    write_name(f, item->name);
    if (k.packed) {
        td__file_out_write(f, k.packed, k.packed_bytes);
    } else {
        td__file_out_write(f, k.header, k.header_bytes);
        td__file_out_write(f, k.dense.data, td_tensor_nbytes(&k.dense));
    }
    memset(central, 0, CENTRAL_BYTES);
    put32(central, CENTRAL_SIGN);
    put16(central + 4, VERSION);
    put_common(central + 6, &k, name_len);
    put32(central + 42, (uint32_t)offset);
    pack_fini(&k);
    if (f->offset >= UINT32_MAX)
        return TD_FAIL(TD_ENOTSUP, "%s: archives of 4 GB and more need zip64", f->path);
    return TD_OK;
}

static td_status check_items(const char *path, const td_named_tensor *items, int n)
{
    if (n < 0 || n > MEMBERS_MAX)
        return TD_FAIL(TD_EINVAL, "%s: cannot hold %d members", path, n);
    for (int i = 0; i < n; i++) {
        if (!items[i].name || !*items[i].name || strlen(items[i].name) > 0xffff - 4)
            return TD_FAIL(TD_EINVAL, "%s: tensor %d has no usable name", path, i);
        for (int j = 0; j < i; j++)
            if (strcmp(items[i].name, items[j].name) == 0)
                return TD_FAIL(TD_EINVAL, "%s: two tensors '%s'", path, items[i].name);
    }
    return TD_OK;
}

td_status td_npz_save(const char *path, const td_named_tensor *items, int n, bool compress)
{
    uint8_t end[END_BYTES] = {0};
    uint8_t *central = NULL; /* (n, CENTRAL_BYTES) */
    td__file_out f = {.fd = -1};
    td_status st;

    TD_TRY(check_items(path, items, n));
    central = td__calloc((size_t)n + 1, CENTRAL_BYTES);
    if (!central)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its directory", path);
    TD_TRY_OR(st, fail, td__file_out_open(&f, path));
    for (int i = 0; i < n; i++)
        TD_TRY_OR(st, fail, write_member(&f, &items[i], compress, central + i * CENTRAL_BYTES));

    uint64_t dir = f.offset;
    for (int i = 0; i < n; i++) {
        td__file_out_write(&f, central + i * CENTRAL_BYTES, CENTRAL_BYTES);
        write_name(&f, items[i].name);
    }
    put32(end, END_SIGN);
    put16(end + 8, (uint32_t)n);
    put16(end + 10, (uint32_t)n);
    put32(end + 12, (uint32_t)(f.offset - dir));
    put32(end + 16, (uint32_t)dir);
    td__file_out_write(&f, end, sizeof end);
    st = td__file_out_commit(&f);
fail:
    td__file_out_abandon(&f); /* nothing after a commit */
    td__free(central);
    return st;
}
