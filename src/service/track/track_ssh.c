/* track_ssh.c -- groups as processes of hosts that are reached by ssh (or any command that runs a
 * script on a host: ssh.command HOST sh -s). Nothing is installed there: members are scripts in a
 * directory of the host (member_dir.h), each in a session of its own, which outlives the
 * connection.
 *
 * Members fill the hosts of ssh.hosts by their slots, in order, from the one that the token
 * chooses; that is a function of token and configuration, so it need not be stored. A host that
 * does not answer is trouble, not the end of its members; one that was restarted has lost them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/track/command.h"
#include "service/track/member_dir.h"

enum {
    LIMIT_MS = 60000,
    TAIL_MS = 3600000,
    PATH = 4096,
    MOST_HOSTS = 1024,
    MOST_WORDS = 16,
    SSH_FAILED = 255
};

typedef struct ssh {
    const td__service_config *config;
    td__arena *arena;
    const char *word[MOST_WORDS]; /* of ssh.command */
    int n_words;
    const char **host;
    int *slots;
    int n_hosts;
    atomic_bool stopped;
} ssh;

static void close_ssh(void *system)
{
    ssh *s = system;
    td__arena_destroy(s->arena);
    td__free(s);
}

static void stop_ssh(void *s)
{
    atomic_store(&((ssh *)s)->stopped, true);
}

/* "HOST:SLOTS"; one slot if none are named. */
static td_status read_hosts(ssh *s)
{
    const td__service_config *c = s->config;

    if (c->n_ssh_hosts == 0 || c->n_ssh_hosts > MOST_HOSTS)
        return TD_FAIL(TD_EINVAL, "tracker ssh needs ssh.hosts, 1 to %d of them", MOST_HOSTS);
    s->host = td__arena_alloc(s->arena, (size_t)c->n_ssh_hosts * sizeof *s->host);
    s->slots = td__arena_alloc(s->arena, (size_t)c->n_ssh_hosts * sizeof *s->slots);
    for (int i = 0; s->host && s->slots && i < c->n_ssh_hosts; i++) {
        const char *colon = strrchr(c->ssh_hosts[i], ':');
        char *end = NULL;
        long n = colon ? strtol(colon + 1, &end, 10) : 1;
        size_t bytes = colon ? (size_t)(colon - c->ssh_hosts[i]) : strlen(c->ssh_hosts[i]);
        if ((colon && (*end || end == colon + 1)) || n < 1 || n > 65536 || bytes == 0 ||
            c->ssh_hosts[i][0] == '-')
            return TD_FAIL(TD_EINVAL, "ssh.hosts: '%s' is not HOST:SLOTS", c->ssh_hosts[i]);
        s->host[i] = td__arena_printf(s->arena, "%.*s", (int)bytes, c->ssh_hosts[i]);
        s->slots[i] = (int)n;
        s->n_hosts = i + 1;
    }
    return s->n_hosts == c->n_ssh_hosts ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for ssh.hosts");
}

static td_status read_command(ssh *s)
{
    char *text = td__arena_strdup(s->arena, s->config->ssh_command), *rest;

    for (char *w = text ? strtok_r(text, " ", &rest) : NULL; w; w = strtok_r(NULL, " ", &rest)) {
        if (s->n_words == MOST_WORDS - 1)
            return TD_FAIL(TD_EINVAL, "ssh.command: more than %d words", MOST_WORDS - 1);
        s->word[s->n_words++] = w;
    }
    return s->n_words ? TD_OK : TD_FAIL(TD_EINVAL, "ssh.command is empty");
}

static td_status open_ssh(const td__tracker_config *c, void **out)
{
    ssh *s = td__calloc(1, sizeof *s);
    td_status st;

    if (!s)
        return TD_FAIL(TD_ENOMEM, "out of memory for tracker ssh");
    s->config = c->config;
    TD_TRY_OR(st, fail, td__arena_create(&s->arena));
    TD_TRY_OR(st, fail, read_command(s));
    TD_TRY_OR(st, fail, read_hosts(s));
    *out = s;
    return TD_OK;
fail:
    close_ssh(s);
    return st;
}

/* Members [first, first + n) are on one host. */
typedef struct part {
    int host, first, n;
} part;

/* *parts is freed with td__free. */
static td_status place_members(const ssh *s, const td__launch *l, part **parts, int *n_parts)
{
    int each = l->spec->slots > 0 ? l->spec->slots : 1, first = 0, at;
    uint32_t hash = 2166136261u;

    *n_parts = 0;
    *parts = td__calloc((size_t)l->members, sizeof **parts);
    if (!*parts)
        return TD_FAIL(TD_ENOMEM, "out of memory for the hosts of a group");
    for (const char *c = l->g.token; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    at = (int)(hash % (uint32_t)s->n_hosts);
    for (int tried = 0; tried < s->n_hosts && first < l->members;
         tried++, at = (at + 1) % s->n_hosts) {
        int fit = s->slots[at] / each, left = l->members - first;
        int n = fit < left ? fit : left;
        if (n > 0)
            (*parts)[(*n_parts)++] = (part){.host = at, .first = first, .n = n};
        first += n;
    }
    if (first == l->members)
        return TD_OK;
    td__free(*parts);
    *parts = NULL;
    return TD_FAIL(TD_EINVAL, "ssh.hosts have no room for %d members of %d slots", l->members,
                   each);
}

/* COMMAND... HOST sh -s, with the script as its input. */
static td_status run_there_status(ssh *s, int host, td__text *script, td__command_opts o,
                                  int *status)
{
    const char *argv[MOST_WORDS + 4] = {NULL};
    int n = 0;

    TD_TRY(td__text_status(script));
    for (; n < s->n_words; n++)
        argv[n] = s->word[n];
    argv[n++] = s->host[host];
    argv[n++] = "sh";
    argv[n++] = "-s";
    o.argv = argv;
    o.input = script->data;
    o.stop = &s->stopped;
    o.until = td__deadline_in_ms(o.sink ? TAIL_MS : LIMIT_MS);
    return td__command(&o, status);
}

static td_status run_there(ssh *s, int host, td__text *script, td__command_opts o)
{
    return run_there_status(s, host, script, o, NULL);
}

static void group_dir(const ssh *s, const char *token, char out[PATH])
{
    snprintf(out, PATH, "%s/%s", s->config->ssh_dir, token);
}

static void place_of(const td__service_config *c, const char *token, char *out, size_t nbytes)
{
    snprintf(out, nbytes, "%s/%s", c->ssh_dir, token);
}

static td_status forget_there(ssh *s, int host, const char *token)
{
    char dir[PATH];
    td__text script = {0}, out = {0};

    group_dir(s, token, dir);
    td__text_add(&script, "rm -rf -- ");
    td__shell_quote(&script, dir);
    td__text_add(&script, "\n");
    td_status st = run_there(s, host, &script, (td__command_opts){.out = &out});
    td__text_fini(&script);
    td__text_fini(&out);
    return st;
}

/* Every host may have had members of it. */
static td_status forget(void *system, const char *token)
{
    ssh *s = system;
    td_status st = TD_OK;
    for (int i = 0; i < s->n_hosts; i++) {
        td_status one = forget_there(s, i, token);
        st = one ? one : st;
    }
    return st;
}

/* ---- start ---- */

/* "user@host" is reached as host by the others. */
static const char *address(const char *host)
{
    const char *at = strchr(host, '@');
    return at ? at + 1 : host;
}

static td_status start_part(ssh *s, const td__launch *l, const td__group_place *place,
                            const part *p)
{
    char dir[PATH], number[16];
    td__text script = {0}, out = {0};
    td_status st;

    group_dir(s, l->g.token, dir);
    TD_TRY_OR(st, done, td__member_dir_create(l, place, dir, p->first, p->n, &script));
    td__text_add(&script, "mkdir -p artifacts\n");
    for (int m = p->first; m < p->first + p->n; m++) {
        snprintf(number, sizeof number, "%d", m);
        td__text_add(&script, "setsid ");
        td__member_dir_run(l, dir, number, &script);
        td__text_add(&script, " >/dev/null 2>&1 </dev/null &\n");
    }
    st = run_there(s, p->host, &script, (td__command_opts){.out = &out});
done:
    td__text_fini(&script);
    td__text_fini(&out);
    return st;
}

static td_status make_place(const ssh *s, const td__launch *l, const part *parts, int n,
                            td__arena *a, td__group_place *place)
{
    const char **hosts = td__arena_alloc(a, (size_t)l->members * sizeof *hosts);
    uint32_t hash = 0;

    if (!hosts)
        return TD_FAIL(TD_ENOMEM, "out of memory for the hosts of a group");
    for (int i = 0; i < n; i++)
        for (int m = parts[i].first; m < parts[i].first + parts[i].n; m++)
            hosts[m] = address(s->host[parts[i].host]);
    for (const char *c = l->g.token; *c; c++)
        hash = hash * 31 + (uint8_t)*c;
    *place = (td__group_place){.hosts = hosts, .master_port = 20000 + (int)(hash % 10000)};
    return TD_OK;
}

static td_status signal_members(void *system, const td__launch *l, int member,
                                td__track_signal what);

static td_status start(void *system, const td__launch *l)
{
    ssh *s = system;
    td__group_place place;
    td__arena *a = NULL;
    part *parts = NULL;
    int n = 0;
    td_status st;

    if (!l->g.command[0])
        return TD_FAIL(TD_EINVAL, "tracker ssh needs a command: key command or job");
    TD_TRY_OR(st, done, td__arena_create(&a));
    TD_TRY_OR(st, done, place_members(s, l, &parts, &n));
    TD_TRY_OR(st, done, make_place(s, l, parts, n, a, &place));
    for (int i = 0; i < n && !st; i++)
        st = start_part(s, l, &place, &parts[i]);
    if (st) {
        char text[1024];
        snprintf(text, sizeof text, "%s", td_last_error());
        (void)!signal_members(s, l, TD_TRACK_ALL, TD_TRACK_KILL);
        for (int i = 0; i < n; i++)
            (void)!forget_there(s, parts[i].host, l->g.token);
        st = TD_FAIL(st, "%s", text);
    }
done:
    td__free(parts);
    td__arena_destroy(a);
    return st;
}

/* ---- look, signal, output ---- */

static td_status look(void *system, const td__launch *l, td__seen *seen)
{
    ssh *s = system;
    char dir[PATH];
    part *parts;
    int n;

    group_dir(s, l->g.token, dir);
    TD_TRY(place_members(s, l, &parts, &n));
    td_status st = TD_OK;
    for (int i = 0; i < n && !st; i++) {
        td__text script = {0}, out = {0};
        td__member_dir_state(dir, parts[i].first, parts[i].n, true, &script);
        st = run_there(s, parts[i].host, &script, (td__command_opts){.out = &out});
        if (!st)
            td__member_dir_seen(out.data, seen, l->members);
        td__text_fini(&script);
        td__text_fini(&out);
    }
    td__free(parts);
    return st;
}

static td_status signal_members(void *system, const td__launch *l, int member,
                                td__track_signal what)
{
    ssh *s = system;
    char dir[PATH];
    part *parts;
    int n;

    group_dir(s, l->g.token, dir);
    TD_TRY(place_members(s, l, &parts, &n));
    td_status st = TD_OK;
    for (int i = 0; i < n; i++) {
        const part *p = &parts[i];
        td__text script = {0}, out = {0};
        if (member >= 0 && (member < p->first || member >= p->first + p->n))
            continue;
        if (what == TD_TRACK_RESTART)
            td__member_dir_restart(dir, member, &script);
        else
            td__member_dir_signal(dir, member < 0 ? p->first : member, member < 0 ? p->n : 1, what,
                                  &script);
        td_status one = run_there(s, p->host, &script, (td__command_opts){.out = &out});
        st = one ? one : st;
        td__text_fini(&script);
        td__text_fini(&out);
    }
    td__free(parts);
    return st;
}

static td_status output(void *system, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    ssh *s = system;
    char dir[PATH];
    td__text script = {0};
    part *parts;
    int n, i = 0;

    TD_TRY(place_members(s, l, &parts, &n));
    while (member >= parts[i].first + parts[i].n)
        i++;
    int host = parts[i].host;
    td__free(parts);
    group_dir(s, l->g.token, dir);
    td__text_add(&script, "cd ");
    td__shell_quote(&script, dir);
    if (follow)
        td__text_printf(&script, " && exec tail -c +1 -f --pid=$(cat pid-%d) out-%d\n", member,
                        member);
    else
        td__text_printf(&script, " && cat out-%d\n", member);
    int status = 0;
    td_status st = run_there_status(s, host, &script,
                                    (td__command_opts){.sink = sink, .sink_user = user}, &status);
    td__text_fini(&script);
    /* What ssh itself could not do may succeed later. */
    return st == TD_EINVAL && status == SSH_FAILED ? TD_EPEER : st;
}

static const td__cluster_ops OPS = {.open = open_ssh,
                                    .close = close_ssh,
                                    .stop = stop_ssh,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_members,
                                    .output = output,
                                    .forget = forget,
                                    .look_every_ms = 1000};

extern const td__tracker_ops td__tracker_ssh;
TD_CLUSTER_TRACKER(ssh, "ssh", "processes of hosts reached by ssh", OPS, .own_capacity = false,
                   .place = place_of);
