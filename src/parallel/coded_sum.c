/* coded_sum.c -- see coded_sum.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/coded_sum.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/kernels/blend.h"

typedef struct coded {
    td__reducer base;
    const td__code *code;
    td__isa isa;
    size_t rank, size;
    size_t wire_nbytes; /* of each of the two; for the largest bucket */
    uint8_t *send, *receive;
    float *owed; /* what was lost so far, by element of the buckets from `first` on */
    size_t first, n_owed;
    float *sum; /* of a slice */
    size_t n_sum;
} coded;

static size_t slice_of(size_t count, size_t size)
{
    return (count + size - 1) / size;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static td_status set_up(coded *c)
{
    const td__reducer_opts *o = &c->base.o;
    size_t begin = SIZE_MAX, end = 0, slice = 0;
    for (int k = 0; k < o->n_buckets; k++) {
        const td__bucket *b = &o->buckets[k];
        if (b->exact)
            continue;
        begin = least(begin, b->begin);
        end = b->begin + b->count > end ? b->begin + b->count : end;
        size_t s = slice_of(b->count, c->size);
        slice = s > slice ? s : slice;
    }
    c->wire_nbytes = c->code->nbytes(slice) * c->size;
    c->send = td__alloc_block(c->wire_nbytes + 1);
    c->receive = td__alloc_block(c->wire_nbytes + 1);
    c->n_sum = slice;
    c->sum = td__alloc_block((slice + 1) * sizeof *c->sum);
    if (!c->send || !c->receive || !c->sum)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of gradients on the wire",
                       2 * c->wire_nbytes);
    if (!c->code->feedback || begin > end)
        return TD_OK;
    c->first = begin;
    c->n_owed = end - begin;
    c->owed = td__alloc_block((c->n_owed + 1) * sizeof *c->owed);
    if (!c->owed)
        return TD_FAIL(TD_ENOMEM, "no memory for the rounding errors of %zu gradients", c->n_owed);
    return TD_OK;
}

td_status td__coded_create(const td__reducer_ops *ops, const td__code *code,
                           const td__reducer_opts *o, td__reducer **out)
{
    *out = NULL;
    coded *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory for a reducer");
    c->base = (td__reducer){.ops = ops, .o = *o};
    c->code = code;
    c->isa = td__cpu_isa();
    c->rank = (size_t)td_comm_rank(o->comm);
    c->size = (size_t)td_comm_size(o->comm);
    td_status st = set_up(c);
    if (st) {
        td__coded_destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return TD_OK;
}

void td__coded_destroy(td__reducer *r)
{
    coded *c = (coded *)r;
    if (!c)
        return;
    td__free_block(c->send, c->wire_nbytes + 1);
    td__free_block(c->receive, c->wire_nbytes + 1);
    td__free_block(c->sum, (c->n_sum + 1) * sizeof *c->sum);
    td__free_block(c->owed, (c->n_owed + 1) * sizeof *c->owed);
    td__free(c);
}

/* 3. Slice `own` of this rank's numbers with those of the others, in the order of ranks. */
static void add_up(coded *c, const float *own, size_t count, size_t nbytes)
{
    void (*add)(float *, float, const float *, float, size_t) = TD_ISA_PICK(c->isa, td__blend);
    memset(c->sum, 0, count * sizeof *c->sum);
    for (size_t i = 0; i < c->size; i++)
        if (i == c->rank)
            add(c->sum, 1.0f, own, 1.0f, count);
        else
            c->code->add(c->isa, c->sum, c->receive + i * nbytes, count);
}

td_status td__coded_reduce(td__reducer *r, int k, float *data)
{
    coded *c = (coded *)r;
    const td__bucket *b = &r->o.buckets[k];
    const td__code *code = c->code;
    size_t count = b->count, slice = slice_of(count, c->size), nbytes = code->nbytes(slice);
    float *owed = c->owed ? c->owed + (b->begin - c->first) : NULL;
    size_t own = 0, own_count = 0;

    if (b->exact || !count)
        return b->exact ? td__reduce_plain(r, k, data) : TD_OK;
    for (size_t i = 0; i < c->size; i++) {
        size_t begin = least(i * slice, count), n = least(slice, count - begin);
        float *from = data + begin;
        if (owed) { /* the numbers and what is left of them lie in `owed` from here on */
            from = owed + begin;
            TD_ISA_PICK(c->isa, td__blend)(from, 1.0f, data + begin, 1.0f, n);
        }
        if (i != c->rank)
            code->pack(c->isa, c->send + i * nbytes, from, n);
        else {
            own = begin;
            own_count = n;
        }
    }
    TD_TRY(td_all_to_all(r->o.comm, c->send, c->receive, nbytes, TD_U8, NULL));
    add_up(c, owed ? owed + own : data + own, own_count, nbytes);
    code->pack(c->isa, c->send + c->rank * nbytes, c->sum, own_count);
    if (owed)
        memcpy(owed + own, c->sum, own_count * sizeof *owed);
    TD_TRY(td_all_gather(r->o.comm, c->send + c->rank * nbytes, c->receive, nbytes, TD_U8, NULL));
    for (size_t i = 0; i < c->size; i++) {
        size_t begin = least(i * slice, count);
        code->unpack(c->isa, data + begin, c->receive + i * nbytes, least(slice, count - begin));
    }
    r->sent_nbytes += 2 * (c->size - 1) * nbytes;
    r->plain_nbytes += td__reduce_sum_nbytes(r, count);
    return TD_OK;
}
