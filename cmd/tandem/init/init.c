/* init.c -- `tandem init`: looks at data and writes a job that trains on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "init.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/fail.h"
#include "session.h"

/* Micro-batches: as many as serve four ranks twice over, where the batch allows it. A place in a
 * uniform order costs about a microsecond: for FEW_SAMPLES a tenth of a second in an epoch, on the
 * threads that prepare batches. With more, nothing can tell the fast order from it. */
enum { MICRO_BATCHES = 8, FEW_MICRO_BATCHES = 4, MOST_EPOCHS = 100, LEAST_EPOCHS = 3 };
enum { FEW_SAMPLES = 100000 };

td__init_sizes td__init_size(int64_t samples, int64_t most_batch, int64_t want_steps)
{
    td__init_sizes z = {.samples = samples, .batch = FEW_MICRO_BATCHES};

    while (z.batch < most_batch && z.batch * 32 <= samples)
        z.batch *= 2;
    z.micro_batches = z.batch >= 4 * MICRO_BATCHES ? MICRO_BATCHES : FEW_MICRO_BATCHES;
    int64_t per_epoch = (samples + z.batch - 1) / z.batch;
    per_epoch = per_epoch < 1 ? 1 : per_epoch;
    z.epochs = want_steps / per_epoch;
    z.epochs = z.epochs < LEAST_EPOCHS  ? LEAST_EPOCHS
               : z.epochs > MOST_EPOCHS ? MOST_EPOCHS
                                        : z.epochs;
    z.steps = z.epochs * per_epoch;
    z.warmup = z.steps / 20 < 100 ? z.steps / 20 : 100;
    return z;
}

void td__init_word(td__text *t, const char *s)
{
    bool plain = isalpha((unsigned char)*s) && strcmp(s, "null") != 0;

    for (const char *p = s; *p && plain; p++)
        plain = isalnum((unsigned char)*p) || strchr("_-./", *p);
    if (plain)
        td__text_add(t, s);
    else
        td__text_json(t, s);
}

void td__init_train(td__init *in, const td__init_sizes *z, const char *lr, const char *watch)
{
    td__text *t = &in->text;

    in->batch = z->batch;
    in->steps = z->steps;
    td__text_printf(t, "train:\n  batch: %" PRId64 " # samples per step, over all ranks together\n",
                    z->batch);
    td__text_printf(t,
                    "  micro_batches: %" PRId64 " # the unit of parallel work: up to as many "
                    "threads and ranks share a step\n",
                    z->micro_batches);
    td__text_printf(t, "  epochs: %" PRId64 " # about %" PRId64 " steps\n", z->epochs, z->steps);
    if (z->samples <= FEW_SAMPLES)
        td__text_add(t, "  shuffle: uniform # every order of the samples is equally likely, in "
                        "each epoch another one\n");
    td__text_printf(t, "  optimizer: {name: adamw, lr: %s, weight_decay: 0.01}\n", lr);
    td__text_printf(t, "  schedule: {name: cosine, warmup_steps: %" PRId64 "}\n", z->warmup);
    td__text_printf(t,
                    "  early_stop: {watch: %s} # which checkpoint is the best; add patience: 10 "
                    "to stop early\n",
                    watch);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

/* "My Data.csv" is my-data. */
static void set_name(td__init *in)
{
    const char *slash = strrchr(in->seen, '/'), *from = slash ? slash + 1 : in->seen;
    size_t n = 0;

    for (; *from && *from != '.' && n < sizeof in->name - 1; from++)
        if (isalnum((unsigned char)*from))
            in->name[n++] = (char)tolower((unsigned char)*from);
        else if (n && in->name[n - 1] != '-')
            in->name[n++] = '-';
    while (n && in->name[n - 1] == '-')
        n--;
    in->name[n] = 0;
    if (!n)
        snprintf(in->name, sizeof in->name, "job");
}

/* Names in a job start at the job file: what lies below its folder stays relative. */
static td_status set_seen(td__init *in, const char *output)
{
    char dir[TD__PATH], real[PATH_MAX], data[PATH_MAX];
    const char *slash = strrchr(output, '/'), *seen = data;

    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - output) + 1 : 1, slash ? output : ".");
    if (!realpath(in->path, data) || !realpath(dir, real))
        return TD_FAIL(TD_EINVAL, "%.200s: %s", in->path, strerror(errno));
    size_t n = strlen(real);
    if (n > 1 && !strncmp(data, real, n) && data[n] == '/')
        seen = data + n + 1;
    snprintf(in->seen, sizeof in->seen, "%s", seen);
    return TD_OK;
}

static td_status look(td__init *in)
{
    struct stat info;

    if (stat(in->path, &info) != 0)
        return TD_FAIL(TD_EINVAL, "%.200s: %s", in->path, strerror(errno));
    if (ends_with(in->path, ".csv") || ends_with(in->path, ".tsv"))
        return td__init_table(in, false);
    if (ends_with(in->path, ".jsonl") || ends_with(in->path, ".ndjson"))
        return td__init_table(in, true);
    if (ends_with(in->path, ".txt"))
        return td__init_text(in);
    if (S_ISDIR(info.st_mode) || ends_with(in->path, ".tar"))
        return td__init_images(in, !S_ISDIR(info.st_mode));
    return TD_FAIL(TD_EINVAL,
                   "%.200s: expected a table (.csv, .tsv, .jsonl), a text (.txt), or images (a "
                   "folder with a folder for each class, .tar)",
                   in->path);
}

/* The job that was written must be one. */
static td_status check_text(const td__init *in)
{
    td__job *job = NULL;

    TD_TRY(td__text_status(&in->text));
    TD_TRY(td__job_parse(in->text.data, in->text.used, "the new job", NULL, 0, &job));
    td__job_destroy(job);
    return TD_OK;
}

static td_status init(td__init *in, const td__args *a)
{
    const char *output = td__args_value(a, "output");
    struct stat info;
    td__file_out f;

    output = output ? output : "job.yaml";
    in->path = td__args_at(a, 0);
    in->label = td__args_value(a, "label");
    TD_TRY(td__output_check("output", output));
    if (stat(output, &info) == 0 && !td__args_has(a, "force"))
        return TD_FAIL(TD_EINVAL, "%s exists; --force replaces it, --output writes another file",
                       output);
    TD_TRY(set_seen(in, output));
    set_name(in);
    TD_TRY(look(in));
    TD_TRY(check_text(in));
    TD_TRY(td__file_out_open(&f, output));
    td__file_out_write(&f, in->text.data, in->text.used);
    TD_TRY(td__file_out_commit(&f));
    printf("%s: written; next:\n  tandem check %s\n  tandem train %s\n", output, output, output);
    return TD_OK;
}

static int run(const td__args *a)
{
    td__init in = {0};
    td_status st = init(&in, a);
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;

    td__text_fini(&in.text);
    return rc;
}

static const td__flag FLAGS[] = {
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .help = "the job file to write (job.yaml)",
     .words = "FILE"},
    {.name = "label",
     .value = "COLUMN",
     .help = "column of a table to predict (one named label, target, class or y, else the last)"},
    {.name = "force", .help = "replace the job file if there is one"},
    {.name = NULL},
};

static const char *const EXAMPLES[] = {"tandem init flowers.csv && tandem train job.yaml",
                                       "from a table to a model",
                                       "tandem init houses.csv --label price -o houses.yaml",
                                       "say which column to predict",
                                       "tandem init photos -o photos.yaml",
                                       "from photos/cat, photos/dog, ... to a model",
                                       NULL};

const td__command td__command_init = {
    .name = "init",
    .args = "DATA",
    .summary = "look at data and write a job that trains on it",
    .text =
        "DATA is a table (FILE.csv, FILE.tsv, FILE.jsonl), a text (FILE.txt), a folder of images "
        "with a folder for each class, or a WebDataset archive (FILE.tar). The job says in "
        "comments what was found and what each choice does: which column is predicted, what the "
        "others become, the model, and how it is trained. It is a start, to be changed.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
