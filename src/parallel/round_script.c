/* round_script.c -- see round_script.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/round_script.h"

#include "base/fail.h"

static td_status make_script(const td__round_scripts *r, int64_t rows, td__shard_script *out)
{
    const td_program *p = NULL;
    if (rows)
        TD_TRY(td__micro_batch_program(r->set, rows, &p, NULL));
    return td__shard_script_init(out, r->map, p, r->ps, r->params, r->evaluate);
}

/* The script for micro-batches of `rows`; 0: the plain one. Valid until TD__ROW_PLACES - 1 others
 * have been asked for. */
static td_status find(td__round_scripts *r, int64_t rows, const td__shard_script **out)
{
    bool found;
    int place = td__row_cache_find(&r->cache, rows, &found);
    td__shard_script *script = &r->scripts[place];
    *out = script;
    if (found)
        return TD_OK;
    td__shard_script_fini(script);
    td_status st = make_script(r, rows, script);
    if (st)
        td__row_cache_forget(&r->cache, place);
    return st;
}

int64_t td__round_rows(int64_t batch_rows, int micro_batches, int index)
{
    return index < 0 ? 0
                     : td__micro_batch_begin(batch_rows, micro_batches, index + 1) -
                           td__micro_batch_begin(batch_rows, micro_batches, index);
}

td_status td__round_script(td__round_scripts *r, int64_t batch_rows, int micro_batches,
                           const int *run, const td__shard_script **out)
{
    int64_t first = 0;
    TD_TRY(find(r, 0, out));
    for (int k = 0; k < r->map->ranks; k++) {
        int64_t rows = td__round_rows(batch_rows, micro_batches, run[k]);
        const td__shard_script *other;
        if (!rows || rows == first)
            continue;
        TD_TRY(find(r, rows, &other));
        if (first && !td__shard_script_same(*out, other))
            return find(r, 0, out);
        *out = first ? *out : other;
        first = first ? first : rows;
    }
    return TD_OK;
}

void td__round_scripts_fini(td__round_scripts *r)
{
    for (int i = 0; i < TD__ROW_PLACES; i++)
        td__shard_script_fini(&r->scripts[i]);
}
