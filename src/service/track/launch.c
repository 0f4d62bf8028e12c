/* launch.c -- one attempt of a job as a copy, its environment and its script (see launch.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "service/spec.h"

static const char **copy_list(td__arena *a, const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    const char **copy = td__arena_alloc(a, (n + 1) * sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = td__arena_strdup(a, list[i])))
            return NULL;
    return copy;
}

static td_status copy_spec(const td__job_spec *s, td__job_spec **out)
{
    td__text json = {0};
    td_status st;

    td__spec_json(s, &json);
    TD_TRY_OR(st, done, td__text_status(&json));
    st = td__spec_parse(json.data, json.used, "spec", out);
done:
    td__text_fini(&json);
    return st;
}

td_status td__launch_copy(const td__group *g, td__launch **out)
{
    td__launch *l = td__calloc(1, sizeof *l);
    td_status st;

    *out = NULL;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "out of memory for a group");
    TD_TRY_OR(st, fail, td__arena_create(&l->arena));
    TD_TRY_OR(st, fail, copy_spec(g->spec, &l->spec));
    l->members = g->spec->members;
    l->g = (td__group){.token = td__arena_strdup(l->arena, g->token),
                       .job = g->job,
                       .attempt = g->attempt,
                       .spec = l->spec,
                       .dir = td__arena_strdup(l->arena, g->dir),
                       .data = td__arena_strdup(l->arena, g->data ? g->data : ""),
                       .attended = g->attended,
                       .env = copy_list(l->arena, g->env),
                       .command = copy_list(l->arena, g->command),
                       .image = td__arena_strdup(l->arena, g->image ? g->image : "")};
    if (!l->g.token || !l->g.dir || !l->g.data || !l->g.env || !l->g.command || !l->g.image) {
        st = TD_FAIL(TD_ENOMEM, "out of memory for a group");
        goto fail;
    }
    *out = l;
    return TD_OK;
fail:
    td__launch_destroy(l);
    return st;
}

td_status td__launch_clone(const td__launch *from, td__launch **out)
{
    size_t n_gpus = (size_t)from->members * (size_t)from->spec->gpus;
    td__launch *l;

    TD_TRY(td__launch_copy(&from->g, &l));
    l->renumbered = from->renumbered;
    if (from->parts)
        l->parts = td__arena_alloc(l->arena, (size_t)(from->n_parts + 1) * sizeof *l->parts);
    if (from->gpus)
        l->gpus = td__arena_alloc(l->arena, (n_gpus + 1) * sizeof *l->gpus);
    if ((from->parts && !l->parts) || (from->gpus && !l->gpus)) {
        td__launch_destroy(l);
        *out = NULL;
        return TD_FAIL(TD_ENOMEM, "out of memory for a group");
    }
    l->n_parts = from->n_parts;
    if (l->parts)
        memcpy(l->parts, from->parts, (size_t)from->n_parts * sizeof *l->parts);
    if (l->gpus)
        memcpy(l->gpus, from->gpus, n_gpus * sizeof *l->gpus);
    *out = l;
    return TD_OK;
}

void td__launch_destroy(td__launch *l)
{
    if (!l)
        return;
    td__spec_destroy(l->spec);
    td__arena_destroy(l->arena);
    td__free(l);
}

td_status td__launch_env(const td__launch *l, const td__group_place *p, int member, td__texts *out)
{
    for (int i = 0; l->g.env[i]; i++)
        td__texts_add(out, "%s", l->g.env[i]);
    td__process_env(&l->g, p, member, 0, out);
    return out->failed ? TD_FAIL(TD_ENOMEM, "out of memory for an environment") : TD_OK;
}

void td__shell_quote(td__text *to, const char *text)
{
    td__text_add(to, "'");
    for (const char *c = text; *c; c++)
        if (*c == '\'')
            td__text_add(to, "'\\''");
        else
            td__text_append(to, c, 1);
    td__text_add(to, "'");
}

/* export NAME='value' */
static void export(td__text *out, const char *variable)
{
    const char *value = strchr(variable, '=');
    td__text_printf(out, "export %.*s=", (int)(value - variable), variable);
    td__shell_quote(out, value + 1);
    td__text_add(out, "\n");
}

/* A member's GPUs are those that its host shows it, of these its own where they are known; CUDA
 * numbers them from 0 where the host does not say.
 * pick FIRST COUNT: so many of them. */
static void number_gpus(const td__launch *l, int member, td__text *out)
{
    int n = l->spec->gpus, most = n;
    const int *own = l->gpus && !l->renumbered ? l->gpus + (ptrdiff_t)member * n : NULL;

    for (int i = 0; own && i < n; i++)
        most = own[i] + 1 > most ? own[i] + 1 : most;
    td__text_add(out, "gpus=${CUDA_VISIBLE_DEVICES:-");
    for (int i = 0; i < most; i++)
        td__text_printf(out, "%s%d", i ? "," : "", i);
    td__text_add(out, "}\n"
                      "pick() (\n"
                      "    skip=$1 want=$2 list=\n"
                      "    IFS=,\n"
                      "    for id in $gpus; do\n"
                      "        if [ $skip -gt 0 ]; then skip=$((skip - 1)); continue; fi\n"
                      "        if [ $want -eq 0 ]; then break; fi\n"
                      "        want=$((want - 1)) list=${list:+$list,}$id\n"
                      "    done\n"
                      "    echo \"$list\"\n"
                      ")\n");
    if (!own)
        return;
    td__text_add(out, "gpus=\"");
    for (int i = 0; i < n; i++)
        td__text_printf(out, "%s$(pick %d 1)", i ? "," : "", own[i]);
    td__text_add(out, "\"\n");
}

td_status td__launch_script(const td__launch *l, const td__group_place *p, int member, bool shared,
                            td__text *out)
{
    int n = td__job_processes(l->spec), share = l->spec->gpus / n; /* GPUs of a process */

    for (int i = 0; shared && l->g.env[i]; i++)
        export(out, l->g.env[i]);
    if (share > 0 || (l->spec->gpus > 0 && l->gpus && !l->renumbered))
        number_gpus(l, member, out);
    if (share == 0 && l->spec->gpus > 0 && l->gpus && !l->renumbered)
        td__text_add(out, "export CUDA_VISIBLE_DEVICES=\"$gpus\"\n");
    td__text_add(out, "pids=\n");
    for (int k = 0; k < n; k++) {
        td__texts own = {0};
        td__process_env(&l->g, p, member, k, &own);
        td__text_add(out, "(\n");
        size_t at = 0;
        for (const char *v; (v = td__texts_next(own.data, own.used, &at));)
            export(out, v);
        if (share > 0)
            td__text_printf(out, "export CUDA_VISIBLE_DEVICES=\"$(pick %d %d)\"\n", k * share,
                            share);
        bool failed = own.failed;
        td__texts_fini(&own);
        if (failed)
            return TD_FAIL(TD_ENOMEM, "out of memory for an environment");
        td__text_add(out, "exec \"$@\"\n) &\npids=\"$pids $!\"\n");
    }
    /* A signal ends `wait` early: then it is called again, and knows nothing (127) of a process
     * whose status it had given already. */
    td__text_add(out, "trap 'got=1; kill -TERM $pids 2>/dev/null' TERM INT\n"
                      "status=0\n"
                      "for pid in $pids; do\n"
                      "    s=; got=1\n"
                      "    while [ -n \"$got\" ]; do\n"
                      "        got=; wait $pid; n=$?\n"
                      "        [ $n -eq 127 ] && [ -n \"$s\" ] || s=$n\n"
                      "    done\n"
                      "    if [ $s -ne 0 ] && [ $status -eq 0 ]; then\n"
                      "        status=$s\n"
                      "        kill -TERM $pids 2>/dev/null\n"
                      "    fi\n"
                      "done\n"
                      "exit $status\n");
    return td__text_status(out);
}

/* One character of a name: others become '-'. Names of hosts are lower case. */
static char name_char(char c, bool dns)
{
    if (isalnum((unsigned char)c))
        return dns ? (char)tolower((unsigned char)c) : c;
    return !dns && (c == '_' || c == '.') ? c : '-';
}

void td__launch_name(const td__launch *l, const char *format, int64_t now_ms, bool dns, char *out,
                     size_t nbytes)
{
    char job[16], ms[24];
    size_t used = 0;

    snprintf(job, sizeof job, "%d", (int)l->g.job);
    snprintf(ms, sizeof ms, "%lld", (long long)now_ms);
    const struct {
        const char *word, *value;
    } WORDS[] = {{"{job}", job}, {"{ms}", ms}, {"{name}", l->spec->name}};
    for (const char *c = format; *c && used + 1 < nbytes;) {
        const char *value = NULL;
        for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS && !value; i++)
            if (strncmp(c, WORDS[i].word, strlen(WORDS[i].word)) == 0) {
                value = WORDS[i].value;
                c += strlen(WORDS[i].word);
            }
        if (!value) {
            out[used++] = name_char(*c++, dns);
            continue;
        }
        for (; *value && used + 1 < nbytes; value++)
            out[used++] = name_char(*value, dns);
    }
    while (used > 0 && !isalnum((unsigned char)out[used - 1]))
        used--;
    out[used] = '\0';
}
