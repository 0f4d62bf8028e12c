/* lane.h -- what lies between one server and one worker: a link (parallel/links.h) for short
 * messages, and two areas of floats, one for what the worker pushes and one for what it pulls. A
 * worker may be several ranks (team.h), which are all in the link: messages are those of its first
 * rank, and each rank hands, and takes, what it holds of the areas.
 *
 * Where the two share memory the areas are the same on both sides: a push is what the worker
 * writes where the server reads it, and nothing is copied in between; messages go through a
 * mailbox in the same memory (mailbox.h). Elsewhere the areas are private, and move over the link
 * behind the message that announces them.
 *
 * The sides take turns, so there is no lock: an area belongs to the side that was told last. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_LANE_H
#define TD_PS_LANE_H

#include "graph/cut.h"
#include "parallel/links.h"
#include "ps/mailbox.h"

/* What a rank of a worker has of the block, and whether it is the one that pushes it. */
typedef struct td__ps_holding {
    int32_t member, pushes;
    td__param_range at;
} td__ps_holding;

typedef struct td__ps_lane {
    td_comm *link;
    int peer;                    /* the other side in the link: the server is 0, the worker 1 */
    int member;                  /* of the worker, this rank is; 0 on a server */
    const td__ps_holding *holds; /* (n_holds) borrowed; NULL: the worker is one rank */
    int n_holds;
    int rank;              /* of the other side, in the world */
    bool shared;           /* the areas are */
    td__mailbox *in, *out; /* where they are */
    uint32_t spins;        /* looks into the mailbox before this side sleeps */
    uint32_t within_ms;    /* what comes here may take so long; 0: as long as a call of the link */
    float *push, *pull;    /* (push_count), (pull_count) */
    size_t push_count, pull_count;
} td__ps_lane;

/* What the lanes of a server have room for, in floats. */
typedef struct td__ps_lane_size {
    size_t push, pull;
} td__ps_lane_size;

/* One between each of the first `servers` ranks and each `team` ranks of the others, which are a
 * worker; out: by worker on a server, by server on a worker. On failure those that are made are to
 * be closed too. Collective. */
TD_NODISCARD td_status td__ps_lanes_open(td_comm *comm, int servers, int team,
                                         const td__ps_lane_size *size, td__ps_lane *out);
/* One, between the rank that serves and a client; both are ranks of comm, as others that call it
 * too. Collective. */
TD_NODISCARD td_status td__ps_lane_open(td_comm *comm, int server, int client,
                                        td__ps_lane_size size, td__ps_lane *out);
void td__ps_lanes_close(td__ps_lane *lanes, int n);
/* How a side waits for messages: it spins for as long as waking up takes, as all waits do
 * (net/backoff.h); for as long as it has to, where it has a processor of its own; not at all. */
typedef enum td__ps_wait_mode { TD__PS_SPIN_SHORTLY, TD__PS_BUSY, TD__PS_BLOCK } td__ps_wait_mode;
void td__ps_lane_waits(td__ps_lane *l, td__ps_wait_mode mode); /* between messages */
void td__ps_lanes_abort(td__ps_lane *lanes, int n, const char *why);

/* A message; idle: the other side may be silent for as long as it lives. A worker that sends may
 * have to wait for as long, for a server that validates; a server has the deadline of a call. */
TD_NODISCARD td_status td__ps_tell(const td__ps_lane *l, const void *message, size_t nbytes);
TD_NODISCARD td_status td__ps_hear(const td__ps_lane *l, void *message, size_t nbytes, bool idle);
/* The first `count` floats of an area go to the other side, or come from there. */
TD_NODISCARD td_status td__ps_hand(const td__ps_lane *l, const float *area, size_t count);
TD_NODISCARD td_status td__ps_take(const td__ps_lane *l, float *area, size_t count);
/* The same, of a range of the block that begins at `area`: of a worker of several ranks, each of
 * these, and the server with all of them. */
TD_NODISCARD td_status td__ps_hand_range(const td__ps_lane *l, const float *area,
                                         td__param_range at);
TD_NODISCARD td_status td__ps_take_range(const td__ps_lane *l, float *area, td__param_range at);

#endif
