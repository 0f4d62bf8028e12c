/* config.h -- the service's configuration: one YAML file, every key a row of config.def.
 *
 * The book's properties file (environment variable APP_CONFIG) is read too, where there is no
 * YAML file: each of its properties is a row of properties in config_book.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_CONFIG_H
#define TD_SERVICE_CONFIG_H

#include "base/key.h"
#include "service/job.h"

/* A token that opens the service to a client: its sha256, never itself. */
typedef struct td__token_rule {
    const char *name;   /* the user */
    const char *sha256; /* 64 hexadecimal digits */
    const char *scope;  /* read, submit, admin */
} td__token_rule;

typedef struct td__quota_rule {
    const char *user;
    int64_t slots, gpus, memory_mb, queued;
    double weight;
} td__quota_rule;

typedef struct td__service_config {
    td__arena *arena;
#define TD_LIST(name)        \
    const char *const *name; \
    int n_##name
    TD_LIST(grpc_listen);
    TD_LIST(http_listen);
    TD_LIST(hosts);     /* http.hosts: names that the Host header may have */
    TD_LIST(origins);   /* http.origins: other sites whose pages may call it */
    TD_LIST(env_allow); /* names, or prefixes that end with *, of variables that clients may set */
    TD_LIST(ssh_hosts);
#undef TD_LIST
    const char *grpc_advertise, *http_advertise;
    const char *data_dir;
    const char *tls_cert, *tls_key;
    const char *tracker;    /* the default one */
    const char *store_sync; /* full, normal */
    bool compat_strict, allow_code, open;
    int64_t max_request, rate_limit, max_streams, per_address, idle_timeout_s;
    /* Capacity and scheduling. 0: what this machine has. */
    int64_t slots, gpus, memory_mb, max_queued, max_launching, max_pending;
    double half_life_s; /* of past usage in fair share */
    int64_t starve_s;   /* a job that has waited so long is reserved for: nobody overtakes it */
    int64_t preempt_s;  /* a job waits so long before it preempts others; -1: never */
    int64_t keep_s;     /* finished jobs are deleted after; 0: never */
    int64_t launch_timeout_s;
    int64_t keep_ended_s; /* what ended attempts left where they ran; -1: until the job is deleted,
                         -2: as the tracker says */
    /* Data sets and models. */
    const char *data_service, *metadata_service; /* HOST:PORT; "": the embedded ones */
    const char *model_bucket, *data_bucket;
    const char *artifacts_url, *checkpoints_url, *s3_endpoint, *s3_access_key, *s3_secret_key;
    const char *image_format; /* of an algorithm without an image: orca3/{algorithm} */
    const char *name_format;  /* of containers and pods */
    /* Trackers. */
    const char *docker_socket, *docker_network, *docker_pull;
    const char *kube_config, *kube_namespace, *kube_context;
    const char *slurm_partition, *slurm_account, *slurm_dir;
    const char *ssh_command, *ssh_program, *ssh_dir;
    /* Lists of maps. */
    const td__token_rule *tokens;
    int n_tokens;
    const td__quota_rule *quotas;
    int n_quotas;
} td__service_config;

extern const td__key td__config_keys[]; /* ends with a path of NULL */

/* path NULL: defaults alone. sets: "path=value", as of jobs. */
TD_NODISCARD td_status td__config_load(const char *path, const char *const *sets, int n_sets,
                                       td__service_config **out);
/* The book's properties file. */
TD_NODISCARD td_status td__config_load_book(const char *path, const char *const *sets, int n_sets,
                                            td__service_config **out);
void td__config_destroy(td__service_config *c); /* NULL is allowed */

#endif
