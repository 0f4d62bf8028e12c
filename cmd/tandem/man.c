/* man.c -- the manual page, man/tandem.1, as roff (man macros). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "args.h"
#include "base/config.h"
#include "help.h"

/* Text for roff: hyphens that must stay hyphens, backslashes, and no line that starts like a
 * request. */
static void print_roff(FILE *to, const char *text, size_t len)
{
    bool start = true;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (start && (c == '.' || c == '\''))
            fputs("\\&", to);
        if (c == '-')
            fputs("\\-", to);
        else if (c == '\\')
            fputs("\\e", to);
        else
            fputc(c, to);
        start = c == '\n';
    }
}

static void print_text(FILE *to, const char *text)
{
    print_roff(to, text, strlen(text));
}

/* Paragraphs are divided by an empty line; lines within one are broken where they are. */
static void print_paragraphs(FILE *to, const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t len = end ? (size_t)(end - text) : strlen(text);
        fputs(".PP\n", to);
        for (const char *line = text; line < text + len;) {
            const char *stop = memchr(line, '\n', (size_t)(text + len - line));
            size_t n = stop ? (size_t)(stop - line) : (size_t)(text + len - line);
            const char *word = line + strspn(line, " ");
            if (line != text)
                fputs(".br\n", to);
            print_roff(to, word, n - (size_t)(word - line));
            fputc('\n', to);
            line += n + (stop ? 1 : 0);
        }
        text += len + (end ? 2 : 0);
    }
}

static void print_item(FILE *to, const char *term, const char *text)
{
    fputs(".TP\n.B ", to);
    print_text(to, term);
    fputc('\n', to);
    print_text(to, text);
    fputc('\n', to);
}

static void print_command(FILE *to, const td__command *c)
{
    char term[128];

    fputs(".SS tandem ", to);
    print_text(to, c->name);
    fputs("\n.B tandem ", to);
    print_text(to, c->name);
    fputc('\n', to);
    if (c->flags)
        fputs("[FLAGS]\n", to);
    if (*c->args) {
        fputs(".RI ", to);
        fputc('"', to);
        print_text(to, c->args);
        fputs("\"\n", to);
    }
    fputs(".PP\n", to);
    char upper = c->summary[0] >= 'a' && c->summary[0] <= 'z' ? (char)(c->summary[0] - 'a' + 'A')
                                                              : c->summary[0];
    fputc(upper, to);
    print_text(to, c->summary + 1);
    fputs(".\n", to);
    if (c->text)
        print_paragraphs(to, c->text);
    for (const td__flag *f = c->flags; f && f->name; f++) {
        td__flag_text(f, term, sizeof term);
        print_item(to, term, f->help);
    }
}

void td__help_man(FILE *to)
{
    fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n"
          ".\\\" Made by `tandem help \\-\\-man` from the tables of the program; do not edit.\n",
          to);
    fprintf(to, ".TH TANDEM 1 \"\" \"tandem %s\" \"User Commands\"\n", TD_VERSION);
    fputs(".SH NAME\ntandem \\- ", to);
    print_text(to, td__program_summary);
    fputs("\n.SH SYNOPSIS\n.B tandem\n.I COMMAND\n[\\fIFLAGS\\fR] [\\fIARGUMENTS\\fR]\n", to);
    fputs(".SH DESCRIPTION\n", to);
    print_text(to, td__program_text);
    fputs("\n.PP\nEvery command knows\n.B \\-\\-help\n(\\fB\\-h\\fR). Flags are written\n"
          ".B \\-\\-flag value\nor\n.BR \\-\\-flag=value ,\n"
          "in any order; after\n.B \\-\\-\neverything is an argument.\n",
          to);
    fputs(".SH COMMANDS\n", to);
    for (int i = 0; td__command_list(i); i++)
        print_command(to, td__command_list(i));
    fputs(".SH EXIT STATUS\n", to);
    for (const td__exit_code *e = td__exit_codes; e->text; e++) {
        char code[16];
        snprintf(code, sizeof code, "%d", e->code);
        print_item(to, code, e->text);
    }
    fputs(".SH ENVIRONMENT\n", to);
    for (int i = 0; i < TD_ENV_COUNT; i++)
        print_item(to, td__env_name((td__env)i), td__env_help((td__env)i));
    fputs(".SH FILES\n", to);
    for (const td__run_file *f = td__run_files; f->name; f++)
        print_item(to, f->name, f->help);
    fputs(".SH EXAMPLES\n", to);
    for (int i = 0; td__command_list(i); i++) {
        const char *const *e = td__command_list(i)->examples;
        for (; e && e[0] && e[1]; e += 2)
            print_item(to, e[0], e[1]);
    }
}
