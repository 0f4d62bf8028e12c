/* sync_config.c -- see sync.h: what a config says to the trainer, whatever rule it means. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "parallel/sync.h"

/* ---- How the model is divided ---------------------------------------------------------------- */

static int along(const td__sync_config *c, td__axis axis)
{
    return c->mesh.size[axis] > 1 ? c->mesh.size[axis] : 1;
}

td__sync_division td__sync_division_of(const td__sync_config *c)
{
    int stages = along(c, TD_AXIS_PIPELINE), pieces = along(c, TD_AXIS_TENSOR);
    return (td__sync_division){.ranks = stages * pieces,
                               .stages = stages > 1,
                               .pieces = pieces > 1,
                               .split_params = c->zero == 3 ? "parallel.zero: 3"
                                               : stages > 1 ? "parallel.pipeline"
                                               : pieces > 1 ? "parallel.tensor"
                                                            : NULL};
}

int td__sync_replicas(const td__sync_config *c, int ranks)
{
    int replicas = (ranks - c->servers) / td__sync_division_of(c).ranks;
    return replicas > 1 ? replicas : 1;
}

td_status td__sync_check_mesh(const td__sync_config *c, const td__sync_world *w)
{
    td__rank_mesh mesh = {{[TD_AXIS_DATA] = c->mesh.size[TD_AXIS_DATA],
                           [TD_AXIS_PIPELINE] = 1,
                           [TD_AXIS_TENSOR] = 1}};
    bool known = w->starts || w->ranks > 1;
    if (!known || w->elastic || c->servers || mesh.size[TD_AXIS_DATA] < 2 ||
        td__sync_division_of(c).ranks > 1)
        return TD_OK;
    return td__rank_mesh_complete(&mesh, w->ranks);
}

td__tensor_cut td__sync_tensor_cut(const td__sync_config *c, int rank, int ranks)
{
    int size = c->mesh.size[TD_AXIS_TENSOR];
    td__tensor_cut cut = {.pieces = c->tensor_pieces ? c->tensor_pieces : size,
                          .ranks = 1,
                          .sequence = c->sequence,
                          .packed = size > 1 && !c->compressor};
    if (size > 1 && ranks % size == 0) { /* else one that only looks at what others have made */
        cut.ranks = size;
        cut.rank = rank % size;
    }
    return cut;
}

void td__sync_to_use(td__sync_config *c)
{
    *c = (td__sync_config){.zero = c->zero == 3 ? 3 : 0,
                           .mesh = c->mesh,
                           .schedule = c->schedule,
                           .chunks = c->chunks,
                           .stages = c->stages,
                           .tensor_pieces = c->tensor_pieces,
                           .sequence = c->sequence};
}

/* ---- Any bits -------------------------------------------------------------------------------- */

void td__sync_any_bits(td__sync_config *c, const td_comm *comm)
{
    c->any_bits = true;
    /* In shared memory the tree is as fast as anything, with as many partials as ranks. */
    if (comm && td_comm_size(comm) > 1 && !c->rule && !c->compressor && !c->zero &&
        (!td__comm_shares(comm) || td__comm_names_algo(comm)))
        c->compressor = "allreduce";
}

td_status td__sync_mixed(td__sync_config *c)
{
    if (c->compressor)
        return TD_OK;
    if (c->rule || c->zero || td__sync_division_of(c).ranks > 1)
        return TD_FAIL(TD_EINVAL, "some ranks have a GPU and some have not: they share a job that "
                                  "is data parallel alone; set train.backend to cpu");
    c->compressor = "allreduce";
    return TD_OK;
}

bool td__sync_has_momentum(const td__sync_config *c, const td_optim_opts *optim)
{
    return optim->momentum > 0 || c->compress_with.momentum > 0;
}

/* ---- For the trainer ------------------------------------------------------------------------- */

td_status td__sync_copy_texts(td__sync_config *c, td__arena *to)
{
    const char **texts[] = {&c->rule,   &c->compressor, &c->backup_replay, &c->compress_with.algo,
                            &c->replay, &c->clients,    &c->schedule,      &c->stages};
    enum { N = sizeof texts / sizeof *texts };
    for (int i = 0; i < N + c->n_set; i++) {
        const char **text = i < N ? texts[i] : &c->set[i - N].name;
        if (*text && !(*text = td__arena_strdup(to, *text)))
            return TD_FAIL(TD_ENOMEM, "no memory for the options of a sync rule");
    }
    return TD_OK;
}

td_status td__sync_resize(td__sync_config *c, const td__sync_resizing *r)
{
    td__sync_world w = td__sync_world_of(r->comm, true);
    const td__sync_ops *rule;
    if (!r->comm)
        return TD_OK;
    TD_TRY(td__sync_find(c, &w, &rule));
    return rule->resize ? rule->resize(c, r) : TD_OK;
}
