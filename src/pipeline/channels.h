/* channels.h -- what the ranks of a pipeline talk through: a communicator for every pair of stages
 * and direction in which the plan has messages, so that a message waits only for those before it on
 * its way; one of the ranks with the same part of the model, one of the ranks of a whole model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_CHANNELS_H
#define TD_PIPELINE_CHANNELS_H

#include "plan/plan.h"
#include "tandem/coll.h"

typedef struct td__channels {
    td__rank_mesh mesh;
    int stage, replica, peer; /* of this rank: coordinates along pipeline, data and tensor */
    td_comm *data;            /* NULL: one replica */
    td_comm *pipeline;
    td_comm **pairs; /* (stages, stages, 2) by sender, receiver, 0 up or 1 down; NULL: none */
} td__channels;

/* Collective over `world`. */
TD_NODISCARD td_status td__channels_open(td__channels *c, td_comm *world, const td__rank_mesh *mesh,
                                         const td__plan *p);
void td__channels_close(td__channels *c);
void td__channels_abort(td__channels *c, const char *why);
/* The communicator of a message of this rank's, and the peer's rank in it. */
td_comm *td__channel_of(const td__channels *c, const td__plan_op *message, int *peer);

#endif
