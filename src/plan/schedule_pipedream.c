/* schedule_pipedream.c -- PipeDream (Harlap et al. 2018, Narayanan et al. 2019): whole batches
 * follow each other through the pipeline, which is not emptied between them; once it is full a
 * stage runs one batch forward and one backward in turn. Weight stashing: a stage runs a batch
 * backward with the weights that it ran it forward with. Vertical sync: all stages run a batch with
 * weights of the same number of updates. With n stages, which keep n versions of their weights
 * each,
 *
 *     w(t+1) = w(t) - lr grad f(w(t - n + 1))
 *
 * and stage i keeps the activations of n - i batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

static int delay(int stages)
{
    return stages - 1;
}

static td_status write_pipedream(td__schedule *s)
{
    int batch = s->of.batch ? s->of.batch : s->of.micro_batches;
    for (int stage = 0; stage < s->of.stages; stage++) {
        for (int m = 0; m < (s->of.stages - 1 - stage) * batch; m++)
            td__write_forward(s, stage, stage);
        for (int done = 0; done < s->of.micro_batches; done += batch) {
            for (int m = 0; m < batch; m++)
                td__write_forward(s, stage, stage);
            for (int m = 0; m < batch; m++)
                td__write_backward(s, stage, stage);
        }
    }
    return TD_OK;
}

const td__schedule_def td__schedule_pipedream = {
    .name = "pipedream",
    .help = "batches follow each other without a gap; weights are as many updates behind as there "
            "are other stages, of which all versions are kept",
    .per_stage = 1,
    .window = 64,
    .delay = delay,
    .promise = "a function of the number of stages and of when the pipeline is emptied: gradients "
               "are of weights that are one update behind for every other stage",
    .write = write_pipedream};
