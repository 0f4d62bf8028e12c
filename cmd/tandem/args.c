/* args.c -- the parser of command lines, driven by the commands' tables.
 *
 * Accepted: --flag, --flag value, --flag=value, -f, -f value, -fvalue, -f=value, and switches
 * together (-qj). Flags and other words may come in any order; a flag given twice keeps both values
 * and the last one counts where one is asked for. After "--" everything is an ordinary word.
 *
 * A flag whose value is written "[DIR]" in the table may also stand alone. A next word is then
 * its value only if it names a directory: in `train --resume job.yaml` the job stays the job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/nearest.h"
#include "job/job.h"

typedef struct given {
    const td__flag *flag;
    const char *value; /* NULL: a switch, or an optional value left out */
} given;

struct td__args {
    const td__command *command;
    const char **words; /* positional */
    int n_words;
    given *given;
    const char **values; /* those of one flag are neighbours */
    int n_given;
    bool help;
};

static const td__flag HELP = {.name = "help", .letter = 'h', .help = "show this help"};

static bool is_optional(const td__flag *f)
{
    return f->value && f->value[0] == '[';
}

static const td__flag *find_flag(const td__command *c, const char *name, size_t len)
{
    for (const td__flag *f = c->flags; f && f->name; f++)
        if (strlen(f->name) == len && memcmp(f->name, name, len) == 0)
            return f;
    return len == 4 && memcmp(name, "help", 4) == 0 ? &HELP : NULL;
}

static const td__flag *find_letter(const td__command *c, char letter)
{
    for (const td__flag *f = c->flags; f && f->name; f++)
        if (f->letter == letter)
            return f;
    return letter == 'h' ? &HELP : NULL;
}

/* `name` is all that follows "--"; `next` the word after it, NULL: none. */
static int unknown_flag(const td__args *a, const char *name, size_t len, const char *next)
{
    char word[64];
    td__nearest near = {.word = word};

    snprintf(word, sizeof word, "%.*s", (int)(len < sizeof word ? len : sizeof word - 1), name);
    const char *key = find_flag(a->command, "set", 3) ? td__job_key_meant(word) : NULL;
    if (key) {
        const char *value = name[len] ? name + len + 1 : next && next[0] != '-' ? next : "VALUE";
        return td__usage_error(a, "unknown flag --%s; did you mean --set %s=%.100s?", word, key,
                               value);
    }
    for (const td__flag *f = a->command->flags; f && f->name; f++)
        td__nearest_offer(&near, f->name);
    td__nearest_offer(&near, HELP.name);
    if (near.best)
        return td__usage_error(a, "unknown flag --%s; did you mean --%s?", word, near.best);
    return td__usage_error(a, "unknown flag --%s; see tandem help %s", word, a->command->name);
}

static bool is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static void keep(td__args *a, const td__flag *f, const char *value)
{
    if (f == &HELP)
        a->help = true;
    else
        a->given[a->n_given++] = (given){f, value};
}

/* The value of f: `glued` if it was written in one word with the flag, else the next word. */
static int take_value(td__args *a, const td__flag *f, const char *glued, int argc,
                      char *const *argv, int *i)
{
    if (!f->value) {
        if (glued)
            return td__usage_error(a, "--%s takes no value", f->name);
        keep(a, f, NULL);
        return 0;
    }
    if (glued) {
        keep(a, f, glued);
        return 0;
    }
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (is_optional(f)) {
        if (next && next[0] != '-' && is_directory(next)) {
            keep(a, f, next);
            ++*i;
        } else {
            keep(a, f, NULL);
        }
        return 0;
    }
    if (!next)
        return td__usage_error(a, "--%s needs a value: --%s %s", f->name, f->name, f->value);
    if (next[0] == '-' && next[1] == '-')
        return td__usage_error(a,
                               "--%s needs a value: --%s %s; found %s (if that is meant: --%s=%s)",
                               f->name, f->name, f->value, next, f->name, next);
    keep(a, f, next);
    ++*i;
    return 0;
}

static int parse_long(td__args *a, int argc, char *const *argv, int *i)
{
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const td__flag *f = find_flag(a->command, name, len);

    if (!f)
        return unknown_flag(a, name, len, *i + 1 < argc ? argv[*i + 1] : NULL);
    return take_value(a, f, name[len] == '=' ? name + len + 1 : NULL, argc, argv, i);
}

static int parse_letters(td__args *a, int argc, char *const *argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const td__flag *f = find_letter(a->command, *p);
        if (!f)
            return td__usage_error(a, "unknown flag -%c; see tandem help %s", *p, a->command->name);
        if (f->value) {
            const char *glued = p[1] == '=' ? p + 2 : p[1] ? p + 1 : NULL;
            return take_value(a, f, glued, argc, argv, i);
        }
        keep(a, f, NULL);
    }
    return 0;
}

static int check_words(const td__args *a)
{
    const td__command *c = a->command;

    if (a->n_words < c->min_args)
        return td__usage_error(a, "expected %s; see tandem help %s", c->args, c->name);
    if (c->max_args >= 0 && a->n_words > c->max_args)
        return td__usage_error(a, "unexpected '%s': %s takes %s; see tandem help %s",
                               a->words[c->max_args], c->name,
                               c->max_args == 0 ? "no such arguments" : c->args, c->name);
    return 0;
}

static void group_values(td__args *a)
{
    int n = 0;
    for (const td__flag *f = a->command->flags; f && f->name; f++)
        for (int i = 0; i < a->n_given; i++)
            if (a->given[i].flag == f && a->given[i].value)
                a->values[n++] = a->given[i].value;
}

int td__args_parse(const td__command *c, int argc, char *const *argv, td__args **out)
{
    td__args *a = td__calloc(1, sizeof *a);
    size_t letters = 1; /* a word holds at most as many flags as letters */
    int rc = 0;

    *out = NULL;
    for (int i = 0; i < argc; i++)
        letters += strlen(argv[i]) + 1;
    if (a) {
        a->command = c;
        a->words = td__calloc((size_t)argc + 1, sizeof *a->words);
        a->given = td__calloc(letters, sizeof *a->given);
        a->values = td__calloc((size_t)argc + 1, sizeof *a->values);
    }
    if (!a || !a->words || !a->given || !a->values) {
        td__args_destroy(a);
        fputs("tandem: out of memory\n", stderr);
        return TD_EXIT_FAILED;
    }
    bool only_words = false;
    for (int i = 0; i < argc && !rc; i++) {
        const char *w = argv[i];
        if (only_words || w[0] != '-' || !w[1])
            a->words[a->n_words++] = w; /* "-" alone is a word: standard input */
        else if (strcmp(w, "--") == 0)
            only_words = true;
        else if (w[1] == '-')
            rc = parse_long(a, argc, argv, &i);
        else
            rc = parse_letters(a, argc, argv, &i);
    }
    if (!rc && !a->help)
        rc = check_words(a);
    if (rc) {
        td__args_destroy(a);
        return rc;
    }
    group_values(a);
    *out = a;
    return 0;
}

void td__args_destroy(td__args *a)
{
    if (!a)
        return;
    td__free(a->values);
    td__free(a->given);
    td__free(a->words);
    td__free(a);
}

bool td__args_help(const td__args *a)
{
    return a->help;
}

int td__args_count(const td__args *a)
{
    return a->n_words;
}

const char *td__args_at(const td__args *a, int i)
{
    return i >= 0 && i < a->n_words ? a->words[i] : NULL;
}

bool td__args_has(const td__args *a, const char *flag)
{
    for (int i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].flag->name, flag) == 0)
            return true;
    return false;
}

const char *td__args_value(const td__args *a, const char *flag)
{
    for (int i = a->n_given - 1; i >= 0; i--)
        if (strcmp(a->given[i].flag->name, flag) == 0 && a->given[i].value)
            return a->given[i].value;
    return NULL;
}

void td__args_replace(const td__args *a, const char *flag, const char *value)
{
    for (int i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].flag->name, flag) == 0 && a->given[i].value) {
            for (int k = 0; k < a->n_given; k++)
                if (a->values[k] == a->given[i].value)
                    a->values[k] = value;
            a->given[i].value = value;
        }
}

void td__args_drop(const td__args *a, const char *flag)
{
    static const td__flag NONE = {.name = ""};

    td__args_replace(a, flag, NULL);
    for (int i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].flag->name, flag) == 0)
            a->given[i] = (given){&NONE, NULL};
}

int td__args_values(const td__args *a, const char *flag, const char *const **out)
{
    int at = 0;
    for (const td__flag *f = a->command->flags; f && f->name; f++) {
        int n = 0;
        for (int i = 0; i < a->n_given; i++)
            n += a->given[i].flag == f && a->given[i].value;
        if (strcmp(f->name, flag) == 0) {
            *out = a->values + at;
            return n;
        }
        at += n;
    }
    *out = a->values;
    return 0;
}

bool td__args_int(const td__args *a, const char *flag, long lo, long hi, long otherwise, long *out)
{
    const char *s = td__args_value(a, flag);
    char *end;

    *out = otherwise;
    if (!s)
        return true;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (end == s || *end || errno || v < lo || v > hi) {
        td__usage_error(a, "--%s: expected a whole number from %ld to %ld, found '%s'", flag, lo,
                        hi, s);
        return false;
    }
    *out = v;
    return true;
}

/* One line, whatever the text holds. */
static void print_line(const char *command, char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    fflush(stdout);
    fprintf(stderr, "tandem %s: %s\n", command, text);
}

int td__usage_error(const td__args *a, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print_line(a->command->name, text);
    return TD_EXIT_USAGE;
}

int td__failure(const td__args *a, td_status st)
{
    char text[2048];
    const char *said = td_last_error();

    snprintf(text, sizeof text, "%s", *said ? said : td_status_text(st));
    print_line(a->command->name, text);
    switch (st) {
    case TD_EINVAL:
    case TD_EPROTO:
    case TD_ENOTSUP:
    case TD_EDEADLOCK: return TD_EXIT_USAGE;
    case TD_EABORTED: return TD_EXIT_INTERRUPTED;
    default: return TD_EXIT_FAILED;
    }
}
