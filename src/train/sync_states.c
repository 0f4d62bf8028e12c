/* sync_states.c -- the states of a sync rule (parallel/sync.h) in checkpoints. They are the same on
 * all ranks when these have met to save, so rank 0 writes its own, and all resume with them. A
 * checkpoint of another rule has none of this one's, which then begins anew from the params; so
 * does a generation of an elastic run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "base/log.h"
#include "train/trainer_impl.h"

_Static_assert((int)TD__SYNC_BLOCKS <= (int)TD__CHECKPOINT_BLOCKS,
               "all states go into a checkpoint");

typedef struct states {
    td__checkpoint_block at[TD__SYNC_BLOCKS];
    char name[TD__SYNC_BLOCKS][TD__BLOCK_NAME];
    int n;
} states;

static void find(td__trainer *t, states *s)
{
    td__sync_block b[TD__SYNC_BLOCKS];
    s->n = td__sync_states(t->run.sync, b);
    for (int i = 0; i < s->n; i++) {
        snprintf(s->name[i], sizeof s->name[i], "sync/%s/%s", t->run.sync->ops->name, b[i].name);
        s->at[i] = (td__checkpoint_block){s->name[i], b[i].data, b[i].count};
    }
}

td_status td__states_save(td__trainer *t)
{
    states s;
    find(t, &s);
    return td__checkpointer_blocks(t->run.checkpointer, s.at, s.n);
}

td_status td__states_begin(td__trainer *t)
{
    states s;
    uint8_t found = td__trainer_rank(t) == 0 && *t->run.resumed.path;
    find(t, &s);
    if (!s.n)
        return TD_OK;
    for (int i = 0; found && i < s.n; i++) {
        bool there;
        TD_TRY(td__checkpoint_read_block(&t->run.resumed, &s.at[i], &there));
        if (!there)
            TD_LOG(WARN, TRAIN, "%s: has no '%s': the sync rule begins anew", t->run.resumed.path,
                   s.name[i]);
        found = there;
    }
    t->run.resumed.path[0] = 0; /* a next run goes on from what is in memory */
    if (td__trainer_ranks(t) == 1)
        return TD_OK;
    TD_TRY(td_broadcast(t->world.comm, &found, sizeof found, TD_U8, 0, NULL));
    for (int i = 0; found && i < s.n; i++)
        TD_TRY(td_broadcast(t->world.comm, s.at[i].data, s.at[i].count, TD_F32, 0, NULL));
    return TD_OK;
}
