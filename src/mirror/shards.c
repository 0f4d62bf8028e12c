/* shards.c -- names and lists of shards; see shards.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "mirror/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/unnamed_file.h"
#include "checkpoint/names.h"
#include "run/run_dir.h"
#include "tensor/safetensors.h"

void td__shard_name(int rank, int ranks, uint32_t token, char name[TD__SHARD_NAME])
{
    snprintf(name, TD__SHARD_NAME, "shard-%d-of-%d-%08" PRIx32, rank, ranks, token);
}

td_status td__shard_offer_create(const td__shards_event *e, uint32_t token, td__shard_offer **out)
{
    td__shard_offer *o = td__calloc(1, sizeof *o);

    *out = NULL;
    if (o)
        *o = (td__shard_offer){e->step, e->generation, e->ranks, token, json_array()};
    bool ok = o && o->rows;
    for (int i = 0; ok && i < e->n; i++) {
        const td__shard_row *r = &e->row[i];
        ok = json_array_append_new(o->rows,
                                   json_pack("[i, s, s, I, I]", r->rank, r->file, r->tensor,
                                             (json_int_t)r->first, (json_int_t)r->count)) == 0;
    }
    if (!ok) {
        td__shard_offer_destroy(o);
        return TD_FAIL(TD_ENOMEM, "out of memory for a list of shards");
    }
    *out = o;
    return TD_OK;
}

void td__shard_offer_destroy(td__shard_offer *o)
{
    if (!o)
        return;
    json_decref(o->rows);
    td__free(o);
}

/* ---- Where ranges lie ------------------------------------------------------------------------ */

/* The header of a file that this process has written, and where its tensors begin. */
typedef struct header {
    json_t *root;
    uint64_t begin, nbytes;
} header;

static td_status read_header(const char *folder, const char *file, header *h)
{
    char path[TD__PATH];
    uint8_t prefix[TD_ST_PREFIX];
    struct stat s;
    uint64_t len = 0;

    *h = (header){NULL};
    TD_TRY(td__run_dir_path(folder, file, path));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &s) == 0 && td__unnamed_get(fd, 0, prefix, sizeof prefix);
    for (int i = TD_ST_PREFIX; ok && i > 0; i--)
        len = len << 8 | prefix[i - 1];
    char *text = ok && len <= TD_ST_HEADER_MAX ? td__malloc((size_t)len + 1) : NULL;
    if (text && td__unnamed_get(fd, TD_ST_PREFIX, text, (size_t)len))
        h->root = json_loadb(text, (size_t)len, 0, NULL);
    td__free(text);
    if (fd >= 0)
        close(fd);
    if (!h->root)
        return TD_FAIL(TD_EIO, "%s: its header cannot be read for upload", path);
    h->begin = TD_ST_PREFIX + len;
    h->nbytes = (uint64_t)s.st_size;
    return TD_OK;
}

static td_status place_row(const json_t *row, const char *file, const header *h, json_t *shards)
{
    int rank;
    const char *in, *tensor;
    json_int_t first, count, begin, end;

    if (json_unpack((json_t *)row, "[i, s, s, I, I]", &rank, &in, &tensor, &first, &count) != 0)
        return TD_FAIL(TD_EPROTO, "a list of shards is malformed");
    if (strcmp(in, file) != 0)
        return TD_OK;
    if (json_unpack(json_object_get(h->root, tensor), "{s:[I, I]}", "data_offsets", &begin, &end) ||
        begin + (first + count) * (json_int_t)sizeof(float) > end)
        return TD_FAIL(TD_EPROTO, "%s has no such part of tensor '%s'", file, tensor);
    json_t *ranges = json_object_get(json_array_get(shards, (size_t)rank), "ranges");
    json_int_t at = (json_int_t)h->begin + begin + first * (json_int_t)sizeof(float);
    return json_array_append_new(
               ranges, json_pack("[s, I, I]", file, at, count * (json_int_t)sizeof(float)))
               ? TD_FAIL(TD_ENOMEM, "out of memory for a list of shards")
               : TD_OK;
}

typedef struct range {
    uint64_t begin, nbytes;
} range;

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* What of the file no other shard has is rank 0's. */
static td_status place_rest(const char *file, uint64_t nbytes, json_t *shards)
{
    json_t *shard, *row, *mine = json_object_get(json_array_get(shards, 0), "ranges");
    size_t i, k, n = 0, room = 1;
    uint64_t at = 0;
    bool ok = true;

    json_array_foreach(shards, i, shard) room += json_array_size(json_object_get(shard, "ranges"));
    range *have = td__calloc(room, sizeof *have);
    if (!have)
        return TD_FAIL(TD_ENOMEM, "out of memory for a list of shards");
    json_array_foreach(shards, i, shard)
        json_array_foreach(json_object_get(shard, "ranges"), k,
                           row) if (strcmp(json_string_value(json_array_get(row, 0)), file) == 0)
            have[n++] = (range){(uint64_t)json_integer_value(json_array_get(row, 1)),
                                (uint64_t)json_integer_value(json_array_get(row, 2))};
    qsort(have, n, sizeof *have, by_begin);
    have[n] = (range){nbytes, 0};
    for (i = 0; i <= n && ok; i++) {
        ok = have[i].begin >= at && have[i].begin <= nbytes;
        if (ok && have[i].begin > at)
            ok = json_array_append_new(mine, json_pack("[s, I, I]", file, (json_int_t)at,
                                                       (json_int_t)(have[i].begin - at))) == 0;
        at = have[i].begin + have[i].nbytes;
    }
    td__free(have);
    return ok ? TD_OK : TD_FAIL(TD_EPROTO, "%s: shards overlap", file);
}

static td_status place_file(const td__shard_offer *o, const char *folder, const char *file,
                            json_t *shards)
{
    header h;
    json_t *row;
    size_t i;

    TD_TRY(read_header(folder, file, &h));
    td_status st = TD_OK;
    json_array_foreach(o->rows, i, row) if (!st) st = place_row(row, file, &h, shards);
    json_decref(h.root);
    return st ? st : place_rest(file, h.nbytes, shards);
}

td_status td__shard_places(const td__shard_offer *o, const char *folder, json_t **out)
{
    static const td__checkpoint_file LARGE[] = {TD__FILE_MODEL, TD__FILE_OPTIMIZER};
    json_t *shards = json_array();
    char name[TD__SHARD_NAME];
    td_status st = TD_OK;

    *out = NULL;
    for (int r = 0; r < o->ranks; r++) {
        td__shard_name(r, o->ranks, o->token, name);
        if (json_array_append_new(shards, json_pack("{s:s, s:[]}", "object", name, "ranges")))
            st = TD_FAIL(TD_ENOMEM, "out of memory for a list of shards");
    }
    for (size_t i = 0; i < sizeof LARGE / sizeof LARGE[0] && !st; i++)
        st = place_file(o, folder, td__checkpoint_file_name(LARGE[i]), shards);
    if (st)
        json_decref(shards);
    else
        *out = shards;
    return st;
}

uint64_t td__shard_nbytes(const json_t *shard)
{
    json_t *row;
    size_t i;
    uint64_t nbytes = 0;

    json_array_foreach(json_object_get(shard, "ranges"), i, row) nbytes +=
        (uint64_t)json_integer_value(json_array_get(row, 2));
    return nbytes;
}

/* ---- Putting files together ------------------------------------------------------------------ */

bool td__is_plain_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

static td_status copy_range(int from, uint64_t at, const char *path, uint64_t to, uint64_t nbytes)
{
    char block[1 << 16];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    bool ok = fd >= 0;

    for (uint64_t done = 0; ok && done < nbytes;) {
        size_t n = nbytes - done < sizeof block ? (size_t)(nbytes - done) : sizeof block;
        ok = td__unnamed_get(from, at + done, block, n) && td__unnamed_put(fd, to + done, block, n);
        done += n;
    }
    td_status st =
        ok ? TD_OK : TD_FAIL(TD_EIO, "%s: cannot be put together: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return st;
}

/* The ranges of a shard that is in `path`: each within its file. */
static td_status spread(const json_t *shard, const json_t *state, const char *folder,
                        const char *path)
{
    char file_path[TD__PATH];
    json_t *row;
    size_t i;
    uint64_t at = 0;
    td_status st = TD_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot read it: %s", path, strerror(errno));
    json_array_foreach(json_object_get(shard, "ranges"), i, row)
    {
        const char *file;
        json_int_t offset, nbytes, whole = 0;
        bool ok = json_unpack(row, "[s, I, I]", &file, &offset, &nbytes) == 0 &&
                  json_unpack(json_object_get(json_object_get(state, "files"), file), "{s:I}",
                              "nbytes", &whole) == 0 &&
                  td__is_plain_name(file) && offset >= 0 && nbytes >= 0 && offset <= whole &&
                  nbytes <= whole - offset;
        st = ok ? td__run_dir_path(folder, file, file_path)
                : TD_FAIL(TD_EPROTO, TD__SHARDS_FILE ": a range lies in no file");
        if (!st)
            st = copy_range(fd, at, file_path, (uint64_t)offset, (uint64_t)nbytes);
        if (st)
            break;
        at += (uint64_t)nbytes;
    }
    close(fd);
    return st;
}

td_status td__shards_assemble(const json_t *shards, const json_t *state, const char *folder,
                              td__shard_get get, void *user)
{
    char path[TD__PATH];
    json_t *shard;
    size_t i;

    json_array_foreach(shards, i, shard)
    {
        const char *object = json_string_value(json_object_get(shard, "object"));
        const char *sha256 = json_string_value(json_object_get(shard, "sha256"));
        if (!object || !td__is_plain_name(object) || !sha256 || strlen(sha256) != TD_SHA256_HEX - 1)
            return TD_FAIL(TD_EPROTO, TD__SHARDS_FILE ": malformed list of shards");
        TD_TRY(td__run_dir_path(folder, object, path));
        TD_TRY(get(user, object, path, sha256));
        TD_TRY(spread(shard, state, folder, path));
        unlink(path);
    }
    return TD_OK;
}
