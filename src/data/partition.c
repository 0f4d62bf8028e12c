/* partition.c -- which samples a worker sees; see partition.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/partition.h"

#include <math.h>

#include "base/fail.h"
#include "base/rng.h"

__extension__ typedef unsigned __int128 u128;

const char *td__partition_name(td__partition_mode mode)
{
    static const char *const NAMES[TD_PARTITION_COUNT] = {
        [TD_PARTITION_EVEN] = "even",
        [TD_PARTITION_WEIGHTED] = "weighted",
        [TD_PARTITION_REPLACEMENT] = "replacement",
        [TD_PARTITION_SHUFFLED] = "shuffled",
        [TD_PARTITION_FEATURES] = "features",
    };
    return NAMES[mode];
}

void td__even_range(int64_t total, int worker, int workers, int64_t *begin, int64_t *end)
{
    int64_t each = total / workers, more = total % workers; /* no product that could overflow */

    *begin = each * worker + more * worker / workers;
    *end = each * (worker + 1) + more * (worker + 1) / workers;
}

/* Ends of ranges are rounded sums of weights, the same for everybody. */
static td_status weighted_range(const td__partition *p, int64_t n, int64_t *begin, int64_t *end)
{
    double sum = 0, before = 0;

    if (!p->weights)
        return TD_FAIL(TD_EINVAL, "a weighted partition needs one weight per worker");
    for (int w = 0; w < p->workers; w++) {
        if (!(p->weights[w] >= 0) || !isfinite(p->weights[w]))
            return TD_FAIL(TD_EINVAL, "partition: weight %g of worker %d is not a number >= 0",
                           p->weights[w], w);
        if (w < p->worker)
            before += p->weights[w];
        sum += p->weights[w];
    }
    if (!(sum > 0) || !isfinite(sum))
        return TD_FAIL(TD_EINVAL, "partition: the weights of %d workers add up to %g", p->workers,
                       sum);
    *begin = (int64_t)llround((double)n * (before / sum));
    *end = p->worker + 1 == p->workers
               ? n
               : (int64_t)llround((double)n * ((before + p->weights[p->worker]) / sum));
    return TD_OK;
}

td_status td__share_init(td__share *s, const td__partition *p, int64_t n, bool shuffle,
                         uint64_t seed)
{
    int64_t begin = 0, end = n;

    *s = (td__share){.mode = p->mode,
                     .whole = p->workers == 0,
                     .n = n,
                     .count = n,
                     .shuffle = shuffle,
                     .seed = seed};
    if (s->whole)
        return TD_OK;
    if (p->workers < 0 || p->worker < 0 || p->worker >= p->workers || p->mode < 0 ||
        p->mode >= TD_PARTITION_COUNT)
        return TD_FAIL(TD_EINVAL, "partition: worker %d of %d, mode %d", p->worker, p->workers,
                       (int)p->mode);
    s->worker = p->worker;
    s->workers = p->workers;
    switch (p->mode) {
    case TD_PARTITION_EVEN:
    case TD_PARTITION_REPLACEMENT: td__even_range(n, p->worker, p->workers, &begin, &end); break;
    case TD_PARTITION_WEIGHTED: TD_TRY(weighted_range(p, n, &begin, &end)); break;
    case TD_PARTITION_SHUFFLED:
        end = n > p->worker ? (n - p->worker - 1) / p->workers + 1 : 0;
        break;
    case TD_PARTITION_FEATURES:
    case TD_PARTITION_COUNT: break;
    }
    s->first = begin;
    s->count = end - begin;
    return TD_OK;
}

static bool is_range(const td__share *s)
{
    return !s->whole && (s->mode == TD_PARTITION_EVEN || s->mode == TD_PARTITION_WEIGHTED);
}

void td__order_init(td__order *o, const td__share *s, uint64_t epoch)
{
    o->epoch = epoch;
    int64_t n = is_range(s) ? s->count : s->n;
    if (s->uniform)
        td__permute_init_uniform(&o->permute, n, s->seed, TD__STREAM_ORDER, epoch);
    else
        td__permute_init(&o->permute, n, s->seed, TD__STREAM_ORDER, epoch);
}

int64_t td__order_at(const td__order *o, const td__share *s, int64_t position)
{
    if (!s->whole && s->mode == TD_PARTITION_REPLACEMENT) {
        /* 64 bits scaled to n: the bias is below n / 2^64. */
        td__rng_key key = {.seed = s->seed ^ (uint64_t)s->worker << 40,
                           .stream = TD__STREAM_REPLACE,
                           .step = (uint32_t)o->epoch,
                           .micro_batch = (uint32_t)(position >> 32)};
        uint32_t word[4];
        td__philox4(&key, (uint32_t)position, word);
        uint64_t bits = (uint64_t)word[0] << 32 | word[1];
        return (int64_t)(((u128)bits * (uint64_t)s->n) >> 64);
    }
    if (!s->whole && s->mode == TD_PARTITION_SHUFFLED)
        position = position * s->workers + s->worker;
    return (is_range(s) ? s->first : 0) +
           (s->shuffle ? td__permute_at(&o->permute, position) : position);
}
