/* runner_walk.c -- running a program step by step, with a call before each (walk.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/clock.h"
#include "base/fail.h"
#include "graph/runner_impl.h"
#include "graph/walk.h"

void td__runner_thin(td_runner *r)
{
    td__mem_thin(&r->mem[TD_SPACE_GRAD]);
}

void td__runner_discard(td_runner *r, size_t begin, size_t count)
{
    td__mem_discard(&r->mem[TD_SPACE_GRAD], begin * sizeof(float), count * sizeof(float));
}

static td_status walk(td_runner *r, bool pack, td__walk_fn *fn, void *user)
{
    const td_program *p = r->p;
    for (int i = 0; i < p->n_steps; i++) {
        const td_kernel *k = &p->steps[i].kernel;
        td_kernel_call call = r->steps[i].call;
        TD_TRY(fn(user, i));
        uint64_t before = r->profile ? td__clock_ns() : 0;
        if (pack) /* all in the same place: only this step's are needed */
            call.packed = r->packed;
        if (pack && k->prepare)
            td__runner_launch(r, &call, true);
        td__runner_launch(r, &call, false);
        td__stream_drain(r->stream);
        r->steps[i].calls += r->profile;
        r->steps[i].total_ns += r->profile ? td__clock_ns() - before : 0;
    }
    return fn(user, p->n_steps);
}

td_status td__runner_walk(td_runner *r, td_run_key key, bool pack, td__walk_fn *fn, void *user)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    r->ctx = (td_run_ctx){.seed = key.seed, .step = key.step, .micro_batch = key.micro_batch};
    td__runner_send(r);
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    if (pack)
        r->prepared = 0;
    else
        td__runner_prepare(r);
    td_status st = walk(r, pack, fn, user);
    td__runner_fetch(r, TD__ALL_PHASES);
    td_status done = td__stream_sync(r->stream);
    st = st ? st : done;
    if (pack && r->packed_mem.at) /* runners of other sizes have such a place too */
        td__mem_discard(&r->packed_mem, 0, r->packed_mem.nbytes);
    if (b->ops->leave)
        b->ops->leave(b, saved);
    float loss = td_runner_loss(r);
    if (!st && !isfinite(loss))
        st = TD_FAIL(
            TD_EINVAL,
            "the loss is %g at step %u, micro-batch %u; %s (parallel.zero: 0 tells in which node "
            "it began)",
            (double)loss, key.step, key.micro_batch, TD_DIVERGED_HINT);
    return st;
}
