/* runner.c -- executing a program: a walk over an array of kernels, and how long each took. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/phases.h"
#include "graph/runner.h"
#include "graph/runner_impl.h"

static void run_kernel(const void *call)
{
    const td_kernel_call *c = call;
    c->kernel->run(c);
}

static void prepare_kernel(const void *call)
{
    const td_kernel_call *c = call;
    c->kernel->prepare(c);
}

void td__runner_launch(td_runner *r, const td_kernel_call *c, bool prepare)
{
    td__stream_launch(r->stream, prepare ? prepare_kernel : run_kernel, c, 0);
}

void td__runner_launch_prepare(td_runner *r)
{
    for (int i = 0; i < r->p->n_steps; i++)
        if (r->p->steps[i].kernel.prepare && !r->p->steps[i].packed_before)
            td__runner_launch(r, &r->steps[i].call, true);
}

void td__runner_prepare(td_runner *r)
{
    r = r->lender ? r->lender : r;
    if (r->prepared == r->ps->version)
        return;
    if (!td__runner_play_prepare(r))
        td__runner_launch_prepare(r);
    r->prepared = r->ps->version;
}

/* By the device's clock: kernels follow one another as they do without a profile, and what the host
 * needs to launch them is not counted unless it takes longer than they do. */
static void run_timed(td_runner *r, int begin, int end)
{
    td__timer_mark(r->timer, r->stream, begin);
    for (int i = begin; i < end; i++) {
        td__runner_launch(r, &r->steps[i].call, false);
        td__timer_mark(r->timer, r->stream, i + 1);
    }
    td__stream_drain(r->stream);
    for (int i = begin; i < end; i++) {
        r->steps[i].calls++;
        r->steps[i].total_ns += td__timer_ns(r->timer, i, i + 1);
    }
}

void td__runner_prepare_ahead(td_runner *r)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    td__runner_prepare(r);
    td__stream_drain(r->stream); /* what failed is told by the run */
    if (b->ops->leave)
        b->ops->leave(b, saved);
}

static void run_profiled(td_runner *r, int begin, int end)
{
    if (r->timer) {
        run_timed(r, begin, end);
        return;
    }
    uint64_t before = td__clock_ns();
    for (int i = begin; i < end && !r->failed; i++) {
        atomic_store_explicit(&r->now, i + 1, memory_order_relaxed);
        td__runner_launch(r, &r->steps[i].call, false);
        td__stream_drain(r->stream);
        if (td__runner_meets(r->p->steps[i].node))
            td__runner_meet(r, i);
        uint64_t after = td__clock_ns();
        r->steps[i].calls++;
        r->steps[i].total_ns += after - before;
        before = after;
    }
}

/* Was step i the one that failed? */
static void wait_for(td_runner *r, int i)
{
    char text[512];
    td_status st = td__stream_sync(r->stream);
    if (!st)
        return;
    const char *named = strstr(td_last_error(), "node '");
    r->failed = st;
    snprintf(r->why, sizeof r->why, "%s%s%s",
             named ? "" : td__kernel_text(r->p->steps[i].node, text, sizeof text),
             named ? "" : ": ", td_last_error());
}

/* Some kernel of a tape failed, and which one is not known. */
static td_status failed_in_tape(const td_runner *r, td_status st)
{
    const td_program *p = r->p;
    if (!st || r->failed || r->taping != TD__TAPE_ON || strstr(td_last_error(), "node '"))
        return st;
    return TD_FAIL(
        st, "%s (in a graph of %d nodes, '%s' to '%s'; TANDEM_CUDA_WAIT=1 tells which one)",
        td_last_error(), p->n_steps, p->steps[0].node->name, p->steps[p->n_steps - 1].node->name);
}

static void run_steps(td_runner *r, int begin, int end)
{
    atomic_store_explicit(&r->now, begin + 1, memory_order_relaxed);
    if (r->profile)
        run_profiled(r, begin, end);
    else if (!td__runner_play(r, begin, end))
        for (int i = begin; i < end && !r->failed; i++) {
            atomic_store_explicit(&r->now, i + 1, memory_order_relaxed);
            td__runner_launch(r, &r->steps[i].call, false);
            if (r->waits)
                wait_for(r, i);
            if (!r->failed && td__runner_meets(r->p->steps[i].node))
                td__runner_meet(r, i);
        }
    atomic_store_explicit(&r->now, 0, memory_order_relaxed);
}

const char *td__runner_now(const td_runner *r)
{
    int i = atomic_load_explicit(&r->now, memory_order_relaxed);
    return i ? r->p->steps[i - 1].node->name : NULL;
}

/* ---- What a stream did ----------------------------------------------------------------------- */

static void mark(td_runner *r, int i)
{
    if (r->marks_of)
        td__timer_mark(r->marks_of, r->stream, i);
}

void td__runner_watch_stream(td_runner *r, bool on)
{
    if (on && !r->marks_of &&
        td__timer_create(r->p->backend->device, TD__STREAM_PARTS + 1, &r->marks_of))
        TD_LOG(WARN, BACKEND, "the trace has no streams: %s", td_last_error());
    r->stream_ended = 0;
}

/* The host saw the end a moment after it was. */
bool td__runner_stream_times(const td_runner *r, td__stream_times *out)
{
    if (!r->marks_of || !r->stream_ended)
        return false;
    out->at[TD__STREAM_PARTS] = r->stream_ended;
    for (int i = TD__STREAM_PARTS; i > 0; i--)
        out->at[i - 1] = out->at[i] - td__timer_ns(r->marks_of, i - 1, i);
    return true;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

void td__runner_begin(td_runner *r, td_run_key key)
{
    r->ctx = (td_run_ctx){.seed = key.seed, .step = key.step, .micro_batch = key.micro_batch};
    r->done = r->passed = 0;
    r->failed = TD_OK;
    mark(r, 0);
    td__runner_send(r);
    mark(r, 1);
}

static void proceed(td_runner *r, int end)
{
    if (r->done == 0)
        td__runner_prepare(r);
    run_steps(r, r->done, end);
    r->done = end;
}

void td__runner_until(td_runner *r, size_t count)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    int end = r->done;
    while (r->passed < r->n_marks && (!r->passed || r->marks[r->passed - 1].count < count))
        end = r->marks[r->passed++].step + 1;
    if (end == r->done)
        return;
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    proceed(r, end);
    td__stream_drain(r->stream); /* what failed is told in the end */
    if (b->ops->leave)
        b->ops->leave(b, saved);
}

static bool is_sync(const td_program *p, int step)
{
    return p->steps[step].node->op == TD_OP_SYNC_MEAN;
}

int td__program_syncs(const td_program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += is_sync(p, i);
    return n;
}

size_t td__program_sync_count(const td_program *p, int i)
{
    for (int k = 0; k < p->n_steps; k++)
        if (is_sync(p, k) && i-- == 0)
            return (size_t)td__desc_count(&p->steps[k].node->out[0]);
    return 0;
}

td__synced td__runner_until_sync(td_runner *r)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    int at = r->done;
    while (at < r->p->n_steps && !is_sync(r->p, at))
        at++;
    TD_ASSERT(at < r->p->n_steps, "no value of all micro-batches after step %d", r->done);
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    proceed(r, at + 1);
    td__stream_drain(r->stream);
    if (b->ops->leave)
        b->ops->leave(b, saved);
    const td_node *n = r->p->steps[at].node;
    return (td__synced){.y = td__runner_address(r, n, 0),
                        .u = td__runner_address(r, n, 1),
                        .n = (size_t)td__desc_count(&n->out[0]),
                        .count = ((const td_attr_sync_mean *)n->attr)->count};
}

/* Up to step `end`; then the results, and the loss if it is among them. */
static td_status proceed_and_check(td_runner *r, int end, int phase)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    proceed(r, end);
    mark(r, 2);
    td__runner_fetch(r, phase);
    mark(r, 3);
    td_status st = failed_in_tape(r, td__stream_sync(r->stream));
    r->stream_ended = r->marks_of ? td__clock_ns() : 0;
    if (r->failed)
        st = TD_FAIL(r->failed, "%s", r->why);
    const td__root *loss = phase <= TD_RUN_FORWARD ? td__runner_root(r, TD_ROOT_LOSS, 0) : NULL;
    if (!st && loss && !isfinite(td_runner_loss(r)))
        st = td__runner_blame(r, loss->node, td_runner_loss(r));
    if (b->ops->leave)
        b->ops->leave(b, saved);
    return st;
}

td_status td__runner_end(td_runner *r)
{
    return proceed_and_check(r, r->p->n_steps, TD__ALL_PHASES);
}

td_status td__runner_run_phase(td_runner *r, td_run_phase phase, td_run_key key)
{
    if (!r->p->phased)
        return TD_FAIL(TD_EINVAL, "td__runner_run_phase: the program is not ordered by phase");
    if (phase == TD_RUN_FORWARD)
        td__runner_begin(r, key);
    int begin = phase == TD_RUN_FORWARD ? 0 : td__program_phase_end(r->p, phase - 1);
    if (r->done != begin || key.seed != r->ctx.seed || key.step != r->ctx.step ||
        key.micro_batch != r->ctx.micro_batch)
        return TD_FAIL(
            TD_EINVAL,
            "td__runner_run_phase: %s of step %u, micro-batch %u, after %d steps of step "
            "%u, micro-batch %u; it begins after %d",
            td__run_phase_name(phase), key.step, key.micro_batch, r->done, r->ctx.step,
            r->ctx.micro_batch, begin);
    return proceed_and_check(r, td__program_phase_end(r->p, phase), (int)phase);
}

td_status td_runner_run(td_runner *r, td_run_key key)
{
    td__runner_begin(r, key);
    return td__runner_end(r);
}

/* ---- Profile --------------------------------------------------------------------------------- */

void td_runner_set_profile(td_runner *r, bool on)
{
    for (int i = 0; on && i < r->p->n_steps; i++)
        r->steps[i].calls = r->steps[i].total_ns = 0;
    r->profile = on;
    if (on && !r->timer && !td__runner_stops(r) &&
        td__timer_create(r->p->backend->device, r->p->n_steps + 1, &r->timer))
        TD_LOG(WARN, BACKEND, "times are the host's: %s", td_last_error());
}

int td_runner_profile_count(const td_runner *r)
{
    return r->p->n_steps;
}

td_node_time td_runner_profile(const td_runner *r, int i)
{
    TD_ASSERT(i >= 0 && i < r->p->n_steps, "step %d of %d", i, r->p->n_steps);
    const td__step *step = &r->p->steps[i];
    return (td_node_time){.name = step->node->name,
                          .op = td__op(step->node->op)->name,
                          .impl = step->kernel.impl ? step->kernel.impl : "",
                          .calls = r->steps[i].calls,
                          .total_ns = r->steps[i].total_ns};
}
