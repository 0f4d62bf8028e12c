/* schedule_gpipe.c -- GPipe (Huang et al. 2019): all micro-batches forward, then all backward. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

static td_status write_gpipe(td__schedule *s)
{
    for (int stage = 0; stage < s->of.stages; stage++) {
        for (int m = 0; m < s->of.micro_batches; m++)
            td__write_forward(s, stage, stage);
        for (int m = 0; m < s->of.micro_batches; m++)
            td__write_backward(s, stage, stage);
    }
    return TD_OK;
}

const td__schedule_def td__schedule_gpipe = {
    .name = "gpipe",
    .help = "all micro-batches forward, then all backward; activations of all of them are kept",
    .per_stage = 1,
    .write = write_gpipe};
