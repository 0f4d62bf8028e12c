/* runner_tape.c -- pieces of a run as tapes, on devices where playing one is cheaper than launching
 * its kernels. A tape is made when a piece is run for the first time with its block of gradients,
 * since addresses are part of it. The preparations of packed weights are another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "base/log.h"
#include "graph/runner_impl.h"

bool td__runner_stops(const td_runner *r)
{
    for (int i = 0; i < r->p->n_steps; i++)
        if (r->p->steps[i].kernel.not_taped || td__runner_meets(r->p->steps[i].node))
            return true;
    return false;
}

/* Kernels that only put work into the stream, on a device that has tapes. */
static bool tapeable(const td_runner *r)
{
    return !r->waits && td__device_tapes(r->p->backend->device) && !td__runner_stops(r);
}

static bool taping(td_runner *r)
{
    if (r->taping == TD__TAPE_UNKNOWN)
        r->taping = tapeable(r) ? TD__TAPE_ON : TD__TAPE_OFF;
    return r->taping == TD__TAPE_ON;
}

/* No tape came of it. */
static bool give_up(td_runner *r)
{
    TD_LOG(WARN, BACKEND, "steps are launched one by one: %s", td_last_error());
    r->taping = TD__TAPE_OFF;
    return false;
}

/* Nodes of the branch fork off where they stand; the stream waits for one before the next begins,
 * and for the last at the end. */
static td_status record(td_runner *r, int begin, int end, td_tape **out)
{
    td_event forked, joined = {NULL};
    TD_TRY(td__tape_begin(r->stream));
    for (int i = begin; i < end; i++) {
        td_kernel_call call = r->steps[i].call;
        bool beside = r->branch && td__beside(r->p, r->p->steps[i].node);
        if (beside) {
            if (joined.stream)
                td__event_wait(r->stream, &joined);
            td__event_record(r->stream, &forked);
            td__event_wait(r->branch, &forked);
            call.stream = r->branch;
        }
        td__runner_launch(r, &call, false); /* at once: this is a GPU */
        if (beside)
            td__event_record(r->branch, &joined);
    }
    if (joined.stream)
        td__event_wait(r->stream, &joined);
    return td__tape_end(r->stream, out);
}

static td_status record_prepare(td_runner *r)
{
    TD_TRY(td__tape_begin(r->stream));
    td__runner_launch_prepare(r);
    return td__tape_end(r->stream, &r->prepare_tape);
}

bool td__runner_play_prepare(td_runner *r)
{
    if (!r->p->packed || !taping(r))
        return false;
    if (!r->prepare_tape && record_prepare(r))
        return give_up(r);
    td__tape_play(r->stream, r->prepare_tape);
    return true;
}

bool td__runner_play(td_runner *r, int begin, int end)
{
    if (!taping(r) || begin == end)
        return false;
    for (int i = 0; i < TD__RUNNER_TAPES; i++) {
        const td__runner_tape *t = &r->tapes[i];
        if (t->tape && t->begin == begin && t->end == end && t->grads == r->space[TD_SPACE_GRAD]) {
            td__tape_play(r->stream, t->tape);
            return true;
        }
    }
    td__runner_tape *t = &r->tapes[r->next_tape++ % TD__RUNNER_TAPES];
    td__stream_drain(r->stream); /* the one that is replaced may be under way */
    td__tape_destroy(t->tape);
    *t = (td__runner_tape){.begin = begin, .end = end, .grads = r->space[TD_SPACE_GRAD]};
    if (record(r, begin, end, &t->tape))
        return give_up(r);
    td__tape_play(r->stream, t->tape);
    return true;
}

void td__runner_drop_tapes(td_runner *r)
{
    td__tape_destroy(r->prepare_tape);
    for (int i = 0; i < TD__RUNNER_TAPES; i++)
        td__tape_destroy(r->tapes[i].tape);
}
