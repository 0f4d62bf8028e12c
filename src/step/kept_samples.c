/* kept_samples.c -- see kept_samples.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/kept_samples.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { ALIGN = 64 };

struct td__kept_samples {
    td__block_cache *cache;
    int n_fields;
    size_t offset[TD__MAX_FIELDS], nbytes[TD__MAX_FIELDS]; /* of a field in a block */
    td__sample_keeper keeper;
};

struct td__kept_rows {
    const td__kept_samples *of;
    td__block_set set;
};

/* ---- A batch --------------------------------------------------------------------------------- */

static void rows_close(td__kept_rows *k);

static td_status rows_open(void *user, int64_t room, td__kept_rows **out)
{
    td__kept_samples *of = user;
    td__kept_rows *k = *out = td__calloc(1, sizeof *k);

    if (!k)
        return TD_FAIL(TD_ENOMEM, "no memory for a batch of %lld blocks", (long long)room);
    k->of = of;
    td_status st = td__block_set_init(&k->set, of->cache, (size_t)room);
    if (st) {
        rows_close(k);
        *out = NULL;
    }
    return st;
}

static void rows_close(td__kept_rows *k)
{
    if (!k)
        return;
    td__block_set_fini(&k->set);
    td__free(k);
}

/* The batch before is given back: all runs that have read it have ended. */
static td_status rows_find(td__kept_rows *k, const int64_t *index, int64_t n, bool *absent)
{
    TD_TRY(td__block_set_let_go(&k->set));
    TD_TRY(td__block_set_hold(&k->set, index, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        absent[i] = !k->set.held[i].at;
    return TD_OK;
}

static td_status rows_keep(td__kept_rows *k, void *const *field)
{
    const td__kept_samples *of = k->of;

    for (size_t i = 0; i < k->set.n; i++) {
        char *to = k->set.held[i].at ? NULL : td__block_set_take(&k->set, i);
        for (int f = 0; to && f < of->n_fields; f++)
            memcpy(to + of->offset[f], (const char *)field[f] + i * of->nbytes[f], of->nbytes[f]);
    }
    td__block_set_ready(&k->set);
    return TD_OK;
}

td_status td__kept_rows_feed(const td__batch *batch, int f, int64_t at, int64_t rows, td_runner *r,
                             const char *input)
{
    const td__kept_rows *k = batch->kept;
    td__block_rows b = {.set = &k->set,
                        .first = (size_t)at,
                        .count = (size_t)rows,
                        .offset = k->of->offset[f],
                        .rows = (const char *)batch->field[f] + (size_t)at * k->of->nbytes[f]};

    return td__runner_set_blocks(r, input, &b);
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* How a sample lies in a block. offset, nbytes: of each field; may be NULL. */
static td__block_cache_opts lay_out(const td__dataset *d, const size_t level[TD_BLOCK_LEVELS],
                                    size_t *offset, size_t *nbytes)
{
    td__block_cache_opts o = {.count = d->count, .name = "data.blocks"};

    memcpy(o.level, level, sizeof o.level);
    for (int f = 0; f < d->n_fields; f++) {
        size_t n = td__field_nbytes(&d->fields[f]);
        if (offset)
            offset[f] = o.nbytes;
        if (nbytes)
            nbytes[f] = n;
        o.nbytes += td__align_up(n, ALIGN);
    }
    return o;
}

td_status td__kept_samples_check(const td__dataset *d, const size_t level[TD_BLOCK_LEVELS])
{
    td__block_cache_opts o = lay_out(d, level, NULL, NULL);
    return td__block_cache_check(&o);
}

td_status td__kept_samples_create(const td__dataset *d, td_device *device,
                                  const size_t level[TD_BLOCK_LEVELS], td__kept_samples **out)
{
    td__kept_samples *k = td__calloc(1, sizeof *k);

    *out = NULL;
    if (!k)
        return TD_FAIL(TD_ENOMEM, "no memory to keep samples");
    td__block_cache_opts o = lay_out(d, level, k->offset, k->nbytes);
    o.device = device;
    k->n_fields = d->n_fields;
    k->keeper = (td__sample_keeper){
        .user = k, .open = rows_open, .close = rows_close, .find = rows_find, .keep = rows_keep};
    td_status st = td__block_cache_create(&o, &k->cache);
    if (st) {
        td__free(k);
        return st;
    }
    *out = k;
    return TD_OK;
}

void td__kept_samples_destroy(td__kept_samples *k)
{
    if (!k)
        return;
    td__block_cache_destroy(k->cache);
    td__free(k);
}

const td__sample_keeper *td__kept_samples_keeper(const td__kept_samples *k)
{
    return &k->keeper;
}

int64_t td__kept_samples_room(const td__kept_samples *k)
{
    return td__block_cache_room(k->cache, TD_BLOCK_HOST);
}

td__block_counters td__kept_samples_count(const td__kept_samples *k)
{
    return td__block_cache_count(k->cache);
}
