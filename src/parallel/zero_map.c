/* zero_map.c -- see zero_map.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/zero_map.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { ALIGN = 16 }; /* elements: tensors begin at multiples */

static bool is_dense(const td_param_info *info)
{
    return !info->is_state && !info->sparse && info->count > 0;
}

static void add_bucket(td__zero_map *m, size_t end)
{
    if (m->begin[m->n] < end)
        m->begin[++m->n] = end;
}

/* The first element from x on at which a slice of [.., end) may begin. */
static size_t next_chunk(td_params *ps, size_t x, size_t end)
{
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        size_t stop = info.offset + td__align_up(info.count, ALIGN);
        if (!is_dense(&info) || stop <= x)
            continue;
        if (info.offset >= x)
            return info.offset < end ? info.offset : end;
        size_t at = info.offset + td__align_up(x - info.offset, TD_OPTIM_CHUNK);
        return at < info.offset + info.count ? at : stop;
    }
    return end;
}

static void cut_bucket(td__zero_map *m, td_params *ps, int b)
{
    size_t *cut = m->cut + (size_t)b * ((size_t)m->size + 1);
    size_t begin = m->begin[b], end = m->begin[b + 1], n = (size_t)m->size;

    cut[0] = begin;
    for (size_t r = 1; r < n; r++) {
        size_t x = begin + (end - begin) / n * r + (end - begin) % n * r / n;
        cut[r] = b < m->params ? next_chunk(ps, x, end) : td__align_up(x, ALIGN);
        cut[r] = cut[r] < end ? cut[r] : end;
    }
    cut[n] = end;
}

td_status td__zero_map_init(td__zero_map *m, td_params *ps, int size, size_t nbytes)
{
    int n = td_params_count(ps);
    size_t all, room = (nbytes ? nbytes : TD__ZERO_BUCKET_NBYTES) / sizeof(float), dense = 0;

    td_params_block(ps, &all);
    *m = (td__zero_map){.size = size};
    m->begin = td__calloc((size_t)n + 3, sizeof *m->begin);
    if (!m->begin)
        return TD_FAIL(TD_ENOMEM, "no memory for the slices of %d ranks", size);
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(ps, i);
        size_t stop = info.offset + td__align_up(info.count, ALIGN);
        if (!is_dense(&info))
            continue;
        if (stop - m->begin[m->n] > room) /* the ones before are a bucket */
            add_bucket(m, info.offset);
        if (stop - m->begin[m->n] >= room)
            add_bucket(m, stop);
        dense = stop;
    }
    add_bucket(m, dense);
    m->params = m->n;
    m->total = dense + all - td_params_trainable(ps);
    add_bucket(m, m->total);
    m->cut = td__calloc((size_t)m->n + 1, ((size_t)size + 1) * sizeof *m->cut);
    if (!m->cut) {
        td__zero_map_fini(m);
        return TD_FAIL(TD_ENOMEM, "no memory for the slices of %d ranks", size);
    }
    for (int b = 0; b < m->n; b++)
        cut_bucket(m, ps, b);
    return TD_OK;
}

void td__zero_map_fini(td__zero_map *m)
{
    td__free(m->begin);
    td__free(m->cut);
    *m = (td__zero_map){.size = 0};
}

size_t td__zero_widest(const td__zero_map *m, int bucket)
{
    size_t most = 0;
    for (int r = 0; r < m->size; r++)
        if (td__zero_slice(m, bucket, r) > most)
            most = td__zero_slice(m, bucket, r);
    return most;
}

size_t td__zero_owned(const td__zero_map *m, int rank)
{
    size_t sum = 0;
    for (int b = 0; b < m->n; b++)
        sum += td__zero_slice(m, b, rank);
    return sum;
}

static void add_range(td__optim_range *ranges, int *n, size_t begin, size_t end)
{
    if (begin == end)
        return;
    if (*n && ranges[*n - 1].end == begin)
        ranges[*n - 1].end = end;
    else
        ranges[(*n)++] = (td__optim_range){begin, end};
}

td_status td__zero_ranges(const td__zero_map *m, td_params *ps, int rank, int mirror,
                          td__optim_range **out, int *n)
{
    int low = mirror >= 0 && mirror < rank ? mirror : rank;
    int high = mirror > rank ? mirror : low == mirror ? rank : -1;
    td__optim_range *ranges = *out =
        td__calloc(2 * (size_t)m->params + (size_t)td_params_count(ps) + 1, sizeof *ranges);

    *n = 0;
    if (!ranges)
        return TD_FAIL(TD_ENOMEM, "no memory for the slices of rank %d", rank);
    for (int b = 0; b < m->params; b++) {
        add_range(ranges, n, td__zero_cut(m, b)[low], td__zero_cut(m, b)[low + 1]);
        if (high >= 0)
            add_range(ranges, n, td__zero_cut(m, b)[high], td__zero_cut(m, b)[high + 1]);
    }
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!info.is_state && info.sparse)
            add_range(ranges, n, info.offset, info.offset + info.count);
    }
    return TD_OK;
}

/* The first rank of every host, then the second of every host, and so on. */
void td__zero_ring(const int *host_of, int size, int *order)
{
    int n = 0;
    for (int turn = 0; n < size; turn++)
        for (int r = 0; r < size; r++) {
            int nth = 0;
            for (int k = 0; k < r; k++)
                nth += !host_of || host_of[k] == host_of[r];
            if (nth == turn)
                order[n++] = r;
        }
}

int td__zero_before(const int *order, int size, int rank)
{
    for (int i = 0; i < size && size > 1; i++)
        if (order[i] == rank)
            return order[(i + size - 1) % size];
    return -1;
}
