/* schedule_zb_h1.c -- ZB-H1 (Qi et al. 2023, zero bubble): 1F1B in which stage i makes the
 * gradients of params i micro-batches late, so that the gradients of activations go down the
 * pipeline without waiting for them, and the late ones fill the time in which it empties. The
 * memory is that of the first stage of 1F1B, on all stages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

static td_status write_zb_h1(td__schedule *s)
{
    for (int stage = 0; stage < s->of.stages; stage++) {
        for (int m = 0; m < s->of.stages - 1 - stage; m++)
            td__write_forward(s, stage, stage);
        for (int m = 0; m < s->of.micro_batches; m++) {
            td__write_forward(s, stage, stage);
            td__write_phase(s, stage, stage, TD_RUN_BACKWARD);
            if (m >= stage)
                td__write_phase(s, stage, stage, TD_RUN_WEIGHT);
        }
        for (int m = 0; m < stage; m++)
            td__write_phase(s, stage, stage, TD_RUN_WEIGHT);
    }
    return TD_OK;
}

const td__schedule_def td__schedule_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b that makes gradients of params while it would wait; the memory of 1f1b",
    .per_stage = 1,
    .write = write_zb_h1};
