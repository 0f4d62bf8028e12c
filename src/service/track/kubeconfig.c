/* kubeconfig.c -- reading kubeconfig files and what exec plug-ins print (see kubeconfig.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/kubeconfig.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fail.h"
#include "base/file.h"
#include "job/tree.h"
#include "service/track/json_io.h"

enum { MOST_BYTES = 16 << 20 }; /* of a file */

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

static const char *scalar(const td__tree *map, const char *key)
{
    const td__tree *t = map && map->kind == TD_TREE_MAP ? td__tree_get(map, key) : NULL;
    return t && t->kind == TD_TREE_SCALAR ? t->text : NULL;
}

/* The map `what` of the entry called `name` in the list. */
static td_status entry(const td__tree *root, const char *list_key, const char *what,
                       const char *name, const char *source, const td__tree **out)
{
    const td__tree *list = root->kind == TD_TREE_MAP ? td__tree_get(root, list_key) : NULL;

    *out = NULL;
    for (const td__tree *e = list && list->kind == TD_TREE_LIST ? list->first : NULL; e;
         e = e->next) {
        const char *this = scalar(e, "name");
        if (this && strcmp(this, name) == 0)
            *out = td__tree_get(e, what);
    }
    if (!*out || (*out)->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: there is no %s called '%s'", source, what, name);
    return TD_OK;
}

/* Base64 with padding or without; NULL: it is not. */
static const char *decode(td__arena *a, const char *text)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text), used = 0;
    char *out = td__arena_alloc(a, n / 4 * 3 + 4);
    uint32_t bits = 0;
    int have = 0;

    for (size_t i = 0; out && i < n; i++) {
        const char *digit = strchr(DIGITS, text[i]);
        if (text[i] == '=' || text[i] == '\n' || text[i] == ' ')
            continue;
        if (!digit || !text[i])
            return NULL;
        bits = bits << 6 | (uint32_t)(digit - DIGITS);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[used++] = (char)(bits >> have & 0xff);
        }
    }
    return out && memchr(out, '\0', used) ? NULL : out;
}

/* "key-data" as text, or "key" as a path, relative to the file's folder. */
static td_status pem(td__kubeconfig *k, const td__tree *map, const char *key, const char *source,
                     const char **text, const char **file)
{
    char data_key[64];
    snprintf(data_key, sizeof data_key, "%s-data", key);
    const char *data = scalar(map, data_key), *path = scalar(map, key);

    if (data && !(*text = decode(k->arena, data)))
        return TD_FAIL(TD_EINVAL, "%s: %s is not base64", source, data_key);
    if (!path)
        return TD_OK;
    const char *slash = strrchr(source, '/');
    *file = path[0] == '/' || !slash
                ? td__arena_strdup(k->arena, path)
                : td__arena_printf(k->arena, "%.*s/%s", (int)(slash - source), source, path);
    return *file ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for a kubeconfig");
}

/* The texts of a list, with room for one before them; NULL: out of memory. */
static const char **texts(td__arena *a, const td__tree *list, const char *first)
{
    size_t n = list && list->kind == TD_TREE_LIST ? (size_t)list->count : 0, used = 0;
    const char **out = td__arena_alloc(a, (n + 2) * sizeof *out);

    if (out && first)
        out[used++] = first;
    for (const td__tree *t = n ? list->first : NULL; out && t; t = t->next)
        if (t->kind == TD_TREE_SCALAR)
            out[used++] = t->text;
        else if (scalar(t, "name") && scalar(t, "value"))
            out[used++] = td__arena_printf(a, "%s=%s", scalar(t, "name"), scalar(t, "value"));
    return out;
}

static td_status read_exec(td__kubeconfig *k, const td__tree *exec, const char *source)
{
    const char *command = scalar(exec, "command");

    if (!command)
        return TD_FAIL(TD_EINVAL, "%s: the user's exec has no command", source);
    k->exec_version = scalar(exec, "apiVersion");
    if (!k->exec_version)
        k->exec_version = "client.authentication.k8s.io/v1";
    k->exec_argv = texts(k->arena, td__tree_get(exec, "args"), command);
    k->exec_env = texts(k->arena, td__tree_get(exec, "env"), NULL);
    return k->exec_argv && k->exec_env ? TD_OK
                                       : TD_FAIL(TD_ENOMEM, "out of memory for a kubeconfig");
}

static td_status read_user(td__kubeconfig *k, const td__tree *user, const char *source)
{
    TD_TRY(pem(k, user, "client-certificate", source, &k->tls.cert_pem, &k->tls.cert_file));
    TD_TRY(pem(k, user, "client-key", source, &k->tls.key_pem, &k->tls.key_file));
    k->token = scalar(user, "token");
    k->token_file = scalar(user, "tokenFile");
    const td__tree *exec = td__tree_get(user, "exec");
    if (exec && exec->kind == TD_TREE_MAP)
        TD_TRY(read_exec(k, exec, source));
    if (td__tree_get(user, "auth-provider"))
        return TD_FAIL(TD_ENOTSUP,
                       "%s: auth-provider was replaced by exec in Kubernetes 1.26; use "
                       "an exec plug-in",
                       source);
    return TD_OK;
}

static td_status read_cluster(td__kubeconfig *k, const td__tree *cluster, const char *source)
{
    const char *server = scalar(cluster, "server"), *insecure;
    size_t n = server ? strlen(server) : 0;

    if (!server || (strncmp(server, "https://", 8) != 0 && strncmp(server, "http://", 7) != 0))
        return TD_FAIL(TD_EINVAL, "%s: the cluster's server is not https://HOST", source);
    if (scalar(cluster, "tls-server-name") || scalar(cluster, "proxy-url"))
        return TD_FAIL(TD_ENOTSUP, "%s: tls-server-name and proxy-url are not supported", source);
    while (n > 0 && server[n - 1] == '/')
        n--;
    k->server = td__arena_printf(k->arena, "%.*s", (int)n, server);
    TD_TRY(pem(k, cluster, "certificate-authority", source, &k->tls.ca_pem, &k->tls.ca_file));
    insecure = scalar(cluster, "insecure-skip-tls-verify");
    k->tls.insecure = insecure && strcmp(insecure, "true") == 0;
    return k->server ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for a kubeconfig");
}

static td_status read_all(td__kubeconfig *k, const char *text, size_t nbytes, const char *source,
                          const char *context_name)
{
    const td__tree *context, *cluster, *user;
    td__tree *root;

    TD_TRY(td__tree_parse(k->arena, text, nbytes, source, true, &root));
    const char *name =
        context_name && context_name[0] ? context_name : scalar(root, "current-context");
    if (!name)
        return TD_FAIL(TD_EINVAL, "%s: no current-context; name one with kubernetes.context",
                       source);
    TD_TRY(entry(root, "contexts", "context", name, source, &context));
    const char *cluster_name = scalar(context, "cluster"), *user_name = scalar(context, "user");
    if (!cluster_name)
        return TD_FAIL(TD_EINVAL, "%s: context '%s' names no cluster", source, name);
    k->namespace_ = scalar(context, "namespace");
    TD_TRY(entry(root, "clusters", "cluster", cluster_name, source, &cluster));
    TD_TRY(read_cluster(k, cluster, source));
    if (!user_name)
        return TD_OK;
    TD_TRY(entry(root, "users", "user", user_name, source, &user));
    return read_user(k, user, source);
}

static td_status create(td__kubeconfig **out)
{
    td__kubeconfig *k = td__calloc(1, sizeof *k);

    *out = NULL;
    if (!k)
        return TD_FAIL(TD_ENOMEM, "out of memory for a kubeconfig");
    td_status st = td__arena_create(&k->arena);
    if (st)
        td__free(k);
    else
        *out = k;
    return st;
}

td_status td__kubeconfig_parse(const char *text, size_t nbytes, const char *source,
                               const char *context, td__kubeconfig **out)
{
    TD_TRY(create(out));
    td_status st = read_all(*out, text, nbytes, source, context);
    if (st) {
        td__kubeconfig_destroy(*out);
        *out = NULL;
    }
    return st;
}

static td_status load(const char *path, const char *context, td__kubeconfig **out)
{
    td__file_map m;

    TD_TRY(td__file_map_copy(&m, path, MOST_BYTES));
    td_status st = td__kubeconfig_parse((const char *)m.data, m.nbytes, path, context, out);
    td__file_map_close(&m);
    return st;
}

/* What a pod has: KUBERNETES_SERVICE_HOST and the files of its service account. */
static td_status in_cluster(td__kubeconfig **out)
{
    const char *host = td__env_get(TD_ENV_KUBERNETES_HOST),
               *port = td__env_get(TD_ENV_KUBERNETES_PORT);
    td__file_map m;

    *out = NULL;
    if (!host || !port)
        return TD_FAIL(TD_EINVAL, "not inside a cluster: %s is not set",
                       td__env_name(TD_ENV_KUBERNETES_HOST));
    TD_TRY(create(out));
    td__kubeconfig *k = *out;
    bool six = strchr(host, ':') != NULL;
    k->server =
        td__arena_printf(k->arena, "https://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port);
    k->tls.ca_file = ACCOUNT "ca.crt";
    k->token_file = ACCOUNT "token";
    if (access(ACCOUNT "namespace", R_OK) == 0 &&
        !td__file_map_copy(&m, ACCOUNT "namespace", MOST_BYTES)) {
        k->namespace_ = td__arena_printf(k->arena, "%.*s", (int)m.nbytes, (const char *)m.data);
        td__file_map_close(&m);
    }
    if (k->server)
        return TD_OK;
    td__kubeconfig_destroy(k);
    *out = NULL;
    return TD_FAIL(TD_ENOMEM, "out of memory for a kubeconfig");
}

/* KUBECONFIG may list files, as PATH does: the first that has the context, its cluster and its
 * user. Files that are not there do not count. */
static td_status load_first(const char *list, const char *context, td__kubeconfig **out)
{
    char path[4096];
    td_status st = TD_EINVAL;
    bool any = false;

    *out = NULL;
    for (const char *at = list; *at && st;) {
        size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        at += n + (at[n] == ':');
        if (!n || access(path, F_OK) != 0)
            continue;
        any = true;
        st = load(path, context, out);
    }
    return any ? st : TD_FAIL(TD_EINVAL, "KUBECONFIG: there is no file %s", list);
}

td_status td__kubeconfig_find(const char *path, const char *context, td__kubeconfig **out)
{
    char home[4096];

    if (path && path[0])
        return load(path, context, out);
    if (td__env_get(TD_ENV_KUBECONFIG))
        return load_first(td__env_get(TD_ENV_KUBECONFIG), context, out);
    if (td__env_get(TD_ENV_KUBERNETES_HOST))
        return in_cluster(out);
    const char *folder = td__env_get(TD_ENV_HOME);
    snprintf(home, sizeof home, "%s/.kube/config", folder ? folder : "");
    return load(home, context, out);
}

void td__kubeconfig_destroy(td__kubeconfig *k)
{
    if (!k)
        return;
    td__arena_destroy(k->arena);
    td__free(k);
}

/* "2026-11-16T10:00:00Z" as seconds since 1970; 0: not of that form. */
static int64_t seconds_of(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    return end && (*end == 'Z' || *end == '.' || *end == '+') ? timegm(&tm) : 0;
}

td_status td__kubeconfig_credential(td__arena *a, const char *json, size_t nbytes,
                                    const char **token, const char **cert, const char **key,
                                    int64_t *expires)
{
    json_t *o = json_loadb(json, nbytes, 0, NULL);
    const json_t *status = json_object_get(o, "status");
    const struct {
        const char *name, **to;
    } PARTS[] = {{"token", token}, {"clientCertificateData", cert}, {"clientKeyData", key}};
    bool any = false;

    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        const char *text = td__json_text(status, PARTS[i].name);
        *PARTS[i].to = text[0] ? td__arena_strdup(a, text) : NULL;
        any = any || *PARTS[i].to;
    }
    *expires = seconds_of(td__json_text(status, "expirationTimestamp"));
    json_decref(o);
    return any ? TD_OK
               : TD_FAIL(TD_EPROTO,
                         "the credential plug-in printed neither a token nor a certificate");
}
