/* ownership.c -- see ownership.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/ownership.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"

enum { ALIGN = 16 }; /* elements: tensors begin at multiples */

/* ---- Making an even map ---------------------------------------------------------------------- */

static bool is_dense(const td_param_info *info)
{
    return !info->is_state && !info->sparse && info->count > 0;
}

static void add_bucket(td__ownership *m, size_t end)
{
    if (m->begin[m->n] < end)
        m->begin[++m->n] = end;
}

/* The first element from x on at which a shard of [.., end) may begin. */
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

static void cut_bucket(td__ownership *m, td_params *ps, int b)
{
    size_t *cut = m->cut + (size_t)b * ((size_t)m->ranks + 1);
    size_t begin = m->begin[b], end = m->begin[b + 1], n = (size_t)m->ranks;

    cut[0] = begin;
    for (size_t r = 1; r < n; r++) {
        size_t x = begin + (end - begin) / n * r + (end - begin) % n * r / n;
        cut[r] = b < m->params ? next_chunk(ps, x, end) : td__align_up(x, ALIGN);
        cut[r] = cut[r] < end ? cut[r] : end;
    }
    cut[n] = end;
}

/* Is it a param of which several ranks have pieces? */
static bool in_pieces(const td_params *ps, const td__owners *o, int i)
{
    return o && o->lanes > 1 && td__params_pieces(ps, i);
}

static void find_buckets(td__ownership *m, td_params *ps, const td__owners *o, size_t room)
{
    size_t all, dense = 0;
    int last = -1;
    td_params_block(ps, &all);
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        size_t stop = info.offset + td__align_up(info.count, ALIGN);
        if (!info.is_state && info.sparse && info.count)
            m->whole[m->n_whole++] = (td__optim_range){info.offset, info.offset + info.count};
        if (!is_dense(&info))
            continue;
        bool other =
            o && last >= 0 &&
            (o->owner[i] != o->owner[last] || in_pieces(ps, o, i) || in_pieces(ps, o, last));
        last = i;
        if (other || stop - m->begin[m->n] > room) /* the ones before are a bucket */
            add_bucket(m, info.offset);
        if (stop - m->begin[m->n] >= room)
            add_bucket(m, stop);
        dense = stop;
    }
    add_bucket(m, dense);
    m->params = m->n;
    m->total = dense + all - td_params_trainable(ps);
    add_bucket(m, m->total);
}

/* Buckets; where shards begin is still to be said. */
static td_status make_buckets(td__ownership *m, td_params *ps, int ranks, const td__owners *owners,
                              size_t nbytes)
{
    size_t n = (size_t)td_params_count(ps), room = nbytes ? nbytes : TD__SHARD_BUCKET_NBYTES;

    *m = (td__ownership){.ranks = ranks};
    m->begin = td__calloc(n + 3, sizeof *m->begin);
    m->whole = td__calloc(n + 1, sizeof *m->whole);
    if (m->begin && m->whole) {
        find_buckets(m, ps, owners, room / sizeof(float));
        m->cut = td__calloc((size_t)m->n + 1, ((size_t)ranks + 1) * sizeof *m->cut);
    }
    if (!m->cut) {
        td__ownership_fini(m);
        return TD_FAIL(TD_ENOMEM, "no memory for the shards of %d ranks", ranks);
    }
    return TD_OK;
}

td_status td__ownership_init(td__ownership *m, td_params *ps, int ranks, size_t nbytes)
{
    TD_TRY(make_buckets(m, ps, ranks, NULL, nbytes));
    for (int b = 0; b < m->n; b++)
        cut_bucket(m, ps, b);
    return TD_OK;
}

/* The first param of a bucket; of statistics, -1. */
static int first_param(const td__ownership *m, td_params *ps, int b)
{
    for (int i = 0; b < m->params && i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (is_dense(&info) && info.offset >= m->begin[b])
            return i;
    }
    return -1;
}

/* Where the shard of rank r begins in bucket b, of param i in pieces. */
static size_t begin_of_piece(const td__ownership *m, const td_params *ps, const td__owners *o,
                             int b, int i, int r)
{
    const td_attr_pieces *how = td__params_pieces(ps, i);
    int lane = r - o->owner[i], each = how->pieces / o->lanes;
    int64_t begin;
    if (lane <= 0 || lane >= o->lanes)
        return m->begin[lane <= 0 ? b : b + 1];
    (void)td__pieces_range(how, &how->whole, lane * each, each, &begin);
    return m->begin[b] + (size_t)begin;
}

static td_status copy_groups(td__ownership *m, const td__owners *o)
{
    if (!o->group)
        return TD_OK;
    m->group = td__calloc((size_t)m->ranks, sizeof *m->group);
    if (!m->group)
        return TD_FAIL(TD_ENOMEM, "no memory for the groups of %d ranks", m->ranks);
    memcpy(m->group, o->group, (size_t)m->ranks * sizeof *m->group);
    return TD_OK;
}

td_status td__ownership_init_whole(td__ownership *m, td_params *ps, int ranks,
                                   const td__owners *owners, size_t nbytes)
{
    TD_TRY(make_buckets(m, ps, ranks, owners, nbytes));
    td_status st = copy_groups(m, owners);
    if (st) {
        td__ownership_fini(m);
        return st;
    }
    m->one_owner = true;
    for (int b = 0; b < m->n; b++) {
        size_t *cut = m->cut + (size_t)b * ((size_t)ranks + 1);
        int i = first_param(m, ps, b), who = i < 0 ? 0 : owners->owner[i];
        bool pieces = i >= 0 && in_pieces(ps, owners, i);
        for (int r = 0; r <= ranks; r++)
            cut[r] =
                pieces ? begin_of_piece(m, ps, owners, b, i, r) : m->begin[r <= who ? b : b + 1];
    }
    return TD_OK;
}

void td__ownership_fini(td__ownership *m)
{
    td__free(m->begin);
    td__free(m->cut);
    td__free(m->whole);
    td__free(m->group);
    *m = (td__ownership){.ranks = 0};
}

/* ---- Looking things up ----------------------------------------------------------------------- */

size_t td__shard_widest(const td__ownership *m, int bucket)
{
    size_t most = 0;
    for (int r = 0; r < m->ranks; r++)
        if (td__shard_count(m, bucket, r) > most)
            most = td__shard_count(m, bucket, r);
    return most;
}

int td__ownership_sole(const td__ownership *m, int bucket)
{
    size_t all = m->begin[bucket + 1] - m->begin[bucket];
    for (int r = 0; m->one_owner && r < m->ranks; r++)
        if (td__shard_count(m, bucket, r) == all)
            return r;
    return -1;
}

size_t td__ownership_owned(const td__ownership *m, int rank)
{
    size_t sum = 0;
    for (int b = 0; b < m->n; b++)
        sum += td__shard_count(m, b, rank);
    return sum;
}

/* The last of begin[0..n) that is not behind x, where begin rises and begin[0] <= x. */
static int find(const size_t *begin, int n, size_t x)
{
    int low = 0, high = n;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        *(begin[mid] <= x ? &low : &high) = mid;
    }
    return low;
}

int td__ownership_bucket(const td__ownership *m, size_t element)
{
    return find(m->begin, m->params, element);
}

int td__ownership_owner(const td__ownership *m, size_t element)
{
    return find(td__shards_of(m, td__ownership_bucket(m, element)), m->ranks, element);
}

bool td__ownership_holds(const td__ownership *m, td__holding h, int bucket, int owner)
{
    if (td__holding_has(h, owner) || !m->group || td__ownership_sole(m, bucket) < 0)
        return td__holding_has(h, owner);
    return m->group[owner] == m->group[h.rank] ||
           (h.mirror >= 0 && m->group[owner] == m->group[h.mirror]);
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

td_status td__ownership_ranges(const td__ownership *m, td__holding h, td__optim_range **out, int *n)
{
    td__optim_range *ranges = *out =
        td__calloc(2 * (size_t)m->params + (size_t)m->n_whole + 1, sizeof *ranges);

    *n = 0;
    if (!ranges)
        return TD_FAIL(TD_ENOMEM, "no memory for the shards of rank %d", h.rank);
    for (int b = 0; b < m->params; b++) {
        const size_t *cut = td__shards_of(m, b);
        for (int r = 0; r < m->ranks; r++)
            if (cut[r] < cut[r + 1] && td__ownership_holds(m, h, b, r))
                add_range(ranges, n, cut[r], cut[r + 1]);
    }
    for (int i = 0; i < m->n_whole; i++)
        add_range(ranges, n, m->whole[i].begin, m->whole[i].end);
    return TD_OK;
}

/* ---- Mirrors --------------------------------------------------------------------------------- */

/* The first rank of every host, then the second of every host, and so on. */
static void make_ring(const int *hosts, int size, int *ring)
{
    int n = 0;
    for (int turn = 0; n < size; turn++)
        for (int r = 0; r < size; r++) {
            int nth = 0;
            for (int k = 0; k < r; k++)
                nth += hosts[k] == hosts[r];
            if (nth == turn)
                ring[n++] = r;
        }
}

td_status td__holdings_of(const int *host_of, const int *ranks, int n, td__holding *out)
{
    int *ring = td__calloc(2 * (size_t)n, sizeof *ring), *hosts = ring ? ring + n : NULL;
    if (!ring)
        return TD_FAIL(TD_ENOMEM, "no memory for a ring of %d ranks", n);
    for (int i = 0; i < n; i++)
        hosts[i] = host_of ? host_of[ranks ? ranks[i] : i] : 0;
    make_ring(hosts, n, ring);
    for (int i = 0; i < n; i++)
        out[ring[i]] = (td__holding){n, ring[i], n > 1 ? ring[(i + n - 1) % n] : -1};
    td__free(ring);
    return TD_OK;
}

/* ---- Worlds ---------------------------------------------------------------------------------- */

td_status td__worlds_map(const td__worlds *w, td_params *ps, int ranks, td__ownership *out)
{
    return w->map && ranks > 1 ? w->map(w->user, ranks, out, NULL)
                               : td__ownership_init(out, ps, ranks, w->nbytes);
}

td_status td__worlds_holdings(const td__worlds *w, const int *host_of, const int *ranks, int n,
                              td__holding *out)
{
    TD_TRY(td__holdings_of(host_of, ranks, n, out));
    return w->map && n > 1 ? w->map(w->user, n, NULL, out) : TD_OK;
}

/* ---- Optimizers ------------------------------------------------------------------------------ */

td_status td__ownership_optimizer(const td_optim_opts *opts, td_params *ps, const td__ownership *m,
                                  td__holding h, td_optimizer **out)
{
    td__optim_range *ranges = NULL;
    int n;
    td_status st = td__ownership_ranges(m, h, &ranges, &n);
    if (!st)
        st = td__optim_create_own(opts, ps, ranges, n, out);
    td__free(ranges);
    return st;
}

td_status td__holding_optimizer(const td_optim_opts *opts, td_params *ps, td__holding h,
                                const td__worlds *w, td_optimizer **out)
{
    td__ownership map;

    if (h.ranks == 1)
        return td_optimizer_create(opts, ps, out);
    TD_TRY(td__worlds_map(w, ps, h.ranks, &map));
    td_status st = td__ownership_optimizer(opts, ps, &map, h, out);
    td__ownership_fini(&map);
    return st;
}
