/* schedule_dualpipe_v.c -- DualPipe-V (DeepSeek 2025): two chunks per stage in a V; in its steady
 * part a forward of one chunk and a backward of the other always come as a pair, whose messages
 * hide behind each other's computation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

/* With fewer micro-batches the pipeline has no steady part: it is filled and emptied greedily. */
static int in_flight(const td__schedule_case *c, int stage)
{
    (void)stage;
    return 2 * c->stages + 1;
}

static void write_stage(td__schedule *s, int stage)
{
    int stages = s->of.stages, behind = stages - 1 - stage;
    int up = stage, down = 2 * stages - 1 - stage; /* its chunks on the way there, and back */
    for (int k = 0; k < 2 * behind; k++)
        td__write_forward(s, stage, up);
    for (int k = 0; k < stage + 1; k++) {
        td__write_forward(s, stage, up);
        td__write_forward(s, stage, down);
    }
    for (int k = 0; k < behind; k++) {
        td__write_backward(s, stage, down);
        td__write_forward(s, stage, down);
    }
    for (int k = 0; k < s->of.micro_batches - 2 * stages + stage + 1; k++) {
        td__write_forward(s, stage, up);
        td__write_backward(s, stage, down);
        td__write_forward(s, stage, down);
        td__write_backward(s, stage, up);
    }
    for (int k = 0; k < behind; k++) {
        td__write_backward(s, stage, down);
        td__write_forward(s, stage, down);
        td__write_backward(s, stage, up);
    }
    /* Emptying: the gradients of params are made last, when nobody waits any more. */
    for (int k = 0; k < stage + 1; k++) {
        td__write_phase(s, stage, down, TD_RUN_BACKWARD);
        td__write_phase(s, stage, up, TD_RUN_BACKWARD);
    }
    for (int k = 0; k < behind; k++) {
        td__write_phase(s, stage, down, TD_RUN_WEIGHT);
        td__write_phase(s, stage, up, TD_RUN_BACKWARD);
    }
    while (!td__write_done(s, down, TD_RUN_WEIGHT))
        td__write_phase(s, stage, down, TD_RUN_WEIGHT);
    while (!td__write_done(s, up, TD_RUN_WEIGHT))
        td__write_phase(s, stage, up, TD_RUN_WEIGHT);
}

static td_status write_dualpipe_v(td__schedule *s)
{
    if (s->of.micro_batches < 2 * s->of.stages)
        return td__write_greedy(s, &td__schedule_dualpipe_v,
                                &(td__schedule_greedy){.in_flight = in_flight});
    for (int stage = 0; stage < s->of.stages; stage++)
        write_stage(s, stage);
    return TD_OK;
}

const td__schedule_def td__schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .help = "two chunks per stage in a V; forward of one and backward of the other in pairs",
    .per_stage = 2,
    .v_shaped = true,
    .write = write_dualpipe_v};
