/* 08 -- a job file, trained by a program: what `tandem train` does, with callbacks.
 *
 * New here: a job with two keys changed, callbacks that follow the run and stop it when it is good
 * enough, the parts of the job's data, predictions. Started by `tandem launch -n 4`, mpirun or
 * torchrun, it trains on their ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(st == TD_EINVAL ? 2 : 1);
    }
}

static td_answer on_step(void *user, const td_step_info *e)
{
    (void)user;
    if (e->step % 10 == 0)
        printf("step %3llu  loss %.4f  lr %.2g\n", (unsigned long long)e->step, e->loss, e->lr);
    return TD_CONTINUE;
}

static td_answer on_eval(void *user, const td_eval_info *e)
{
    (void)user;
    printf("step %3llu  %s %s %.3f\n", (unsigned long long)e->step, e->part, e->metrics.name[1],
           e->metrics.value[1]);
    return e->metrics.value[1] > 0.95 ? TD_STOP : TD_CONTINUE;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "examples/digits.yaml";
    td_job *job;
    td_trainer *t;
    td_run_result r;
    td_dataset *test;
    td_metrics m;
    td_shape row;

    check(td_job_load(path, &job));
    check(td_job_set(job, "data.count=3000"));
    check(td_job_set(job, "train.eval.every=20"));
    check(td_trainer_from_job(
        job, &(td_job_opts){.no_run_dir = true, .callbacks = {.step = on_step, .eval = on_eval}},
        &t));
    check(td_trainer_fit(t, &r));
    printf("%s: %s at step %llu, digest %.16s...\n", td_job_name(job),
           r.end == TD_RUN_STOPPED ? "good enough" : "finished", (unsigned long long)r.step,
           r.digest);

    check(td_trainer_part(t, "test", &test));
    check(td_trainer_evaluate(t, test, &m));
    check(td_trainer_predict(t, test, NULL, 0, &row));
    float *scores = calloc((size_t)(td_dataset_count(test) * td_shape_count(&row)), sizeof *scores);
    if (!scores)
        return 1;
    check(td_trainer_predict(t, test, scores,
                             (size_t)(td_dataset_count(test) * td_shape_count(&row)), NULL));
    int64_t best = 0;
    for (int64_t k = 1; k < row.dim[0]; k++)
        best = scores[k] > scores[best] ? k : best;
    printf("test accuracy %.1f %%; the first sample is a %lld\n", 100 * m.value[1],
           (long long)best);

    free(scores);
    td_dataset_destroy(test);
    td_trainer_destroy(t);
    td_job_destroy(job);
    return m.value[1] > 0.8 ? 0 : 1;
}
