/* sync_states.c -- the states of a sync rule (parallel/sync.h) outlive it: in checkpoints, in the
 * next generation of an elastic run, and where work is dealt out anew. Between two rules they are
 * copies in the replica, which another process can be handed.
 *
 * They are the same on all ranks when these have met to save, so rank 0 writes its own, and all
 * resume with them. A checkpoint of another rule has none of this one's, which then restarts from
 * its initial state with the params as they are. One that has only some of them is refused: the
 * rest would be of another moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "train/trainer_impl.h"

_Static_assert((int)TD__SYNC_BLOCKS <= (int)TD__CHECKPOINT_BLOCKS,
               "all states go into a checkpoint");

typedef struct states {
    td__checkpoint_block at[TD__SYNC_BLOCKS];
    char name[TD__SYNC_BLOCKS][TD__BLOCK_NAME];
    bool may_be_absent[TD__SYNC_BLOCKS];
    int n;
} states;

static void find(td__trainer *t, states *s)
{
    td__sync_block b[TD__SYNC_BLOCKS];
    s->n = td__sync_states(t->run.sync, b);
    for (int i = 0; i < s->n; i++) {
        snprintf(s->name[i], sizeof s->name[i], "sync/%s/%s", t->run.sync->ops->name, b[i].name);
        s->at[i] = (td__checkpoint_block){s->name[i], b[i].data, b[i].count};
        s->may_be_absent[i] = b[i].may_be_absent;
    }
}

td_status td__states_save(td__trainer *t)
{
    states s;
    if (!t->run.has_states) { /* there is no rule yet: they are as they came */
        td__checkpoint_block kept[TD__CHECKPOINT_BLOCKS];
        td__block_copies *c = &t->replica.sync_states;
        float *data = c->data;
        for (int i = 0; i < c->list.n; data += c->list.count[i++])
            kept[i] = (td__checkpoint_block){c->list.name[i], data, c->list.count[i]};
        return td__checkpointer_blocks(t->run.checkpointer, kept, c->list.n);
    }
    find(t, &s);
    return td__checkpointer_blocks(t->run.checkpointer, s.at, s.n);
}

void td__states_keep(td__trainer *t)
{
    states s;
    if (!t->run.has_states)
        return;
    t->run.has_states = false;
    find(t, &s);
    if (td__block_copies_take(&t->replica.sync_states, s.at, s.n))
        TD_LOG(WARN, TRAIN, "%s: the sync rule %s restarts from its initial state", td_last_error(),
               t->run.sync->ops->name);
}

/* All states of the rule, or none. */
static td_status take(td__trainer *t, const states *s)
{
    const td__block_copies *c = &t->replica.sync_states;
    const char *rule = t->run.sync->ops->name, *missing = NULL;
    const char *from = *t->run.resumed.path ? t->run.resumed.path : "the last rank 0";
    const float *data[TD__SYNC_BLOCKS];
    size_t count = 0;
    int found = 0;

    for (int i = 0; i < s->n; i++) {
        data[i] = td__block_copies_find(c, s->name[i], &count);
        if (data[i] && count != s->at[i].count)
            return TD_FAIL(TD_EINVAL, "%s: '%s' has %zu numbers, this run's has %zu", from,
                           s->name[i], count, s->at[i].count);
        found += data[i] != NULL;
        missing = data[i] || s->may_be_absent[i] ? missing : s->name[i];
    }
    if (found && missing)
        return TD_FAIL(TD_EINVAL,
                       "%s: has %d of %d states of the sync rule %s, but not '%s': resume from "
                       "another checkpoint",
                       from, found, s->n, rule, missing);
    if (!found && missing && *t->run.resumed.path && td__trainer_rank(t) == 0)
        TD_LOG(WARN, TRAIN,
               "%s: has no states of the sync rule %s, which restarts from its initial state "
               "with these weights",
               from, rule);
    for (int i = 0; i < s->n; i++)
        if (data[i])
            memcpy(s->at[i].data, data[i], s->at[i].count * sizeof *data[i]);
    return TD_OK;
}

td_status td__states_begin(td__trainer *t)
{
    TD_TRY(td__states_restore(t));
    t->run.resumed.path[0] = 0; /* a next run goes on from what is in memory */
    return TD_OK;
}

td_status td__states_restore(td__trainer *t)
{
    states s;
    find(t, &s);
    if (s.n)
        TD_TRY(take(t, &s));
    td__block_copies_fini(&t->replica.sync_states);
    t->run.has_states = true;
    return TD_OK;
}
