/* record_file.c -- see record_file.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/record_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/spool.h"

enum { ROWS = 64 };

size_t td__record_most(const td__dataset *d)
{
    size_t n = 0;

    for (int f = 0; f < d->n_fields; f++)
        n += sizeof(uint32_t) + td__field_nbytes(&d->fields[f]);
    return n;
}

/* Sample i of rows as a record. */
static size_t pack(const td__dataset *d, void *const *rows, int64_t i, uint8_t *to)
{
    uint8_t *begin = to;

    for (int f = 0; f < d->n_fields; f++) {
        size_t each = td__field_nbytes(&d->fields[f]), n = each;
        const uint8_t *from = (const uint8_t *)rows[f] + (size_t)i * each;
        while (n && !from[n - 1])
            n--;
        uint32_t length = (uint32_t)n;
        memcpy(to, &length, sizeof length);
        memcpy(to + sizeof length, from, n);
        to += sizeof length + n;
    }
    return (size_t)(to - begin);
}

td_status td__record_unpack(const td__dataset *d, const uint8_t *record, size_t nbytes, int64_t i,
                            void *const *out)
{
    for (int f = 0; f < d->n_fields; f++) {
        size_t each = td__field_nbytes(&d->fields[f]);
        uint8_t *to = (uint8_t *)out[f] + (size_t)i * each;
        uint32_t n;
        if (nbytes < sizeof n)
            return TD_FAIL(TD_EPROTO, "a record ends within field %s", d->fields[f].name);
        memcpy(&n, record, sizeof n);
        record += sizeof n;
        nbytes -= sizeof n;
        if (n > nbytes || n > each)
            return TD_FAIL(TD_EPROTO, "a record has %" PRIu32 " bytes of field %s, of %zu", n,
                           d->fields[f].name, each);
        memcpy(to, record, n);
        memset(to + n, 0, each - n);
        record += n;
        nbytes -= n;
    }
    return nbytes ? TD_FAIL(TD_EPROTO, "a record has %zu bytes too many", nbytes) : TD_OK;
}

static td_status write_records(td__record_file *r, td__dataset *d, int fd, const char *what,
                               void *const *rows, uint8_t *room)
{
    for (int64_t begin = 0; begin < r->count; begin += ROWS) {
        int64_t n = r->count - begin < ROWS ? r->count - begin : ROWS, number[ROWS];
        size_t used = 0;
        for (int64_t i = 0; i < n; i++)
            number[i] = begin + i;
        TD_TRY(td__dataset_read(d, number, n, NULL, rows));
        for (int64_t i = 0; i < n; i++) {
            size_t nbytes = pack(d, rows, i, room + used);
            used += nbytes;
            r->offset[begin + i + 1] = r->offset[begin + i] + (int64_t)nbytes;
        }
        TD_TRY(td__unnamed_write(fd, room, used, what));
    }
    return TD_OK;
}

static td_status fill(td__record_file *r, td__dataset *d, int fd, const char *what)
{
    void *rows[TD__MAX_FIELDS] = {0};
    uint8_t *room = td__malloc(td__record_most(d) * ROWS + 1);
    bool good = room != NULL;

    for (int f = 0; f < d->n_fields; f++) {
        rows[f] = td__malloc(td__field_nbytes(&d->fields[f]) * ROWS + 1);
        good = good && rows[f];
    }
    td_status st = good ? write_records(r, d, fd, what, rows, room)
                        : TD_FAIL(TD_ENOMEM, "no memory for the records of the %s part", what);
    for (int f = 0; f < d->n_fields; f++)
        td__free(rows[f]);
    td__free(room);
    if (st || !r->offset[r->count])
        return st;
    void *at = mmap(NULL, (size_t)r->offset[r->count], PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return TD_FAIL(TD_ENOMEM, "cannot map the records of the %s part: %s", what,
                       strerror(errno));
    r->data = at;
    return TD_OK;
}

td_status td__record_file_make(td__record_file *r, td__dataset *d, const char *what)
{
    int fd = -1;

    *r = (td__record_file){.count = d->count};
    r->offset = td__calloc((size_t)d->count + 1, sizeof *r->offset);
    if (!r->offset)
        return TD_FAIL(TD_ENOMEM, "no memory for the offsets of %" PRId64 " records", d->count);
    td_status st = td__unnamed_file(&fd, what);
    if (!st)
        st = fill(r, d, fd, what);
    if (fd >= 0)
        close(fd);
    if (st)
        td__record_file_close(r);
    return st;
}

void td__record_file_close(td__record_file *r)
{
    if (r->data)
        munmap((void *)(uintptr_t)r->data, (size_t)r->offset[r->count]);
    td__free(r->offset);
    *r = (td__record_file){0};
}
