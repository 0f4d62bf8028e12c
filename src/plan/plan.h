/* plan.h -- the communication plan: what every rank computes, sends, receives and reduces in a
 * step, in which order. One object with three uses: it is checked before the first step
 * (td__plan_check), run (by an executor that walks a rank's list), and timed on a virtual clock
 * (td__plan_time). What is checked is what runs.
 *
 * Roles     Ranks with the same coordinate along the plan's axis have the same role, and one list
 *           serves them all. Of a pipeline that is the pipeline axis, of ranks with whole models
 *           the data axis. Messages go along this axis, peers are offsets; collectives along any.
 * Lanes     The operations of a role lie in lanes. Those of a lane are carried out one after the
 *           other, lanes side by side; `after` names operations of other lanes to wait for.
 * Matching  The k-th send of a role to another meets the k-th receive there from it, in the same
 *           direction (up: forward, to later chunks; down: backward; ahead: neither). A send may
 *           wait for its receive. The k-th collective along the plan's axis, or of all ranks, is
 *           one call of all roles. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_PLAN_H
#define TD_PLAN_PLAN_H

#include "base/text.h"
#include "plan/mesh.h"

typedef enum td__plan_kind {
    TD_PLAN_RUN,    /* a phase of a micro-batch through a chunk */
    TD_PLAN_SEND,   /* the values that a phase of `chunk` made, to `other`, a chunk of a peer */
    TD_PLAN_RECV,   /* of those, by `chunk` from `other` */
    TD_PLAN_COLL,   /* a collective along `axis` */
    TD_PLAN_UPDATE, /* the optimizer's update of the params of `chunk` */
    TD_PLAN_COPY    /* to or from other memory of this rank */
} td__plan_kind;

typedef enum td__plan_lane {
    TD_LANE_COMPUTE,
    TD_LANE_SEND_UP,
    TD_LANE_RECV_UP,
    TD_LANE_SEND_DOWN,
    TD_LANE_RECV_DOWN,
    TD_LANE_COLL,
    TD_LANE_COPY,
    /* Of a pipeline that flows: params of the next batch, and what ranks say, beside the rest. */
    TD_LANE_SEND_AHEAD,
    TD_LANE_RECV_AHEAD,
    TD_LANE_NUMBERS,
    TD_LANES
} td__plan_lane;

typedef enum td__plan_coll {
    TD_PLAN_ALLREDUCE,
    TD_PLAN_REDUCE_SCATTER,
    TD_PLAN_ALL_GATHER,
    TD_PLAN_BROADCAST,
    TD_PLAN_ALL_TO_ALL,
    TD_PLAN_BARRIER,
    TD_PLAN_COLLS
} td__plan_coll;

enum { TD__PLAN_AFTER = 4, TD__PLAN_NONE = -1 };
/* The phase of messages that are no values of a micro-batch: the sender has updated its params, the
 * receiver may; params; sums of gradients. And of a collective of what ranks say: requests, losses.
 */
enum { TD__PLAN_TURN = 7, TD__PLAN_PARAMS, TD__PLAN_SUMS, TD__PLAN_NUMBERS };
/* The bytes of a collective whose size depends on the data: row-sparse gradients. */
#define TD__PLAN_ANY UINT64_MAX

typedef struct td__plan_op {
    uint8_t kind, lane; /* td__plan_kind, td__plan_lane */
    uint8_t axis, coll; /* of messages and collectives; axis: or TD__AXIS_ALL, of a collective */
    uint8_t phase;      /* td_run_phase: of a RUN; of a message, the one that made the values, or
                           one of those above */
    int16_t peer;       /* of messages: the other role is this far along the axis */
    uint16_t chunk, other;
    uint32_t micro_batch;
    uint64_t nbytes; /* of a collective: of the whole block, all ranks' parts together; of a RUN:
                        what it exchanges along tensor in its midst */
    int32_t after[TD__PLAN_AFTER]; /* operations of this role; TD__PLAN_NONE: none */
    double seconds;                /* of RUN, UPDATE, COPY: measured or modelled */
} td__plan_op;

typedef struct td__plan_list {
    td__plan_op *ops;
    int n, room;
} td__plan_list;

typedef struct td__plan {
    td__rank_mesh mesh;
    td__axis axis;        /* of the roles */
    td__plan_list *roles; /* (td__plan_roles()) */
    char **chunks;        /* (n_chunks) what people call them: "conv1 to fc2, job.yaml:9 to 12" */
    int n_chunks;
} td__plan;

TD_NODISCARD td_status td__plan_create(const td__rank_mesh *mesh, td__axis axis, int chunks,
                                       td__plan **out);
void td__plan_destroy(td__plan *p); /* NULL is allowed */
static inline int td__plan_roles(const td__plan *p)
{
    return p->mesh.size[p->axis];
}
TD_NODISCARD td_status td__plan_name_chunk(td__plan *p, int chunk, const char *name);
/* Append to a role's list; *index (may be NULL) is the number that `after` refers to. */
TD_NODISCARD td_status td__plan_add(td__plan *p, int role, const td__plan_op *op, int *index);
static inline td__plan_op td__plan_blank(td__plan_kind kind, td__plan_lane lane)
{
    return (td__plan_op){.kind = (uint8_t)kind,
                         .lane = (uint8_t)lane,
                         .axis = TD_AXIS_PIPELINE,
                         .after = {TD__PLAN_NONE, TD__PLAN_NONE, TD__PLAN_NONE, TD__PLAN_NONE}};
}
/* One more operation to wait for; TD_EINVAL if there is no room. */
TD_NODISCARD td_status td__plan_wait_for(td__plan *p, int role, int op, int before);

/* TD_EDEADLOCK if a send or receive meets none, or if operations wait for each other in a circle;
 * TD_EMISMATCH if what meets does not belong together. Both operations are named, with their ranks
 * and chunks. */
TD_NODISCARD td_status td__plan_check(const td__plan *p);

/* What messages and collectives cost. */
typedef struct td__plan_link {
    double latency;   /* seconds of a message */
    double bandwidth; /* bytes per second; 0: no end */
} td__plan_link;

typedef struct td__plan_times {
    double **begin, **end; /* by role and operation, seconds */
    double *busy;          /* by role: seconds in its compute lane */
    double total;
    int roles;
} td__plan_times;
TD_NODISCARD td_status td__plan_time(const td__plan *p, const td__plan_link *link,
                                     td__plan_times *out);
void td__plan_times_fini(td__plan_times *t);
/* The share of the compute lanes' time that is idle. */
double td__plan_bubble(const td__plan_times *t);

/* Ranks compare it before the first step. Does not depend on `seconds` or on names. */
TD_NODISCARD td_status td__plan_digest(const td__plan *p, char hex[65]);

/* "rank 1"; where a role is several ranks "stage 1 (ranks 2 to 3)", or "replica". Returns buf. */
enum { TD__PLAN_ROLE = 64 };
char *td__plan_role_text(const td__plan *p, int role, char buf[TD__PLAN_ROLE]);
/* "rank 1: forward of micro-batch 3 through chunk 1 (conv1 to fc2, job.yaml:9 to 12)". Returns
 * buf. */
enum { TD__PLAN_TEXT = 384 };
char *td__plan_op_text(const td__plan *p, int role, int op, char buf[TD__PLAN_TEXT]);
/* A line per operation, role by role; with times, when. */
void td__plan_print(const td__plan *p, const td__plan_times *times, td__text *out);
/* The same as a timeline in the Trace Event format, a process per role, a row per lane. */
void td__plan_trace(const td__plan *p, const td__plan_times *times, td__text *out);

#endif
