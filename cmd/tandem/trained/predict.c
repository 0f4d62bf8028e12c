/* predict.c -- `tandem predict`: what a trained model says of samples. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "api/predict_file.h"
#include "base/fail.h"
#include "base/human.h"
#include "ps/outputs.h"
#include "trained.h"

static td_status elsewhere(void *user, int64_t rows, int n, const void *const *inputs,
                           const size_t *nbytes, size_t row_nbytes, void *out)
{
    return td__ps_live_outputs(user, rows, n, inputs, nbytes, row_nbytes, out);
}

/* What the servers of a run that goes on make of the samples. */
static td_status ask_run(td__session *s, const char *run, td__dataset *d, const char *output,
                         uint64_t *step)
{
    char folder[TD__PATH];
    const td__field *fields;
    td__ps_live *live;
    if (snprintf(folder, sizeof folder, "%s/checkpoints", run) >= (int)sizeof folder)
        return TD_FAIL(TD_EINVAL, "%.60s...: the name is too long", run);
    TD_TRY(td__ps_live_open(folder, &live));
    td__trainer_predict_elsewhere(s->trainer, elsewhere, live);
    int n = td__data_fields(s->data, &fields);
    td_status st = td__predict_file_write(s->trainer, d, fields, n, output);
    *step = td__ps_live_step(live);
    td__ps_live_close(live);
    return st;
}

static td_status write(td__trained *t, const td__args *a, const char *output)
{
    td__session *s = &t->session;
    const td__field *fields;
    uint64_t step = t->info.state.step;
    char b[TD__HUMAN];

    if (!td__trained_leads(t))
        return td__predict_file_help(s->trainer, t->samples);
    int n = td__data_fields(s->data, &fields);
    TD_TRY(s->elsewhere ? ask_run(s, td__args_at(a, 0), t->samples, output, &step)
                        : td__predict_file_write(s->trainer, t->samples, fields, n, output));
    printf("%s: predictions for %s samples, step %" PRIu64 "\n", output,
           td__human_count(t->samples->count, b), step);
    return TD_OK;
}

static td_status predict(td__trained *t, const td__args *a)
{
    const char *output = td__args_value(a, "output");

    if (!output)
        return TD_FAIL(TD_EINVAL, "expected --output FILE.csv, FILE.jsonl or FILE.npy");
    /* The ending is looked at before the model is loaded. */
    TD_TRY(td__predict_file_check(output));
    TD_TRY(td__output_check("output", output));
    t->session.elsewhere = td__args_has(a, "live");
    if (t->session.elsewhere && t->looks)
        return TD_FAIL(TD_EINVAL, "--live: the servers of the run compute: leave -n out");
    TD_TRY(td__trained_open(t, a));
    return t->looks ? TD_OK : write(t, a, output);
}

static int run(const td__args *a)
{
    return td__trained_run(a, &td__command_predict, predict);
}

static const td__flag FLAGS[] = {
    TD_FLAG_INPUT("new samples, in the format of the job's data source"),
    TD_FLAG_PART,
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .help = "FILE.csv, FILE.jsonl or FILE.npy; the extension selects the format",
     .words = "FILE"},
    {.name = "live",
     .help = "send the samples to the parameter servers of the run, which is going on, and get the "
             "outputs of its params as they are now"},
    TD_FLAG_CHECKPOINT,
    TD_FLAG_TRAINED_RANKS,
    TD_FLAG_TRAINED_PARALLEL,
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = NULL},
};

static const char *const EXAMPLES[] = {
    "tandem predict runs/iris-0001 --input new.csv -o predicted.csv",
    "classes and probabilities of new samples",
    "tandem predict runs/digits-0001 --part test -o digits.npy",
    "probabilities of the test part, for numpy.load",
    "tandem predict runs/large-0001 --input new.csv -o said.csv -n 4 --parallel pipeline=4",
    "the same file from four ranks that have a quarter of the model each",
    NULL};

const td__command td__command_predict = {
    .name = "predict",
    .args = "RUN|JOB.yaml",
    .summary = "write a trained model's predictions",
    .text =
        "Reads samples, from a file or from a part of the job's data, and writes one row for "
        "each: the most likely class by its name and the probabilities of all classes, or the "
        "values, in the units of the data. New samples need nothing but the run: categories, words "
        "and means are those of its checkpoint. The file is written whole or not at all.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
