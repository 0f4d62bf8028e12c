/* schedule_one_f_one_b.c -- 1F1B (PipeDream-flush, Narayanan et al. 2021): once the pipeline is
 * full, one micro-batch forward and one backward in turn, so that stage i keeps the activations of
 * at most stages - i micro-batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

static td_status write_1f1b(td__schedule *s)
{
    for (int stage = 0; stage < s->of.stages; stage++) {
        for (int m = 0; m < s->of.stages - 1 - stage; m++)
            td__write_forward(s, stage, stage);
        for (int m = 0; m < s->of.micro_batches; m++) {
            td__write_forward(s, stage, stage);
            td__write_backward(s, stage, stage);
        }
    }
    return TD_OK;
}

const td__schedule_def td__schedule_one_f_one_b = {
    .name = "1f1b",
    .help = "one forward and one backward in turn; a stage keeps at most as many micro-batches "
            "as there are stages",
    .per_stage = 1,
    .write = write_1f1b};
