/* api.c -- the servers of the HTTP API: one for each address of http.listen, all with the routes of
 * routes.def; and the dashboard's files, which are part of the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/http/api.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "service/http/api_impl.h"
#include "service/http/web_files.h"

enum {
    NO_RATE_LIMIT = 1000000,
    UPLOADS = 2, /* made durable at once */
};

static const td__httpd_route ROUTES[] = {
#define TD_ROUTE(method, path, scope, body, handler, summary, query) \
    {#method, path, TD_SCOPE_##scope, TD_HTTPD_##body, td__http_##handler, summary},
#include "service/http/routes.def"
#undef TD_ROUTE
    {0},
};

/* ---- the dashboard ---- */

static const char *type_of(const char *name)
{
    static const char *const TYPES[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < TD_LEN(TYPES); i++)
        if (strcmp(dot, TYPES[i][0]) == 0)
            return TYPES[i][1];
    return "application/octet-stream";
}

static void send_page(td__httpd_request *r, const char *name)
{
    for (const td__web_file *f = td__web_files; f->name; f++) {
        if (strcmp(f->name, name) != 0)
            continue;
        uint8_t digest[TD_SHA256_BYTES];
        char hex[TD_SHA256_HEX] = "", tag[TD_SHA256_HEX + 2];
        if (!td__sha256_of(f->data, *f->nbytes, digest))
            td__sha256_hex(digest, hex);
        snprintf(tag, sizeof tag, "\"%.32s\"", hex);
        const char *have = td__httpd_header(r, "If-None-Match");
        td__httpd_set(r, "Cache-Control", "no-cache"); /* asked again, but not sent again */
        td__httpd_set(r, "ETag", tag);
        if (have && strcmp(have, tag) == 0)
            td__httpd_reply(r, 304, type_of(name), &(td__text){0});
        else
            td__httpd_reply_static(r, type_of(name), f->data, *f->nbytes);
        return;
    }
    td__httpd_fail(r, 404, "there is no /%s", name);
}

void td__http_index_page(void *arg, td__httpd_request *r)
{
    (void)arg;
    send_page(r, "index.html");
}

void td__http_page_file(void *arg, td__httpd_request *r)
{
    (void)arg;
    send_page(r, td__httpd_param(r, "file"));
}

/* ---- tokens ---- */

td_status td__config_tokens(const td__service_config *c, td__tokens **out)
{
    td_status st = td__tokens_create(out);
    for (int i = 0; i < c->n_tokens && !st; i++) {
        const td__token_rule *t = &c->tokens[i];
        td__scope scope;
        st = td__scope_parse(t->scope, &scope)
                 ? td__tokens_add(*out, t->name, scope, t->sha256)
                 : TD_FAIL(TD_EINVAL,
                           "security.tokens: %s: unknown scope '%s' (known: read, submit, admin)",
                           t->name, t->scope);
    }
    if (st) {
        td__tokens_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* A job's own token is good for what it makes, and for its data set to be read. */
static bool identify_job(void *arg, const td__httpd_request *r, const td__httpd_route *route,
                         const char *token, char user[TD_HTTPD_USER], td__scope *scope)
{
    static const char *const OWN[] = {"/v1/jobs/{id}/metrics",
                                      "/v1/jobs/{id}/checkpoints/{name...}",
                                      "/v1/jobs/{id}/artifacts/{name...}"};
    const td__http_api *a = arg;
    const td__job_record *j = td__service_job_of_token(a->o.service, token);
    char number[16];

    if (!j)
        return false;
    snprintf(user, TD_HTTPD_USER, "%s", j->spec->user);
    snprintf(number, sizeof number, "%d", (int)j->id);
    for (int i = 0; i < TD_LEN(OWN); i++)
        if (!strcmp(route->path, OWN[i]) && !strcmp(td__httpd_param(r, "id"), number))
            *scope = TD_SCOPE_SUBMIT;
    const char *path = j->data_path ? j->data_path : "", *key = td__httpd_param(r, "key");
    size_t n = strlen(path);
    if (!strcmp(route->path, "/v1/buckets/{bucket}/{key...}") && route->scope == TD_SCOPE_READ &&
        j->data_bucket && *j->data_bucket &&
        !strcmp(td__httpd_param(r, "bucket"), j->data_bucket) && !strncmp(key, path, n) &&
        (!n || key[n] == '/'))
        *scope = TD_SCOPE_READ;
    return true;
}

/* ---- life ---- */

/* A folder for uploads under way, without what an earlier service left there. */
static td_status open_spool(td__http_api *a, const td__service_config *c)
{
    td__text path = {0};
    td__text_printf(&path, "%s/spool", c->data_dir);
    if (path.failed)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    a->spool = path.data;
    if (mkdir(a->spool, 0700) && errno != EEXIST)
        return TD_FAIL(TD_EIO, "cannot make %s: %s", a->spool, strerror(errno));
    DIR *dir = opendir(a->spool);
    struct dirent *e;
    while (dir && (e = readdir(dir)))
        if (strncmp(e->d_name, "upload-", 7) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    return TD_OK;
}

/* With a NULL at its end; NULL when out of memory. */
static const char **copy_list(const char *const *list, int n)
{
    const char **out = td__calloc((size_t)n + 1, sizeof *out);
    for (int i = 0; out && i < n; i++)
        out[i] = list[i];
    return out;
}

static td_status listen_all(td__http_api *a, const td__service_config *c, const char *cert,
                            const char *key)
{
    bool tokens = td__tokens_count(a->o.tokens) > 0;
    /* Whoever has no token reaches nothing but this machine: no limit unless one is asked for. */
    unsigned rate = c->rate_limit ? (unsigned)c->rate_limit : tokens ? 0 : NO_RATE_LIMIT;
    a->servers = td__calloc((size_t)c->n_http_listen + 1, sizeof *a->servers);
    a->hosts = copy_list(c->hosts, c->n_hosts);
    a->origins = copy_list(c->origins, c->n_origins);
    if (!a->servers || !a->hosts || !a->origins)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    for (int i = 0; i < c->n_http_listen; i++) {
        td__httpd_opts o = {.listen = c->http_listen[i],
                            .routes = ROUTES,
                            .arg = a,
                            .tokens = a->o.tokens,
                            .identify = identify_job,
                            .hosts = a->hosts,
                            .cert = cert,
                            .key = key,
                            .spool = a->spool,
                            .limits = {.body = (size_t)c->max_request,
                                       .requests_per_s = rate,
                                       .per_address = (unsigned)c->per_address,
                                       .idle_s = (unsigned)c->idle_timeout_s}};
        TD_TRY(td__httpd_create(td__service_loop(a->o.service), &o, &a->servers[i]));
        a->n_servers++;
    }
    return TD_OK;
}

static td_status read_pem(const char *path, td__text *out)
{
    td__file_map m;
    if (!*path)
        return TD_OK;
    TD_TRY(td__file_map_open(&m, path));
    td__text_append(out, (const char *)m.data, m.nbytes);
    td__file_map_close(&m);
    return td__text_status(out);
}

td_status td__http_api_create(const td__http_api_opts *o, td__http_api **out)
{
    const td__service_config *c = td__service_config_of(o->service);
    td__text cert = {0}, key = {0};
    td_status st;
    td__http_api *a = td__calloc(1, sizeof *a);
    *out = NULL;
    if (!a)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    a->o = *o;
    TD_TRY_OR(st, done, read_pem(c->tls_cert, &cert));
    TD_TRY_OR(st, done, read_pem(c->tls_key, &key));
    TD_TRY_OR(st, done, open_spool(a, c));
    TD_TRY_OR(st, done,
              td__work_threads_create(td__service_loop(o->service), UPLOADS, &a->workers));
    TD_TRY_OR(st, done, listen_all(a, c, cert.data, key.data));
    if (a->n_servers)
        td__service_listens_http(o->service, td__http_api_address(a, 0), *c->tls_cert);
    *out = a;
    a = NULL;
done:
    td__text_fini(&cert);
    td__text_fini(&key);
    td__http_api_destroy(a);
    return st;
}

void td__http_api_destroy(td__http_api *a)
{
    if (!a)
        return;
    td__work_threads_destroy(a->workers); /* answers what it has */
    for (int i = 0; i < a->n_servers; i++)
        td__httpd_destroy(a->servers[i]);
    td__free(a->servers);
    td__free(a->hosts);
    td__free(a->origins);
    td__free(a->spool);
    td__free(a);
}

const char *td__http_api_address(const td__http_api *a, int i)
{
    return i < a->n_servers ? td__httpd_address(a->servers[i]) : NULL;
}
