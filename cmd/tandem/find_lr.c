/* find_lr.c -- `tandem find-lr`: which learning rates are worth trying (train/lr_range.h).
 *
 * The job is trained from its first weights for some steps, each with a higher rate than the one
 * before. Nothing of it is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "run/report_chart.h"
#include "run/report_html.h"
#include "session.h"
#include "train/lr_range.h"

enum { STEPS = 100, LEAST_STEPS = 10, MOST_STEPS = 100000, ROWS = 20, BAR = 40 };

typedef struct finder {
    td__observer observer;
    td__lr_range range;
    atomic_int stop;
} finder;

static td_status on_step(td__observer *o, const td__step_event *e)
{
    finder *f = (finder *)o;

    if (td__lr_range_step(&f->range, e->lr, e->loss))
        atomic_store(&f->stop, 1);
    return TD_OK;
}

static td_status take_rate(const td__args *a, const char *flag, double otherwise, double *out)
{
    const char *given = td__args_value(a, flag);
    char *end;

    *out = given ? strtod(given, &end) : otherwise;
    if (given && (end == given || *end || !(*out > 0) || !isfinite(*out)))
        return TD_FAIL(TD_EINVAL, "--%s: expected a number above 0, found '%.60s'", flag, given);
    return TD_OK;
}

/* Rates from lo to hi in so many steps, and nothing between them. */
static void plan(td__train_opts *o, double lo, double hi, int steps)
{
    o->schedule = (td_schedule_opts){
        .name = "exponential", .lr = lo, .gamma = pow(hi / lo, 1.0 / (steps - 1))};
    o->epochs = 0;
    o->steps = steps;
    o->valid_every = -1;
    o->patience = 0;
    o->checkpoint_dir = NULL;
    o->checkpoint_upload = NULL;
    o->no_advice = true;
}

/* A loss that is not finite is where the search ends, not a failure. */
static td_status search(td__session *s, finder *f)
{
    td__train_result result;

    TD_TRY(td__trainer_observe(s->trainer, &f->observer));
    td_status st = td__trainer_run(s->trainer, &f->stop, &result);
    return st == TD_EINVAL && f->range.n >= LEAST_STEPS ? TD_OK : st;
}

static void print_table(const td__lr_range *r, const td__lr_advice *a)
{
    double most = r->loss[0] * 1.5;
    int every = r->n > ROWS ? (r->n + ROWS - 1) / ROWS : 1;

    printf("%-12s %-12s\n", "rate", "loss");
    for (int i = 0; i < r->n; i += every) {
        double part = (fmin(r->loss[i], most) - r->least) / (most - r->least);
        int n = (int)(part * BAR + 0.5);
        bool here = a->lr >= r->lr[i] && (i + every >= r->n || a->lr < r->lr[i + every]);
        printf("%-12.3g %-12.4f %.*s%s\n", r->lr[i], r->loss[i], n,
               "########################################", here ? "  <- steepest" : "");
    }
}

static td_status write_page(const char *path, const char *name, const td__lr_range *r,
                            const td__lr_advice *a)
{
    td__text t = {0};
    char text[64];
    td__series s = {.name = "loss", .x = r->lr, .y = r->loss, .n = r->n, .wide = true};

    td__html_begin(&t, name);
    td__text_add(&t, "<header><h1>");
    td__text_html(&t, name);
    td__text_add(&t, "</h1><span class=\"sub\">learning-rate range test</span></header>\n"
                     "<div class=\"cards\">\n");
    if (isfinite(a->lr)) {
        snprintf(text, sizeof text, "%.2g", a->lr);
        td__html_card(&t, text, "suggested rate: the loss falls fastest");
        snprintf(text, sizeof text, "%.2g", a->least_at);
        td__html_card(&t, text, "rate of the smallest loss");
    }
    if (isfinite(a->grows_at)) {
        snprintf(text, sizeof text, "%.2g", a->grows_at);
        td__html_card(&t, text, "from here on the loss grows");
    }
    td__text_add(&t, "</div>\n<div class=\"charts\">\n");
    td__chart_rate(&t, "Loss", "moving average", &s, 1);
    td__text_add(&t, "</div>\n");
    td__html_end(&t, NULL);
    td_status st = td__html_write(&t, path);
    td__text_fini(&t);
    return st;
}

static td_status tell(const td__session *s, const td__args *a, const td__lr_range *r)
{
    const td__lr_advice advice = td__lr_range_advice(r);
    const char *page = td__args_value(a, "output");

    if (!td__args_has(a, "quiet"))
        print_table(r, &advice);
    if (page)
        TD_TRY(write_page(page, td__job_name(s->job), r, &advice));
    if (!isfinite(advice.lr))
        return TD_FAIL(TD_EINVAL,
                       "the loss never falls between the rates %.3g and %.3g: try others (--from, "
                       "--to), more steps (--steps), or look at the model and its data",
                       r->lr[0], r->lr[r->n - 1]);
    if (!td__args_has(a, "quiet")) {
        printf("\nthe loss falls fastest at %.2g, is smallest at %.2g", advice.lr, advice.least_at);
        if (isfinite(advice.grows_at))
            printf(", and grows from %.2g on", advice.grows_at);
        printf("\nto train with it: tandem train %s --set train.optimizer.lr=%.2g\n",
               td__args_at(a, 0), advice.lr);
    } else {
        printf("%.2g\n", advice.lr);
    }
    return TD_OK;
}

static td_status check_page_name(const char *path)
{
    size_t n = strlen(path);
    if (n <= 5 || strcmp(path + n - 5, ".html") != 0)
        return TD_FAIL(TD_EINVAL, "--output: expected FILE.html, found '%.200s'", path);
    return td__output_check("output", path);
}

static td_status find(td__session *s, const td__args *a, int steps)
{
    finder f = {.observer = {.step = on_step}};
    const char *page = td__args_value(a, "output");
    double lo, hi;

    TD_TRY(take_rate(a, "from", 1e-6, &lo));
    TD_TRY(take_rate(a, "to", 10, &hi));
    if (!(hi > lo))
        return TD_FAIL(TD_EINVAL, "--to: %.3g is not above --from, %.3g", hi, lo);
    if (page)
        TD_TRY(check_page_name(page));
    TD_TRY(td__args_job(s, a, td__args_at(a, 0)));
    plan(&s->opts, lo, hi, steps);
    TD_TRY(td__session_data(s));
    TD_TRY(td__session_trainer(s));
    TD_TRY(td__lr_range_init(&f.range, steps));
    td_status st = search(s, &f);
    if (!st && !f.range.n)
        st = TD_FAIL(TD_EINVAL, "the loss is not finite in the first step: lower --from");
    if (!st)
        st = tell(s, a, &f.range);
    td__lr_range_fini(&f.range);
    return st;
}

static int run(const td__args *a)
{
    td__session s = {0};
    long steps;

    if (!td__args_int(a, "steps", LEAST_STEPS, MOST_STEPS, STEPS, &steps))
        return TD_EXIT_USAGE;
    td_status st = find(&s, a, (int)steps);
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;
    td__session_fini(&s);
    return rc;
}

static const td__flag FLAGS[] = {
    {.name = "from", .value = "RATE", .help = "the first learning rate (1e-6)"},
    {.name = "to", .value = "RATE", .help = "the last one, if the loss does not grow before (10)"},
    {.name = "steps", .value = "N", .help = "steps from the first to the last (100)"},
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .words = "FILE",
     .help = "also write the curve as a page, FILE.html"},
    {.name = "quiet", .letter = 'q', .help = "print the suggested rate alone"},
    TD_FLAG_SET,
    TD_FLAG_THREADS,
    {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem find-lr job.yaml",
    "a table of rates and losses, and a suggestion",
    "tandem find-lr job.yaml --steps 200 -o lr.html",
    "slower, with a picture",
    "tandem train job.yaml --set train.optimizer.lr=$(tandem find-lr job.yaml -q)",
    "train with what is found",
    NULL};

const td__command td__command_find_lr = {
    .name = "find-lr",
    .args = "JOB.yaml",
    .summary = "find a learning rate that trains",
    .text = "Trains the model from its first weights, with a learning rate that grows from step to "
            "step (a range test), until the loss grows. The rate at which the loss falls fastest "
            "is a good first choice. Nothing is kept of the training; the job's own rate and "
            "schedule do not matter.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
