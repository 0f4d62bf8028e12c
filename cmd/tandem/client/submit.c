/* submit.c -- `tandem submit`: a job, a command or a sweep to a training service. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/human.h"
#include "client/client.h"
#include "client/watch.h"
#include "job/keys.h"
#include "service/json_tree.h"

/* Flags that are keys of the spec: flag, section, key. */
static const struct {
    const char *flag, *section, *key;
    bool number;
} KEYS[] = {
    {"name", NULL, "name", false},
    {"algorithm", NULL, "algorithm", false},
    {"image", NULL, "image", false},
    {"tracker", NULL, "tracker", false},
    {"framework", NULL, "framework", false},
    {"user", NULL, "user", false},
    {"priority", NULL, "priority", true},
    {"members", "resources", "members", true},
    {"slots", "resources", "slots", true},
    {"gpus", "resources", "gpus", true},
    {"memory", "resources", "memory_mb", true},
    {"retries", "retries", "max", true},
    {"deadline", NULL, "deadline_s", true},
    {"time-limit", NULL, "time_limit_s", true},
};

static json_t *section(json_t *spec, const char *name)
{
    json_t *o = name ? json_object_get(spec, name) : spec;
    if (!o) {
        o = json_object();
        json_object_set_new(spec, name, o);
    }
    return o;
}

/* A tree of YAML as JSON: scalars stay texts, which the service reads as its keys ask. */
static json_t *tree_json(const td__tree *t)
{
    json_t *o = NULL;
    switch (t->kind) {
    case TD_TREE_NULL: return json_null();
    case TD_TREE_SCALAR: return json_string(t->text);
    case TD_TREE_LIST:
        o = json_array();
        for (const td__tree *k = t->first; k; k = k->next)
            json_array_append_new(o, tree_json(k));
        return o;
    case TD_TREE_MAP:
        o = json_object();
        for (const td__tree *k = t->first; k; k = k->next)
            json_object_set_new(o, k->key, tree_json(k));
        return o;
    }
    return o;
}

/* A file of YAML or JSON; NULL: a line was printed. */
static json_t *read_map(const td__args *a, const char *path, int *rc)
{
    td__file_map m;
    td__arena *arena;
    td__tree *t;
    json_t *o = NULL;
    td_status st = td__arena_create(&arena);
    if (!st) {
        st = td__file_map_open(&m, path);
        if (!st) {
            st = td__json_or_yaml(arena, (const char *)m.data, m.nbytes, path, &t);
            td__file_map_close(&m);
        }
        if (!st && t->kind == TD_TREE_MAP)
            o = tree_json(t);
        else if (!st)
            *rc = td__usage_error(a, "%s: expected a map of keys", path);
        td__arena_destroy(arena);
    }
    if (st)
        *rc = td__failure(a, st);
    return o;
}

/* The job file's text, after a look that it is one. */
static int add_job_file(const td__args *a, const char *path, json_t *spec)
{
    td__file_map m;
    td_status st = td__file_map_open(&m, path);
    if (st)
        return td__failure(a, st);
    json_t *text = json_stringn((const char *)m.data, m.nbytes);
    td__file_map_close(&m);
    if (!text)
        return td__usage_error(a, "%s is not a text", path);
    json_object_set_new(spec, "job", text);
    return TD_EXIT_OK;
}

static int add_pairs(const td__args *a, const char *flag, const char *key, json_t *spec)
{
    const char *const *values;
    int n = td__args_values(a, flag, &values);
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(values[i], '=');
        if (!equals || equals == values[i])
            return td__usage_error(a, "--%s %s: expected NAME=VALUE", flag, values[i]);
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(equals - values[i]), values[i]);
        json_object_set_new(section(spec, key), name, json_string(equals + 1));
    }
    return TD_EXIT_OK;
}

static int add_flags(const td__args *a, json_t *spec)
{
    const char *const *sets;
    int n = td__args_values(a, "set", &sets), rc = TD_EXIT_OK;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const char *value = td__args_value(a, KEYS[i].flag);
        int64_t number;
        if (!value)
            continue;
        if (KEYS[i].number && !td__parse_int(value, &number))
            return td__usage_error(a, "--%s %s: expected a whole number", KEYS[i].flag, value);
        json_object_set_new(section(spec, KEYS[i].section), KEYS[i].key,
                            KEYS[i].number ? json_integer(number) : json_string(value));
    }
    for (int i = 0; i < n; i++) {
        if (!json_object_get(spec, "sets"))
            json_object_set_new(spec, "sets", json_array());
        json_array_append_new(json_object_get(spec, "sets"), json_string(sets[i]));
    }
    rc = add_pairs(a, "label", "labels", spec);
    if (!rc)
        rc = add_pairs(a, "env", "env", spec);
    return rc ? rc : add_pairs(a, "param", "parameters", spec);
}

static bool job_file(const char *arg)
{
    const char *dot = strrchr(arg, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* Positional arguments: a job file, or a command. */
static int add_what(const td__args *a, json_t *spec)
{
    int n = td__args_count(a);
    if (n == 1 && job_file(td__args_at(a, 0)))
        return add_job_file(a, td__args_at(a, 0), spec);
    if (n) {
        json_t *command = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(command, json_string(td__args_at(a, i)));
        json_object_set_new(spec, "command", command);
    } else if (!json_object_get(spec, "job") && !json_object_get(spec, "command") &&
               !json_object_get(spec, "algorithm")) {
        return td__usage_error(a, "expected a job file, a command after --, --algorithm or --spec");
    }
    return TD_EXIT_OK;
}

static int submit_sweep(td__client *c, const char *path, json_t *spec)
{
    int rc = TD_EXIT_OK;
    json_t *answer = NULL, *sweep = read_map(c->args, path, &rc);
    if (!sweep)
        return rc;
    if (json_object_size(spec))
        json_object_set(sweep, "spec", spec);
    rc = td__client_call(c, "POST", "/v1/sweeps", sweep, &answer);
    if (!rc)
        printf("sweep %lld: %lld trials, %lld queued\n", (long long)td__json_whole(answer, "id"),
               (long long)td__json_whole(answer, "total"),
               (long long)json_array_size(json_object_get(answer, "trials")));
    json_decref(sweep);
    json_decref(answer);
    return rc;
}

static int submit_job(td__client *c, const json_t *spec)
{
    const char *key = td__args_value(c->args, "key");
    td__text header = {0};
    json_t *answer = NULL;
    if (key)
        td__text_printf(&header, "Idempotency-Key: %s", key);
    int rc = td__client_call_with(c, "POST", "/v1/jobs", header.data, spec, &answer);
    int job = (int)td__json_whole(answer, "id");
    td__text_fini(&header);
    json_decref(answer);
    if (rc)
        return rc;
    if (td__args_has(c->args, "json"))
        printf("{\"id\": %d}\n", job);
    else
        printf("job %d\n", job);
    fflush(stdout);
    return td__args_has(c->args, "watch") ? td__watch_job(c, job) : TD_EXIT_OK;
}

static int run(const td__args *a)
{
    td__client c = {0};
    int rc = TD_EXIT_OK;
    const char *path = td__args_value(a, "spec"), *sweep = td__args_value(a, "sweep");
    json_t *spec = path ? read_map(a, path, &rc) : json_object();
    if (!spec)
        return rc;
    rc = add_flags(a, spec);
    if (!rc && !(sweep && !td__args_count(a)))
        rc = add_what(a, spec);
    if (!rc)
        rc = td__client_open(a, &c);
    if (!rc)
        rc = sweep ? submit_sweep(&c, sweep, spec) : submit_job(&c, spec);
    td__client_close(&c);
    json_decref(spec);
    return rc;
}

static const td__flag FLAGS[] = {
    {"set", 0, "KEY=VALUE", "override a key of the job file; may be repeated", NULL},
    {"spec", 0, "FILE", "file with keys of the submission (docs/service.md)", "FILE"},
    {"sweep", 0, "FILE", "try many values: file with keys of a sweep", "FILE"},
    {"name", 0, "NAME", "name of the job", NULL},
    {"algorithm", 0, "NAME", "algorithm: one that is shipped, or an image", NULL},
    {"param", 0, "NAME=VALUE", "hyper-parameter of an algorithm; may be repeated", NULL},
    {"env", 0, "NAME=VALUE", "environment variable, where the service allows it", NULL},
    {"label", 0, "NAME=VALUE", "label to find the job by; may be repeated", NULL},
    {"image", 0, "IMAGE", "container image", NULL},
    {"tracker", 0, "NAME", "where to run", "process docker kubernetes slurm ssh"},
    {"framework", 0, "NAME", "environment that the program expects",
     "tandem pytorch tensorflow horovod mpi none"},
    {"user", 0, "NAME", "owner, where it is not the token's (admins)", NULL},
    {"priority", 0, "N", "higher is launched first", NULL},
    {"members", 'n', "N", "processes that start together", NULL},
    {"slots", 0, "N", "processor cores of each member", NULL},
    {"gpus", 0, "N", "GPUs of each member", NULL},
    {"memory", 0, "MIB", "memory of each member", NULL},
    {"retries", 0, "N", "further attempts after a failure", NULL},
    {"deadline", 0, "SECONDS", "must have ended so long after submission", NULL},
    {"time-limit", 0, "SECONDS", "running time of one attempt", NULL},
    {"key", 0, "KEY", "idempotency key: the same key gives the same job", NULL},
    {"watch", 'w', NULL, "follow the job until it ends", NULL},
    {"json", 0, NULL, "print JSON", NULL},
    TD_CLIENT_FLAGS,
    {0},
};

static const char *const EXAMPLES[] = {"tandem submit job.yaml --set train.epochs=5 --watch",
                                       "train a job file on the service, and follow it",
                                       "tandem submit -n 2 --framework pytorch -- python3 train.py",
                                       "two processes of a PyTorch program",
                                       "tandem submit job.yaml --sweep sweep.yaml",
                                       "try many values of its keys",
                                       NULL};

const td__command td__command_submit = {
    .name = "submit",
    .args = "[JOB.yaml | -- COMMAND ...]",
    .summary = "submit a job to a training service",
    .text =
        "The service (`tandem serve`) queues the job, runs it when there is room, and keeps its "
        "log, metrics and artifacts. A job is a job file as of `tandem train`, a command, or an "
        "algorithm with parameters. Prints its number, by which jobs, logs, watch and cancel "
        "know it.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .max_args = -1,
    .run = run,
};
