/* eval.c -- `tandem eval`: the metrics of a trained model on one part of the data. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/human.h"
#include "base/text.h"
#include "session.h"

static td_status evaluate(td__session *s, const td__args *a, td__part *part,
                          td__checkpoint_info *info, td__eval_result *r)
{
    char real[TD__PATH];
    td__dataset *d;

    s->input_labelled = true;
    td_status st = td__args_input(s, a, real);
    if (!st)
        st = td__args_trained(s, a, info);
    s->input = NULL;
    if (!st)
        st = td__session_part(s, td__args_value(a, "part"), part, &d);
    if (!st)
        st = td__trainer_evaluate(s->trainer, d, r);
    return st;
}

static void print_json(const td__checkpoint_info *info, td__part part, const td__eval_result *r)
{
    td__text t = {0};

    td__text_add(&t, "{\"checkpoint\": ");
    td__text_json(&t, info->path);
    td__text_printf(
        &t, ", \"step\": %" PRIu64 ", \"part\": \"%s\", \"samples\": %" PRId64 ", \"metrics\": {",
        info->state.step, td__part_name(part), r->samples);
    for (int i = 0; i < r->n; i++) {
        td__text_add(&t, i ? ", " : "");
        td__text_json(&t, r->name[i]);
        td__text_add(&t, ": ");
        td__text_json_number(&t, r->value[i], 9);
    }
    td__text_printf(&t, "}, \"seconds\": %.6g, \"digest\": \"sha256:%s\"}\n", r->seconds,
                    info->state.digest);
    if (t.data)
        fputs(t.data, stdout);
    td__text_fini(&t);
}

static void print_text(const td__checkpoint_info *info, td__part part, const td__eval_result *r)
{
    char b[TD__HUMAN], n[TD__HUMAN];

    printf("%s on %s samples of %s, %s\n", info->path, td__human_count(r->samples, n),
           td__part_name(part), td__human_seconds(r->seconds, b));
    for (int i = 0; i < r->n; i++)
        printf("  %-14s %s\n", r->name[i], td__human_metric(r->name[i], r->value[i], b));
}

static int run(const td__args *a)
{
    td__session s = {0};
    td__checkpoint_info info;
    td__eval_result r;
    td__part part;

    td_status st = evaluate(&s, a, &part, &info, &r);
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;
    if (!st && td__args_has(a, "json"))
        print_json(&info, part, &r);
    else if (!st)
        print_text(&info, part, &r);
    td__session_fini(&s);
    return rc;
}

static const td__flag FLAGS[] = {
    TD_FLAG_INPUT("new samples with labels, in the format of the job's data source"),
    TD_FLAG_CHECKPOINT,
    TD_FLAG_PART,
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = "json", .help = "one JSON object on standard output"},
    {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem eval runs/digits-0001",
    "evaluate the last weights on the test part",
    "tandem eval examples/mnist.yaml --checkpoint best --part valid",
    "evaluate the best weights of the job's newest run on the validation part",
    "tandem eval runs/iris-0001 --input new.csv",
    "evaluate on new samples; the training data are not needed",
    NULL};

const td__command td__command_eval = {
    .name = "eval",
    .args = "RUN|JOB.yaml",
    .summary = "evaluate a trained model",
    .text = "Prints the loss and the job's metrics on one part of the data. RUN is a run's "
            "directory or one of its checkpoints; for a job file, its newest run is used.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
