/* best_replica.c -- see best_replica.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic/best_replica.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/sha256.h"
#include "checkpoint/names.h"
#include "graph/params.h"

struct td__best_replica {
    td__train_state state;
    uint64_t optimizer_steps;
    td_params *params; /* in memory of the host, as are the states */
    float *states;     /* (n_states, stride) */
    size_t nbytes, stride;
};

void td__best_replica_drop(td__best_replica **b)
{
    td__best_replica *h = *b;
    if (!h)
        return;
    td_params_destroy(h->params);
    td__free_block(h->states, h->nbytes);
    td__free(h);
    *b = NULL;
}

static td_status copy(td__best_replica *h, const td__replica *r)
{
    int n = td_optimizer_state_count(r->optimizer);

    h->state = r->state;
    h->optimizer_steps = td_optimizer_steps(r->optimizer);
    TD_TRY(td__params_copy(r->params, &h->params));
    if (n)
        (void)td_optimizer_state(r->optimizer, 0, &h->stride);
    h->nbytes = (size_t)n * h->stride * sizeof(float);
    h->states = td__alloc_block(h->nbytes);
    if (!h->states)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of optimizer state", h->nbytes);
    for (int k = 0; k < n; k++) {
        float *state = h->states + (size_t)k * h->stride;
        TD_TRY(td__mem_read(td__params_device(r->params), state,
                            td_optimizer_state(r->optimizer, k, NULL), h->stride * sizeof(float)));
        TD_TRY(td__params_unpack(r->params, state));
    }
    return TD_OK;
}

void td__best_replica_keep(td__best_replica **b, const td__replica *r)
{
    td__best_replica_drop(b);
    *b = td__calloc(1, sizeof **b);
    td_status st = *b ? copy(*b, r) : TD_FAIL(TD_ENOMEM, "no memory");
    if (st) {
        TD_LOG(WARN, TRAIN, "the best weights are kept by rank 0 alone: %s", td_last_error());
        td__best_replica_drop(b);
    }
}

static bool is_there(const td__best_replica *h, const char *dir)
{
    char name[TD__STEP_NAME], at[TD__STEP_NAME] = "";
    td__step_name(h->state.step, name);
    return td__checkpoint_pointer(dir, TD__BEST_FILE, at) && strcmp(at, name) == 0;
}

void td__best_replica_look(td__best_replica **b, const char *dir)
{
    if (*b && is_there(*b, dir))
        td__best_replica_drop(b);
}

static td_status show(void *user, int k, int i, float **data)
{
    const td__best_replica *h = user;
    float *block = k < 0 ? td_params_block(h->params, NULL) : h->states + (size_t)k * h->stride;
    *data = block + td_params_info(h->params, i).offset;
    return TD_OK;
}

td_status td__best_replica_write(td__best_replica **b, const td__replica *r, td__checkpointer *c,
                                 const char *dir)
{
    char digest[TD_SHA256_HEX], latest[TD__STEP_NAME];
    uint64_t newest = 0, steps = td_optimizer_steps(r->optimizer);

    td__best_replica_look(b, dir);
    td__best_replica *h = *b;
    if (!h || !c || h->state.step != r->state.best_step ||
        r->state.step == r->state.best_step) /* what is of this very step is written as usual */
        return TD_OK;
    if (td__checkpoint_pointer(dir, TD__LATEST_FILE, latest) && td__step_parse(latest, &newest) &&
        newest > h->state.step)
        return TD_OK; /* the disk was full then: `latest` is not to go back for it */
    td__checkpoint_source from = {.show = show, .user = h, .digest = digest};
    td_status st = td_params_digest(h->params, digest);
    td_optimizer_set_steps(r->optimizer, h->optimizer_steps); /* it goes into the file */
    if (!st)
        st = td__checkpointer_write(c, &h->state, h->params, r->optimizer, true, &from);
    td_optimizer_set_steps(r->optimizer, steps);
    TD_LOG(INFO, TRAIN, "the best checkpoint, of step %llu, was lost with the last rank 0: %s",
           (unsigned long long)h->state.step, st ? td_last_error() : "written again");
    td__best_replica_drop(b);
    return st == TD_EIO ? TD_OK : st;
}
