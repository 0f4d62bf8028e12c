/* track_kubernetes.c -- groups as pods of a Kubernetes cluster (kube_objects.h says of what).
 *
 * Pods are found again by their labels. A start creates the ConfigMap first: if it is there
 * already, an earlier start with this token was interrupted, and is completed under the name it
 * had chosen. The API has no signals: STOP deletes the pods with the job's grace time, which is
 * SIGTERM and then SIGKILL; their output is followed until they are gone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/url.h"
#include "service/track/json_io.h"
#include "service/track/kube_api.h"
#include "service/track/kube_objects.h"

enum { WATCH_S = 300, PATH = 512, GONE_MS = 60000, GONE_LOOK_MS = 100 };

typedef struct cluster {
    td__kube *api;
    const td__service_config *config;
    const char *self, *namespace_;
} cluster;

static td_status open_cluster(const td__tracker_config *c, void **out)
{
    cluster *k = td__calloc(1, sizeof *k);

    if (!k)
        return TD_FAIL(TD_ENOMEM, "out of memory for tracker kubernetes");
    td_status st = td__kube_open(c->config->kube_config, c->config->kube_context, &k->api);
    if (st) {
        td__free(k);
        return st;
    }
    k->config = c->config;
    k->self = c->self;
    k->namespace_ = c->config->kube_namespace;
    if (strcmp(k->namespace_, "default") == 0 && td__kube_namespace(k->api))
        k->namespace_ = td__kube_namespace(k->api);
    *out = k;
    return TD_OK;
}

static void close_cluster(void *s)
{
    cluster *k = s;
    td__kube_close(k->api);
    td__free(k);
}

static void stop_cluster(void *s)
{
    td__kube_stop(((cluster *)s)->api);
}

/* "/api/v1/namespaces/NS/KIND" */
static void kind_path(const cluster *k, const char *kind, char out[PATH])
{
    snprintf(out, PATH, "/api/v1/namespaces/%s/%s", k->namespace_, kind);
}

static void token_path(const cluster *k, const char *kind, const char *token, char out[PATH])
{
    snprintf(out, PATH, "/api/v1/namespaces/%s/%s?labelSelector=" TD_KUBE_TOKEN "%%3D%s",
             k->namespace_, kind, token);
}

static td_status list(cluster *k, const char *kind, const char *token, json_t **out)
{
    char path[PATH];
    token_path(k, kind, token, path);
    return td__kube_call(k->api, &(td__kube_request){.method = "GET", .path = path, .out = out});
}

/* Creates one; 409: it is there, which is what was wanted. Takes the object. */
static td_status create(cluster *k, const char *kind, json_t *object)
{
    char path[PATH];
    int status = 0;

    kind_path(k, kind, path);
    td_status st = td__kube_call(
        k->api,
        &(td__kube_request){.method = "POST", .path = path, .body = object, .status = &status});
    json_decref(object);
    return st && status == 409 ? TD_OK : st;
}

/* grace -1: the object's own. */
static td_status delete (cluster *k, const char *kind, const char *name, int64_t grace)
{
    char path[PATH];
    int status = 0;
    json_t *body = json_pack("{s:s, s:s, s:s}", "apiVersion", "v1", "kind", "DeleteOptions",
                             "propagationPolicy", "Background");

    if (grace >= 0)
        json_object_set_new(body, "gracePeriodSeconds", json_integer(grace));
    snprintf(path, sizeof path, "/api/v1/namespaces/%s/%s/%s", k->namespace_, kind, name);
    td_status st = td__kube_call(
        k->api,
        &(td__kube_request){.method = "DELETE", .path = path, .body = body, .status = &status});
    json_decref(body);
    return st && (status == 404 || status == 409) ? TD_OK : st;
}

static const char *name_of(const json_t *object)
{
    return td__json_text(json_object_get(object, "metadata"), "name");
}

/* All of a kind that belong to the group; member >= 0: that pod alone. */
static td_status delete_all(cluster *k, const char *kind, const char *token, int member,
                            int64_t grace)
{
    json_t *found = NULL;
    td__seen seen;
    int m;

    TD_TRY(list(k, kind, token, &found));
    const json_t *items = json_object_get(found, "items");
    td_status st = TD_OK;
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *o = json_array_get(items, i);
        if (member >= 0 && (!td__kube_seen(o, &m, &seen) || m != member))
            continue;
        td_status one = delete (k, kind, name_of(o), grace);
        st = one ? one : st;
    }
    json_decref(found);
    return st;
}

static td_status forget(void *s, const char *token)
{
    cluster *k = s;
    char owner[64];
    td_status st = delete_all(k, "pods", token, -1, 0), one;

    one = delete_all(k, "services", token, -1, -1);
    st = one ? one : st;
    snprintf(owner, sizeof owner, "tandem-%s", token);
    one = delete (k, "secrets", owner, -1);
    st = one ? one : st;
    one = delete (k, "configmaps", owner, -1);
    return one ? one : st;
}

/* ---- start ---- */

/* The owner as it is there, new or of an earlier start: the group's name and the owner's uid. */
static td_status claim(cluster *k, td__kube_group *g)
{
    char path[PATH];
    json_t *map = NULL;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    char bare[TD_KUBE_NAME - 4];
    td__launch_name(g->l, k->config->name_format, now.tv_sec * 1000 + now.tv_nsec / 1000000, true,
                    bare, sizeof bare);
    snprintf(g->name, sizeof g->name, "job-%s", bare);
    snprintf(g->owner, sizeof g->owner, "tandem-%s", g->l->g.token);
    TD_TRY(create(k, "configmaps", td__kube_config_map(g)));
    snprintf(path, sizeof path, "/api/v1/namespaces/%s/configmaps/%s", k->namespace_, g->owner);
    TD_TRY(td__kube_call(k->api, &(td__kube_request){.method = "GET", .path = path, .out = &map}));
    snprintf(g->owner_uid, sizeof g->owner_uid, "%s",
             td__json_text(json_object_get(map, "metadata"), "uid"));
    snprintf(g->name, sizeof g->name, "%s", td__json_text(json_object_get(map, "data"), "name"));
    json_decref(map);
    return g->name[0] ? TD_OK : TD_FAIL(TD_EPROTO, "configmap %s has no name in it", g->owner);
}

static td_status create_all(cluster *k, td__kube_group *g)
{
    json_t *secret = td__kube_secret(g);
    if (secret)
        TD_TRY(create(k, "secrets", secret));
    if (g->l->members > 1) {
        TD_TRY(create(k, "services", td__kube_service(g, false)));
        TD_TRY(create(k, "services", td__kube_service(g, true)));
    }
    for (int i = 0; i < g->l->members; i++) {
        json_t *pod;
        TD_TRY(td__kube_pod(g, i, &pod));
        TD_TRY(create(k, "pods", pod));
    }
    return TD_OK;
}

static td_status start(void *s, const td__launch *l)
{
    cluster *k = s;
    td__kube_group g = {.l = l, .namespace_ = k->namespace_, .self = k->self};

    if (!l->g.image[0])
        return TD_FAIL(TD_EINVAL, "tracker kubernetes needs an image: key image or algorithm");
    td_status st = claim(k, &g);
    if (!st)
        st = create_all(k, &g);
    if (st) {
        char text[1024];
        snprintf(text, sizeof text, "%s", td_last_error());
        if (forget(k, l->g.token))
            TD_LOG(WARN, SERVICE, "%s: objects stay behind: %s", l->g.token, td_last_error());
        return TD_FAIL(st, "%s", text);
    }
    return TD_OK;
}

/* ---- look, signal, output, watch ---- */

static td_status look(void *s, const td__launch *l, td__seen *seen)
{
    cluster *k = s;
    json_t *found = NULL;
    td__seen one;
    int member;

    TD_TRY(list(k, "pods", l->g.token, &found));
    const json_t *items = json_object_get(found, "items");
    for (size_t i = 0; i < json_array_size(items); i++)
        if (td__kube_seen(json_array_get(items, i), &member, &one) && member < l->members)
            seen[member] = one;
    json_decref(found);
    return TD_OK;
}

/* Its name is free only when the old pod is gone. */
static td_status await_gone(cluster *k, const td__launch *l, int member)
{
    td__deadline until = td__deadline_in_ms(GONE_MS);

    for (;;) {
        td__seen *seen = td__calloc((size_t)l->members, sizeof *seen);
        td_status st = seen ? look(k, l, seen) : TD_FAIL(TD_ENOMEM, "out of memory");
        bool gone = !st && seen[member].state == TD_SEEN_ABSENT;
        td__free(seen);
        if (st || gone)
            return st;
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "the pod of member %d is not removed", member);
        TD_TRY(td__kube_pause(k->api, GONE_LOOK_MS));
    }
}

static td_status restart(cluster *k, const td__launch *l, int member)
{
    td__kube_group g = {.l = l, .namespace_ = k->namespace_, .self = k->self};
    json_t *pod;

    TD_TRY(delete_all(k, "pods", l->g.token, member, 0));
    TD_TRY(await_gone(k, l, member));
    TD_TRY(claim(k, &g));
    TD_TRY(td__kube_pod(&g, member, &pod));
    return create(k, "pods", pod);
}

/* Pods that have ended stay, with their status and output. */
static td_status signal_members(void *s, const td__launch *l, int member, td__track_signal what)
{
    cluster *k = s;
    json_t *found = NULL;
    td__seen seen;
    int m;

    if (what == TD_TRACK_RESTART)
        return restart(k, l, member);
    TD_TRY(list(k, "pods", l->g.token, &found));
    const json_t *items = json_object_get(found, "items");
    td_status st = TD_OK;
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *o = json_array_get(items, i);
        if (!td__kube_seen(o, &m, &seen) || (member >= 0 && m != member) ||
            seen.state == TD_SEEN_ENDED)
            continue;
        td_status one =
            delete (k, "pods", name_of(o), what == TD_TRACK_STOP ? l->spec->grace_s : 0);
        st = one ? one : st;
    }
    json_decref(found);
    return st;
}

static td_status output(void *s, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    cluster *k = s;
    char path[PATH] = "";
    json_t *found = NULL;
    td__seen seen;
    int m;

    TD_TRY(list(k, "pods", l->g.token, &found));
    const json_t *items = json_object_get(found, "items");
    for (size_t i = 0; i < json_array_size(items); i++)
        if (td__kube_seen(json_array_get(items, i), &m, &seen) && m == member)
            snprintf(path, sizeof path,
                     "/api/v1/namespaces/%s/pods/%s/log?container=" TD_KUBE_CONTAINER "&follow=%s",
                     k->namespace_, name_of(json_array_get(items, i)), follow ? "true" : "false");
    json_decref(found);
    if (!path[0])
        return TD_FAIL(TD_EINVAL, "member %d of %s has no pod", member, l->g.token);
    return td__kube_call(k->api, &(td__kube_request){.method = "GET",
                                                     .path = path,
                                                     .sink = sink,
                                                     .sink_user = user,
                                                     .limit_ms = follow ? 3600000 : 0});
}

typedef struct watcher {
    void (*changed)(void *user, const char *token);
    void *user;
    char version[64]; /* of what was seen last */
    bool expired;     /* the server has forgotten it: 410 */
} watcher;

static bool on_event(void *user, json_t *event)
{
    watcher *w = user;
    const json_t *object = json_object_get(event, "object"),
                 *meta = json_object_get(object, "metadata");
    const char *version = td__json_text(meta, "resourceVersion");
    const char *token = td__json_text(json_object_get(meta, "labels"), TD_KUBE_TOKEN);

    if (strcmp(td__json_text(event, "type"), "ERROR") == 0) {
        w->expired = true;
        return false;
    }
    if (version[0])
        snprintf(w->version, sizeof w->version, "%s", version);
    if (token[0] && strlen(token) < TD__TOKEN)
        w->changed(w->user, token);
    return true;
}

/* What there is now, as the point to watch from. */
static td_status begin_watch(cluster *k, watcher *w)
{
    char path[PATH];
    json_t *found = NULL;

    snprintf(path, sizeof path,
             "/api/v1/namespaces/%s/pods?labelSelector=" TD_KUBE_TOKEN "&limit=1", k->namespace_);
    TD_TRY(
        td__kube_call(k->api, &(td__kube_request){.method = "GET", .path = path, .out = &found}));
    snprintf(w->version, sizeof w->version, "%s",
             td__json_text(json_object_get(found, "metadata"), "resourceVersion"));
    json_decref(found);
    w->changed(w->user, NULL); /* what has happened until then */
    return TD_OK;
}

/* Streams end after WATCH_S and go on where they were, as bookmarks keep it recent; a version that
 * the server has forgotten ends the watch, and the next one begins with a look at everything. */
static td_status watch(void *s, void (*changed)(void *user, const char *token), void *user)
{
    cluster *k = s;
    watcher w = {.changed = changed, .user = user};
    char path[PATH];

    TD_TRY(begin_watch(k, &w));
    while (!w.expired) {
        td__json_lines lines = {.line = on_event, .user = &w};
        int status = 0;
        snprintf(path, sizeof path,
                 "/api/v1/namespaces/%s/pods?labelSelector=" TD_KUBE_TOKEN
                 "&watch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%s",
                 k->namespace_, WATCH_S, w.version);
        td_status st =
            td__kube_call(k->api, &(td__kube_request){.method = "GET",
                                                      .path = path,
                                                      .sink = td__json_lines_feed,
                                                      .sink_user = &lines,
                                                      .status = &status,
                                                      .limit_ms = WATCH_S * 1000 + 30000});
        td__json_lines_fini(&lines);
        if (status == 410)
            return TD_OK;
        if (st && !w.expired)
            return st;
    }
    return TD_OK;
}

static const td__cluster_ops OPS = {.open = open_cluster,
                                    .close = close_cluster,
                                    .stop = stop_cluster,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_members,
                                    .output = output,
                                    .forget = forget,
                                    .watch = watch,
                                    .fresh_output = true,
                                    .vanish = true};

extern const td__tracker_ops td__tracker_kubernetes;
TD_CLUSTER_TRACKER(kubernetes, "kubernetes", "pods of a Kubernetes cluster", OPS,
                   .own_capacity = true);
