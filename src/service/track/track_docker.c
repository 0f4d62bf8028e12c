/* track_docker.c -- groups as containers of a Docker engine, over its socket.
 *
 * A member is a container with labels (docker_api.h), by which it is found again: names follow the
 * key compat.names and prove nothing. Containers are created first and started when all are there;
 * a start that was interrupted is completed by the next one, and one that fails removes them all.
 *
 * Network (docker.network): `host` gives all members the host's, with ports of their own; on a
 * network of the user's they find each other by name; for `bridge`, whose containers have no names,
 * a group of several gets a network of its own. The job's directory is mounted at the same path, in
 * it the folder in which ranks of tandem meet; so is its data set, to be read only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/url.h"
#include "service/track/docker_api.h"
#include "service/track/free_port.h"
#include "service/track/gpus.h"
#include "service/track/place.h"

enum { WATCH_MS = 3600000, NAME_BYTES = 256, MOST_MEMBERS = 1024 };

typedef struct docker {
    td__http_pool *http;
    td__gpus *gpus, own_gpus;
    const td__service_config *config;
    const char *self;
} docker;

static td_status open_docker(const td__tracker_config *c, void **out)
{
    docker *d = td__calloc(1, sizeof *d);

    if (!d)
        return TD_FAIL(TD_ENOMEM, "out of memory for tracker docker");
    d->config = c->config;
    d->self = c->self;
    d->gpus = c->gpus ? c->gpus : &d->own_gpus;
    td__gpus_init(d->gpus, c->config->gpus);
    td_status st = td__http_pool_create(
        &(td__http_opts){.unix_socket = c->config->docker_socket, .attempts = 2}, &d->http);
    if (st)
        td__free(d);
    else
        *out = d;
    return st;
}

static void close_docker(void *s)
{
    docker *d = s;
    td__http_pool_destroy(d->http);
    td__free(d);
}

static void stop_docker(void *s)
{
    td__http_pool_stop(((docker *)s)->http);
}

static td_status call(docker *d, const char *method, const char *path, json_t *body, int *status)
{
    return td__docker_call_api(
        d->http,
        &(td__docker_call){.method = method, .path = path, .body = body, .status = status});
}

/* ---- GPUs ---- */

/* Which ones, not how many: those of different groups, and of a group's members, are different. */
static td_status reserve(void *s, td__launch *l, bool adopt)
{
    int n = l->members * l->spec->gpus;
    docker *d = s;

    l->renumbered = true;
    if (n == 0)
        return TD_OK;
    if (td__place_read(l, NULL, 0)) {
        for (int i = 0; i < n; i++)
            td__gpus_mark(d->gpus, l->g.token, l->gpus[i]);
        return TD_OK;
    }
    if (adopt) /* nobody knows which */
        return TD_OK;
    int *ids = n <= d->gpus->n ? td__arena_alloc(l->arena, (size_t)n * sizeof *ids) : NULL;
    if (!ids || !td__gpus_take(d->gpus, l->g.token, n, ids))
        return TD_FAIL(n > d->gpus->n ? TD_EINVAL : TD_EPEER, "this host has no %d free GPUs", n);
    l->gpus = ids;
    td_status st = td__place_write(l, NULL);
    if (st)
        td__gpus_release(d->gpus, l->g.token);
    return st;
}

static void release(void *s, const char *token)
{
    td__gpus_release(((docker *)s)->gpus, token);
}

/* ---- start ---- */

/* A group's names and network, the same for all its members. */
typedef struct plan {
    char name[NAME_BYTES - 16];
    char network[NAME_BYTES];
    bool own_network;
    int port; /* first port on the host's network; 0: not there */
    const char **hosts, **workers;
    td__arena *arena;
} plan;

static const char *member_name(td__arena *a, const td__launch *l, const plan *p, int member)
{
    return l->members == 1 ? td__arena_strdup(a, p->name)
                           : td__arena_printf(a, "%s-%d", p->name, member);
}

/* On the host's network every process has a port of its own, behind the group's first. Members have
 * different loopback addresses, because the same host would mean that they share memory. */
static td_status name_workers(const td__launch *l, plan *p)
{
    int n = l->members * td__job_processes(l->spec);

    p->hosts = td__arena_alloc(p->arena, (size_t)l->members * sizeof *p->hosts);
    for (int i = 0; p->hosts && i < l->members; i++)
        if (!(p->hosts[i] =
                  td__arena_printf(p->arena, "127.0.%d.%d", (i + 1) / 250, (i + 1) % 250)))
            p->hosts = NULL;

    p->workers = td__arena_alloc(p->arena, (size_t)n * sizeof *p->workers);
    for (int i = 0; p->workers && i < n; i++)
        if (!(p->workers[i] = td__arena_printf(p->arena, "127.0.0.1:%d", p->port + 1 + i)))
            p->workers = NULL;
    return p->workers && p->hosts ? TD_OK
                                  : TD_FAIL(TD_ENOMEM, "out of memory for addresses of workers");
}

static td_status make_plan(docker *d, const td__launch *l, const td__container *found, int n_found,
                           plan *p)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (n_found > 0)
        snprintf(p->name, sizeof p->name, "%.*s", (int)sizeof p->name - 1, found[0].name);
    else
        td__launch_name(l, d->config->name_format, now.tv_sec * 1000 + now.tv_nsec / 1000000, false,
                        p->name, sizeof p->name);
    snprintf(p->network, sizeof p->network, "%s", d->config->docker_network);
    if (strcmp(p->network, "host") == 0) {
        p->port = n_found > 0 ? found[0].port : 0;
        if (p->port == 0) { /* the group's ports: one, the master's, those of workers */
            TD_TRY(td__free_ports(2 + l->members * td__job_processes(l->spec), &p->port));
            p->port++;
        }
        return name_workers(l, p);
    }
    if (l->members == 1)
        return TD_OK;
    p->own_network = strcmp(p->network, "bridge") == 0;
    if (p->own_network)
        snprintf(p->network, sizeof p->network, "tandem-%s", l->g.token);
    p->hosts = td__arena_alloc(p->arena, (size_t)l->members * sizeof *p->hosts);
    for (int i = 0; p->hosts && i < l->members; i++)
        if (!(p->hosts[i] = member_name(p->arena, l, p, i)))
            p->hosts = NULL;
    return p->hosts ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for names of containers");
}

static td_status make_network(docker *d, const td__launch *l, const plan *p)
{
    int status = 0;
    json_t *body = json_pack("{s:s, s:b, s:{s:s}}", "Name", p->network, "CheckDuplicate", 1,
                             "Labels", TD_DOCKER_TOKEN, l->g.token);
    td_status st = call(d, "POST", "/networks/create", body, &status);
    json_decref(body);
    return st && status == 409 ? TD_OK : st; /* an earlier start has made it */
}

static json_t *texts_json(const td__texts *t)
{
    json_t *list = json_array();
    size_t at = 0;
    for (const char *v; (v = td__texts_next(t->data, t->used, &at));)
        json_array_append_new(list, json_string(v));
    return list;
}

/* The program in the image is called tandem, wherever it lies on this host. */
static const char *argument(const docker *d, const td__launch *l, int i)
{
    const char *a = l->g.command[i];
    return i == 0 && d->self && strcmp(a, d->self) == 0 ? "tandem" : a;
}

/* Entrypoint and Cmd: the command itself, or sh with a script that runs several. */
static td_status set_command(const docker *d, const td__launch *l, const td__group_place *place,
                             int member, json_t *body)
{
    json_t *cmd = json_array(), *entry = json_array();
    td_status st = TD_OK;

    if (td__job_processes(l->spec) > 1) {
        td__text script = {0};
        st = l->g.command[0] ? td__launch_script(l, place, member, false, &script)
                             : TD_FAIL(TD_EINVAL, "several processes in a container need a "
                                                  "command: key command or job");
        json_array_append_new(entry, json_string("/bin/sh"));
        json_array_append_new(entry, json_string("-c"));
        json_array_append_new(entry, json_string(script.data ? script.data : ""));
        json_array_append_new(entry, json_string("sh"));
        td__text_fini(&script);
    } else if (l->g.command[0]) {
        json_array_append_new(entry, json_string(argument(d, l, 0)));
    }
    for (int i = json_array_size(entry) == 1 ? 1 : 0; l->g.command[0] && l->g.command[i]; i++)
        json_array_append_new(cmd, json_string(argument(d, l, i)));
    if (json_array_size(entry)) {
        json_object_set(body, "Entrypoint", entry);
        json_object_set(body, "Cmd", cmd);
    }
    json_decref(entry);
    json_decref(cmd);
    return st;
}

json_t *td__docker_gpus(const td__launch *l, int member)
{
    json_t *ids = json_array();
    char number[16];

    if (!l->gpus) {
        json_decref(ids);
        return json_pack("[{s:i, s:[[s]]}]", "Count", l->spec->gpus, "Capabilities", "gpu");
    }
    for (int i = 0; i < l->spec->gpus; i++) {
        snprintf(number, sizeof number, "%d", l->gpus[member * l->spec->gpus + i]);
        json_array_append_new(ids, json_string(number));
    }
    return json_pack("[{s:o, s:[[s]]}]", "DeviceIDs", ids, "Capabilities", "gpu");
}

static json_t *host_config(const td__launch *l, const plan *p, int member)
{
    json_t *h = json_pack("{s:s, s:I, s:I, s:[s++]}", "NetworkMode", p->network, "NanoCpus",
                          (json_int_t)l->spec->slots * 1000000000, "Memory",
                          (json_int_t)l->spec->memory_mb << 20, "Binds", l->g.dir, ":", l->g.dir);
    if (l->g.data[0])
        json_array_append_new(json_object_get(h, "Binds"),
                              json_pack("s+++", l->g.data, ":", l->g.data, ":ro"));
    if (l->spec->gpus > 0)
        json_object_set_new(h, "DeviceRequests", td__docker_gpus(l, member));
    if (td__job_processes(l->spec) > 1) /* processes of a member share memory */
        json_object_set_new(h, "ShmSize", json_integer(1 << 30));
    return h;
}

static json_t *labels(const td__launch *l, const plan *p, int member)
{
    char number[16], port[16], job[16];

    snprintf(number, sizeof number, "%d", member);
    snprintf(port, sizeof port, "%d", p->port);
    snprintf(job, sizeof job, "%d", (int)l->g.job);
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", TD_DOCKER_TOKEN, l->g.token, TD_DOCKER_MEMBER,
                  number, TD_DOCKER_NAME, p->name, TD_DOCKER_PORT, port, "tandem.job", job);
    for (int i = 0; i < l->spec->labels.n; i++)
        if (strncmp(l->spec->labels.at[i].key, "tandem.", 7) != 0)
            json_object_set_new(o, l->spec->labels.at[i].key,
                                json_string(l->spec->labels.at[i].value));
    return o;
}

static td_status create_member(docker *d, const td__launch *l, const plan *p, int member)
{
    td__group_place place = {.hosts = p->hosts, .master_port = p->port, .workers = p->workers};
    td__texts env = {0};
    td__text path = {0};
    json_t *body = json_object();
    td_status st;

    const char *name = member_name(p->arena, l, p, member);
    TD_TRY_OR(st, done, td__launch_env(l, &place, member, &env));
    td__texts_add(&env, "TANDEM_RENDEZVOUS=%s/rendezvous-%s", l->g.dir, l->g.token);
    TD_TRY_OR(st, done, set_command(d, l, &place, member, body));
    json_object_set_new(body, "Image", json_string(l->g.image));
    json_object_set_new(body, "Env", texts_json(&env));
    json_object_set_new(body, "Labels", labels(l, p, member));
    json_object_set_new(body, "HostConfig", host_config(l, p, member));
    td__text_add(&path, "/containers/create?name=");
    td__url_encode(&path, name ? name : "", false);
    TD_TRY_OR(st, done, td__text_status(&path));
    st = call(d, "POST", path.data, body, NULL);
done:
    json_decref(body);
    td__texts_fini(&env);
    td__text_fini(&path);
    return st;
}

static int by_member(const void *a, const void *b)
{
    return ((const td__container *)a)->member - ((const td__container *)b)->member;
}

/* Member 0 first: its name is known to others when it runs, and they ask for it. */
static td_status start_created(docker *d, const char *token)
{
    char path[TD_DOCKER_ID + 32];
    td__container *c;
    int n;

    TD_TRY(td__docker_list(d->http, token, &c, &n));
    td_status st = TD_OK;
    if (n)
        qsort(c, (size_t)n, sizeof *c, by_member);
    for (int i = 0; i < n && !st; i++)
        if (strcmp(c[i].state, "created") == 0) {
            snprintf(path, sizeof path, "/containers/%s/start", c[i].id);
            st = call(d, "POST", path, NULL, NULL);
        }
    td__free(c);
    return st;
}

static td_status forget(void *s, const char *token);

static td_status start(void *s, const td__launch *l)
{
    docker *d = s;
    char meet[4096];
    plan p = {0};
    td__container *found = NULL;
    int n = 0;
    td_status st;

    if (!l->g.image[0])
        return TD_FAIL(TD_EINVAL, "tracker docker needs an image: key image or algorithm");
    if (l->members > MOST_MEMBERS)
        return TD_FAIL(TD_EINVAL, "tracker docker starts at most %d members", MOST_MEMBERS);
    TD_TRY_OR(st, done, td__arena_create(&p.arena));
    TD_TRY_OR(st, done, td__docker_list(d->http, l->g.token, &found, &n));
    if (n < l->members)
        TD_TRY_OR(st, done, td__docker_pull(d->http, l->g.image, d->config->docker_pull));
    TD_TRY_OR(st, done, make_plan(d, l, found, n, &p));
    snprintf(meet, sizeof meet, "%s/rendezvous-%s", l->g.dir, l->g.token);
    (void)mkdir(meet, 0700); /* one that is missing is told by the ranks */
    if (p.own_network)
        TD_TRY_OR(st, undo, make_network(d, l, &p));
    for (int member = 0; member < l->members; member++) {
        bool there = false;
        for (int i = 0; i < n; i++)
            there = there || found[i].member == member;
        if (!there)
            TD_TRY_OR(st, undo, create_member(d, l, &p, member));
    }
    TD_TRY_OR(st, undo, start_created(d, l->g.token));
    goto done;
undo:;
    char text[1024];
    snprintf(text, sizeof text, "%s", td_last_error());
    if (forget(d, l->g.token))
        TD_LOG(WARN, SERVICE, "%s: containers stay behind: %s", l->g.token, td_last_error());
    st = TD_FAIL(st, "%s", text);
done:
    td__free(found);
    td__arena_destroy(p.arena);
    return st;
}

/* ---- look, signal, output, forget, watch ---- */

static td_status look(void *s, const td__launch *l, td__seen *seen)
{
    docker *d = s;
    td__container *c;
    int n;

    TD_TRY(td__docker_list(d->http, l->g.token, &c, &n));
    td_status st = TD_OK;
    for (int i = 0; i < n && !st; i++)
        if (c[i].member < l->members) {
            int status = 0;
            st = td__docker_inspect(d->http, c[i].id, &status, &seen[c[i].member]);
            if (st && status == 404) /* removed in between */
                st = TD_OK;
            else if (!st) /* the engine's socket is of this host */
                gethostname(seen[c[i].member].host, sizeof seen->host - 1);
        }
    td__free(c);
    return st;
}

static td_status signal_members(void *s, const td__launch *l, int member, td__track_signal what)
{
    static const char *const PATHS[] = {[TD_TRACK_STOP] = "kill?signal=SIGTERM",
                                        [TD_TRACK_KILL] = "kill?signal=SIGKILL",
                                        [TD_TRACK_RESTART] = "restart?t=0"};
    char path[TD_DOCKER_ID + 48];
    docker *d = s;
    td__container *c;
    int n, status;

    TD_TRY(td__docker_list(d->http, l->g.token, &c, &n));
    td_status st = TD_OK;
    for (int i = 0; i < n; i++) {
        bool created = strcmp(c[i].state, "created") == 0;
        if (member != TD_TRACK_ALL && c[i].member != member)
            continue;
        if (what != TD_TRACK_RESTART && !created && strcmp(c[i].state, "running") != 0 &&
            strcmp(c[i].state, "paused") != 0)
            continue; /* it has ended */
        if (created && what != TD_TRACK_RESTART) {
            snprintf(path, sizeof path, "/containers/%s?force=1", c[i].id);
            td_status one = call(d, "DELETE", path, NULL, &status);
            st = one && status != 404 ? one : st;
            continue;
        }
        snprintf(path, sizeof path, "/containers/%s/%s", c[i].id, PATHS[what]);
        td_status one = call(d, "POST", path, NULL, &status);
        if (one && status != 404 && status != 409) /* gone, or ended by itself */
            st = one;
    }
    td__free(c);
    return st;
}

static td_status output(void *s, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    char url[TD_DOCKER_ID + 96];
    docker *d = s;
    td__docker_frames frames = {.sink = sink, .user = user};
    td__http_response a = {0};
    td__http *h;
    td__container *c;
    int n, i = 0;

    TD_TRY(td__docker_list(d->http, l->g.token, &c, &n));
    while (i < n && c[i].member != member)
        i++;
    snprintf(url, sizeof url, "http://docker/containers/%s/logs?stdout=1&stderr=1&follow=%d",
             i < n ? c[i].id : "", follow ? 1 : 0);
    td__free(c);
    if (i == n)
        return TD_FAIL(TD_EINVAL, "member %d of %s has no container", member, l->g.token);
    td__http_request q = {.url = url,
                          .sink = td__docker_unframe,
                          .sink_user = &frames,
                          .until = td__deadline_in_ms(WATCH_MS),
                          .idle_ms = follow ? WATCH_MS : 0};
    TD_TRY(td__http_pool_take(d->http, &h));
    td_status st = td__http_call(h, &q, &a);
    td__http_pool_give(d->http, h);
    td__http_response_fini(&a);
    return st;
}

/* The network of a group on `bridge`. */
static td_status remove_network(docker *d, const char *token)
{
    char path[NAME_BYTES];
    int status = 0;

    if (strcmp(d->config->docker_network, "bridge") != 0)
        return TD_OK;
    snprintf(path, sizeof path, "/networks/tandem-%s", token);
    td_status st = call(d, "DELETE", path, NULL, &status);
    return st && status == 404 ? TD_OK : st;
}

static td_status forget(void *s, const char *token)
{
    char path[NAME_BYTES];
    docker *d = s;
    td__container *c;
    int n, status = 0;

    TD_TRY(td__docker_list(d->http, token, &c, &n));
    td_status st = TD_OK;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/containers/%s?force=1&v=1", c[i].id);
        td_status one = call(d, "DELETE", path, NULL, &status);
        st = one && status != 404 && status != 409 ? one : st; /* 409: it is being removed */
    }
    td__free(c);
    td_status one = remove_network(d, token);
    return one ? one : st;
}

/* Engines have few addresses: a network of a group ends with its members. */
static td_status tidy(void *s, const td__launch *l)
{
    return l->members > 1 ? remove_network(s, l->g.token) : TD_OK;
}

typedef struct watcher {
    void (*changed)(void *user, const char *token);
    void *user;
} watcher;

static bool on_event(void *user, json_t *o)
{
    watcher *w = user;
    const json_t *attributes = json_object_get(json_object_get(o, "Actor"), "Attributes");
    const char *token = td__json_text(attributes, TD_DOCKER_TOKEN);

    if (token[0] && strlen(token) < TD__TOKEN)
        w->changed(w->user, token);
    return true;
}

static td_status watch(void *s, void (*changed)(void *user, const char *token), void *user)
{
    static const char FILTER[] = "{\"type\":[\"container\"],\"label\":[\"" TD_DOCKER_TOKEN "\"]}";
    docker *d = s;
    watcher w = {.changed = changed, .user = user};
    td__json_lines lines = {.line = on_event, .user = &w};
    td__http_response a = {0};
    td__text url = {0};
    td__http *h;
    td_status st;

    td__text_add(&url, "http://docker/events?filters=");
    td__url_encode(&url, FILTER, false);
    TD_TRY_OR(st, done, td__text_status(&url));
    TD_TRY_OR(st, done, td__http_pool_take(d->http, &h));
    st = td__http_call(h,
                       &(td__http_request){.url = url.data,
                                           .sink = td__json_lines_feed,
                                           .sink_user = &lines,
                                           .until = td__deadline_in_ms(WATCH_MS),
                                           .idle_ms = WATCH_MS},
                       &a);
    td__http_pool_give(d->http, h);
done:
    td__http_response_fini(&a);
    td__json_lines_fini(&lines);
    td__text_fini(&url);
    return st;
}

static const td__cluster_ops OPS = {.open = open_docker,
                                    .close = close_docker,
                                    .stop = stop_docker,
                                    .reserve = reserve,
                                    .release = release,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_members,
                                    .output = output,
                                    .tidy = tidy,
                                    .forget = forget,
                                    .shared_dir = true,
                                    .watch = watch};

extern const td__tracker_ops td__tracker_docker;
TD_CLUSTER_TRACKER(docker, "docker", "containers of a Docker engine", OPS, .sees_data = true,
                   .shares_dir = true);
