/* schedule_zb_h1.c -- ZB-H1 (Qi et al. 2023, zero bubble): 1F1B in which stage i makes the
 * gradients of params i micro-batches late, so that the gradients of activations go down the
 * pipeline without waiting for them, and the late ones fill the time in which it empties. The
 * memory is that of the first stage of 1F1B, on all stages.
 *
 * A stage whose weights another one updates (tied weights) is no later than that one, which would
 * stand still until their gradients come: with the first and the last stage tied, a step takes as
 * long as with 1F1B. zb-v has both on one stage. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

/* How many micro-batches the stage, which is its chunk, makes gradients of params late. */
static int late_by(const td__schedule_case *c, int stage)
{
    int waits = c->tied ? c->tied[stage] : -1;
    return waits >= 0 && waits < stage ? waits : stage;
}

static td_status write_zb_h1(td__schedule *s)
{
    for (int stage = 0; stage < s->of.stages; stage++) {
        int late = late_by(&s->of, stage);
        for (int m = 0; m < s->of.stages - 1 - stage; m++)
            td__write_forward(s, stage, stage);
        for (int m = 0; m < s->of.micro_batches; m++) {
            td__write_forward(s, stage, stage);
            td__write_phase(s, stage, stage, TD_RUN_BACKWARD);
            if (m >= late)
                td__write_phase(s, stage, stage, TD_RUN_WEIGHT);
        }
        for (int m = 0; m < late; m++)
            td__write_phase(s, stage, stage, TD_RUN_WEIGHT);
    }
    return TD_OK;
}

const td__schedule_def td__schedule_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b that makes gradients of params while it would wait; the memory of 1f1b",
    .per_stage = 1,
    .write = write_zb_h1};
