/* kube_api.c -- requests to a Kubernetes API server (see kube_api.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/kube_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/file.h"
#include "remote/http_pool.h"
#include "service/track/command.h"
#include "service/track/json_io.h"
#include "service/track/kubeconfig.h"

enum { LIMIT_MS = 60000, EXEC_MS = 60000, FILE_S = 60, EARLY_S = 30, MOST_TOKEN = 1 << 20 };

struct td__kube {
    td__kubeconfig *config;
    td__http_pool *http;
    atomic_bool stopped;
    pthread_mutex_t lock; /* the token */
    td__text token;
    int64_t renew_at; /* seconds since 1970; 0: has none yet */
};

/* client-go hands the plug-in what it is asked for in a variable, and reads an ExecCredential. */
static td_status run_plugin(td__kube *k, td__arena *a, const char **token, const char **cert,
                            const char **key, int64_t *expires)
{
    const td__kubeconfig *c = k->config;
    td__text out = {0};
    const char *env[65] = {NULL};
    size_t n = 0;
    td_status st;

    char *info = td__arena_printf(a,
                                  "KUBERNETES_EXEC_INFO={\"apiVersion\":\"%s\",\"kind\":"
                                  "\"ExecCredential\",\"spec\":{\"interactive\":false}}",
                                  c->exec_version);
    while (n < 63 && c->exec_env[n]) {
        env[n] = c->exec_env[n];
        n++;
    }
    env[n] = info;
    TD_TRY_OR(st, done,
              td__command(&(td__command_opts){.argv = c->exec_argv,
                                              .env = env,
                                              .out = &out,
                                              .until = td__deadline_in_ms(EXEC_MS),
                                              .stop = &k->stopped},
                          NULL));
    st =
        td__kubeconfig_credential(a, out.data ? out.data : "", out.used, token, cert, key, expires);
done:
    td__text_fini(&out);
    return st;
}

static td_status read_token_file(td__kube *k)
{
    td__file_map m;

    TD_TRY(td__file_map_copy(&m, k->config->token_file, MOST_TOKEN));
    td__text_clear(&k->token);
    td__text_append(&k->token, (const char *)m.data, m.nbytes);
    td__file_map_close(&m);
    while (k->token.used && strchr("\r\n ", k->token.data[k->token.used - 1]))
        k->token.data[--k->token.used] = '\0';
    return td__text_status(&k->token);
}

/* With the lock held: a token that is good for a while. */
static td_status renew(td__kube *k)
{
    const char *token, *cert, *key;
    int64_t expires = 0, now = time(NULL);
    td__arena *a;
    td_status st;

    if (k->config->token_file) {
        k->renew_at = now + FILE_S; /* they are replaced while the service runs */
        return read_token_file(k);
    }
    if (!k->config->exec_argv) {
        k->renew_at = INT64_MAX;
        td__text_clear(&k->token);
        td__text_add(&k->token, k->config->token ? k->config->token : "");
        return td__text_status(&k->token);
    }
    TD_TRY(td__arena_create(&a));
    TD_TRY_OR(st, done, run_plugin(k, a, &token, &cert, &key, &expires));
    td__text_clear(&k->token);
    td__text_add(&k->token, token ? token : "");
    k->renew_at = expires ? expires - EARLY_S : INT64_MAX;
    st = td__text_status(&k->token);
done:
    td__arena_destroy(a);
    return st;
}

/* "Authorization: Bearer ..." into line, which stays empty for other credentials. */
static td_status authorize(td__kube *k, bool anew, td__text *line)
{
    td_status st = TD_OK;

    pthread_mutex_lock(&k->lock);
    if (anew || time(NULL) >= k->renew_at)
        st = renew(k);
    if (!st && k->token.used)
        td__text_printf(line, "Authorization: Bearer %s", k->token.data);
    pthread_mutex_unlock(&k->lock);
    return st ? st : td__text_status(line);
}

/* A plug-in may give a certificate instead of a token: it is asked once, before the clients are
 * made. */
static td_status plugin_certificate(td__kube *k, td__http_tls *tls)
{
    const char *token;
    int64_t expires;

    if (!k->config->exec_argv)
        return TD_OK;
    TD_TRY(run_plugin(k, k->config->arena, &token, &tls->cert_pem, &tls->key_pem, &expires));
    if (token) {
        td__text_add(&k->token, token);
        k->renew_at = expires ? expires - EARLY_S : INT64_MAX;
    }
    return TD_OK;
}

td_status td__kube_open(const char *config, const char *context, td__kube **out)
{
    td__kube *k = td__calloc(1, sizeof *k);
    td_status st;

    *out = NULL;
    if (!k)
        return TD_FAIL(TD_ENOMEM, "out of memory for a client of Kubernetes");
    pthread_mutex_init(&k->lock, NULL);
    TD_TRY_OR(st, fail, td__kubeconfig_find(config, context, &k->config));
    td__http_opts o = {.tls = k->config->tls, .attempts = 2};
    TD_TRY_OR(st, fail, plugin_certificate(k, &o.tls));
    TD_TRY_OR(st, fail, td__http_pool_create(&o, &k->http));
    *out = k;
    return TD_OK;
fail:
    td__kube_close(k);
    return st;
}

void td__kube_close(td__kube *k)
{
    if (!k)
        return;
    td__http_pool_destroy(k->http);
    td__kubeconfig_destroy(k->config);
    if (k->token.data)
        explicit_bzero(k->token.data, k->token.used);
    td__text_fini(&k->token);
    pthread_mutex_destroy(&k->lock);
    td__free(k);
}

void td__kube_stop(td__kube *k)
{
    atomic_store(&k->stopped, true);
    td__http_pool_stop(k->http);
}

td_status td__kube_pause(td__kube *k, uint64_t ms)
{
    td__http *h;

    TD_TRY(td__http_pool_take(k->http, &h));
    td_status st = td__http_pause(h, 1, ms, td__deadline_in_ms(2 * ms + 1000));
    td__http_pool_give(k->http, h);
    return st;
}

const char *td__kube_namespace(const td__kube *k)
{
    return k->config->namespace_;
}

static td_status attempt(td__kube *k, const td__kube_request *q, const char *url,
                         const td__text *body, bool anew, td__http_response *a)
{
    uint64_t limit = q->limit_ms ? q->limit_ms : LIMIT_MS;
    const char *headers[3] = {"Accept: application/json", "Content-Type: application/json"};
    td__text line = {0};
    td_status st;

    *a = (td__http_response){0};
    TD_TRY_OR(st, done, authorize(k, anew, &line));
    headers[2] = line.data;
    td__http_request h = {.method = q->method,
                          .url = url,
                          .headers = headers,
                          .n_headers = line.used ? 3 : 2,
                          .body = body->data,
                          .body_nbytes = body->used,
                          .sink = q->sink,
                          .sink_user = q->sink_user,
                          .max_body = 256u << 20,
                          .until = td__deadline_in_ms(limit),
                          .idle_ms = limit};
    st = td__http_pool_call(k->http, &h, a);
done:
    if (line.data)
        explicit_bzero(line.data, line.used);
    td__text_fini(&line);
    return st;
}

td_status td__kube_call(td__kube *k, const td__kube_request *q)
{
    const td__kubeconfig *c = k->config;
    td__http_response a = {0};
    td__text url = {0}, body = {0};
    td_status st;

    td__text_printf(&url, "%s%s", c->server, q->path);
    if (q->body)
        td__json_write(q->body, &body);
    TD_TRY_OR(st, done, td__text_status(&url));
    TD_TRY_OR(st, done, td__text_status(&body));
    st = attempt(k, q, url.data, &body, false, &a);
    if (st && a.status == 401 && (c->exec_argv || c->token_file)) { /* it expired */
        td__http_response_fini(&a);
        st = attempt(k, q, url.data, &body, true, &a);
    }
    if (q->status)
        *q->status = a.status;
    if (!st && q->out) {
        *q->out = a.body.used ? json_loadb(a.body.data, a.body.used, 0, NULL) : NULL;
        if (!*q->out)
            st = TD_FAIL(TD_EPROTO, "%s %s: the API server's answer is not JSON", q->method,
                         q->path);
    }
done:
    td__http_response_fini(&a);
    td__text_fini(&url);
    td__text_fini(&body);
    return st;
}
