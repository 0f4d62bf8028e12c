/* track_ssh.c -- groups as processes of hosts that are reached by ssh (or any command that runs a
 * script on a host: ssh.command HOST sh -s). Nothing is installed there: members are scripts in a
 * directory of the host (member_dir.h), each in a session of its own, which outlives the
 * connection.
 *
 * Members fill the hosts of ssh.hosts by the slots and GPUs that are free there, in order, from the
 * one that the token chooses; where they are is kept in the job's directory (place.h). A host that
 * does not answer is trouble, not the end of its members; one that was restarted has lost them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "service/track/command.h"
#include "service/track/gpus.h"
#include "service/track/member_dir.h"
#include "service/track/place.h"

enum {
    LIMIT_MS = 60000,
    TAIL_MS = 3600000,
    PATH = 4096,
    MOST_HOSTS = 1024,
    MOST_WORDS = 16,
    SSH_FAILED = 255
};

/* What a group has of the hosts. */
typedef struct held {
    char token[TD__TOKEN];
    td__part *parts;
    int n_parts, each; /* slots of a member */
    struct held *next;
} held;

typedef struct ssh {
    const td__service_config *config;
    td__arena *arena;
    const char *word[MOST_WORDS]; /* of ssh.command */
    int n_words;
    const char **host;
    int *slots;
    int n_hosts;
    /* On the loop thread. */
    int *used;      /* slots of each host */
    td__gpus *gpus; /* of each host */
    held *held;
    atomic_bool stopped;
} ssh;

static void close_ssh(void *system)
{
    ssh *s = system;

    for (held *h = s->held, *next; h; h = next) {
        next = h->next;
        td__free(h->parts);
        td__free(h);
    }
    td__free(s->used);
    td__free(s->gpus);
    td__arena_destroy(s->arena);
    td__free(s);
}

static void stop_ssh(void *s)
{
    atomic_store(&((ssh *)s)->stopped, true);
}

static td_status read_hosts(ssh *s)
{
    const td__service_config *c = s->config;
    int n = c->n_ssh_hosts, gpus;
    size_t nbytes;

    if (n == 0 || n > MOST_HOSTS)
        return TD_FAIL(TD_EINVAL, "tracker ssh needs ssh.hosts, 1 to %d of them", MOST_HOSTS);
    s->host = td__arena_alloc(s->arena, (size_t)n * sizeof *s->host);
    s->slots = td__arena_alloc(s->arena, (size_t)n * sizeof *s->slots);
    s->used = td__calloc((size_t)n, sizeof *s->used);
    s->gpus = td__calloc((size_t)n, sizeof *s->gpus);
    for (int i = 0; s->host && s->slots && s->used && s->gpus && i < n; i++) {
        if (!td__place_parse_host(c->ssh_hosts[i], &nbytes, &s->slots[i], &gpus))
            return TD_FAIL(TD_EINVAL, "ssh.hosts: '%s' is not HOST:SLOTS or HOST:SLOTS/GPUS",
                           c->ssh_hosts[i]);
        s->host[i] = td__arena_printf(s->arena, "%.*s", (int)nbytes, c->ssh_hosts[i]);
        s->gpus[i].n = gpus < 0 ? TD__MOST_GPUS : gpus;
        s->n_hosts = i + (s->host[i] != NULL);
    }
    return s->n_hosts == n ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for ssh.hosts");
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

static int slots_of(const td__launch *l)
{
    return l->spec->slots > 0 ? l->spec->slots : 1;
}

static int free_gpus(const td__gpus *g)
{
    int n = 0;

    for (int i = 0; i < g->n; i++)
        n += g->owner[i][0] == '\0';
    return n;
}

/* How many members there is room for on a host; empty: if nobody else were there. */
static int room_for(const ssh *s, const td__launch *l, int host, bool empty)
{
    int slots = s->slots[host] - (empty ? 0 : s->used[host]), gpus = l->spec->gpus;
    int n = slots > 0 ? slots / slots_of(l) : 0;
    int most = gpus ? (empty ? s->gpus[host].n : free_gpus(&s->gpus[host])) / gpus : n;

    return n < most ? n : most;
}

/* Fills hosts in their order, from the one that the token chooses. */
static bool place_members(const ssh *s, td__launch *l, bool empty)
{
    int first = 0;
    uint32_t hash = 2166136261u;

    l->n_parts = 0;
    for (const char *c = l->g.token; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    int at = (int)(hash % (uint32_t)s->n_hosts);
    for (int tried = 0; tried < s->n_hosts && first < l->members;
         tried++, at = (at + 1) % s->n_hosts) {
        int fit = room_for(s, l, at, empty), left = l->members - first;
        int n = fit < left ? fit : left;
        if (n > 0)
            l->parts[l->n_parts++] = (td__part){.host = at, .first = first, .n = n};
        first += n;
    }
    return first == l->members;
}

static void release(void *system, const char *token)
{
    ssh *s = system;

    for (held **at = &s->held, *h; (h = *at);) {
        if (strcmp(h->token, token) != 0) {
            at = &h->next;
            continue;
        }
        for (int i = 0; i < h->n_parts; i++) {
            s->used[h->parts[i].host] -= h->parts[i].n * h->each;
            td__gpus_release(&s->gpus[h->parts[i].host], token);
        }
        *at = h->next;
        td__free(h->parts);
        td__free(h);
    }
}

static td_status hold(ssh *s, const td__launch *l)
{
    held *h = td__calloc(1, sizeof *h);
    td__part *parts = td__calloc((size_t)l->n_parts, sizeof *parts);

    if (!h || !parts) {
        td__free(h);
        td__free(parts);
        return TD_FAIL(TD_ENOMEM, "out of memory for the hosts of a group");
    }
    memcpy(parts, l->parts, (size_t)l->n_parts * sizeof *parts);
    *h = (held){.parts = parts, .n_parts = l->n_parts, .each = slots_of(l), .next = s->held};
    snprintf(h->token, sizeof h->token, "%s", l->g.token);
    s->held = h;
    for (int i = 0; i < l->n_parts; i++) {
        const td__part *p = &l->parts[i];
        s->used[p->host] += p->n * h->each;
        for (int k = p->first * l->spec->gpus; l->gpus && k < (p->first + p->n) * l->spec->gpus;
             k++)
            td__gpus_mark(&s->gpus[p->host], l->g.token, l->gpus[k]);
    }
    return TD_OK;
}

/* GPUs of the members on each of their hosts; there are enough. */
static void choose_gpus(const ssh *s, td__launch *l)
{
    int each = l->spec->gpus;

    for (int i = 0; i < l->n_parts; i++) {
        const td__part *p = &l->parts[i];
        const td__gpus *g = &s->gpus[p->host];
        int *to = l->gpus + (ptrdiff_t)p->first * each, n = 0;
        for (int id = 0; id < g->n && n < p->n * each; id++)
            if (!g->owner[id][0])
                to[n++] = id;
    }
}

/* A place where slots and GPUs are free. What an attempt of before has is in its job's directory;
 * of one without such a file it is known where its members are, if they had the hosts for
 * themselves. */
static td_status reserve(void *system, td__launch *l, bool adopt)
{
    ssh *s = system;
    int n_gpus = l->members * l->spec->gpus;

    if (td__place_read(l, s->host, s->n_hosts))
        return hold(s, l);
    l->parts = td__arena_alloc(l->arena, (size_t)l->members * sizeof *l->parts);
    l->gpus = n_gpus ? td__arena_alloc(l->arena, (size_t)n_gpus * sizeof *l->gpus) : NULL;
    if (!l->parts || (n_gpus && !l->gpus))
        return TD_FAIL(TD_ENOMEM, "out of memory for the hosts of a group");
    bool ever = place_members(s, l, true);
    if (adopt) {
        l->gpus = NULL;
        if (!ever)
            l->n_parts = 0; /* it runs nowhere that is known */
        return hold(s, l);
    }
    if (!ever)
        return TD_FAIL(TD_EINVAL, "ssh.hosts have no room for %d members of %d slots and %d GPUs",
                       l->members, slots_of(l), l->spec->gpus);
    if (!place_members(s, l, false))
        return TD_FAIL(TD_EPEER,
                       "ssh.hosts have no room now for %d members of %d slots and %d GPUs",
                       l->members, slots_of(l), l->spec->gpus);
    if (l->gpus)
        choose_gpus(s, l);
    TD_TRY(td__place_write(l, s->host));
    return hold(s, l);
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

    /* Processes that were just killed may still have made a file there. */
    group_dir(s, token, dir);
    td__text_add(&script, "rm -rf -- ");
    td__shell_quote(&script, dir);
    td__text_add(&script, " 2>/dev/null || { sleep 1; rm -rf -- ");
    td__shell_quote(&script, dir);
    td__text_add(&script, "; }\n");
    td_status st = run_there(s, host, &script, (td__command_opts){.out = &out});
    td__text_fini(&script);
    td__text_fini(&out);
    return st;
}

/* Where the place of an attempt is kept when its job has gone. */
static void kept_place(const td__service_config *c, const char *token, char out[PATH])
{
    snprintf(out, PATH, "%.3900s/places/%.80s", c->data_dir, token);
}

static void keep_place(td__tracker *t, const char *token, const char *dir)
{
    char from[PATH], to[PATH];

    snprintf(from, sizeof from, "%.3900s/place-%.80s", dir, token);
    snprintf(to, sizeof to, "%.3900s/places", t->c.config->data_dir);
    mkdir(to, 0700);
    kept_place(t->c.config, token, to);
    (void)!link(from, to); /* without it every host is asked */
}

/* Every host may have had members of it, unless it is known which have. */
static td_status forget(void *system, const char *token)
{
    ssh *s = system;
    char path[PATH], kept[PATH];
    bool named[MOST_HOSTS];
    td_status st = TD_OK;
    int job = 0;

    (void)!sscanf(token, "job-%d-", &job);
    snprintf(path, sizeof path, "%.3900s/jobs/%d/place-%.80s", s->config->data_dir, job, token);
    kept_place(s->config, token, kept);
    bool known = td__place_hosts(path, s->host, s->n_hosts, named) ||
                 td__place_hosts(kept, s->host, s->n_hosts, named);
    for (int i = 0; i < s->n_hosts; i++) {
        td_status one = known && !named[i] ? TD_OK : forget_there(s, i, token);
        st = one ? one : st;
    }
    if (!st)
        unlink(kept);
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
                            const td__part *p)
{
    char dir[PATH], number[16];
    td__text script = {0}, out = {0};
    td_status st;

    group_dir(s, l->g.token, dir);
    TD_TRY_OR(st, done, td__member_dir_create(l, place, dir, p->first, p->n, &script));
    td__text_add(&script, "mkdir -p artifacts\n");
    for (int m = p->first; m < p->first + p->n; m++) {
        snprintf(number, sizeof number, "%d", m);
        td__text_printf(&script, "if mkdir claim-%d 2>/dev/null; then setsid ", m);
        td__member_dir_run(l, dir, number, &script);
        td__text_add(&script, " >/dev/null 2>&1 </dev/null & fi\n");
    }
    td__member_dir_made(&script);
    st = run_there(s, p->host, &script, (td__command_opts){.out = &out});
done:
    td__text_fini(&script);
    td__text_fini(&out);
    return st;
}

static td_status make_place(const ssh *s, const td__launch *l, td__arena *a, td__group_place *place)
{
    const char **hosts = td__arena_alloc(a, (size_t)l->members * sizeof *hosts);
    uint32_t hash = 0;

    if (!hosts)
        return TD_FAIL(TD_ENOMEM, "out of memory for the hosts of a group");
    for (int i = 0; i < l->n_parts; i++)
        for (int m = l->parts[i].first; m < l->parts[i].first + l->parts[i].n; m++)
            hosts[m] = address(s->host[l->parts[i].host]);
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
    td_status st;

    if (!l->g.command[0])
        return TD_FAIL(TD_EINVAL, "tracker ssh needs a command: key command or job");
    TD_TRY_OR(st, done, td__arena_create(&a));
    TD_TRY_OR(st, done, make_place(s, l, a, &place));
    for (int i = 0; i < l->n_parts && !st; i++)
        st = start_part(s, l, &place, &l->parts[i]);
    if (st) {
        char text[1024];
        snprintf(text, sizeof text, "%s", td_last_error());
        (void)!signal_members(s, l, TD_TRACK_ALL, TD_TRACK_KILL);
        for (int i = 0; i < l->n_parts; i++)
            (void)!forget_there(s, l->parts[i].host, l->g.token);
        st = TD_FAIL(st, "%s", text);
    }
done:
    td__arena_destroy(a);
    return st;
}

/* ---- look, signal, output ---- */

static td_status look(void *system, const td__launch *l, td__seen *seen)
{
    ssh *s = system;
    char dir[PATH];

    group_dir(s, l->g.token, dir);
    td_status st = TD_OK;
    for (int i = 0; i < l->n_parts && !st; i++) {
        td__text script = {0}, out = {0};
        td__member_dir_state(dir, l->parts[i].first, l->parts[i].n, true, &script);
        st = run_there(s, l->parts[i].host, &script, (td__command_opts){.out = &out});
        if (!st)
            td__member_dir_seen(out.data, seen, l->members);
        for (int m = l->parts[i].first; !st && m < l->parts[i].first + l->parts[i].n; m++)
            snprintf(seen[m].host, sizeof seen[m].host, "%s", address(s->host[l->parts[i].host]));
        td__text_fini(&script);
        td__text_fini(&out);
    }
    return st;
}

static td_status signal_members(void *system, const td__launch *l, int member,
                                td__track_signal what)
{
    ssh *s = system;
    char dir[PATH];

    group_dir(s, l->g.token, dir);
    td_status st = TD_OK;
    for (int i = 0; i < l->n_parts; i++) {
        const td__part *p = &l->parts[i];
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
    return st;
}

static td_status output(void *system, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    ssh *s = system;
    char dir[PATH];
    td__text script = {0};
    int i = 0;

    while (i < l->n_parts && member >= l->parts[i].first + l->parts[i].n)
        i++;
    if (i == l->n_parts)
        return TD_FAIL(TD_EINVAL, "member %d of %s has no host", member, l->g.token);
    int host = l->parts[i].host;
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
                                    .reserve = reserve,
                                    .release = release,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_members,
                                    .output = output,
                                    .forget = forget,
                                    .look_every_ms = 1000};

extern const td__tracker_ops td__tracker_ssh;
TD_CLUSTER_TRACKER(ssh, "ssh", "processes of hosts reached by ssh", OPS, .own_capacity = false,
                   .place = place_of, .before_removal = keep_place, .leaves_files = true);
