/* member_dir.c -- a group as files in a directory where its members run (see member_dir.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/member_dir.h"

#include <stdio.h>
#include <string.h>

/* A handler for SIGTERM keeps the task alive to write the status down; the member, which has its
 * own, gets the signal too. Its files are whole when they are there: another program looks. */
static const char TASK[] = "cd \"$(dirname \"$0\")\" || exit 125\n"
                           "m=$1; shift\n"
                           "trap : TERM INT\n"
                           "echo $$ >pid-$m.new; mv pid-$m.new pid-$m\n"
                           "while :; do\n"
                           "    sh ./member-$m.sh \"$@\" >>out-$m 2>&1 </dev/null; s=$?\n"
                           "    echo $s >exit-$m.new; mv exit-$m.new exit-$m\n"
                           "    [ $s -ne 0 ] && [ -e restarts ] || exit $s\n"
                           "    i=0\n"
                           "    while [ ! -e again-$m ] && [ ! -e over ] && [ $i -lt 300 ]; do\n"
                           "        sleep 0.2; i=$((i + 1))\n"
                           "    done\n"
                           "    [ -e again-$m ] || exit $s\n"
                           "    rm -f again-$m\n"
                           "done\n";

/* A file with this text; printf is a part of sh, so that the text may be long. Who reads an older
 * one goes on. */
static void put_file(td__text *out, const char *name, const char *text)
{
    td__text_add(out, "printf '%s\n' ");
    td__shell_quote(out, text);
    td__text_printf(out, " >%s.new && mv %s.new %s\n", name, name, name);
}

td_status td__member_dir_create(const td__launch *l, const td__group_place *place, const char *dir,
                                int first, int n, td__text *out)
{
    char name[32];

    td__text_add(out, "dir=");
    td__shell_quote(out, dir);
    td__text_add(out, "\numask 077\nmkdir -p \"$(dirname \"$dir\")\" || exit 1\n"
                      "mkdir \"$dir\" 2>/dev/null\ncd \"$dir\" || exit 1\n"
                      "if [ -e made ] || { [ ! -e begun ] && ls pid-* >/dev/null 2>&1; }; then\n"
                      "    echo old; exit\nfi\n>begun\n");
    put_file(out, "task.sh", TASK);
    if (l->spec->job_file[0])
        put_file(out, "job.yaml", l->spec->job_file);
    if (l->spec->member_restarts > 0)
        td__text_add(out, ">restarts\n");
    for (int m = first; m < first + n; m++) {
        td__text script = {0};
        td_status st = td__launch_script(l, place, m, true, &script);
        snprintf(name, sizeof name, "member-%d.sh", m);
        put_file(out, name, script.data ? script.data : "");
        td__text_fini(&script);
        if (st)
            return st;
    }
    return td__text_status(out);
}

void td__member_dir_made(td__text *out)
{
    td__text_add(out, ">made\necho new\n");
}

/* cd DIR, or the end; then "for m in ...". */
static void each(td__text *out, const char *dir, int first, int n)
{
    td__text_add(out, "cd ");
    td__shell_quote(out, dir);
    td__text_add(out, " 2>/dev/null || exit 0\nfor m in");
    for (int m = first; m < first + n; m++)
        td__text_printf(out, " %d", m);
    td__text_add(out, "; do\n");
}

void td__member_dir_state(const char *dir, int first, int n, bool alive, td__text *out)
{
    each(out, dir, first, n);
    td__text_printf(out,
                    "    if [ -e exit-$m ]; then echo $m ended $(cat exit-$m)\n"
                    "    elif [ ! -e pid-$m ]; then echo $m waiting\n"
                    "    elif %s; then echo $m running\n"
                    "    elif [ -e exit-$m ]; then echo $m ended $(cat exit-$m)\n"
                    "    else echo $m gone\n"
                    "    fi\n"
                    "done\n",
                    alive ? "kill -0 $(cat pid-$m) 2>/dev/null" : "true");
}

void td__member_dir_signal(const char *dir, int first, int n, td__track_signal what, td__text *out)
{
    each(out, dir, first, n);
    td__text_printf(out,
                    "    >over\n"
                    "    [ -e pid-$m ] && [ ! -e exit-$m ] && kill -%s -$(cat pid-$m) "
                    "2>/dev/null\n",
                    what == TD_TRACK_KILL ? "KILL" : "TERM");
    if (what == TD_TRACK_KILL) /* the task cannot write it down any more */
        td__text_add(out, "    [ -e exit-$m ] || echo 137 >exit-$m\n");
    td__text_add(out, "done\n:\n");
}

void td__member_dir_restart(const char *dir, int member, td__text *out)
{
    each(out, dir, member, 1);
    td__text_add(out, "    rm -f exit-$m\n    >again-$m\ndone\n");
}

void td__member_dir_run(const td__launch *l, const char *dir, const char *member, td__text *out)
{
    td__text_add(out, "sh ");
    td__shell_quote(out, dir);
    td__text_printf(out, "/task.sh %s", member);
    for (int i = 0; l->g.command[i]; i++) {
        td__text_add(out, " ");
        td__shell_quote(out, l->g.command[i]);
    }
}

void td__member_dir_seen(const char *text, td__seen *seen, int members)
{
    char state[16];
    int m, status;

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        int got = sscanf(line, "%d %15s %d", &m, state, &status);
        if (got < 2 || m < 0 || m >= members)
            continue;
        if (got == 3 && strcmp(state, "ended") == 0)
            seen[m] = (td__seen){.state = TD_SEEN_ENDED, .exit_status = status};
        else if (strcmp(state, "running") == 0)
            seen[m] = (td__seen){.state = TD_SEEN_RUNNING};
        else if (strcmp(state, "waiting") == 0)
            seen[m] = (td__seen){.state = TD_SEEN_WAITING};
        else
            seen[m] = (td__seen){.state = TD_SEEN_ABSENT};
    }
}
