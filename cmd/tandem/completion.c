/* completion.c -- `tandem completion SHELL`: completion of commands, flags and their values for
 * bash, zsh and fish, printed from the commands' tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "args.h"
#include "help.h"

static void print_commands(FILE *to)
{
    for (int i = 0; td__command_list(i); i++)
        fprintf(to, "%s%s", i ? " " : "", td__command_list(i)->name);
}

static void bash(FILE *to)
{
    fputs("# bash completion for tandem\n"
          "_tandem()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local cmd=${COMP_WORDS[1]} words=\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '--help --version ",
          to);
    print_commands(to);
    fputs("' -- \"$cur\"))\n        return\n    fi\n    case $cmd:$prev in\n", to);
    for (int i = 0; td__command_list(i); i++) {
        const td__command *c = td__command_list(i);
        for (const td__flag *f = c->flags; f && f->name; f++) {
            if (!f->value)
                continue;
            fprintf(to, "    %s:--%s", c->name, f->name);
            if (f->letter)
                fprintf(to, " | %s:-%c", c->name, f->letter);
            if (!f->words)
                fputs(") return ;;\n", to);
            else if (strcmp(f->words, "FILE") == 0)
                fputs(") compopt -o default; return ;;\n", to);
            else
                fprintf(to, ") COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", f->words);
        }
    }
    fputs("    esac\n    case $cmd in\n", to);
    for (int i = 0; td__command_list(i); i++) {
        const td__command *c = td__command_list(i);
        fprintf(to, "    %s) words='--help", c->name);
        for (const td__flag *f = c->flags; f && f->name; f++)
            fprintf(to, " --%s", f->name);
        fputs("' ;;\n", to);
    }
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "    elif [[ $cmd == help ]]; then\n"
          "        COMPREPLY=($(compgen -W 'job ",
          to);
    print_commands(to);
    fputs("' -- \"$cur\"))\n    elif [[ $cmd == completion ]]; then\n"
          "        COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\"))\n"
          "    else\n        compopt -o default\n    fi\n}\n"
          "complete -F _tandem tandem\n",
          to);
}

/* Inside '[...]' of a zsh specification: quotes and brackets need care. */
static void print_zsh(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else if (strchr("[]:\\", *text))
            fprintf(to, "\\%c", *text);
        else
            fputc(*text, to);
    }
}

static void zsh(FILE *to)
{
    fputs("#compdef tandem\n_tandem()\n{\n    local -a commands\n    commands=(\n", to);
    for (int i = 0; td__command_list(i); i++) {
        fprintf(to, "        '%s:", td__command_list(i)->name);
        print_zsh(to, td__command_list(i)->summary);
        fputs("'\n", to);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n        return\n    fi\n"
          "    case $words[2] in\n",
          to);
    for (int i = 0; td__command_list(i); i++) {
        const td__command *c = td__command_list(i);
        fprintf(to, "    %s)\n        _arguments -S '(-h --help)'{-h,--help}'[show this help]'",
                c->name);
        for (const td__flag *f = c->flags; f && f->name; f++) {
            fprintf(to, " \\\n            '*--%s%s[", f->name,
                    !f->value            ? ""
                    : f->value[0] == '[' ? "=-"
                                         : "=");
            print_zsh(to, f->help);
            fputc(']', to);
            if (f->value) {
                fputs(f->value[0] == '[' ? "::" : ":", to);
                print_zsh(to, f->value);
                fputc(':', to);
                if (f->words && strcmp(f->words, "FILE") == 0)
                    fputs("_files", to);
                else if (f->words)
                    fprintf(to, "(%s)", f->words);
            }
            fputc('\'', to);
        }
        if (strcmp(c->name, "help") == 0)
            fputs(" \\\n            '*:topic:_describe command commands'", to);
        else if (strcmp(c->name, "completion") == 0)
            fputs(" \\\n            '1:shell:(bash zsh fish)'", to);
        else
            fputs(" \\\n            '*:file:_files'", to);
        fputs("\n        ;;\n", to);
    }
    fputs("    esac\n}\n_tandem \"$@\"\n", to);
}

static void print_fish(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', to);
        fputc(*text, to);
    }
}

static void fish(FILE *to)
{
    fputs("# fish completion for tandem\n", to);
    for (int i = 0; td__command_list(i); i++) {
        const td__command *c = td__command_list(i);
        fprintf(to, "complete -c tandem -n __fish_use_subcommand -f -a %s -d '", c->name);
        print_fish(to, c->summary);
        fputs("'\n", to);
        for (const td__flag *f = c->flags; f && f->name; f++) {
            fprintf(to, "complete -c tandem -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                    f->name);
            if (f->letter)
                fprintf(to, " -s %c", f->letter);
            if (f->value && f->value[0] != '[')
                fputs(f->words && strcmp(f->words, "FILE") == 0 ? " -r -F" : " -x", to);
            if (f->words && strcmp(f->words, "FILE") != 0)
                fprintf(to, " -a '%s'", f->words);
            fputs(" -d '", to);
            print_fish(to, f->help);
            fputs("'\n", to);
        }
    }
    fputs("complete -c tandem -n '__fish_seen_subcommand_from help' -f -a 'job ", to);
    print_commands(to);
    fputs(
        "'\ncomplete -c tandem -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n",
        to);
}

/* false: there is no such shell. */
static bool write_script(FILE *to, const char *shell)
{
    static const struct {
        const char *name;
        void (*print)(FILE *to);
    } SHELLS[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    for (size_t i = 0; i < sizeof SHELLS / sizeof SHELLS[0]; i++)
        if (strcmp(SHELLS[i].name, shell) == 0) {
            SHELLS[i].print(to);
            return true;
        }
    return false;
}

static int run(const td__args *a)
{
    if (!write_script(stdout, td__args_at(a, 0)))
        return td__usage_error(a, "unknown shell '%s'; known: bash, zsh, fish", td__args_at(a, 0));
    return TD_EXIT_OK;
}

static const char *const EXAMPLES[] = {
    "source <(tandem completion bash)", "completion in the current bash",
    "tandem completion fish > ~/.config/fish/completions/tandem.fish", "permanently, in fish",
    NULL};

const td__command td__command_completion = {
    .name = "completion",
    .args = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .text = "The script completes commands, their flags and the values of flags. An installed "
            "Tandem already includes these files.",
    .examples = EXAMPLES,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
