/* replica.c -- see replica.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic/replica.h"

#include <string.h>

#include "base/fail.h"

enum { MOST_OLD = TD__MOST_HOLDINGS - 1 };

void td__replica_drop_old(td__replica *r)
{
    for (int i = 0; i < r->n_old; i++)
        td_optimizer_destroy(r->old_optimizer[i]);
    r->n_old = 0;
}

void td__replica_destroy(td__replica *r)
{
    td__replica_drop_old(r);
    td__block_copies_fini(&r->sync_states);
    td_schedule_destroy(r->schedule);
    td_optimizer_destroy(r->optimizer);
    td__shards_destroy(r->shards);
    td_params_destroy(r->params);
}

td_status td__replica_release(td__replica *r, const td_optim_opts *optim)
{
    td_optimizer *none;
    td__replica_drop_old(r);
    td__block_copies_fini(&r->sync_states);
    r->has = TD_REPLICA_INVALID;
    r->whole = false;
    r->holding = (td__holding){.ranks = 0};
    TD_TRY(td__optim_create_own(optim, r->params, &(td__optim_range){0, 0}, 0, &none));
    td_optimizer_destroy(r->optimizer);
    r->optimizer = none;
    return TD_OK;
}

static void make_room(td__replica *r)
{
    if (r->n_old < MOST_OLD)
        return;
    td_optimizer_destroy(r->old_optimizer[0]);
    r->n_old--;
    memmove(r->old_optimizer, r->old_optimizer + 1, (size_t)r->n_old * sizeof *r->old_optimizer);
    memmove(r->old_holding, r->old_holding + 1, (size_t)r->n_old * sizeof *r->old_holding);
}

void td__replica_take(td__replica *r, td_optimizer *o, td__holding h)
{
    if (o == r->optimizer)
        return;
    if (!r->holding.ranks) {
        td_optimizer_destroy(r->optimizer);
    } else {
        make_room(r);
        r->old_optimizer[r->n_old] = r->optimizer;
        r->old_holding[r->n_old++] = r->holding;
    }
    r->optimizer = o;
    r->holding = h;
}

int td__replica_held(const td__replica *r, td__holding *h, td_optimizer **o)
{
    h[0] = r->holding;
    o[0] = r->optimizer;
    for (int i = 0; i < r->n_old; i++) {
        h[1 + i] = r->old_holding[r->n_old - 1 - i];
        o[1 + i] = r->old_optimizer[r->n_old - 1 - i];
    }
    return 1 + r->n_old;
}
