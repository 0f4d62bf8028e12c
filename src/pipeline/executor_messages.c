/* executor_messages.c -- what an executor sends and receives.
 *
 * A communicator carries out what was posted on a thread of its own.
 *
 * Direct messages (direct.h) need no other thread. A receive that is posted tells the sender that
 * the slot is free; a send waits for that, copies the values there and tells the receiver, which
 * waits for it when it needs them. The plan has both ends of that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/phases.h"
#include "graph/runner.h"
#include "pipeline/executor_impl.h"

/* A message is posted when there is room for it, at the beginning of a batch for the first ones:
 * what it waits for may be all micro-batches that were given, each of which has the time of a call.
 * */
static uint32_t time_of(const td__executor *x, const td_comm *comm)
{
    uint64_t ms = (uint64_t)td__comm_timeout_ms(comm) * (uint64_t)(1 + x->l.each * x->fed);
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* A byte to, or from, the peer of a message: its slot is free, or has the values. */
static td_status tell(td__executor *x, const td__plan_op *o, bool sends)
{
    int peer;
    td_comm *comm = td__channel_of(x->o.channels, o, &peer);
    td_coll_opts opts = {.timeout_ms = time_of(x, comm)};
    uint8_t token = 0;
    return sends ? td_send(comm, &token, 1, TD_U8, peer, &opts)
                 : td_recv(comm, &token, 1, TD_U8, peer, &opts);
}

bool td__executor_is_other(const td__plan_op *o)
{
    bool message = o->kind == TD_PLAN_SEND || o->kind == TD_PLAN_RECV;
    return o->kind == TD_PLAN_COLL || (message && o->phase >= TD_RUN_PHASE_COUNT);
}

static bool carries(const td__edge *e, const td__plan_op *o)
{
    bool sends = o->kind == TD_PLAN_SEND;
    return e->from == (sends ? o->chunk : o->other) && e->to == (sends ? o->other : o->chunk) &&
           e->made == (td_run_phase)o->phase;
}

/* All values of a message, where the reader has them as inputs. */
static td_status send_direct(td__executor *x, int index)
{
    const td__plan_op *o = &x->list->ops[index];
    uint64_t begin = td__clock_ns();
    const td__cut *cut;
    td_runner *r;
    TD_TRY(td__chunks_cut(x->o.chunks, td__executor_rows(x, o->micro_batch), &cut));
    TD_TRY(td__executor_runner(x, o->chunk, o->micro_batch, &r));
    const td_program *reader = cut->pieces[o->other].program;
    char *to = td__direct_inputs(x->l.direct, o->other, (int)o->micro_batch % x->l.slots[o->other],
                                 td__program_inputs(reader));
    TD_ASSERT(to, "chunk %d has no memory for a message", o->other);
    TD_TRY(tell(x, o, false));
    for (int e = 0; e < cut->n_edges; e++) {
        size_t nbytes;
        if (!carries(&cut->edges[e], o))
            continue;
        const void *value = td__runner_edge(r, e, &nbytes);
        td__direct_copy(x->l.direct, to + td__program_input_at(reader, cut->edges[e].name), value,
                        nbytes);
        x->sent += nbytes;
    }
    TD_TRY(td__direct_flush(x->l.direct));
    TD_TRY(tell(x, o, true));
    td__measure_op(x->o.measure, index, td__executor_number(x, o->micro_batch), begin,
                   td__clock_ns());
    return TD_OK;
}

static td_status post_direct(td__executor *x, int index)
{
    const td__plan_op *o = &x->list->ops[index];
    if (o->kind == TD_PLAN_RECV)
        return tell(x, o, true);
    TD_TRY(send_direct(x, index));
    x->ops[index].done = true;
    return TD_OK;
}

/* A receive; what is sent has been. */
static td_status finish_direct(td__executor *x, int index)
{
    td__executor_op *g = &x->ops[index];
    const td__plan_op *o = &x->list->ops[index];
    bool comes = !g->done && td__executor_rows(x, o->micro_batch);
    g->done = true;
    if (!comes)
        return TD_OK;
    TD_TRY(tell(x, o, false));
    td__measure_op(x->o.measure, index, td__executor_number(x, o->micro_batch), g->posted_ns,
                   td__clock_ns());
    return TD_OK;
}

/* From and to the memory of the runner. */
static td_status post_value(td__executor *x, const td__plan_op *o, const td__cut *cut, int edge,
                            td_work **work)
{
    int peer;
    td_comm *comm = td__channel_of(x->o.channels, o, &peer);
    td_coll_opts opts = {.work = work, .timeout_ms = time_of(x, comm)};
    size_t nbytes;
    td_runner *r;
    TD_TRY(td__executor_runner(x, o->chunk, o->micro_batch, &r));
    if (o->kind == TD_PLAN_RECV) {
        void *to = td_runner_input(r, cut->edges[edge].name, &nbytes);
        return td_recv(comm, to, nbytes, TD_U8, peer, &opts);
    }
    const void *value = td__runner_edge(r, edge, &nbytes);
    x->sent += nbytes;
    return td_send(comm, value, nbytes, TD_U8, peer, &opts);
}

/* Every value of the message is an edge with these ends, made in this phase. */
static td_status post(td__executor *x, int index)
{
    const td__plan_op *o = &x->list->ops[index];
    td__executor_op *g = &x->ops[index];
    const td__cut *cut;
    g->posted = true;
    g->posted_ns = td__clock_ns();
    if (!td__executor_rows(x, o->micro_batch))
        return TD_OK;
    if (x->l.direct)
        return post_direct(x, index);
    TD_TRY(td__chunks_cut(td__executor_chunks(x, o->micro_batch),
                          td__executor_rows(x, o->micro_batch), &cut));
    for (int e = 0; e < cut->n_edges; e++) {
        if (!carries(&cut->edges[e], o))
            continue;
        TD_ASSERT(g->n < x->most, "more than %d values of a message", x->most);
        TD_TRY(post_value(x, o, cut, e, &g->at[g->n]));
        g->n++;
    }
    return TD_OK;
}

static bool may_post(const td__executor *x, const td__plan_op *o)
{
    for (int k = 0; k < TD__PLAN_AFTER; k++)
        if (o->after[k] != TD__PLAN_NONE && !x->ops[o->after[k]].done)
            return false;
    return true;
}

/* A message of a batch to come is not posted: its peer may never send it. */
bool td__executor_was_given(const td__executor *x, const td__plan_op *o)
{
    return td__executor_batch_of(x, o->micro_batch) < x->fed;
}

/* The first operation of a lane from `at` on. */
static int in_lane(const td__executor *x, int at, td__plan_lane lane)
{
    while (at < x->list->n && x->list->ops[at].lane != lane)
        at++;
    return at;
}

/* When a message is over, as far as this thread sees it. */
static void look(td__executor *x, int index)
{
    td__executor_op *g = &x->ops[index];
    for (int i = 0; i < g->n; i++)
        if (!td_work_done(g->at[i]))
            return;
    g->seen = true;
    if (g->n)
        td__measure_op(x->o.measure, index, td__executor_number(x, x->list->ops[index].micro_batch),
                       g->posted_ns, td__clock_ns());
}

void td__executor_look(td__executor *x)
{
    for (int l = TD_LANE_SEND_UP; l <= TD_LANE_RECV_DOWN; l++)
        for (int at = x->finished[l]; (at = in_lane(x, at, (td__plan_lane)l)) < x->next[l]; at++)
            if (x->ops[at].posted && !x->ops[at].seen && !x->ops[at].done)
                look(x, at);
}

static td_status post_lane(td__executor *x, td__plan_lane l)
{
    for (;;) {
        int at = x->next[l] = in_lane(x, x->next[l], l);
        if (at < x->list->n && x->ops[at].posted) {
            x->next[l]++;
            continue;
        }
        bool there = at < x->list->n && td__executor_was_given(x, &x->list->ops[at]);
        if (at == x->list->n || (there ? !may_post(x, &x->list->ops[at]) : !x->closing))
            return TD_OK;
        if (there)
            TD_TRY(post(x, at));
        x->next[l]++;
    }
}

/* Receives first: a direct send may wait for its peer, which may wait for a slot of this rank. */
td_status td__executor_post(td__executor *x)
{
    static const td__plan_lane ORDER[] = {TD_LANE_RECV_UP, TD_LANE_RECV_DOWN, TD_LANE_SEND_UP,
                                          TD_LANE_SEND_DOWN};
    for (int i = 0; i < TD_LEN(ORDER); i++)
        TD_TRY(post_lane(x, ORDER[i]));
    return TD_OK;
}

/* The first failure counts; all are waited for, as their memory is borrowed. */
td_status td__executor_finish(td__executor *x, int index)
{
    td__executor_op *g = &x->ops[index];
    td_status first = TD_OK;
    bool any = g->n > 0;
    if (x->l.direct)
        return finish_direct(x, index);
    for (int i = 0; i < g->n; i++) {
        td_status st = td_work_wait(g->at[i]);
        first = first ? first : st;
    }
    if (any && !g->seen)
        td__measure_op(x->o.measure, index, td__executor_number(x, x->list->ops[index].micro_batch),
                       g->posted_ns, td__clock_ns());
    g->n = 0;
    g->done = true;
    return first;
}

/* An operation, and those before it in its lane: to have waited for the last is to have waited for
 * all, also where they go to different peers. */
static td_status finish_lane(td__executor *x, int index)
{
    int lane = x->list->ops[index].lane, *at = &x->finished[lane];
    TD_ASSERT(x->ops[index].posted, "operation %d is waited for, and was not posted", index);
    for (; (*at = in_lane(x, *at, (td__plan_lane)lane)) <= index; ++*at)
        TD_TRY(td__executor_finish(x, *at));
    return TD_OK;
}

td_status td__executor_wait(td__executor *x, const td__plan_op *o)
{
    uint64_t begin = td__clock_ns();
    for (int k = 0; k < TD__PLAN_AFTER; k++) {
        int at = o->after[k];
        if (at == TD__PLAN_NONE || x->ops[at].done)
            continue;
        TD_TRY(finish_lane(x, at));
    }
    uint64_t end = td__clock_ns();
    x->wait += 1e-9 * (double)(end - begin);
    td__measure_idle(x->o.measure, begin, end);
    return TD_OK;
}
