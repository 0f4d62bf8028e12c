/* distribute.c -- what all ways to spread rank 0's data share: what a part looks like is told to
 * everybody, samples are packed and unpacked, and what arrived is compared with what was sent.
 *
 * Whole methods stand where data.c opens the source: the first thing that is done to a part on rank
 * 0 is to spread it, and a part on another rank begins as a table of what arrived. Everything above
 * it is then the same code on the same samples. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/distribute/distribute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/log.h"

enum { BLOCK = 1 << 20, TEXT = 512, CHUNK = 256 };

static const td__distribute_def *const METHODS[] = {
#define TD_DISTRIBUTE(name) &td__distribute_##name,
#include "parallel/distribute/distribute.def"
#undef TD_DISTRIBUTE
};

const char *td__distribute_list(int i)
{
    if (i == 0)
        return "none";
    return i > 0 && i <= TD_LEN(METHODS) ? METHODS[i - 1]->name : NULL;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* How rank 0 fared. */
typedef struct verdict {
    int32_t status;
    char text[TEXT];
} verdict;

/* Rank 0's status becomes everybody's. */
static td_status agree(td_comm *comm, td_status mine)
{
    verdict v = {.status = mine};

    if (mine)
        snprintf(v.text, sizeof v.text, "%s", td_last_error());
    td_status st = td_broadcast(comm, &v, sizeof v, TD_U8, 0, NULL);
    if (mine)
        v.status = mine; /* rank 0 knows it in any case */
    else if (st)
        return st;
    if (!v.status)
        return TD_OK;
    /* Who knows first may abort the comm on its way out: not before all others know. */
    if (!st && v.status != TD_ENOTSUP && td_barrier(comm, NULL))
        TD_LOG(DEBUG, DATA, "the failure could not be reported to all ranks: %s", td_last_error());
    v.text[sizeof v.text - 1] = 0;
    return TD_FAIL((td_status)v.status, "%s", v.text);
}

/* What a part is, without its samples. */
typedef struct part_head {
    int64_t count, gap;
    int32_t n_fields, in_order;
    td__field fields[TD__MAX_FIELDS]; /* class_names, and the pointers of units: NULL */
    uint64_t names_nbytes;            /* texts of all classes, each with its zero */
    uint32_t named;                   /* bit f: field f has them */
} part_head;

static void describe(const td__dataset *d, part_head *h)
{
    *h = (part_head){
        .count = d->count, .gap = d->gap, .n_fields = d->n_fields, .in_order = d->in_order};
    for (int f = 0; f < d->n_fields; f++) {
        h->fields[f] = d->fields[f];
        h->fields[f].class_names = NULL;
        h->fields[f].units.mean = h->fields[f].units.std = NULL;
        if (!d->fields[f].class_names)
            continue;
        h->named |= 1u << f;
        for (int64_t c = 0; c < d->fields[f].classes; c++)
            h->names_nbytes += strlen(d->fields[f].class_names[c]) + 1;
    }
}

static void join_names(const td__dataset *d, char *to)
{
    for (int f = 0; f < d->n_fields; f++)
        for (int64_t c = 0; d->fields[f].class_names && c < d->fields[f].classes; c++) {
            size_t n = strlen(d->fields[f].class_names[c]) + 1;
            memcpy(to, d->fields[f].class_names[c], n);
            to += n;
        }
}

/* The texts in [text, text + nbytes) become those of d's fields. */
static td_status cut_names(td__dataset *d, uint32_t named, const char *text, size_t nbytes,
                           td__arena *arena)
{
    const char *end = text + nbytes;

    for (int f = 0; f < d->n_fields; f++) {
        if (!(named >> f & 1))
            continue;
        int64_t n = d->fields[f].classes;
        if (n < 0 || (uint64_t)n > nbytes)
            return TD_FAIL(TD_EPROTO, "the data's names of classes do not fit their number");
        const char **list = td__arena_alloc(arena, ((size_t)n + 1) * sizeof *list);
        if (!list)
            return TD_FAIL(TD_ENOMEM, "no memory for the names of %" PRId64 " classes", n);
        for (int64_t c = 0; c < n; c++) {
            const char *zero = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
            if (!zero)
                return TD_FAIL(TD_EPROTO, "the data's names of classes are cut short");
            list[c] = text;
            text = zero + 1;
        }
        d->fields[f].class_names = list;
    }
    return TD_OK;
}

/* Means and deviations of normalized fields, to those of d from rank 0's. */
static td_status send_units(td_comm *comm, td__dataset *d, td__arena *arena)
{
    bool first = td_comm_rank(comm) == 0;

    for (int f = 0; f < d->n_fields; f++) {
        td__units *u = &d->fields[f].units;
        size_t n = (size_t)u->n;
        double *both = n ? td__arena_alloc(arena, 2 * n * sizeof *both) : NULL;
        if (!n)
            continue;
        if (!both)
            return TD_FAIL(TD_ENOMEM, "no memory for the units of field %s", d->fields[f].name);
        if (first) {
            memcpy(both, u->mean, n * sizeof *both);
            memcpy(both + n, u->std, n * sizeof *both);
        }
        TD_TRY(td_broadcast(comm, both, 2 * n, TD_F64, 0, NULL));
        if (!first)
            u->mean = both;
        if (!first)
            u->std = both + n;
    }
    return TD_OK;
}

static td_status check_head(const part_head *h)
{
    bool ok = h->count >= 0 && h->n_fields >= 0 && h->n_fields <= TD__MAX_FIELDS &&
              h->names_nbytes <= PTRDIFF_MAX;
    for (int f = 0; ok && f < h->n_fields; f++) {
        const td_shape *s = &h->fields[f].shape;
        const td__units *u = &h->fields[f].units;
        ok = s->ndim >= 0 && s->ndim <= TD_MAX_DIMS && memchr(h->fields[f].name, 0, TD__FIELD_NAME);
        ok = ok && u->n >= 0 && u->n <= INT32_MAX && u->inner >= 0;
    }
    return ok ? TD_OK : TD_FAIL(TD_EPROTO, "malformed description of the data from rank 0");
}

/* d: rank 0's. The others: *head and the memory of its texts. */
static td_status send_head(td_comm *comm, const td__dataset *d, td__dataset *head,
                           td__arena **names)
{
    bool first = td_comm_rank(comm) == 0;
    td_status st = TD_OK;
    part_head h;

    *names = NULL;
    if (first)
        describe(d, &h);
    TD_TRY(td_broadcast(comm, &h, sizeof h, TD_U8, 0, NULL));
    if (!first)
        TD_TRY(check_head(&h));
    TD_TRY(td__arena_create(names));
    char *text = td__arena_alloc(*names, (size_t)h.names_nbytes + 1);
    if (!text) {
        st = TD_FAIL(TD_ENOMEM, "no memory for the names of classes");
        goto fail;
    }
    if (first)
        join_names(d, text);
    if (h.names_nbytes)
        TD_TRY_OR(st, fail, td_broadcast(comm, text, (size_t)h.names_nbytes, TD_U8, 0, NULL));
    *head = (td__dataset){
        .count = h.count, .n_fields = h.n_fields, .in_order = h.in_order, .gap = h.gap};
    if (first)
        *head = *d;
    else
        memcpy(head->fields, h.fields, sizeof head->fields);
    TD_TRY_OR(st, fail, send_units(comm, head, *names));
    if (!first)
        TD_TRY_OR(st, fail, cut_names(head, h.named, text, (size_t)h.names_nbytes, *names));
    return TD_OK;
fail:
    td__arena_destroy(*names);
    *names = NULL;
    return st;
}

/* ---- Samples --------------------------------------------------------------------------------- */

void td__rows_at(const td__dataset *head, int64_t n, void *data, void **at)
{
    char *p = data;

    for (int f = 0; f < head->n_fields; f++) {
        at[f] = p;
        p += td__field_nbytes(&head->fields[f]) * (size_t)n;
    }
}

size_t td__rows_nbytes(const td__dataset *head, int64_t n)
{
    size_t each = 0;

    for (int f = 0; f < head->n_fields; f++)
        each += td__field_nbytes(&head->fields[f]);
    return each * (size_t)n;
}

td_status td__rows_read(td__desk *k, td__dataset *d, const int64_t *index, int64_t n,
                        const td__draw *draw)
{
    void *at[TD__MAX_FIELDS], *data = td__desk_room(k, td__rows_nbytes(d, n));

    if (!data)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of samples", td__rows_nbytes(d, n));
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= d->count)
            return TD_FAIL(TD_EPROTO, "a rank asks for sample %" PRId64 " of %" PRId64, index[i],
                           d->count);
    td__rows_at(d, n, data, at);
    return td__dataset_read(d, index, n, draw, at);
}

static int64_t rows_of(const td__spread *s, int64_t block)
{
    int64_t left = s->head->count - block * s->rows;
    return left < s->rows ? left : s->rows;
}

size_t td__spread_nbytes(const td__spread *s, int64_t block)
{
    return (size_t)rows_of(s, block) * s->nbytes;
}

size_t td__spread_room(const td__spread *s)
{
    return (size_t)s->rows * s->nbytes;
}

td_status td__spread_load(td__spread *s, int64_t block, void *data)
{
    void *at[TD__MAX_FIELDS], *part[TD__MAX_FIELDS];
    int64_t index[CHUNK], n = rows_of(s, block), begin = block * s->rows;

    td__rows_at(s->head, n, data, at);
    for (int64_t done = 0; done < n; done += CHUNK) {
        int64_t k = n - done < CHUNK ? n - done : CHUNK;
        for (int64_t i = 0; i < k; i++)
            index[i] = begin + done + i;
        for (int f = 0; f < s->head->n_fields; f++)
            part[f] = (char *)at[f] + td__field_nbytes(&s->head->fields[f]) * (size_t)done;
        TD_TRY(td__dataset_read(s->from, index, k, NULL, part));
    }
    s->crc = td__crc32c(s->crc, data, td__spread_nbytes(s, block));
    if (s->o->progress)
        TD_TRY(s->o->progress(s->o->user, s->part, (uint64_t)(begin + n) * s->nbytes,
                              (uint64_t)s->head->count * s->nbytes));
    return TD_OK;
}

void td__spread_store(td__spread *s, int64_t block, const void *data)
{
    const char *p = data;
    int64_t n = rows_of(s, block), begin = block * s->rows;

    s->crc = td__crc32c(s->crc, data, td__spread_nbytes(s, block));
    for (int f = 0; f < s->head->n_fields; f++) {
        size_t nbytes = s->to->nbytes[f];
        memcpy(s->to->column[f] + (size_t)begin * nbytes, p, (size_t)n * nbytes);
        p += (size_t)n * nbytes;
    }
}

td_status td__spread_take(td__spread *s, int64_t block, void *data)
{
    if (s->rank == 0)
        return td__spread_load(s, block, data);
    td__spread_store(s, block, data);
    return TD_OK;
}

/* ---- Whole parts ----------------------------------------------------------------------------- */

struct td__distribution {
    const td__distribute_def *method;
    td__distribute_opts o;
    const td__data_opts *data; /* while opening */
    td__serving serving;       /* on demand */
};

td_status td__distribute_table(const td__dataset *head, td__arena *names, td__table **out)
{
    td_status st = td__table_create(head->count, out);

    if (st) {
        td__arena_destroy(names);
        return st;
    }
    (*out)->arena = names;
    (*out)->head.in_order = head->in_order;
    (*out)->head.gap = head->gap;
    for (int f = 0; f < head->n_fields && !st; f++)
        st = td__table_add(*out, &head->fields[f]);
    if (st) {
        td__table_destroy(*out);
        *out = NULL;
    }
    return st;
}

static td_status compare(const td__spread *s)
{
    uint32_t crc = s->crc;

    TD_TRY(td_broadcast(s->comm, &crc, sizeof crc, TD_U8, 0, NULL));
    if (crc != s->crc)
        return TD_FAIL(TD_EPROTO, "the %s data were damaged on the way to rank %d", s->part,
                       s->rank);
    return TD_OK;
}

/* Samples of `head` from rank 0's d to the others' table. */
static td_status spread(td__distribution *d, const char *part, const td__dataset *head,
                        td__dataset *from, td__table *to)
{
    td_comm *comm = d->o.comm;
    td__spread s = {.comm = comm,
                    .rank = td_comm_rank(comm),
                    .size = td_comm_size(comm),
                    .from = from,
                    .to = to,
                    .head = head,
                    .part = part,
                    .o = &d->o};
    size_t block = d->o.block ? d->o.block : BLOCK, all;

    for (int f = 0; f < head->n_fields; f++)
        s.nbytes += td__field_nbytes(&head->fields[f]);
    if (!s.nbytes || !head->count)
        return TD_OK;
    if (!td__size_mul(s.nbytes, (size_t)head->count, &all))
        return TD_FAIL(TD_EINVAL, "the %s data are too large to be sent", part);
    s.rows = s.nbytes < block ? (int64_t)(block / s.nbytes) : 1;
    s.rows = s.rows < head->count ? s.rows : head->count;
    s.blocks = (head->count + s.rows - 1) / s.rows;
    TD_TRY(d->method->spread(&s));
    return compare(&s);
}

/* data.c opens a part. */
static td_status open_whole(void *user, td__part part, td__dataset **out)
{
    td__distribution *d = user;
    td_comm *comm = d->o.comm;
    bool first = td_comm_rank(comm) == 0;
    const char *name = td__part_name(part);
    td__dataset head, *own = NULL;
    td__arena *names = NULL;
    td__table *table = NULL;
    td_status st = TD_OK;

    *out = NULL;
    if (first && d->data->open_part)
        st = d->data->open_part(d->data->open_user, part, &own);
    else if (first)
        st = td__data_open_source(d->data, part, &own);
    TD_TRY_OR(st, fail, agree(comm, st));
    TD_TRY_OR(st, abort, send_head(comm, own, &head, &names));
    if (first) {
        td__arena_destroy(names);
    } else {
        TD_TRY_OR(st, abort, td__distribute_table(&head, names, &table));
        head = table->head;
    }
    TD_TRY_OR(st, abort, spread(d, name, &head, own, table));
    *out = first ? own : &table->head;
    return TD_OK;
abort:
    td_comm_abort(comm, td_last_error());
fail:
    td__table_destroy(table);
    td__dataset_destroy(own);
    return st;
}

/* ---- On demand ------------------------------------------------------------------------------- */

/* data.c opens a part of another rank. */
static td_status open_remote(void *user, td__part part, td__dataset **out)
{
    td__distribution *d = user;
    td__dataset head;
    td__arena *names;

    *out = NULL;
    TD_TRY(agree(d->o.comm, TD_OK));
    TD_TRY(send_head(d->o.comm, NULL, &head, &names));
    return d->method->remote(&d->serving, part, &head, names, out);
}

/* Rank 0 tells the others what its parts are. */
static td_status tell_parts(td__distribution *d, td__data *data)
{
    for (int p = 0; p < TD_PART_COUNT; p++) {
        td__dataset *part = d->method->as_source ? td__data_source_part(data, (td__part)p)
                                                 : td__data_part(data, (td__part)p),
                    head;
        td__arena *names = NULL;
        td_status st = part ? TD_OK : TD_FAIL(TD_ENOTSUP, "there is no such part");
        st = agree(d->o.comm, st);
        if (st == TD_ENOTSUP)
            continue;
        TD_TRY(st);
        st = send_head(d->o.comm, part, &head, &names);
        td__arena_destroy(names);
        if (!st && d->method->tell)
            st = d->method->tell(&d->serving, (td__part)p, part);
        TD_TRY(st);
    }
    return TD_OK;
}

/* Rank 0's measurements, as every rank's fit. */
static td_status send_fit(td_comm *comm, td__data *data, td__fit **out)
{
    bool first = td_comm_rank(comm) == 0;
    td__text text = {0};
    td_status st = first ? td__data_fit(data, &text) : TD_OK;
    uint64_t nbytes = text.used;
    char *copy = NULL;

    TD_TRY_OR(st, done, agree(comm, st));
    TD_TRY_OR(st, done, td_broadcast(comm, &nbytes, sizeof nbytes, TD_U8, 0, NULL));
    copy = nbytes < PTRDIFF_MAX ? td__malloc((size_t)nbytes + 1) : NULL;
    if (!copy) {
        st = TD_FAIL(TD_ENOMEM, "no memory for what rank 0 has measured");
        td_comm_abort(comm, td_last_error());
        goto done;
    }
    if (first)
        memcpy(copy, text.data, text.used);
    TD_TRY_OR(st, done, td_broadcast(comm, copy, (size_t)nbytes, TD_U8, 0, NULL));
    if (!first)
        st = td__fit_parse(copy, (size_t)nbytes, "what rank 0 has measured", out);
done:
    td__free(copy);
    td__text_fini(&text);
    return st;
}

int64_t td__serving_rows(const td__serving *v, const td__dataset *d)
{
    size_t each = td__rows_nbytes(d, 1);
    return each && each < v->block ? (int64_t)(v->block / each) : 1;
}

/* data: rank 0's; the others have none yet. Collective. */
static td_status begin_serving(td__distribution *d, td__data *data)
{
    td__serving *v = &d->serving;

    *v = (td__serving){.comm = d->o.comm, .data = data, .block = d->o.block ? d->o.block : BLOCK};
    td_status st = data && d->method->begin ? d->method->begin(v) : TD_OK;
    TD_TRY(agree(v->comm, st));
    return td__desks_open(v->comm, d->method->answer, v, &v->desks);
}

static td_status open_on_demand(td__distribution *d, td__data **out)
{
    bool first = td_comm_rank(d->o.comm) == 0;
    /* Rank 0 splits, maps and caches. */
    td__data_opts others = {.source = d->data->source};
    td__fit *fit = NULL;

    td_status st = first ? td__data_open(d->data, out) : TD_OK;
    TD_TRY(agree(d->o.comm, st));
    if (d->method->as_source) {
        TD_TRY(send_fit(d->o.comm, *out, &fit));
        others = *d->data;
        others.fit = fit;
        others.cache = NULL; /* its key names files, and rows would all be read for it */
    }
    others.open_part = open_remote;
    others.open_user = d;
    TD_TRY_OR(st, done, begin_serving(d, *out));
    st = first ? tell_parts(d, *out) : td__data_open(&others, out);
    if (st)
        td_comm_abort(d->o.comm, td_last_error());
done:
    td__fit_destroy(fit);
    return st;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static td_status open_all(td__distribution *d, td__data **out)
{
    if (!d->method->spread)
        return open_on_demand(d, out);
    td__data_opts data = *d->data;
    data.open_part = open_whole;
    data.open_user = d;
    /* The key of a cache file names files, which are here on rank 0 only. */
    if (data.cache && strcmp(data.cache, "memory") != 0 && td_comm_rank(d->o.comm) > 0)
        data.cache = NULL;
    return td__data_open(&data, out);
}

td_status td__distribute_open(const td__data_opts *data, const td__distribute_opts *o,
                              td__distribution **keep, td__data **out)
{
    const td__distribute_def *method = NULL;

    *keep = NULL;
    *out = NULL;
    for (int i = 0; o->method && i < TD_LEN(METHODS); i++)
        if (strcmp(METHODS[i]->name, o->method) == 0)
            method = METHODS[i];
    if (o->method && !method && strcmp(o->method, "none") != 0)
        return TD_FAIL(TD_EINVAL, "unknown data.distribute '%s'; see docs/parallel.md", o->method);
    if (!method || !o->comm || td_comm_size(o->comm) == 1)
        return td__data_open(data, out);
    /* Rank 0 alone knows what new samples take the place of: it sends finished rows. */
    if (data->input && (method->spread || method->as_source))
        method = &td__distribute_scatter;
    if ((method->spread || method->as_source) && data->source_opts.resize &&
        strcmp(data->source_opts.resize, "random") == 0)
        return TD_FAIL(TD_EINVAL,
                       "data.distribute: %s: not with data.resize: random, which takes another "
                       "part of an image in each epoch: use scatter",
                       method->name);
    td__distribution *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory to distribute data");
    *d = (td__distribution){.method = method, .o = *o, .data = data};
    td_status st = open_all(d, out);
    d->data = NULL;
    if (st) {
        char text[TEXT];
        snprintf(text, sizeof text, "%s", td_last_error());
        td__distribute_close(d);
        td__data_close(*out);
        *out = NULL;
        return TD_FAIL(st, "%s", text);
    }
    *keep = d;
    return TD_OK;
}

void td__distribute_close(td__distribution *d)
{
    if (!d)
        return;
    td__desks_close(d->serving.desks);
    if (d->method->end)
        d->method->end(&d->serving);
    td__free(d);
}
