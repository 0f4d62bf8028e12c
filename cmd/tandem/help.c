/* help.c -- `tandem help`, `tandem --help`, `tandem CMD --help`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "help.h"

#include <string.h>

#include "args.h"
#include "base/config.h"
#include "base/fail.h"
#include "job/job.h"
#include "job/keys.h"
#ifdef TD_HAVE_SERVICE
#include "service/config.h"
#include "service/sweep/sweep.h"
#endif

enum { WIDTH = 80, INDENT = 2, COLUMN = 24 };

const char *const td__program_summary = "train neural networks from job files";
const char *const td__program_text =
    "Tandem trains the model that a job file (YAML) describes and keeps everything about the run "
    "in one directory: the job as resolved, metrics, TensorBoard files, checkpoints that load in "
    "other tools, and a report to open in a browser. The same job and seed give the same weights, "
    "bit for bit, for any number of threads and ranks.";

const td__exit_code td__exit_codes[] = {
    {TD_EXIT_OK, "success"},
    {TD_EXIT_FAILED, "the run failed"},
    {TD_EXIT_USAGE, "bad usage or input; one line on standard error says what is wrong and where"},
    {TD_EXIT_INTERRUPTED, "interrupted by a signal; a checkpoint was written, --resume continues"},
    {0, NULL},
};

const td__run_file td__run_files[] = {
    {"runs/NAME-0001/", "the directory of a run; the job's log.dir names the parent"},
    {"job.yaml", "the job as resolved: every key with its value"},
    {"metrics.jsonl", "one JSON object per step, validation and checkpoint"},
    {"events.out.tfevents.*", "the same scalars for TensorBoard"},
    {"checkpoints/step-NNNNNNNN/", "model.safetensors, optimizer.safetensors, state.json"},
    {"checkpoints/latest, checkpoints/best", "the names of the newest and the best checkpoint"},
    {"profile.txt, trace.json", "time per node, and a trace of all ranks for Perfetto (--profile)"},
    {"failed.txt", "the error, if the run failed"},
    {"report.html", "curves, layers, memory and times, in one page"},
    {NULL, NULL},
};

/* Words of text from column `at` on, broken at WIDTH and indented by `indent`. */
static void print_wrapped(FILE *to, const char *text, int at, int indent)
{
    int column = at;
    bool first = true;

    while (*text) {
        if (*text == '\n') { /* a paragraph ends, or a line that must end here */
            fputc('\n', to);
            text++;
            first = true;
            column = 0;
            continue;
        }
        if (*text == ' ') {
            text++;
            continue;
        }
        int len = (int)strcspn(text, " \n");
        if (!first && column + 1 + len > WIDTH) {
            fputc('\n', to);
            first = true;
            column = 0;
        }
        if (first) {
            fprintf(to, "%*s", column < indent ? indent - column : 0, "");
            column = column < indent ? indent : column;
        } else {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, (size_t)len, to);
        column += len;
        text += len;
        first = false;
    }
    fputc('\n', to);
}

/* "  left        right", right wrapped in its column. */
static void print_row(FILE *to, const char *left, const char *right)
{
    int at = fprintf(to, "%*s%s", INDENT, "", left);
    if (at + 2 > COLUMN) {
        fputc('\n', to);
        at = 0;
    }
    print_wrapped(to, right, at, COLUMN);
}

void td__flag_text(const td__flag *f, char *buf, size_t nbytes)
{
    char letter[8] = "";
    if (f->letter)
        snprintf(letter, sizeof letter, "-%c, ", f->letter);
    if (!f->value)
        snprintf(buf, nbytes, "%s--%s", letter, f->name);
    else if (f->value[0] == '[')
        snprintf(buf, nbytes, "%s--%s[=%s", letter, f->name, f->value + 1);
    else
        snprintf(buf, nbytes, "%s--%s %s", letter, f->name, f->value);
}

void td__help_command(FILE *to, const td__command *c)
{
    char left[128];

    fprintf(to, "tandem %s -- %s\n\nUsage: tandem %s%s%s%s%s\n", c->name, c->summary, c->name,
            c->flags ? " [FLAGS]" : "", *c->args ? " " : "", c->args, "");
    if (c->text && *c->text) {
        fputc('\n', to);
        print_wrapped(to, c->text, 0, 0);
    }
    fputs("\nFlags:\n", to);
    for (const td__flag *f = c->flags; f && f->name; f++) {
        td__flag_text(f, left, sizeof left);
        print_row(to, left, f->help);
    }
    print_row(to, "-h, --help", "show this help");
    if (c->examples) {
        fputs("\nExamples:\n", to);
        for (const char *const *e = c->examples; e[0] && e[1]; e += 2)
            fprintf(to, "  %s\n      %s\n", e[0], e[1]);
    }
}

static void print_exit_codes(FILE *to)
{
    char left[16];
    for (const td__exit_code *e = td__exit_codes; e->text; e++) {
        snprintf(left, sizeof left, "%d", e->code);
        print_row(to, left, e->text);
    }
}

/* Tables of keys that have a page of help; ends with a name of NULL. */
typedef struct key_topic {
    const char *name, *help;
    const td__key *keys;
} key_topic;

static const key_topic KEY_TOPICS[] = {
#ifdef TD_HAVE_SERVICE
    {"service", "the configuration of tandem serve", td__config_keys},
    {"submission", "keys of tandem submit --spec and of POST /v1/jobs", td__spec_keys},
    {"sweep", "keys of tandem submit --sweep", td__sweep_keys},
#endif
    {NULL, NULL, NULL},
};

void td__help_program(FILE *to)
{
    fprintf(to, "tandem -- %s\n\nUsage: tandem COMMAND [FLAGS] [ARGUMENTS]\n\n",
            td__program_summary);
    print_wrapped(to, td__program_text, 0, 0);
    fputs("\nCommands:\n", to);
    for (int i = 0; td__command_list(i); i++)
        print_row(to, td__command_list(i)->name, td__command_list(i)->summary);
    fputs("\nHelp:\n", to);
    print_row(to, "tandem help COMMAND", "one command, with its flags and examples");
    print_row(to, "tandem help job", "job files; tandem help job layers: one section of it");
    for (const key_topic *t = KEY_TOPICS; t->name; t++) {
        char left[64];
        snprintf(left, sizeof left, "tandem help %s", t->name);
        print_row(to, left, t->help);
    }
    fputs("\nExit status:\n", to);
    print_exit_codes(to);
    fputs("\nA run's directory:\n", to);
    for (const td__run_file *f = td__run_files; f->name; f++)
        print_row(to, f->name, f->help);
    fputs("\nEnvironment:\n", to);
    for (int i = 0; i < TD_ENV_COUNT; i++)
        print_row(to, td__env_name((td__env)i), td__env_help((td__env)i));
    fputs("\nStart with: tandem train examples/digits.yaml\n", to);
}

static int run(const td__args *a)
{
    const char *topic = td__args_at(a, 0);

    if (td__args_has(a, "man")) {
        td__help_man(stdout);
        return TD_EXIT_OK;
    }
    if (!topic) {
        td__help_program(stdout);
        return TD_EXIT_OK;
    }
    if (strcmp(topic, "job") == 0) {
        td_status st = td__job_help(stdout, td__args_at(a, 1), td__args_has(a, "markdown"));
        return st ? td__failure(a, st) : TD_EXIT_OK;
    }
    for (const key_topic *t = KEY_TOPICS; t->name; t++)
        if (strcmp(topic, t->name) == 0 && !td__args_at(a, 1)) {
            td__help_keys(stdout, t->keys, td__args_has(a, "markdown"));
            return TD_EXIT_OK;
        }
    if (td__args_at(a, 1))
        return td__usage_error(a, "unexpected '%s' after %s", td__args_at(a, 1), topic);
    const td__command *c = td__command_find(topic);
    if (!c)
        return td__no_command(topic);
    td__help_command(stdout, c);
    return TD_EXIT_OK;
}

static const td__flag FLAGS[] = {
    {.name = "man", .help = "print the manual page, as roff"},
    {.name = "markdown", .help = "with a table of keys: print it as Markdown"},
    {.name = NULL},
};

static const char *const EXAMPLES[] = {"tandem help train",
                                       "the flags of train",
                                       "tandem help job",
                                       "every key of a job file",
                                       "tandem help job layers",
                                       "the layers of a model and their options",
                                       NULL};

const td__command td__command_help = {
    .name = "help",
    .args = "[COMMAND | job [SECTION] | service | submission | sweep]",
    .summary = "explain a command or the keys of a job file",
    .text = "Without an argument: the list of commands and the meaning of the exit status.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .max_args = 2,
    .run = run,
};
