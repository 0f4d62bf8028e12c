/* kubeconfig.h -- how to reach a Kubernetes API server and as whom: a kubeconfig file, or the files
 * that a pod finds inside its cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_KUBECONFIG_H
#define TD_SERVICE_TRACK_KUBECONFIG_H

#include "base/alloc.h"
#include "remote/http.h"

typedef struct td__kubeconfig {
    td__arena *arena;
    const char *server;     /* "https://host:port", without a '/' at its end */
    const char *namespace_; /* NULL: not said */
    td__http_tls tls;       /* of the server, and the client's certificate */
    const char *token, *token_file;
    /* A program that prints credentials (client-go's exec plug-in); NULL: none. */
    const char *const *exec_argv, *const *exec_env;
    const char *exec_version; /* client.authentication.k8s.io/v1 */
} td__kubeconfig;

/* context NULL or "": the current one. */
TD_NODISCARD td_status td__kubeconfig_parse(const char *text, size_t nbytes, const char *source,
                                            const char *context, td__kubeconfig **out);
/* path "" : inside a cluster what a pod has, else ~/.kube/config. */
TD_NODISCARD td_status td__kubeconfig_find(const char *path, const char *context,
                                           td__kubeconfig **out);
void td__kubeconfig_destroy(td__kubeconfig *k); /* NULL is allowed */

/* What an exec plug-in printed: token, certificate and key, into the arena; NULL where it has none.
 * *expires: seconds since 1970, 0: not said. */
TD_NODISCARD td_status td__kubeconfig_credential(td__arena *a, const char *json, size_t nbytes,
                                                 const char **token, const char **cert,
                                                 const char **key, int64_t *expires);

#endif
