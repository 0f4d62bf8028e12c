/* rank_env.c -- what frameworks expect in the environment of a rank.
 *
 * Ours, torchrun's, TensorFlow's, Horovod's and Open MPI's variables, all saying the same. What
 * programs of these ask their launcher for is in foreign/. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/rank_env.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"

/* The kernel refuses single variables of 128 KB and more. */
enum { MAX_VARIABLE = 100 << 10 };

/* The roles of the ranks of p; `all`: where it names none. */
static const td__roles *roles_of(const td__world_place *p, td__roles *all)
{
    if (p->roles)
        return p->roles;
    *all = (td__roles){.role = {{.name = "worker", .count = p->size}}, .n = 1};
    return all;
}

/* {"cluster": {"chief": ["a:1"], "worker": ["a:2", ...]}, "task": {"type": "worker", "index": 3}};
 * TensorFlow wants an evaluator to be outside the cluster that it evaluates. */
static void add_tf_config(const td__world_place *p, td__texts *out)
{
    td__roles all;
    const td__roles *roles = roles_of(p, &all);
    const td__role *mine = td__roles_of(roles, p->rank), *role;
    size_t need = 128 + TD_ROLES * (TD_ROLE_NAME + 8), at;
    for (int r = 0; r < p->size; r++)
        need += strlen(p->worker[r]) + 4;
    char *text = need < MAX_VARIABLE ? td__malloc(need) : NULL;
    if (!text)
        return; /* so many workers are not for TensorFlow */
    const char *comma = "";
    at = (size_t)snprintf(text, need, "{\"cluster\": {");
    for (int i = 0; i < roles->n; i++) {
        role = &roles->role[i];
        if (!strcmp(role->name, "evaluator"))
            continue;
        at += (size_t)snprintf(text + at, need - at, "%s\"%s\": [", comma, role->name);
        comma = ", ";
        for (int r = 0; r < role->count; r++)
            at += (size_t)snprintf(text + at, need - at, "%s\"%s\"", r ? ", " : "",
                                   p->worker[role->first + r]);
        at += (size_t)snprintf(text + at, need - at, "]");
    }
    snprintf(text + at, need - at, "}, \"task\": {\"type\": \"%s\", \"index\": %d}}", mine->name,
             p->rank - mine->first);
    td__texts_add(out, "TF_CONFIG=%s", text);
    td__free(text);
}

typedef struct family {
    const char *rank, *size, *local_rank, *local_size;
} family;

static void add_family(const family *f, const td__world_place *p, td__texts *out)
{
    td__texts_add(out, "%s=%d", f->rank, p->rank);
    td__texts_add(out, "%s=%d", f->size, p->size);
    td__texts_add(out, "%s=%d", f->local_rank, p->local_rank);
    td__texts_add(out, "%s=%d", f->local_size, p->local_size);
}

static void add_pytorch(const td__world_place *p, td__texts *out)
{
    static const family TORCH = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    const char *colon = strrchr(p->master, ':');
    int master = colon ? (int)(colon - p->master) : (int)strlen(p->master);

    add_family(&TORCH, p, out);
    td__texts_add(out, "MASTER_ADDR=%.*s", master, p->master);
    td__texts_add(out, "MASTER_PORT=%s", colon ? colon + 1 : "");
    td__texts_add(out, "GROUP_RANK=%d", p->node);
    td__roles all;
    const td__role *role = td__roles_of(roles_of(p, &all), p->rank);
    td__texts_add(out, "ROLE_NAME=%s", p->roles ? role->name : "default"); /* torchrun's word */
    td__texts_add(out, "ROLE_RANK=%d", p->rank - role->first);
    td__texts_add(out, "ROLE_WORLD_SIZE=%d", role->count);
}

static void add_horovod(const td__world_place *p, td__texts *out)
{
    static const family HOROVOD = {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK",
                                   "HOROVOD_LOCAL_SIZE"};

    add_family(&HOROVOD, p, out);
    td__texts_add(out, "HOROVOD_CROSS_RANK=%d", p->cross_rank);
    td__texts_add(out, "HOROVOD_CROSS_SIZE=%d", p->cross_size);
    td__texts_add(out, "HOROVOD_HOSTNAME=%s", p->host);
}

static void add_mpi(const td__world_place *p, td__texts *out)
{
    static const family OPEN_MPI = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

    add_family(&OPEN_MPI, p, out);
    td__texts_add(out, "OMPI_COMM_WORLD_NODE_RANK=%d", p->local_rank);
    td__texts_add(out, "OMPI_UNIVERSE_SIZE=%d", p->size);
}

static void add_tandem(const td__world_place *p, td__texts *out)
{
    static const family OURS = {"TANDEM_RANK", "TANDEM_SIZE", "TANDEM_LOCAL_RANK",
                                "TANDEM_LOCAL_SIZE"};

    add_family(&OURS, p, out);
}

void td__world_env(const td__world_place *p, const char *framework, td__texts *out)
{
    static const struct {
        const char *name;
        void (*add)(const td__world_place *p, td__texts *out);
    } FRAMEWORKS[] = {{"pytorch", add_pytorch},
                      {"tensorflow", add_tf_config},
                      {"horovod", add_horovod},
                      {"mpi", add_mpi}};
    enum { N = sizeof FRAMEWORKS / sizeof FRAMEWORKS[0] };
    size_t known = 0;

    if (framework && strcmp(framework, "tandem") == 0) { /* Open MPI's would say that it began us */
        add_tandem(p, out);
        add_pytorch(p, out);
        return;
    }
    while (known < N && (!framework || strcmp(framework, FRAMEWORKS[known].name) != 0))
        known++;
    for (size_t i = 0; i < N; i++)
        if (i == 0 || known == N || i == known)
            FRAMEWORKS[i].add(p, out);
}

void td__world_find(const td__hosts *hosts, int host, int local_rank, td__world_place *out)
{
    const td__host *h = &hosts->host[host];
    *out = (td__world_place){.rank = h->first + local_rank,
                             .size = hosts->size,
                             .local_rank = local_rank,
                             .local_size = h->count,
                             .node = host,
                             .host = h->name};
    /* Across hosts: those that have a rank of this local number. */
    for (int i = 0; i < hosts->n; i++)
        if (hosts->host[i].count > local_rank) {
            out->cross_rank += i < host;
            out->cross_size++;
        }
}

void td__rank_env(const td__rank_plan *p, int rank, td__texts *out)
{
    td__world_place w;
    td__world_find(p->hosts, p->host, rank - p->hosts->host[p->host].first, &w);
    w.worker = p->worker;
    w.master = p->master;
    add_tandem(&w, out);
    td__texts_add(out, "%s=%s", td__env_name(TD_ENV_STORE), p->store);
    w.roles = p->roles->n > 1 || strcmp(p->roles->role[0].name, "worker") != 0 ? p->roles : NULL;
    td__texts_add(out, "TORCHELASTIC_RESTART_COUNT=%u", p->failures);
    td__texts_add(out, "TORCHELASTIC_MAX_RESTARTS=%u", p->restarts);
    td__texts_add(out, "TORCHELASTIC_RUN_ID=%s", p->job);
    td__texts_add(out,
                  "TORCHELASTIC_USE_AGENT_STORE=False"); /* rank 0 has the one at MASTER_PORT */
    td__texts_add(out, "GROUP_WORLD_SIZE=%d", p->hosts->n);
    td__world_env(&w, NULL, out);
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return !strncmp(a, b, n) && b[n] == '=';
}

char **td__rank_environ(char *const *base, const td__texts *texts)
{
    size_t n = 0, at = 0;
    const char *text;
    if (texts->failed)
        return NULL;
    while (base[n])
        n++;
    size_t room = n + 1, used = 0;
    while (td__texts_next(texts->data, texts->used, &at))
        room++;
    char **out = td__calloc(room, sizeof *out);
    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++)
        out[used++] = base[i];
    for (at = 0; (text = td__texts_next(texts->data, texts->used, &at));) {
        size_t i = 0;
        while (i < used && !same_name(text, out[i]))
            i++;
        out[i] = (char *)(uintptr_t)text;
        used += i == used;
    }
    return out;
}
