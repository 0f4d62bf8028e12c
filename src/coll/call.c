/* call.c -- the public calls: checked, numbered, given an algorithm and a digest, and run.
 *
 * Every call has a number that all ranks count alike. Its digest (number, kind, count, dtype, op,
 * root, algorithm, segment) is the tag of all its messages, so ranks in different calls cannot
 * take each other's data; agree.c names the two sides. Sends and receives involve two ranks only:
 * they are numbered for each pair and direction. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "coll/exchange.h"

enum {
    CAUSE_MS = 400,   /* for the first cause to come from elsewhere */
    SETTLE_MS = 5000, /* for it to come to an end of its way, if it is on it */
    ANSWER_MS = 3000, /* for a rank in another call to say so: it may be busy */
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static bool is_p2p(const td__coll_call *call)
{
    return call->kind == TD_COLL_SEND || call->kind == TD_COLL_RECV;
}

static uint32_t digest(const td__coll_call *call, const char *algo)
{
    uint64_t h = mix(call->sequence, call->count);

    h = mix(h, (uint64_t)call->dtype << 8 | (uint64_t)(is_p2p(call) ? TD_COLL_COUNT : call->kind));
    if (!is_p2p(call)) {
        h = mix(h, (uint64_t)call->op << 32 | (uint32_t)call->root);
        h = mix(h, call->segment);
        for (; *algo; algo++)
            h = (h ^ (unsigned char)*algo) * 0x100000001b3u;
    }
    h = mix(h, 0);
    return (uint32_t)(h >> 32);
}

/* A world of one: every collective is a copy. */
static td_status run_alone(const td__coll_call *call)
{
    if (call->kind != TD_COLL_BARRIER && call->kind != TD_COLL_BROADCAST && call->count)
        td__coll_copy(call->out, call->in, td__nbytes(call, call->count));
    return TD_OK;
}

/* Wait until this comm knows why, if another rank does: whoever gives up says so before it lets go
 * of its peers. */
static void await_cause(td_comm *c, td_status st)
{
    if (td__comm_await_poison(c, CAUSE_MS))
        return;
    if (c->hooks.settle)
        c->hooks.settle(c->hooks.user, td__deadline_in_ms(SETTLE_MS));
    if (st == TD_EMISMATCH)
        (void)td__comm_await_poison(c, ANSWER_MS);
}

/* The first cause may be elsewhere: a mesh that fails takes its peers with it, for whom the failed
 * rank is just a lost peer. */
td_status td__comm_failed(td_comm *c, td_status st)
{
    char text[360];

    snprintf(text, sizeof text, "%s", td_last_error());
    if (st == TD_EMISMATCH)
        td__comm_differ(c);
    if (c->hooks.tell && (st == TD_EMISMATCH || st == TD_EPEER))
        await_cause(c, st);
    td__comm_poison_all(c, st, text);
    td__comm_let_go(c);
    return td__poison_check(&c->poison);
}

td_status td__comm_run(td_comm *c, td__coll_call *call)
{
    const td__algo *algo = NULL;
    td_status st;

    TD_TRY(td__poison_check(&c->poison));
    st = td__point(c->points, TD_POINT_COMM, td__coll_name(call->kind));
    if (st)
        return td__comm_failed(c, st);
    if (c->size == 1)
        return run_alone(call);
    if (!c->hooks.run)
        TD_TRY(td__algo_choose(&c->ctx, call, &algo));
    const char *name = algo ? algo->name : "";
    uint32_t tag = digest(call, name);
    td__comm_enter(c, call, name, tag, td__clock_coarse_ns());
    td__comm_compare_told(c);
    if (algo) {
        c->ctx.tag = tag;
        c->ctx.deadline = call->deadline;
        st = algo->run(&c->ctx, call);
    } else {
        st = c->hooks.run(c->hooks.user, c, call);
    }
    if (st)
        st = td__comm_failed(c, st);
    td__comm_leave(c, td__clock_coarse_ns());
    return st;
}

td_status td__comm_carried(td_comm *c, td__coll_call call, const char *by, td__comm_carry *carry,
                           void *user)
{
    td__comm_drain(c);
    TD_TRY(td__poison_check(&c->poison));
    td_status st = td__point(c->points, TD_POINT_COMM, td__coll_name(call.kind));
    if (st)
        return td__comm_failed(c, st);
    call.sequence = ++c->sequence;
    call.deadline = td__deadline_in_ms(c->timeout_ms);
    td__comm_enter(c, &call, by, digest(&call, by), td__clock_coarse_ns());
    if (c->ctx.mesh)
        td__comm_waiting_all(c, c->ctx.mesh);
    td__comm_compare_told(c);
    st = carry(user, call.deadline);
    if (st)
        st = td__comm_failed(c, st);
    td__comm_leave(c, td__clock_coarse_ns());
    return st;
}

static td_status check(const td_comm *c, const td__coll_call *call)
{
    const char *name = td__coll_name(call->kind);
    bool reduces = call->kind == TD_COLL_ALLREDUCE || call->kind == TD_COLL_REDUCE ||
                   call->kind == TD_COLL_REDUCE_SCATTER;
    size_t total;

    if (td_dtype_size(call->dtype) == 0)
        return TD_FAIL(TD_EINVAL, "%s: dtype %d is unknown", name, (int)call->dtype);
    if (reduces && (unsigned)call->op >= TD_REDUCE_COUNT)
        return TD_FAIL(TD_EINVAL, "%s: operation %d is unknown", name, (int)call->op);
    if (reduces && call->dtype == TD_BOOL)
        return TD_FAIL(TD_ENOTSUP, "%s of bool: use u8 with min or max", name);
    if (call->root < 0 || call->root >= c->size)
        return TD_FAIL(TD_EINVAL, "%s: rank %d is not in 0 .. %d", name, call->root, c->size - 1);
    if (is_p2p(call) && call->root == c->rank)
        return TD_FAIL(TD_EINVAL, "%s: rank %d cannot exchange messages with itself", name,
                       c->rank);
    if (!td__size_mul(call->count, td_dtype_size(call->dtype), &total) ||
        !td__size_mul(total, (size_t)c->size, &total) || total > SIZE_MAX / 4)
        return TD_FAIL(TD_EINVAL, "%s: %zu elements on %d ranks are too many", name, call->count,
                       c->size);
    bool root = call->root == c->rank;
    bool needs_in = call->kind == TD_COLL_SCATTER || call->kind == TD_COLL_BROADCAST ? root : true;
    bool needs_out = call->kind == TD_COLL_REDUCE || call->kind == TD_COLL_GATHER ? root : true;
    if (call->count && call->kind != TD_COLL_BARRIER &&
        ((needs_in && !call->in) || (needs_out && !call->out)))
        return TD_FAIL(TD_EINVAL, "%s of %zu elements: a buffer is NULL", name, call->count);
    if (call->kind == TD_COLL_ALL_TO_ALL && call->count && call->in == call->out)
        return TD_FAIL(TD_EINVAL, "%s: not in place; in and out must differ", name);
    return TD_OK;
}

static td_status ask_guard(td_comm *c, const td__coll_call *call)
{
    td_status st = c->guard->call(c->guard, call);
    if (st)
        td__comm_poison_all(c, st, td_last_error());
    return st;
}

static td_status issue(td_comm *c, td__coll_call call, const td_coll_opts *opts)
{
    static const td_coll_opts NONE = {0};
    const td_coll_opts *o = opts ? opts : &NONE;

    if (!c)
        return TD_FAIL(TD_EINVAL, "%s: the communicator is NULL", td__coll_name(call.kind));
    TD_TRY(check(c, &call));
    if (c->guard)
        TD_TRY(ask_guard(c, &call));
    call.algo = o->algo;
    call.segment = o->segment;
    uint64_t ms = o->timeout_ms ? o->timeout_ms : c->timeout_ms;
    call.deadline = td__clock_coarse_ns() + ms * 1000000u;
    if (is_p2p(&call))
        call.sequence = ++c->p2p[2 * call.root + (call.kind == TD_COLL_RECV)];
    else
        call.sequence = ++c->sequence;
    if (o->work)
        return td__comm_submit(c, &call, o->work);
    td__comm_drain(c);
    return td__comm_run(c, &call);
}

td_status td_allreduce(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                       td_reduce_op op, const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_ALLREDUCE,
                                 .in = in,
                                 .out = out,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op},
                 opts);
}

td_status td_reduce(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                    td_reduce_op op, int root, const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_REDUCE,
                                 .in = in,
                                 .out = out,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op,
                                 .root = root},
                 opts);
}

td_status td_broadcast(td_comm *c, void *data, size_t count, td_dtype dtype, int root,
                       const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_BROADCAST,
                                 .in = data,
                                 .out = data,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = root},
                 opts);
}

td_status td_reduce_scatter(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                            td_reduce_op op, const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_REDUCE_SCATTER,
                                 .in = in,
                                 .out = out,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op},
                 opts);
}

td_status td_all_gather(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                        const td_coll_opts *opts)
{
    return issue(
        c,
        (td__coll_call){
            .kind = TD_COLL_ALL_GATHER, .in = in, .out = out, .count = count, .dtype = dtype},
        opts);
}

td_status td_all_to_all(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                        const td_coll_opts *opts)
{
    return issue(
        c,
        (td__coll_call){
            .kind = TD_COLL_ALL_TO_ALL, .in = in, .out = out, .count = count, .dtype = dtype},
        opts);
}

td_status td_coll_gather(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                         int root, const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_GATHER,
                                 .in = in,
                                 .out = out,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = root},
                 opts);
}

td_status td_coll_scatter(td_comm *c, const void *in, void *out, size_t count, td_dtype dtype,
                          int root, const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_SCATTER,
                                 .in = in,
                                 .out = out,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = root},
                 opts);
}

td_status td_barrier(td_comm *c, const td_coll_opts *opts)
{
    return issue(c, (td__coll_call){.kind = TD_COLL_BARRIER, .dtype = TD_U8}, opts);
}

td_status td_send(td_comm *c, const void *data, size_t count, td_dtype dtype, int peer,
                  const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_SEND,
                                 .in = data,
                                 .out = (void *)(uintptr_t)data,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = peer},
                 opts);
}

td_status td_recv(td_comm *c, void *data, size_t count, td_dtype dtype, int peer,
                  const td_coll_opts *opts)
{
    return issue(c,
                 (td__coll_call){.kind = TD_COLL_RECV,
                                 .in = data,
                                 .out = data,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = peer},
                 opts);
}
