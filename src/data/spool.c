/* spool.c -- see spool.h. A record is the fields of a sample, each at a multiple of ALIGN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/spool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/unnamed_file.h"
#include "data/pipeline.h"

enum { ALIGN = 16, BUFFER = 1 << 18 };

typedef struct spool {
    td__dataset head;
    size_t offset[TD__MAX_FIELDS], each; /* bytes: of a field in a record, of a record */
    const uint8_t *data;                 /* (count, record), mapped; NULL: there are none */
} spool;

static void spool_destroy(td__dataset *d)
{
    spool *s = (spool *)d;
    if (s->data)
        munmap((void *)(uintptr_t)s->data, s->each * (size_t)d->count);
    td__free(s);
}

static td_status spool_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                            void *const *out)
{
    const spool *s = (const spool *)d;

    (void)draw;
    for (int f = 0; f < d->n_fields; f++) {
        size_t nbytes = td__field_nbytes(&d->fields[f]);
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)out[f] + (size_t)i * nbytes,
                   s->data + (size_t)index[i] * s->each + s->offset[f], nbytes);
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = spool_destroy, .read = spool_read};

static td_status disk_failed(const char *what)
{
    return TD_FAIL(TD_EIO, "%s: cannot keep the samples in a file in %s: %s", what, td__temp_dir(),
                   strerror(errno));
}

td_status td__unnamed_file(int *fd, const char *what)
{
    *fd = td__unnamed_open(NULL);
    return *fd < 0 ? disk_failed(what) : TD_OK;
}

td_status td__unnamed_write(int fd, const void *data, size_t nbytes, const char *what)
{
    const uint8_t *from = data;

    while (nbytes) {
        ssize_t n = write(fd, from, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return disk_failed(what);
        from += n;
        nbytes -= (size_t)n;
    }
    return TD_OK;
}

/* All samples to fd; room holds `most` records. */
static td_status collect(spool *s, td_next_fn next, void *user, int fd, uint8_t *room, size_t most)
{
    size_t used = 0;

    for (bool end = false; !end;) {
        void *at[TD__MAX_FIELDS];
        for (int f = 0; f < s->head.n_fields; f++)
            at[f] = room + used * s->each + s->offset[f];
        td_status st = next(user, at, &end);
        if (st)
            return td__pipeline_failed(st, "iterator", s->head.count);
        s->head.count += !end;
        used += !end;
        if (used < most && !end)
            continue;
        TD_TRY(td__unnamed_write(fd, room, used * s->each, "iterator"));
        used = 0;
    }
    return TD_OK;
}

static td_status map_file(spool *s, int fd)
{
    size_t nbytes;

    if (!s->head.count)
        return TD_OK;
    if (!td__size_mul(s->each, (size_t)s->head.count, &nbytes))
        return TD_FAIL(TD_EINVAL, "iterator: %" PRId64 " samples are too large", s->head.count);
    void *at = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return disk_failed("iterator");
    s->data = at;
    return TD_OK;
}

static td_status fill(spool *s, td_next_fn next, void *user)
{
    size_t most = s->each < BUFFER ? BUFFER / s->each : 1;
    uint8_t *room = td__alloc_block(most * s->each);
    int fd = -1;

    if (!room)
        return TD_FAIL(TD_ENOMEM, "iterator: no memory for a sample of %zu bytes", s->each);
    memset(room, 0, most * s->each); /* between fields too */
    td_status st = td__unnamed_file(&fd, "iterator");
    if (!st)
        st = collect(s, next, user, fd, room, most);
    if (!st)
        st = map_file(s, fd);
    if (fd >= 0)
        close(fd);
    td__free_block(room, most * s->each);
    return st;
}

td_status td__spool_create(const td__field *fields, int n_fields, td_next_fn next, void *user,
                           td__dataset **out)
{
    spool *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    s->head = (td__dataset){.ops = &OPS, .n_fields = n_fields};
    memcpy(s->head.fields, fields, (size_t)n_fields * sizeof *fields);
    for (int f = 0; f < n_fields; f++) {
        s->offset[f] = s->each;
        s->each += td__align_up(td__field_nbytes(&fields[f]), ALIGN);
    }
    s->each = s->each ? s->each : ALIGN;
    td_status st = fill(s, next, user);
    if (st) {
        spool_destroy(&s->head);
        return st;
    }
    *out = &s->head;
    return TD_OK;
}
