/* help.c -- `tandem help job` and docs/job.md, from the tables of keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/layer.h"

static const char *const SECTIONS[] = {"keys",     "layers",  "models", "stages",
                                       "features", "sources", "sync"};

static const char INTRO_TEXT[] =
    "A job is one YAML file: what to train, on which data, how. Every key below may also be given\n"
    "on the command line, --set train.batch=64, also inside lists, --set model.layers.2.out=64.\n";

static const char LAYERS_TEXT[] =
    "A model is a list of layers, each the input of the next. `{layer: linear, out: 64}` may be\n"
    "written `linear: 64`: the value after the name is the layer's first key. `as: NAME` keeps\n"
    "a result, `from: NAME` starts from it, `add: NAME` and `concat: [NAME]` join it. Shapes are\n"
    "those of one sample; the batch is not part of the file. All layers have:\n\n";

static const char MODELS_TEXT[] =
    "`model: {name: gpt2, layers: 4}`; all of them also have `input`, the data field that they\n"
    "read (x). All models, lists of layers too (`model: {layers: [...], from: RUN}`), can have\n"
    "`from`: weights to begin with, FILE.safetensors or a run's directory. Tensors with the name\n"
    "and shape of a weight take its place; the others, as of a head of another size, are new.\n";

static const char MADE_BY[] =
    "<!-- Made from the tables in src/job by tools/job_docs.c; do not edit. -->\n";

static const char *default_text(const td__key *k)
{
    return k->flags & TD_KEY_REQUIRED ? "required" : k->shown ? k->shown : k->def ? k->def : "";
}

/* A table's cell: `|` ends one. */
static void write_cell(FILE *to, const char *text)
{
    for (; *text; text++)
        fprintf(to, *text == '|' ? "\\|" : "%c", *text);
}

/* Long texts in lines of at most 96 columns, each after `indent` spaces. */
static void write_wrapped(FILE *to, int indent, const char *text)
{
    int column = 0;

    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column == 0 || column + 1 + n > 96) {
            fprintf(to, "%s%*s", column ? "\n" : "", indent, "");
            column = indent;
        } else {
            fputc(' ', to);
            column++;
        }
        fprintf(to, "%.*s", n, text);
        column += n;
        text += n + (text[n] == ' ');
    }
    fputc('\n', to);
}

void td__help_keys(FILE *to, const td__key *keys, bool markdown)
{
    char want[512];

    if (markdown && keys->path)
        fputs("| key | value | default | |\n|---|---|---|---|\n", to);
    for (const td__key *k = keys; k->path; k++) {
        td__key_expected(k, want, sizeof want);
        if (markdown) {
            fprintf(to, "| `%s` | ", k->path);
            write_cell(to, want);
            fputs(" | ", to);
            write_cell(to, default_text(k));
            fputs(" | ", to);
            write_cell(to, k->help);
            fputs(" |\n", to);
        } else {
            const char *def = default_text(k);
            fprintf(to, "    %s%s%s%s\n", k->path, *def ? "  (" : "", def, *def ? ")" : "");
            write_wrapped(to, 8, k->help);
            write_wrapped(to, 8, want);
        }
    }
}

static void heading(FILE *to, const char *text, bool markdown)
{
    fprintf(to, markdown ? "\n## %s\n\n" : "\n%s\n\n", text);
}

static void help_defs(FILE *to, const td__layer_def *(*list)(int), bool markdown)
{
    const td__layer_def *d;

    for (int i = 0; (d = list(i)); i++) {
        fprintf(to, markdown ? "\n**%s**: %s\n\n" : "\n  %s: %s\n", d->name, d->help);
        td__help_keys(to, d->keys, markdown);
    }
}

static void help_keys_section(FILE *to, bool markdown)
{
    heading(to, "Keys", markdown);
    fputs(INTRO_TEXT, to);
    fputc('\n', to);
    td__help_keys(to, td__job_keys, markdown);
}

static void help_layers(FILE *to, bool markdown)
{
    heading(to, "Layers", markdown);
    fputs(LAYERS_TEXT, to);
    td__help_keys(to, td__layer_common, markdown);
    help_defs(to, td__layer_list, markdown);
}

static void help_models(FILE *to, bool markdown)
{
    heading(to, "Ready-made models", markdown);
    fputs(MODELS_TEXT, to);
    help_defs(to, td__ready_list, markdown);
}

static void help_stages(FILE *to, bool markdown)
{
    heading(to, "Stages of data.maps", markdown);
    fputs("`data.maps: [{map: crop, pad: 4}, flip]`; the value after a stage's name is its first\n"
          "key.\n",
          to);
    td__help_stages(to, markdown);
}

static void help_features(FILE *to, bool markdown)
{
    heading(to, "Kinds of data.features", markdown);
    fputs("`data.features: [{numeric: age}, {bucketized: age, boundaries: [18, 65]}]`; the value\n"
          "after a kind is its first key.\n",
          to);
    td__help_features(to, markdown);
}

static void help_sources(FILE *to, bool markdown)
{
    const td__source_def *d;

    heading(to, "Sources of data", markdown);
    for (int i = 0; (d = td__source_list(i)); i++) {
        if (markdown)
            fprintf(to, "- **%s**: %s Reads: %s.\n", d->name, d->help,
                    *d->reads ? d->reads : "nothing");
        else
            fprintf(to, "  %s: %s\n      reads: %s\n", d->name, d->help,
                    *d->reads ? d->reads : "nothing");
    }
}

static void help_sync(FILE *to, bool markdown)
{
    heading(to, "Sync rules", markdown);
    fputs("`train.sync: NAME`, or `train.sync: {rule: NAME, ...}` with options of that rule.\n",
          to);
    td__help_sync(to, markdown);
}

td_status td__job_help(FILE *to, const char *section, bool markdown)
{
    static void (*const WRITE[])(FILE *, bool) = {help_keys_section, help_layers,   help_models,
                                                  help_stages,       help_features, help_sources,
                                                  help_sync};
    bool found = false;

    if (markdown)
        fprintf(to, "# Job files\n\n%s", MADE_BY);
    for (int i = 0; i < TD_LEN(SECTIONS); i++)
        if (!section || !strcmp(section, SECTIONS[i])) {
            WRITE[i](to, markdown);
            found = true;
        }
    if (!found)
        return TD_FAIL(TD_EINVAL,
                       "help job: unknown section %s; known: keys, layers, "
                       "models, stages, features, sources, sync",
                       section);
    if (ferror(to))
        return TD_FAIL(TD_EIO, "help job: cannot write the text");
    return TD_OK;
}
