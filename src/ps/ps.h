/* ps.h -- a parameter server: params live in shards on servers, workers pull them, compute
 * gradients and push these (Li and others, 2014; Dean and others, 2012).
 *
 * Roles    The first `servers` ranks of the world are servers, the others are workers. Server 0
 *          leads: it is the trainer that validates, saves and decides when it is over, and it puts
 *          everything that changes params in one order. The other servers carry out its commands
 *          in that order, each on its shard. So all shards have seen the same pushes at any
 *          moment, a checkpoint is of one moment, and the order, which is all that varies between
 *          two runs, is the `counted` of metrics.jsonl: a replay is a run that waits for the pushes
 *          in the order of the file.
 * Shards   Ranges of the block of params and states, cut where a param begins (shard_map.h). The
 *          gradients of a range lie at the same places of the gradient block. Each server has the
 *          optimizer's state of its range, updated by the engine of all trainers (step/step.h).
 * Steps    A rule whose workers work together (`sync`) deals the batch of a step out to all of
 *          them; the server adds up their partials in the micro-batch tree: the bits of one rank.
 *          The others give each worker whole batches, the next one as soon as its last push is
 *          applied: a slow worker gets fewer of them, and each batch of an epoch is used once (the
 *          next epoch begins when all of this one are applied). A step is then one push. With
 *          data.partition it is fixed whose a batch is (parts.h); those of a worker that is lost
 *          or left out are done by others, on samples of theirs.
 * Clocks   The version of the params is the number of updates since the run began; the staleness
 *          of a push is how many of them came between the pull and the push; a worker's clock is
 *          how many batches it has done.
 * Policy   What differs between the rules: td__ps_policy, one file each.
 *
 * A step on server 0, between its trainer's calls:
 *
 *     begin   idle workers that may go on get an order: a batch to work on, with the params, which
 *             the other servers hand out too (TD__PS_PUBLISH)
 *     step    the next push, by arrival or as the replay has it, is applied here and, by command
 *             (TD__PS_APPLY), on the other servers
 *     meet    the other shards come here (TD__PS_FETCH): params and optimizer's states are whole
 *
 * Threads  Server 0 has one per worker, which receives pushes (inbox.h); everything else is done by
 *          the trainer's thread.
 * Overdue  Where an idle worker has nothing to do but wait for the last batches of an epoch, and
 *          one of these takes many times as long as batches do, it is given out again (leader.c).
 *          Who is so late is left out until it has caught up: what it pushes then is dropped, and
 *          it gets work again. One that has told server 0 of a push and stands still before it has
 *          told the others, is left out by these: they go on without its gradients.
 * Failure  A worker that is killed is left out (but of `sync`, which needs all): its batch is given
 *          to another. The comm of all ranks is of no use from then on, so those that are left end
 *          without meeting. A server that is lost ends the run with one line; it is resumed from
 *          the last checkpoint, on any number of workers and servers. So does one that is stopped
 *          and does not answer for most of the timeout of a call: who waits for a server keeps
 *          vigil (coll/vigil.h), workers and other servers in their calls, server 0 while it waits
 *          for pushes, which workers may owe to another server. Elastic ranks have agents for that.
 * Meshes   A worker may be several ranks (team.h).
 * Replicas With parallel.replicas servers stand in a ring, and each has a copy of the shard of the
 *          one before it (copies.c): gradients of a shard go to both, and both make the same
 *          updates in the order of server 0, but only the first hands the shard out. A push is
 *          applied, and its worker told so, only when all servers have it. So when a server is
 *          lost the others have all shards (elastic/catch_up_parts.c): the generation ends, and
 *          the next one begins with what they put together; its first rank leads. What is lost
 *          with server 0 is only who works on what: batches of the epoch that are not among those
 *          done (`done`) are dealt out again. Two neighbours lost at once are a shard lost: then
 *          the run goes back to its checkpoint. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_PS_H
#define TD_PS_PS_H

#include "ps/inbox.h"
#include "ps/lane.h"
#include "ps/outputs.h"
#include "ps/parts.h"
#include "ps/shard_map.h"
#include "ps/tables.h"
#include "parallel/rank_tree.h"
#include "parallel/sync.h"
#include "run/backup_sets.h"

typedef struct td__ps_rule td__ps_rule;
typedef struct td__ps_team td__ps_team;

/* What a rule adds. */
typedef struct td__ps_policy {
    bool together; /* workers share the batch of a step, and none is left out */
    /* (optional) What the learning rate is multiplied with; NULL: 1. */
    double (*rate)(const td__ps_rule *r, uint64_t staleness);
    /* (optional) May a worker with this clock begin another batch? NULL: yes. The slowest may. */
    bool (*may_begin)(const td__ps_rule *r, uint64_t clock, uint64_t slowest);
    /* (optional) Batches between two pushes, two pulls, of a worker that updates its own params in
     * between by plain SGD; NULL: each batch is pushed, and has fresh params. */
    int (*push_every)(const td__ps_rule *r);
    int (*fetch_every)(const td__ps_rule *r);
} td__ps_policy;

/* What server 0 knows of a worker. */
typedef struct td__ps_seat {
    bool busy;    /* it has an order, and its push is not applied yet */
    bool lost;    /* it is not there any more */
    bool pushed;  /* gradients, with its last batch */
    bool overdue; /* another worker has its batch: its push, when it comes, is not used */
    bool afresh;  /* nor is what it has added up: it begins with the params of its next order */
    int owed;     /* batches that it has added up, and not pushed */
    uint64_t since_ns;    /* it has its order */
    uint64_t step;        /* of its order */
    uint64_t epoch, next; /* with parts: its first step of this epoch that it may not have had */
    uint64_t clock;       /* batches that it has done */
    uint64_t version;     /* of the params that it pulled last */
    double lr;            /* of its order */
    td__rank_times times;
} td__ps_seat;

/* Server 0 to the others. */
typedef enum td__ps_verb {
    TD__PS_APPLY,   /* receive the push of a worker, or of all, and update with it */
    TD__PS_NOTE,    /* with copies or tables: a step that has no push */
    TD__PS_DROP,    /* receive it and leave it */
    TD__PS_PUBLISH, /* hand the shard to a worker */
    TD__PS_ACK,     /* tell it that its push is applied: its area of the lane is free */
    TD__PS_FETCH,   /* hand it, with the optimizer's states, to server 0; with copies, to 1 too */
    TD__PS_SHOW,    /* to server 0, without the states: for a client */
    TD__PS_END
} td__ps_verb;
typedef struct td__ps_command {
    int32_t verb, worker; /* -1: all */
    uint64_t step;
    int32_t batches, end; /* end: a td__ps_end */
    int64_t rows, last_rows;
    int64_t samples; /* that are in the update */
    double lr, loss;
    uint64_t within_ms; /* what the worker has told server 0 may take so long here; 0: a call's */
} td__ps_command;

/* An update that this server has all of, and others may have made (copies.c). */
typedef struct td__ps_late {
    td__ps_command what;
    bool ready, now;    /* now: it is being made, without others */
    const float *grads; /* of it, laid out as the block; */
    float *own;         /* a copy of what this server has of them, when lanes are gone */
    double *squares;    /* (params) sums over all servers */
} td__ps_late;

/* The struct of every rule. */
struct td__ps_rule {
    td__sync base;
    const td__ps_policy *policy;
    int rank, servers, workers;
    int team_size;      /* ranks of a worker */
    td__ps_team *team;  /* (team.h) NULL: workers are one rank each */
    int server;         /* this rank's number among servers; -1: it is a worker */
    td__ps_map map;     /* of shards */
    td__ps_lane *lanes; /* (n_lanes) servers: to all workers; workers: to all servers */
    int n_lanes;
    td_comm *peers;        /* servers, if there are several: all of them */
    td__step_stage stage;  /* servers: what this one updates, */
    td__ps_held held;      /* which is so much; */
    size_t adding;         /* where it adds up now */
    td__rank_tree tree;    /* servers: what is added up in a step */
    td__ps_tables *tables; /* of the model; NULL: none */
    bool tables_read;      /* server 0: those of the step before the first */
    td__blend_op *adds;    /* (room_adds) */
    int room_adds;
    bool copies;          /* every server has the shard of the one before it, too */
    unsigned char *place; /* (place_nbytes) servers beside server 0, with copies */
    size_t place_nbytes;
    td__ps_late late; /* servers, with copies */
    bool parted;      /* all have come to the end of the generation, or nobody waits any more */
    float *done;      /* (steps_of_epoch) 1: the batch of this step is applied */
    uint64_t steps_of_epoch, n_done;
    bool counted_done; /* n_done is that of `done` */

    /* Server 0. */
    td__ps_inbox *inbox;
    td__ps_seat *seats; /* (workers) */
    td__backup_sets *replay;
    td__ps_outputs *outputs; /* clients of the run; NULL: none can be */
    bool *only;              /* (ranks) of a step of the replay */
    int *counted;            /* (ranks) whose work is in the step */
    td__ps_push *pushed;     /* (workers) of a step together */
    bool stop;               /* another rank was asked to stop */
    int ordered;             /* servers that the operator has asked for last */
    td__deadline look_again; /* for that */
    bool timed_out;          /* the last wait for pushes has */
    bool change;             /* elastic: the generation is to end; */
    td__deadline owed_until; /* 0, or until when it does not, for what workers owe */
    uint64_t *again;         /* (workers) steps of workers that were lost, to be dealt out again */
    int n_again, n_lost;
    td__ps_part *parts; /* (steps_of_epoch) NULL: batches are dealt by speed */
    uint64_t version;   /* of the params */
    uint64_t dealt;     /* the last step that a worker was given */
    uint64_t begun;     /* the step under way */
    double lr;          /* of it */
    uint64_t stale_sum, stale_most, pushes;
    double batch_seconds;             /* from order to push, mean of the last ones */
    uint64_t noted_sum, noted_pushes; /* of steps before (td__ps_notes); */
    uint64_t noted_most;              /* since then */

    /* Workers. */
    uint64_t clock;
    bool accrued; /* the lanes hold gradients that are not pushed yet */
    uint64_t began_ns;
    td__rank_times total; /* told with each push */
};

/* Parts of a td__sync_ops. */
TD_NODISCARD td_status td__ps_check(const td__sync_config *c, const td__sync_job *j,
                                    const td__sync_world *w);
TD_NODISCARD td_status td__ps_check_params(const td__sync_config *c, const td_params *ps);
TD_NODISCARD td_status td__ps_resize(td__sync_config *c, const td__sync_resizing *r);
bool td__ps_asked(const td__sync_config *c);
/* Servers of so many ranks. Elastic ones may be too few for a while: one works at least. */
int td__ps_servers_of(const td__sync_config *c, int ranks, bool elastic);
void td__ps_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);
void td__ps_traits_together(const td__sync_config *c, const td__sync_world *w,
                            td__sync_traits *out);
size_t td__ps_exchange(const td__sync_sizes *z);
TD_NODISCARD td_status td__ps_create(td__sync *s, const td__ps_policy *policy);
void td__ps_destroy(td__sync *s);
void td__ps_abandon(td__sync *s, const char *why);
TD_NODISCARD td_status td__ps_begin(td__sync *s, const td__sync_place *at);
TD_NODISCARD td_status td__ps_batch(td__sync *s, const td__batch *batch);
TD_NODISCARD td_status td__ps_step(td__sync *s, double lr, td__step_result *out);
TD_NODISCARD td_status td__ps_meet(td__sync *s, td__sync_meet why);
TD_NODISCARD td_status td__ps_serve(td__sync *s);
int td__ps_states(td__sync *s, td__sync_block *out);
void td__ps_note(td__sync *s, td__rank_stats *stats);
int td__ps_notes(td__sync *s, td__step_note *out); /* age: updates that a push had not seen */

/* All of them, for the table of a rule. */
#define TD__PS_RULE                                                                               \
    .size = sizeof(td__ps_rule), .key = "parallel.servers", .sample = "1", .asked = td__ps_asked, \
    .check = td__ps_check, .check_params = td__ps_check_params, .resize = td__ps_resize,          \
    .exchange = td__ps_exchange, .destroy = td__ps_destroy, .begin = td__ps_begin,                \
    .batch = td__ps_batch, .step = td__ps_step, .meet = td__ps_meet, .serve = td__ps_serve,       \
    .note = td__ps_note, .notes = td__ps_notes, .states = td__ps_states,                          \
    .abandon = td__ps_abandon, .prepared = td__ps_prepared, .forward = td__ps_forward
/* Of one whose workers are not in step, why there is no plan of a step. */
#define TD__PS_UNPLANNED "workers push and pull when they come to it"

/* ---- Between the files of this folder -------------------------------------------------------- */

/* Others are waited for, from here until `what` is NULL. */
static inline void td__ps_waits(const td__ps_rule *r, const char *what)
{
    r->base.x.host.waits(r->base.x.host.user, what);
}

/* What server s has of a push. */
static inline td__ps_held td__ps_held_of(const td__ps_rule *r, int s)
{
    return td__ps_map_held(&r->map, s, r->copies);
}

/* deal.c: the idle worker that is to begin next, and its order; -1: none is. The least that a
 * worker has done, of those that are not left out, nor wait for the next epoch; UINT64_MAX: all
 * are. */
struct td__ps_order;
int td__ps_deal_next(td__ps_rule *r, struct td__ps_order *order);
uint64_t td__ps_slowest(td__ps_rule *r);
/* A generation that is to end after this step goes on while workers owe pushes, not for longer
 * than a call may take. What is owed and lost, is said: of a worker; of all, at the end. */
void td__ps_put_off(td__ps_rule *r, td__step_result *out);
void td__ps_lose_owed(td__ps_rule *r, int worker);
void td__ps_tell_owed(const td__ps_rule *r);

/* copies.c: with copies, else nothing. Server 0 to the others: where the run is before a step; */
TD_NODISCARD td_status td__ps_copy_out(td__ps_rule *r);
/* the others: the step begins, from where server 0 is. */
TD_NODISCARD td_status td__ps_copy_begin(td__ps_rule *r);
/* Between what an update needs of others and the update: returns when all servers are there. */
TD_NODISCARD td_status td__ps_copy_turn(td__ps_rule *r);
/* It is made; on servers that follow, so is the step. */
void td__ps_copy_done(td__ps_rule *r);
/* Squares of gradients by param, of what this server has: those of copies are not counted, and the
 * sums over all servers are kept. */
TD_NODISCARD td_status td__ps_copy_squares(td__ps_rule *r, double *squares, size_t n);
void td__ps_copy_fini(td__ps_rule *r);
/* All servers: the batch of a step is applied. */
void td__ps_set_done(td__ps_rule *r, uint64_t step);
uint64_t td__ps_count_done(td__ps_rule *r); /* of this epoch */

/* server.c: what all servers do. */
TD_NODISCARD td_status td__ps_server_create(td__ps_rule *r);
void td__ps_server_destroy(td__ps_rule *r);
/* Update what this server has, with what lies in the lanes of the workers of the command and what
 * they have pushed of tables. */
TD_NODISCARD td_status td__ps_apply(td__ps_rule *r, const td__ps_command *c);
/* (parallel/sync.h) */
bool td__ps_prepared(const td__sync *s);
TD_NODISCARD td_status td__ps_forward(td__sync *s);
/* The shard to the lane of a worker. */
TD_NODISCARD td_status td__ps_publish(td__ps_rule *r, int worker);
/* All servers: shards come to server 0, with the optimizer's states or without; with copies and
 * states to server 1 too, which then has all that a checkpoint has. */
TD_NODISCARD td_status td__ps_fetch(td__ps_rule *r, bool states);
td__step_batch_fn td__ps_no_batch;                     /* a server runs none */
TD_NODISCARD td_status td__ps_follow(td__ps_rule *r);  /* another server than 0, until the end */
TD_NODISCARD td_status td__ps_end_all(td__ps_rule *r); /* all ranks: the params of server 0 */
/* Of another rank than 0: server s does not answer, as the last error says. TD_ETIMEDOUT. */
TD_NODISCARD td_status td__ps_silent(const td__ps_rule *r, int s);

/* worker.c */
TD_NODISCARD td_status td__ps_work(td__ps_rule *r);
/* Gradients of a part of the block are added to those that are not pushed yet; where workers go on
 * from their own params between pulls, these too are updated. Any compute thread. */
TD_NODISCARD td_status td__ps_accrue(td__ps_rule *r, const float *grads, double lr,
                                     td__param_range part);

#endif
