/* group_env.c -- the environment of a group's processes; see group_env.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/group_env.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/config.h"
#include "launch/rank_env.h"

/* "HOST:PORT" of every process into the arena; NULL: out of memory. */
static const char *const *worker_addresses(td__arena *a, const td__group *g,
                                           const td__group_place *p)
{
    int each = td__job_processes(g->spec), size = g->spec->members * each;
    const char **list = td__arena_alloc(a, (size_t)size * sizeof *list);

    for (int r = 0; list && r < size; r++) {
        const char *host = p->hosts ? p->hosts[r / each] : "127.0.0.1";
        int port =
            p->master_port ? p->master_port + 1 + r : TD__WORKER_PORT + (p->hosts ? r % each : r);
        list[r] = td__arena_printf(a, "%s:%d", host, port);
        if (!list[r])
            return NULL;
    }
    return list;
}

bool td__framework_meets(const char *framework)
{
    return !strcmp(framework, "tandem") || !strcmp(framework, "horovod") ||
           !strcmp(framework, "mpi");
}

void td__process_env(const td__group *g, const td__group_place *p, int member, int process,
                     td__texts *out)
{
    int each = td__job_processes(g->spec), members = g->spec->members;
    const char *first = p->hosts ? p->hosts[0] : "127.0.0.1";
    char master[300];
    td__arena *a = NULL;

    snprintf(master, sizeof master, "%.255s:%d", p->master ? p->master : first,
             p->master_port ? p->master_port : TD__MASTER_PORT);
    if (td__arena_create(&a)) {
        out->failed = true;
        return;
    }
    td__world_place w = {.rank = member * each + process,
                         .size = members * each,
                         .local_rank = p->hosts ? process : member * each + process,
                         .local_size = p->hosts ? each : members * each,
                         .node = p->hosts ? member : 0,
                         .cross_rank = p->hosts ? member : 0,
                         .cross_size = p->hosts ? members : 1,
                         .host = p->hosts ? p->hosts[member] : "localhost",
                         .worker = p->workers ? p->workers : worker_addresses(a, g, p),
                         .master = master};
    if (!strcmp(g->spec->framework, "tandem") && w.size > 1)
        td__texts_add(out, "%s=%s", td__env_name(TD_ENV_STORE), master);
    else if (td__framework_meets(g->spec->framework) && w.size > 1) /* master's is the program's */
        td__texts_add(out, "%s=%s:%d", td__env_name(TD_ENV_STORE), first,
                      (p->master_port ? p->master_port : TD__MASTER_PORT) - 1);
    if (w.worker)
        td__world_env(&w, g->spec->framework, out);
    else
        out->failed = true;
    td__arena_destroy(a);
}

/* Do jobs of the tracker reach this host's loopback addresses? */
static bool is_here(const td__service_config *c, const char *tracker)
{
    return !strcmp(tracker, "process") ||
           (!strcmp(tracker, "docker") && !strcmp(c->docker_network, "host"));
}

static void advertise(const char *given, const char *listens, bool here, char out[TD_ADDRESS_BYTES])
{
    const char *port = strrchr(listens, ':');
    char host[TD_ADDRESS_BYTES] = "127.0.0.1";
    bool any = !strncmp(listens, "0.0.0.0:", 8) || !strncmp(listens, "[::]:", 5);

    snprintf(out, TD_ADDRESS_BYTES, "%s", *given ? given : listens);
    if (*given || !any)
        return;
    if (!here)
        td__socket_own_host(host);
    if (td__socket_join(host, port + 1, out)) /* it is too long: what can be had */
        snprintf(out, TD_ADDRESS_BYTES, "%s", listens);
}

void td__advertised(const td__service_config *c, const char *listens, const char *tracker,
                    char out[TD_ADDRESS_BYTES])
{
    advertise(c->grpc_advertise, listens, is_here(c, tracker), out);
}

bool td__advertised_http(const td__service_config *c, const char *listens, const char *tracker,
                         char out[TD_ADDRESS_BYTES])
{
    bool loopback = !strncmp(listens, "127.", 4) || !strncmp(listens, "localhost:", 10) ||
                    !strncmp(listens, "[::1]:", 6);

    advertise(c->http_advertise, listens, is_here(c, tracker), out);
    return *c->http_advertise || !loopback || is_here(c, tracker);
}

/* The variables of the book's training container, and ours for files and checkpoints. */
static void add_job(const td__service_config *c, const td__job_record *r, const char *grpc,
                    const char *dir, const char *checkpoints, td__texts *out)
{
    const td__job_spec *s = r->spec;

    td__texts_add(out, "JOB_ID=%d", r->id);
    td__texts_add(out, "ALGORITHM_NAME=%s", s->algorithm);
    td__texts_add(out, "METADATA_STORE_SERVER=%s",
                  *c->metadata_service ? c->metadata_service : grpc);
    td__texts_add(out, "TRAINING_DATASET_ID=%s", s->dataset_id);
    td__texts_add(out, "TRAINING_DATASET_VERSION_HASH=%s", s->train_data_version_hash);
    td__texts_add(out, "MODEL_BUCKET=%s", c->model_bucket);
    td__texts_add(out, "MODEL_NAME=%s", s->output_model_name);
    td__texts_add(out, "MINIO_SERVER=%s", c->s3_endpoint);
    td__texts_add(out, "MINIO_SERVER_ACCESS_KEY=%s", c->s3_access_key);
    td__texts_add(out, "MINIO_SERVER_SECRET_KEY=%s", c->s3_secret_key);
    if (*c->s3_endpoint) { /* for programs that know S3 rather than the book */
        td__texts_add(out, "AWS_ENDPOINT_URL=%s%s", strstr(c->s3_endpoint, "://") ? "" : "http://",
                      c->s3_endpoint);
        td__texts_add(out, "AWS_ACCESS_KEY_ID=%s", c->s3_access_key);
        td__texts_add(out, "AWS_SECRET_ACCESS_KEY=%s", c->s3_secret_key);
    }
    td__texts_add(out, "TRAINING_DATA_BUCKET=%s", r->data_bucket ? r->data_bucket : "");
    td__texts_add(out, "TRAINING_DATA_PATH=%s", r->data_path ? r->data_path : "");
    if (!strcmp(s->framework, "mpi")) { /* slots are the service's to count; root is no accident */
        td__texts_add(out, "OMPI_ALLOW_RUN_AS_ROOT=1");
        td__texts_add(out, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
        td__texts_add(out, "OMPI_MCA_rmaps_base_oversubscribe=1");
        td__texts_add(out, "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe");
    }
    td__texts_add(out, "TANDEM_JOB_NAME=%s", s->name);
    td__texts_add(out, "TANDEM_ATTEMPT=%d", r->attempt);
    if (*s->checkpoint || checkpoints)
        td__texts_add(out, "TANDEM_CHECKPOINT_URL=%s",
                      *s->checkpoint ? s->checkpoint : checkpoints);
    else
        td__texts_add(out, "TANDEM_CHECKPOINT_URL=file://%s/checkpoints", dir);
    td__texts_add(out, "TANDEM_ARTIFACTS_DIR=%s/artifacts", dir);
    if (*c->artifacts_url)
        td__texts_add(out, "TANDEM_ARTIFACTS_URL=%s/%d", c->artifacts_url, r->id);
    td__texts_add(out, "TANDEM_METRICS_FILE=%s/metrics.jsonl", dir);
}

/* tandem's own runs have their parameters in the job file: of the environment they get only what
 * the service's owner has named. */
static void add_allowed(const td__service_config *c, const td__pairs *p, bool parameter,
                        bool tandem, td__texts *out)
{
    for (int i = 0; i < p->n; i++)
        if (td__env_check(c, p->at[i].key, parameter) == TD_ANSWER_OK &&
            (!tandem || td__env_allowed(c, p->at[i].key)))
            td__texts_add(out, "%s=%s", p->at[i].key, p->at[i].value);
}

void td__job_env(const td__service_config *c, const td__job_record *r, const char *grpc,
                 const char *dir, const char *checkpoints, bool tandem, td__texts *out)
{
    if (r->spec->slots > 0)
        td__texts_add(out, "OMP_NUM_THREADS=%d", r->spec->slots);
    add_allowed(c, &r->spec->parameters, true, tandem, out);
    add_allowed(c, &r->spec->env, false, tandem, out);
    add_job(c, r, grpc, dir, checkpoints, out);
}

static bool is_name(const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

    return *name && !name[n] && !isdigit((unsigned char)name[0]) && n < 200;
}

/* Does a pattern of the list fit? "NAME", "PREFIX*", "*_SUFFIX". */
static bool in_list(const char *const *list, int n, const char *name, int flags)
{
    for (int i = 0; i < n; i++)
        if (fnmatch(list[i], name, flags) == 0)
            return true;
    return false;
}

bool td__env_allowed(const td__service_config *c, const char *name)
{
    return in_list(c->env_allow, c->n_env_allow, name, 0);
}

td__answer td__env_check(const td__service_config *c, const char *name, bool parameter)
{
    /* What decides which code is run, or loaded into it. */
    static const char *const NEVER[] = {
        "PATH",
        "LD_*",
        "DYLD_*",
        "IFS",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "PYTHON*",
        "PERL*",
        "RUBY*",
        "NODE_*",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "GCONV_PATH",
        "GETCONF_DIR",
        "HOME",
        "SHELL",
        "LOCPATH",
        "NLSPATH",
        "TZDIR",
        "MALLOC_*",
        "GLIBC_*",
        "OMPI_MCA_*",
        "OPAL_*",
        "PRTE_*",
        "PMIX_*",
        "HYDRA_*",
        "I_MPI_HYDRA_*",
        "UCX_*",
        "GIT_*",
        "SSH_*",
        "TANDEM_*",
        "HOSTALIASES",
        "LOCALDOMAIN",
        "NIS_PATH",
        "RES_OPTIONS",
        "RESOLV_HOST_CONF",
        "TMPDIR",
        "OPENSSL_*",
        "SSL_*",
        "GNUTLS_*",
        "CURL_*",
        "NETRC",
        "CUDA_INJECTION*",
        "NVTX_INJECTION*",
        "NCCL_*PLUGIN*",
        "NCCL_CONF_FILE",
        "OMP_TOOL*",
    };
    /* What a hyper-parameter is called. An allow-list: whatever a name outside of it may mean to
     * some program, it is not set by who may only submit. */
    static const char *const PARAMETERS[] = {
        "[A-Z]",      "[A-Z][0-9]", "LR",        "LEARNING_RATE", "*_LR",
        "*_RATE",     "BATCH",      "BATCH_*",   "*_BATCH",       "*_SIZE",
        "EPOCH",      "EPOCHS",     "*_EPOCHS",  "STEPS",         "*_STEPS",
        "ITERATIONS", "SEED",       "*_SEED",    "*_DIM",         "DIM",
        "HIDDEN",     "HIDDEN_*",   "LAYERS",    "*_LAYERS",      "*_HEADS",
        "HEADS",      "WIDTH",      "DEPTH",     "DROPOUT",       "DROPOUT_*",
        "*_DROPOUT",  "MOMENTUM",   "WEIGHT_*",  "*_DECAY",       "DECAY",
        "BETA",       "BETA[0-9]",  "GAMMA",     "ALPHA",         "LAMBDA",
        "TAU",        "EPS",        "EPSILON",   "TEMPERATURE",   "WARMUP",
        "WARMUP_*",   "OPTIMIZER",  "OPTIM",     "LOSS",          "LOSS_*",
        "ACTIVATION", "SCHEDULE",   "SCHEDULER", "SCHEDULE_*",    "NUM_*",
        "N_*",        "MAX_*",      "MIN_*",     "PARAM_*",       "HP_*",
        "CLIP",       "CLIP_*",     "PATIENCE",  "SMOOTHING",     "PRECISION",
        "VOCAB_*",    "MARGIN",     "NOISE",     "NCCL_DEBUG",    "PARALLEL_INSTANCES",
    };
    /* What decides whom it talks to, and as whom: only where the service's owner has said so. */
    static const char *const GUARDED[] = {"*_PROXY", "AWS_*", "KUBE*", "AZURE_*", "GOOGLE_*"};
    /* What the service says itself. */
    static const char *const OURS[] = {
        "JOB_ID",
        "ALGORITHM_NAME",
        "METADATA_STORE_SERVER",
        "TRAINING_*",
        "MODEL_BUCKET",
        "MODEL_NAME",
        "MINIO_*",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
        "TF_CONFIG",
        "HOROVOD_*",
        "OMPI_COMM_WORLD_*",
        "OMPI_UNIVERSE_SIZE",
        "PMI_*",
        "CUDA_VISIBLE_DEVICES",
    };
    const char *what = parameter ? "parameters" : "env";

    if (!is_name(name))
        return td__answer_fail(TD_ANSWER_INVALID, "%s: '%.64s' is not the name of a variable", what,
                               name);
    if (in_list(NEVER, TD_LEN(NEVER), name, 0))
        return td__answer_fail(TD_ANSWER_DENIED,
                               "%s: %s decides which code is run and cannot be set by a job", what,
                               name);
    if (in_list(OURS, TD_LEN(OURS), name, 0))
        return td__answer_fail(TD_ANSWER_DENIED, "%s: %s is set by the service", what, name);
    bool known = parameter && in_list(PARAMETERS, TD_LEN(PARAMETERS), name, 0);
    bool guarded = in_list(GUARDED, TD_LEN(GUARDED), name, FNM_CASEFOLD);
    if (td__env_allowed(c, name) || (!guarded && (known || c->allow_code)))
        return TD_ANSWER_OK;
    if (parameter)
        return td__answer_fail(TD_ANSWER_DENIED,
                               "parameters: %s is not the name of a hyper-parameter that everybody "
                               "may set (LR, EPOCHS, *_SIZE, PARAM_* and so on), and not in "
                               "security.env_allow of the service",
                               name);
    return td__answer_fail(TD_ANSWER_DENIED, "%s: %s is not in security.env_allow of the service",
                           what, name);
}
