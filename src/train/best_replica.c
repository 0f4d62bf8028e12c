/* best_replica.c -- see best_replica.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/best_replica.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/params.h"
#include "checkpoint/names.h"
#include "train/trainer_impl.h"

struct td__best_replica {
    td__train_state state;
    uint64_t optimizer_steps;
    td_params *params;
    td__mapping shown; /* the params, while they are written */
    float *states;     /* (n_states, stride) */
    size_t nbytes, stride;
};

void td__best_replica_drop(td__trainer *t)
{
    td__best_replica *h = t->best_replica;
    if (!h)
        return;
    td_params_destroy(h->params);
    td__free_block(h->states, h->nbytes);
    td__free(h);
    t->best_replica = NULL;
}

static td_status copy(td__trainer *t, td__best_replica *h)
{
    int n = td_optimizer_state_count(t->optimizer);
    size_t count;
    td_device *d = td__params_device(t->params);
    const float *params = td_params_block(t->params, &count);

    TD_TRY(td__params_create(td__trainer_program(t), NULL, &h->params));
    TD_TRY(td__mem_write(d, td_params_block(h->params, NULL), params, count * sizeof *params));
    if (n)
        (void)td_optimizer_state(t->optimizer, 0, &h->stride);
    h->nbytes = (size_t)n * h->stride * sizeof(float);
    h->states = td__alloc_block(h->nbytes);
    if (!h->states)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of optimizer state", h->nbytes);
    for (int k = 0; k < n; k++)
        TD_TRY(td__mem_read(d, h->states + (size_t)k * h->stride,
                            td_optimizer_state(t->optimizer, k, NULL), h->stride * sizeof(float)));
    return TD_OK;
}

td_status td__best_replica_keep(td__trainer *t)
{
    td__best_replica_drop(t);
    if (!t->o.members || !t->o.checkpoint_dir || t->zero || t->rank != 1)
        return TD_OK;
    td__best_replica *h = t->best_replica = td__calloc(1, sizeof *h);
    if (!h)
        return TD_FAIL(TD_ENOMEM, "no memory for the best weights");
    h->state = t->state;
    h->optimizer_steps = td_optimizer_steps(t->optimizer);
    td_status st = copy(t, h);
    if (st) {
        TD_LOG(WARN, TRAIN, "the best weights are kept by rank 0 alone: %s", td_last_error());
        td__best_replica_drop(t);
    }
    return TD_OK;
}

static bool is_there(const td__trainer *t)
{
    char name[TD__STEP_NAME], at[TD__STEP_NAME] = "";
    td__step_name(t->best_replica->state.step, name);
    return td__checkpoint_pointer(t->o.checkpoint_dir, TD__BEST_FILE, at) && strcmp(at, name) == 0;
}

void td__best_replica_look(td__trainer *t)
{
    if (t->best_replica && is_there(t))
        td__best_replica_drop(t);
}

static td_status show(void *user, int k, int i, float **data)
{
    const td__best_replica *h = user;
    float *block = k < 0 ? h->shown.at : h->states + (size_t)k * h->stride;
    *data = block + td_params_info(h->params, i).offset;
    return TD_OK;
}

td_status td__best_replica_write(td__trainer *t)
{
    td__best_replica *h = t->best_replica;
    td__checkpoint_source from = {.show = show, .user = h};
    char digest[TD_SHA256_HEX], latest[TD__STEP_NAME];
    uint64_t newest = 0, steps = td_optimizer_steps(t->optimizer);

    td__best_replica_look(t);
    if (!t->best_replica || !t->checkpointer || h->state.step != t->state.best_step ||
        t->state.step == t->state.best_step) /* what is of this very step is written as usual */
        return TD_OK;
    if (td__checkpoint_pointer(t->o.checkpoint_dir, TD__LATEST_FILE, latest) &&
        td__step_parse(latest, &newest) && newest > h->state.step)
        return TD_OK; /* the disk was full then: `latest` is not to go back for it */
    td_status st = td_params_digest(h->params, digest);
    from.digest = digest;
    td_optimizer_set_steps(t->optimizer, h->optimizer_steps); /* it goes into the file */
    if (!st)
        st = td__params_map(h->params, 0, td__params_total(h->params), TD_MAP_READ, &h->shown);
    if (!st)
        st = td__checkpointer_write(t->checkpointer, &h->state, h->params, t->optimizer, true,
                                    &from);
    td__mem_map_drop(&h->shown);
    td_optimizer_set_steps(t->optimizer, steps);
    TD_LOG(INFO, TRAIN, "the best checkpoint, of step %llu, was lost with the last rank 0: %s",
           (unsigned long long)h->state.step, st ? td_last_error() : "written again");
    td__best_replica_drop(t);
    return st == TD_EIO ? TD_OK : st;
}
