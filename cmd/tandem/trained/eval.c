/* eval.c -- `tandem eval`: the metrics of a trained model on one part of the data. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/human.h"
#include "base/text.h"
#include "trained.h"

/* The classes of the target by name, or by number. */
static const char *class_name(const td__session *s, int64_t classes, int64_t k, char buf[24])
{
    const td__field *f;
    int n = td__data_fields(s->data, &f);

    for (int i = 0; i < n; i++)
        if (f[i].classes == classes && f[i].class_names && strcmp(f[i].name, "y") == 0)
            return f[i].class_names[k];
    snprintf(buf, 24, "%" PRId64, k);
    return buf;
}

static void add_score(td__text *t, const char *name, double v)
{
    td__text_printf(t, ", \"%s\": ", name);
    td__text_json_number(t, v, 17);
}

static void json_scores(td__text *t, const td__scores *s)
{
    td__text_printf(t, ", \"scores\": {\"counted\": %" PRId64, s->samples);
    if (!s->classes) {
        add_score(t, "mae", s->mae);
        add_score(t, "rmse", s->rmse);
        add_score(t, "r2", s->r2);
        td__text_add(t, "}");
        return;
    }
    add_score(t, "accuracy", s->accuracy);
    add_score(t, "precision", s->precision);
    add_score(t, "recall", s->recall);
    add_score(t, "f1", s->f1);
    add_score(t, "auc", s->auc);
    td__text_add(t, ", \"confusion\": [");
    for (int64_t i = 0; i < s->classes * s->classes; i++)
        td__text_printf(t, "%s%" PRId64 "%s",
                        i % s->classes ? ", "
                        : i            ? ", ["
                                       : "[",
                        s->confusion[i], i % s->classes == s->classes - 1 ? "]" : "");
    td__text_add(t, "]}");
}

enum { MOST_COLUMNS = 20 };

static void print_scores(const td__session *session, const td__scores *s)
{
    char b[24];

    if (!s->classes && s->samples)
        printf("  %-14s %.6g\n  %-14s %.6g\n", "rmse", s->rmse, "r2", s->r2);
    if (!s->classes)
        return;
    printf("\n  %-20s %9s %9s %9s %9s %9s\n", "class", "precision", "recall", "f1", "auc",
           "samples");
    for (int64_t k = 0; k < s->classes; k++) {
        const td__class_score *c = &s->by_class[k];
        printf("  %-20.20s %9.4f %9.4f %9.4f %9.4f %9" PRId64 "\n",
               class_name(session, s->classes, k, b), c->precision, c->recall, c->f1, c->auc,
               c->samples);
    }
    printf("  %-20s %9.4f %9.4f %9.4f %9.4f %9" PRId64 "\n", "mean", s->precision, s->recall, s->f1,
           s->auc, s->samples);
    if (s->classes > MOST_COLUMNS)
        return;
    printf("\n  %-20s predicted\n  %-20s", "true", "");
    for (int64_t k = 0; k < s->classes; k++)
        printf(" %9.9s", class_name(session, s->classes, k, b));
    for (int64_t k = 0; k < s->classes; k++) {
        printf("\n  %-20.20s", class_name(session, s->classes, k, b));
        for (int64_t i = 0; i < s->classes; i++)
            printf(" %9" PRId64, s->confusion[k * s->classes + i]);
    }
    putchar('\n');
}

static void print_json(const td__checkpoint_info *info, td__part part, const td__eval_result *r,
                       const td__scores *s)
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
    td__text_add(&t, "}");
    if (s->samples)
        json_scores(&t, s);
    td__text_printf(&t, ", \"seconds\": %.6g, \"digest\": \"sha256:%s\"}\n", r->seconds,
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

static void print(const td__args *a, const td__trained *t, const td__eval_result *r,
                  const td__scores *scores)
{
    if (td__args_has(a, "json")) {
        print_json(&t->info, t->part, r, scores);
        return;
    }
    print_text(&t->info, t->part, r);
    print_scores(&t->session, scores);
}

static td_status evaluate(td__trained *t, const td__args *a)
{
    td__eval_result r;
    td__scores scores = {0};

    t->session.input_labelled = true;
    TD_TRY(td__trained_open(t, a));
    if (t->looks)
        return TD_OK;
    td_status st = td__trainer_evaluate(t->session.trainer, t->samples, &r);
    if (!st && td__args_has(a, "scores"))
        st = td__trainer_scores(t->session.trainer, t->samples, &scores);
    if (!st && td__trained_leads(t))
        print(a, t, &r, &scores);
    td__scores_fini(&scores);
    return st;
}

static int run(const td__args *a)
{
    return td__trained_run(a, &td__command_eval, evaluate);
}

static const td__flag FLAGS[] = {
    TD_FLAG_INPUT("new samples with labels, in the format of the job's data source"),
    TD_FLAG_CHECKPOINT,
    TD_FLAG_PART,
    TD_FLAG_TRAINED_RANKS,
    TD_FLAG_TRAINED_PARALLEL,
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = "scores",
     .help = "also the confusion matrix, precision, recall, F1 and AUC, or RMSE and R2"},
    {.name = "json", .help = "one JSON object on standard output"},
    {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem eval runs/digits-0001",
    "evaluate the last weights on the test part",
    "tandem eval examples/mnist.yaml --checkpoint best --part valid",
    "evaluate the best weights of the job's newest run on the validation part",
    "tandem eval runs/iris-0001 --input new.csv",
    "evaluate on new samples; the training data are not needed",
    "tandem eval runs/large-0001 -n 4 --parallel pipeline=4",
    "the same numbers from four ranks that have a quarter of the model each",
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
