/* schedule_pipedream_2bw.c -- PipeDream-2BW (Narayanan et al. 2021): 1F1B that goes on from batch
 * to batch without emptying the pipeline, with two versions of the weights:
 *
 *     w(t+1) = w(t) - lr grad f(w(t - 1))
 *
 * A batch begins when the one before the last has been applied, so a stage has at most one
 * micro-batch more under way than a batch has; with at least as many micro-batches as stages it
 * never waits for that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

static int delay(int stages)
{
    return stages > 1 ? 1 : 0;
}

static td_status write_2bw(td__schedule *s)
{
    int batch = s->of.batch ? s->of.batch : s->of.micro_batches;
    for (int stage = 0; stage < s->of.stages; stage++) {
        int ahead = s->of.stages - 1 - stage;
        for (int m = 0; m < (ahead < batch ? ahead : batch); m++)
            td__write_forward(s, stage, stage);
        for (int m = 0; m < s->of.micro_batches; m++) {
            td__write_forward(s, stage, stage);
            td__write_backward(s, stage, stage);
        }
    }
    return TD_OK;
}

const td__schedule_def td__schedule_pipedream_2bw = {
    .name = "pipedream-2bw",
    .help = "1f1b that goes on from batch to batch; weights are one update behind, of which two "
            "versions are kept",
    .per_stage = 1,
    .window = 64,
    .delay = delay,
    .promise = "a function of when the pipeline is emptied: gradients are of weights that are one "
               "update behind",
    .write = write_2bw};
