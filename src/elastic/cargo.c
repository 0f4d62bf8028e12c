/* cargo.c -- see cargo.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic/cargo.h"

#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"

static void add(td__cargo *c, void *p, size_t nbytes)
{
    c->at[c->n] = p;
    c->nbytes[c->n++] = nbytes;
    c->total += td__align_up(nbytes, 64);
}

static void add_block(td__cargo *c, const td__mapping *map)
{
    c->map[c->n] = *map;
    add(c, map->at, map->nbytes);
}

static void add_states(td__cargo *c, td__block_copies *states)
{
    if (!states->nbytes)
        return;
    add(c, &states->list, sizeof states->list);
    add(c, states->data, states->nbytes);
}

static td_status load(td__cargo *c, td__replica *r, td__map_use use)
{
    td__mapping map;
    TD_TRY(td__params_map(r->params, 0, td__params_total(r->params), use, &map));
    add_block(c, &map);
    for (int k = 0; k < td_optimizer_state_count(r->optimizer); k++) {
        TD_TRY(td__optim_map_state(r->optimizer, k, use, &map));
        add_block(c, &map);
    }
    return TD_OK;
}

td_status td__cargo_load(td__cargo *c, td__replica *r, td__map_use use, td__block_copies *states)
{
    *c = (td__cargo){.n = 0};
    add_states(c, states);
    add(c, &r->event_log, sizeof r->event_log);
    td_status st = load(c, r, use);
    if (st)
        td__cargo_drop(c);
    return st;
}

td_status td__cargo_keep(td__cargo *c)
{
    td_status st = TD_OK;
    for (int i = 0; i < c->n && !st; i++)
        if (c->map[i].at)
            st = td__mem_unmap(&c->map[i]);
    td__cargo_drop(c);
    return st;
}

void td__cargo_drop(td__cargo *c)
{
    for (int i = 0; i < c->n; i++)
        td__mem_map_drop(&c->map[i]);
}

td_status td__cargo_send(const td__cargo *c, td_comm *comm, int peer)
{
    for (int i = 0; i < c->n; i++)
        TD_TRY(td_send(comm, c->at[i], c->nbytes[i], TD_U8, peer, NULL));
    return TD_OK;
}

td_status td__cargo_receive(const td__cargo *c, td_comm *comm, int peer)
{
    for (int i = 0; i < c->n; i++)
        TD_TRY(td_recv(comm, c->at[i], c->nbytes[i], TD_U8, peer, NULL));
    return TD_OK;
}

td_status td__cargo_broadcast(const td__cargo *c, td_comm *comm, int root)
{
    for (int i = 0; i < c->n; i++)
        TD_TRY(td_broadcast(comm, c->at[i], c->nbytes[i], TD_U8, root, NULL));
    return TD_OK;
}

td_status td__states_broadcast(td__block_copies *states, uint64_t nbytes, td_comm *comm, int root)
{
    td__cargo c = {.n = 0};
    if (td_comm_rank(comm) != root)
        TD_TRY(td__block_copies_reserve(states, nbytes));
    add_states(&c, states);
    return td__cargo_broadcast(&c, comm, root);
}
