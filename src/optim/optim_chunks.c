/* optim_chunks.c -- sums of squares over the chunks of the params: of one param, of those that a
 * rank has, and, where the host does not read the device's memory, of all by one launch and one
 * wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer_impl.h"

bool td__optim_clips(const td_optimizer *o)
{
    return o->opts.clip_norm > 0;
}

td_status td__optim_make_chunks(td_optimizer *o)
{
    td_device *d = td__params_device(o->params);
    int n = td_params_count(o->params);
    size_t chunks = (size_t)o->chunks[n];

    if (!td__optim_clips(o) || td__device_host_reads(d) || !chunks)
        return TD_OK;
    TD_TRY(td__mem_alloc(d, TD_MEM_PINNED, chunks * sizeof(td__square_chunk), &o->chunk_list));
    TD_TRY(td__mem_alloc(d, TD_MEM_PINNED, chunks * sizeof(double), &o->chunk_sums));
    td__square_chunk *list = o->chunk_list.at;
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(o->params, i);
        for (int k = o->chunks[i]; k < o->chunks[i + 1]; k++) {
            size_t at = (size_t)(k - o->chunks[i]) * TD_OPTIM_CHUNK, left = info.count - at;
            list[k].at = info.offset + at;
            list[k].n = left < TD_OPTIM_CHUNK ? left : TD_OPTIM_CHUNK;
        }
    }
    return TD_OK;
}

bool td__optim_squares_at_once(const td_optimizer *o)
{
    return o->chunk_list.at;
}

/* Chunks [from, to), of one launch. */
static void queue_chunks(const td_optimizer *o, const float *grads, int from, int to)
{
    td__stream_square_chunks(o->on, grads, (const td__square_chunk *)o->chunk_list.at + from,
                             (size_t)(to - from), (double *)o->chunk_sums.at + from);
}

static double chunks_total(const double *sums, int from, int to)
{
    td__tree_sum one = {.n = 0};

    for (int k = from; k < to; k++)
        td__tree_add(&one, sums[k]);
    return td__tree_total(&one);
}

void td__optim_dense_squares(const td_optimizer *o, const float *grads, const bool *wanted,
                             double *squares)
{
    int n = td_params_count(o->params);

    for (int i = 0, last; i < n; i = last) {
        for (last = i; last < n; last++)
            if (wanted && !wanted[last] && o->chunks[last] < o->chunks[last + 1])
                break;
        queue_chunks(o, grads, o->chunks[i], o->chunks[last]);
        last += last == i;
    }
    td__stream_drain(o->on);
    for (int i = 0; i < n; i++)
        squares[i] = !wanted || wanted[i]
                         ? chunks_total(o->chunk_sums.at, o->chunks[i], o->chunks[i + 1])
                         : 0;
}

void td__optim_add_all_squares(const td_optimizer *o, const float *grads, td__tree_sum *sum)
{
    queue_chunks(o, grads, 0, o->chunks[td_params_count(o->params)]);
    td__stream_drain(o->on);
    td__optim_add_squares(o, o->chunk_sums.at, sum);
}

int td__optim_chunk_of(const td_optimizer *o, int i)
{
    return o->chunks[i];
}

/* Chunks of param i that lie in [begin, end): elements [*from, *to) of the block, and the first. */
static bool chunks_in(const td_optimizer *o, int i, size_t begin, size_t end, size_t *from,
                      size_t *to, int *first)
{
    td_param_info info = td_params_info(o->params, i);
    size_t stop = info.offset + info.count;

    if (info.is_state || info.sparse || stop <= begin || info.offset >= end)
        return false;
    *from = info.offset > begin ? info.offset : begin;
    *to = stop < end ? stop : end;
    TD_ASSERT((*from - info.offset) % TD_OPTIM_CHUNK == 0 &&
                  (*to == stop || (*to - info.offset) % TD_OPTIM_CHUNK == 0),
              "[%zu, %zu) cuts a chunk of '%s'", begin, end, info.name);
    *first = o->chunks[i] + (int)((*from - info.offset) / TD_OPTIM_CHUNK);
    return *from < *to;
}

void td__optim_chunk_squares(const td_optimizer *o, const float *grads, size_t begin, size_t count,
                             double *squares)
{
    size_t from, to;
    int chunk, first = -1, end = 0;

    for (int i = 0; i < td_params_count(o->params); i++) {
        if (!chunks_in(o, i, begin, begin + count, &from, &to, &chunk))
            continue;
        end = chunk + (int)((to - from + TD_OPTIM_CHUNK - 1) / TD_OPTIM_CHUNK);
        first = first < 0 ? chunk : first;
        if (!o->chunk_list.at)
            td__stream_squares(o->on, grads + (from - begin), to - from, 1.0f, INFINITY,
                               squares + chunk);
    }
    if (o->chunk_list.at && first >= 0)
        queue_chunks(o, grads - begin, first, end);
    td__stream_drain(o->on);
    if (o->chunk_list.at && first >= 0)
        memcpy(squares + first, (double *)o->chunk_sums.at + first,
               (size_t)(end - first) * sizeof *squares);
}

void td__optim_add_squares(const td_optimizer *o, const double *squares, td__tree_sum *sum)
{
    for (int i = 0; i < td_params_count(o->params); i++) {
        td_param_info info = td_params_info(o->params, i);
        if (!info.is_state && !info.sparse)
            td__tree_add(sum, chunks_total(squares, o->chunks[i], o->chunks[i + 1]));
    }
}
