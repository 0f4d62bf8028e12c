/* shard_map.c -- see shard_map.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/shard_map.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"

/* What shards are of: all but tables, which are behind params with dense gradients, and of which
 * models have no states. */
static size_t total_of(const td_params *ps)
{
    return td_params_trainable(ps) > td__params_dense(ps) ? td__params_dense(ps)
                                                          : td__params_total(ps);
}

/* The first beginning of a param or state at or after `from`, and after `after`. */
static size_t next_param(const td_params *ps, size_t from, size_t after)
{
    size_t best = total_of(ps);
    for (int i = 0; i < td_params_count(ps); i++) {
        size_t at = td_params_info(ps, i).offset;
        if (at >= from && at > after && at < best)
            best = at;
    }
    return best;
}

/* The last beginning before `until`, and after `after`; 0: there is none. */
static size_t last_param(const td_params *ps, size_t until, size_t after)
{
    size_t best = 0;
    for (int i = 0; i < td_params_count(ps); i++) {
        size_t at = td_params_info(ps, i).offset;
        if (at < until && at > after && at > best)
            best = at;
    }
    return best;
}

/* Params that begin at or after `from`. */
static int params_from(const td_params *ps, size_t from)
{
    int n = 0;
    for (int i = 0; i < td_params_count(ps); i++)
        n += td_params_info(ps, i).offset >= from && !td_params_info(ps, i).sparse;
    return n;
}

td_status td__ps_map_init(td__ps_map *m, const td_params *ps, int servers)
{
    size_t total = total_of(ps), at = 0;
    int count = params_from(ps, 0);
    *m = (td__ps_map){.servers = servers};
    if (count < servers)
        return TD_FAIL(TD_EINVAL,
                       "parallel.servers: %d servers for a model of %d params: a shard has one at "
                       "least",
                       servers, count);
    m->at = td__calloc((size_t)servers, sizeof *m->at);
    if (!m->at)
        return TD_FAIL(TD_ENOMEM, "no memory for %d shards", servers);
    for (int s = 0; s < servers; s++) {
        size_t left = (size_t)(servers - s), want = at + (total - at) / left;
        size_t before = last_param(ps, want, at), behind = next_param(ps, want, at);
        size_t end = before && want - before < behind - want ? before : behind;
        while (params_from(ps, end) < servers - s - 1) /* the others have one each */
            end = last_param(ps, end, at);
        m->at[s] = (td__param_range){at, s + 1 < servers ? end : total};
        at = m->at[s].end;
    }
    return TD_OK;
}

void td__ps_map_fini(td__ps_map *m)
{
    td__free(m->at);
    m->at = NULL;
}

td__ps_held td__ps_map_held(const td__ps_map *m, int server, bool copies)
{
    td__param_range own = m->at[server];
    td__param_range other = m->at[(server + m->servers - 1) % m->servers];
    td__param_range low = server ? other : own, high = server ? own : other;
    if (!copies || m->servers == 1)
        return (td__ps_held){.at = {own}, .n = 1};
    if (low.end == high.begin)
        return (td__ps_held){.at = {{low.begin, high.end}}, .n = 1};
    return (td__ps_held){.at = {low, high}, .n = 2};
}

size_t td__ps_map_count(const td__ps_map *m, int server)
{
    return m->at[server].end - m->at[server].begin;
}
