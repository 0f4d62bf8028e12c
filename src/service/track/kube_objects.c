/* kube_objects.c -- a group's objects in Kubernetes as JSON, and pods as what is seen of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/kube_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/spec.h"
#include "service/track/json_io.h"

#define JOB_FILE "job.yaml"

static json_t *owner(const td__kube_group *g)
{
    return json_pack("[{s:s, s:s, s:s, s:s}]", "apiVersion", "v1", "kind", "ConfigMap", "name",
                     g->owner, "uid", g->owner_uid);
}

static json_t *metadata(const td__kube_group *g, const char *name)
{
    char job[16];
    snprintf(job, sizeof job, "%d", (int)g->l->g.job);
    json_t *m = json_pack("{s:s, s:s, s:{s:s, s:s}}", "name", name, "namespace", g->namespace_,
                          "labels", TD_KUBE_TOKEN, g->l->g.token, "tandem-job", job);
    if (g->owner_uid[0])
        json_object_set_new(m, "ownerReferences", owner(g));
    return m;
}

json_t *td__kube_config_map(const td__kube_group *g)
{
    char members[16];
    snprintf(members, sizeof members, "%d", g->l->members);
    json_t *data = json_pack("{s:s, s:s}", "name", g->name, "members", members);
    if (g->l->spec->job_file[0])
        json_object_set_new(data, JOB_FILE, json_string(g->l->spec->job_file));
    return json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "ConfigMap", "metadata",
                     metadata(g, g->owner), "data", data);
}

static void pod_name(const td__kube_group *g, int member, char out[TD_KUBE_NAME + 32])
{
    if (member == 0)
        snprintf(out, TD_KUBE_NAME + 32, "%s-master", g->name);
    else
        snprintf(out, TD_KUBE_NAME + 32, "%s-worker-%d", g->name, member);
}

json_t *td__kube_service(const td__kube_group *g, bool headless)
{
    char name[TD_KUBE_NAME + 16], master[TD_KUBE_NAME + 32];

    snprintf(name, sizeof name, "%s-%s", g->name, headless ? "members" : "service");
    pod_name(g, 0, master);
    json_t *spec = json_pack("{s:[{s:s, s:i, s:i}], s:{s:s}}", "ports", "name", "master", "port",
                             TD__MASTER_PORT, "targetPort", TD__MASTER_PORT, "selector",
                             headless ? TD_KUBE_TOKEN : "app", headless ? g->l->g.token : master);
    if (headless) {
        json_object_set_new(spec, "clusterIP", json_string("None"));
        json_object_set_new(spec, "publishNotReadyAddresses", json_true());
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Service", "metadata",
                     metadata(g, name), "spec", spec);
}

/* Kubernetes replaces $(NAME) in values and arguments; $$( stands for $( itself. */
static json_t *literal(const char *text)
{
    td__text t = {0};
    for (const char *c = text; *c; c++) {
        if (c[0] == '$' && c[1] == '(')
            td__text_add(&t, "$");
        td__text_append(&t, c, 1);
    }
    json_t *j = json_string(t.data ? t.data : "");
    td__text_fini(&t);
    return j ? j : json_string("?"); /* not UTF-8 */
}

/* Who may read pods need not know it. A key of a Secret is a variable's name. */
static bool is_secret(const char *variable, size_t n)
{
    char name[128];

    if (n == 0 || n >= sizeof name ||
        strspn(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") < n)
        return false;
    memcpy(name, variable, n);
    name[n] = '\0';
    return td__secret_name(name);
}

/* Of those that all members share: what differs between them is no secret. */
static bool in_secret(const td__kube_group *g, const char *variable, size_t n)
{
    const char *const *shared = g->l->g.env;

    if (!is_secret(variable, n))
        return false;
    while (*shared && strncmp(*shared, variable, n + 1) != 0)
        shared++;
    return *shared != NULL;
}

static json_t *environment(const td__kube_group *g, const td__texts *texts)
{
    json_t *list = json_array();
    size_t at = 0;
    for (const char *v; (v = td__texts_next(texts->data, texts->used, &at));) {
        size_t n = strcspn(v, "=");
        json_t *from = in_secret(g, v, n) ? json_pack("{s:{s:s, s:s%}}", "secretKeyRef", "name",
                                                      g->owner, "key", v, n)
                                          : NULL;
        json_array_append_new(list, from ? json_pack("{s:s%, s:o}", "name", v, n, "valueFrom", from)
                                         : json_pack("{s:s%, s:o}", "name", v, n, "value",
                                                     literal(v[n] ? v + n + 1 : "")));
    }
    return list;
}

json_t *td__kube_secret(const td__kube_group *g)
{
    json_t *data = json_object();

    for (int i = 0; g->l->g.env[i]; i++) {
        const char *v = g->l->g.env[i];
        size_t n = strcspn(v, "=");
        if (is_secret(v, n) && json_object_setn_new(data, v, n, json_string(v[n] ? v + n + 1 : "")))
            json_object_setn_new(data, v, n, json_string("?")); /* not UTF-8 */
    }
    if (!json_object_size(data)) {
        json_decref(data);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Secret", "type",
                     "Opaque", "metadata", metadata(g, g->owner), "stringData", data);
}

static json_t *resources(const td__job_spec *s)
{
    json_t *limits = json_object(), *requests = json_object();
    char text[32];

    if (s->memory_mb > 0) {
        snprintf(text, sizeof text, "%lldMi", (long long)s->memory_mb);
        json_object_set_new(limits, "memory", json_string(text));
        json_object_set_new(requests, "memory", json_string(text));
    }
    if (s->gpus > 0)
        json_object_set_new(limits, "nvidia.com/gpu", json_integer(s->gpus));
    snprintf(text, sizeof text, "%d", s->slots);
    json_object_set_new(requests, "cpu", json_string(text));
    return json_pack("{s:o, s:o}", "limits", limits, "requests", requests);
}

/* pack: near the other pods of the group, so that it takes the fewest nodes; else far from them. */
static json_t *affinity(const td__launch *l)
{
    json_t *term = json_pack("[{s:i, s:{s:s, s:{s:{s:s}}}}]", "weight", 100, "podAffinityTerm",
                             "topologyKey", "kubernetes.io/hostname", "labelSelector",
                             "matchLabels", TD_KUBE_TOKEN, l->g.token);
    return json_pack("{s:{s:o}}", l->spec->pack ? "podAffinity" : "podAntiAffinity",
                     "preferredDuringSchedulingIgnoredDuringExecution", term);
}

static td_status placement(const td__kube_group *g, json_t *spec)
{
    const td__job_spec *s = g->l->spec;
    json_t *selector = json_object();

    for (int i = 0; i < s->node_selector.n; i++)
        json_object_set_new(selector, s->node_selector.at[i].key,
                            literal(s->node_selector.at[i].value));
    if (json_object_size(selector))
        json_object_set(spec, "nodeSelector", selector);
    json_decref(selector);
    if (s->affinity && s->affinity[0]) {
        json_t *own = json_loads(s->affinity, 0, NULL);
        if (!json_is_object(own)) {
            json_decref(own);
            return TD_FAIL(TD_EINVAL, "affinity: it is not a JSON object");
        }
        json_object_set_new(spec, "affinity", own);
    } else if (g->l->members > 1) {
        json_object_set_new(spec, "affinity", affinity(g->l));
    }
    return TD_OK;
}

/* The program in the image is called tandem, wherever it lies on this host. */
static json_t *arguments(const td__kube_group *g)
{
    const char *const *argv = g->l->g.command;
    json_t *list = json_array();
    for (int i = 0; argv[i]; i++)
        json_array_append_new(list, i == 0 && g->self && strcmp(argv[0], g->self) == 0
                                        ? json_string("tandem")
                                        : literal(argv[i]));
    return list;
}

static td_status set_command(const td__kube_group *g, const td__group_place *place, int member,
                             json_t *container)
{
    td__text script = {0};

    if (td__job_processes(g->l->spec) == 1) {
        if (g->l->g.command[0])
            json_object_set_new(container, "command", arguments(g));
        return TD_OK;
    }
    if (!g->l->g.command[0])
        return TD_FAIL(TD_EINVAL, "several processes in a pod need a command: key command or job");
    td_status st = td__launch_script(g->l, place, member, false, &script);
    if (!st) {
        json_object_set_new(container, "command",
                            json_pack("[s, s, o, s]", "/bin/sh", "-c", literal(script.data), "sh"));
        json_object_set_new(container, "args", arguments(g));
    }
    td__text_fini(&script);
    return st;
}

/* A job file is read, and its run written, at the paths of the service's host: the job's directory
 * is an empty one in the pod, with the file out of the ConfigMap. Results leave by
 * checkpoint.upload. */
static void mount_job(const td__kube_group *g, json_t *spec, json_t *container)
{
    td__text path = {0};

    if (!g->l->spec->job_file[0])
        return;
    td__text_printf(&path, "%s/" JOB_FILE, g->l->g.dir);
    json_object_set_new(spec, "volumes",
                        json_pack("[{s:s, s:{}}, {s:s, s:{s:s}}]", "name", "dir", "emptyDir",
                                  "name", "job", "configMap", "name", g->owner));
    json_object_set_new(container, "volumeMounts",
                        json_pack("[{s:s, s:s}, {s:s, s:s, s:s}]", "name", "dir", "mountPath",
                                  g->l->g.dir, "name", "job", "mountPath",
                                  path.data ? path.data : "", "subPath", JOB_FILE));
    td__text_fini(&path);
}

/* Where members find each other: by the headless service's names; the master by its own. */
static td_status make_place(const td__kube_group *g, td__arena *a, td__group_place *place)
{
    const char **hosts = td__arena_alloc(a, (size_t)g->l->members * sizeof *hosts);
    char *master = td__arena_printf(a, "%s-service.%s.svc.cluster.local", g->name, g->namespace_);

    for (int i = 0; hosts && i < g->l->members; i++)
        hosts[i] = td__arena_printf(a, "member-%d.%s-members.%s.svc.cluster.local", i, g->name,
                                    g->namespace_);
    if (!hosts || !master)
        return TD_FAIL(TD_ENOMEM, "out of memory for names of pods");
    *place = (td__group_place){.hosts = hosts, .master = master};
    return TD_OK;
}

td_status td__kube_pod(const td__kube_group *g, int member, json_t **out)
{
    char name[TD_KUBE_NAME + 32], number[16], text[TD_KUBE_NAME + 16];
    const td__launch *l = g->l;
    td__group_place place;
    td__texts env = {0};
    td__arena *a;
    td_status st;

    *out = NULL;
    pod_name(g, member, name);
    snprintf(number, sizeof number, "%d", member);
    json_t *container =
        json_pack("{s:s, s:s, s:[{s:i}], s:o}", "name", TD_KUBE_CONTAINER, "image", l->g.image,
                  "ports", "containerPort", TD__MASTER_PORT, "resources", resources(l->spec));
    json_t *spec = json_pack("{s:s, s:I, s:b, s:b}", "restartPolicy", "Never",
                             "terminationGracePeriodSeconds", (json_int_t)l->spec->grace_s,
                             "enableServiceLinks", 0, "automountServiceAccountToken", 0);
    TD_TRY_OR(st, done, td__arena_create(&a));
    TD_TRY_OR(st, done_arena, make_place(g, a, &place));
    TD_TRY_OR(st, done_arena, td__launch_env(l, &place, member, &env));
    TD_TRY_OR(st, done_arena, set_command(g, &place, member, container));
    TD_TRY_OR(st, done_arena, placement(g, spec));
    mount_job(g, spec, container);
    json_object_set_new(container, "env", environment(g, &env));
    json_object_set_new(spec, "containers", json_pack("[O]", container));
    if (l->members > 1) {
        snprintf(text, sizeof text, "member-%d", member);
        json_object_set_new(spec, "hostname", json_string(text));
        snprintf(text, sizeof text, "%s-members", g->name);
        json_object_set_new(spec, "subdomain", json_string(text));
    }
    json_t *meta = metadata(g, name), *labels = json_object_get(meta, "labels");
    json_object_set_new(labels, "app", json_string(name));
    json_object_set_new(labels, TD_KUBE_MEMBER, json_string(number));
    *out = json_pack("{s:s, s:s, s:o, s:O}", "apiVersion", "v1", "kind", "Pod", "metadata", meta,
                     "spec", spec);
    st = *out ? TD_OK : TD_FAIL(TD_EINVAL, "a pod's texts are not UTF-8");
done_arena:
    td__arena_destroy(a);
done:
    td__texts_fini(&env);
    json_decref(container);
    json_decref(spec);
    return st;
}

/* ---- pods as they are seen ---- */

/* The state of the container, "waiting" or "terminated"; NULL: not in that state. */
static const json_t *container_state(const json_t *status, const char *which)
{
    const json_t *list = json_object_get(status, "containerStatuses");
    return json_object_get(json_object_get(json_array_get(list, 0), "state"), which);
}

/* Why it does not run yet: its image, or no node that would take it. */
static void see_waiting(const json_t *status, td__seen *out)
{
    const json_t *waiting = container_state(status, "waiting");
    const char *reason = td__json_text(waiting, "reason"),
               *message = td__json_text(waiting, "message");
    const json_t *conditions = json_object_get(status, "conditions");

    out->state = TD_SEEN_WAITING;
    if (reason[0] && strcmp(reason, "ContainerCreating") != 0 &&
        strcmp(reason, "PodInitializing") != 0) {
        snprintf(out->text, sizeof out->text, "%.60s%s%.180s", reason, message[0] ? ": " : "",
                 message);
        out->hopeless =
            strcmp(reason, "InvalidImageName") == 0 || strcmp(reason, "ErrImageNeverPull") == 0;
        return;
    }
    for (size_t i = 0; i < json_array_size(conditions); i++) {
        const json_t *c = json_array_get(conditions, i);
        if (strcmp(td__json_text(c, "type"), "PodScheduled") == 0 &&
            strcmp(td__json_text(c, "status"), "False") == 0) {
            out->queued = true;
            snprintf(out->text, sizeof out->text, "%.60s: %.180s", td__json_text(c, "reason"),
                     td__json_text(c, "message"));
        }
    }
}

static void see_ended(const json_t *status, bool succeeded, td__seen *out)
{
    const json_t *end = container_state(status, "terminated");
    const json_t *code = json_object_get(end, "exitCode");
    const char *why = td__json_text(status, "reason"), *reason = td__json_text(end, "reason");

    out->state = TD_SEEN_ENDED;
    out->exit_status = json_is_integer(code) ? (int)json_integer_value(code) : succeeded ? 0 : -1;
    if (why[0]) { /* Evicted, NodeLost, Preempting: the pod's end was not its own */
        snprintf(out->text, sizeof out->text, "%.60s: %.180s", why,
                 td__json_text(status, "message"));
        out->exit_class = TD_EXIT_CLASS_LOST;
    } else if (reason[0] && strcmp(reason, "Completed") != 0 && strcmp(reason, "Error") != 0) {
        snprintf(out->text, sizeof out->text, "%.200s", reason); /* OOMKilled */
    }
}

bool td__kube_seen(const json_t *pod, int *member, td__seen *out)
{
    const json_t *status = json_object_get(pod, "status");
    const char *number =
        td__json_text(json_object_get(json_object_get(pod, "metadata"), "labels"), TD_KUBE_MEMBER);
    const char *phase = td__json_text(status, "phase");
    char *end;
    long m = strtol(number, &end, 10);

    if (!number[0] || *end || m < 0 || m > 1 << 20)
        return false;
    *member = (int)m;
    *out = (td__seen){.state = TD_SEEN_RUNNING};
    snprintf(out->host, sizeof out->host, "%s",
             td__json_text(json_object_get(pod, "spec"), "nodeName"));
    if (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0)
        see_ended(status, phase[0] == 'S', out);
    else if (strcmp(phase, "Running") != 0 && strcmp(phase, "Unknown") != 0)
        see_waiting(status, out);
    return true;
}
