/* client.c -- see client.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "job/keys.h"

enum {
    CALL_MS = 60000,
    IDLE_MS = 60000,
    PAUSES = 30,
    STREAM_MS = 24 * 3600 * 1000, /* then it is opened again */
};

#define DEFAULT_SERVER "http://127.0.0.1:6004"

typedef struct settings {
    const char *server, *token, *token_file, *ca;
} settings;

#define TO(member)                  \
    {                               \
        TD_OPTION(settings, member) \
    }
static const td__key KEYS[] = {
    TD_KEY_ROW("server", TEXT, "Address of the service.", .to = TO(server)),
    TD_KEY_ROW("token", TEXT, "Token for it.", .to = TO(token)),
    TD_KEY_ROW("token_file", TEXT, "File that holds the token.", .to = TO(token_file)),
    TD_KEY_ROW("ca", TEXT, "Certificates to trust, PEM.", .to = TO(ca)), TD_KEYS_END};

/* ---- settings ---- */

/* Secrets of others are not for us, and ours not for others. */
static td_status check_private(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return TD_FAIL(TD_EINVAL, "cannot read %s: %s", path, strerror(errno));
    if (st.st_mode & 077)
        return TD_FAIL(TD_EINVAL, "%s holds a token and can be read by others: chmod 600 %s", path,
                       path);
    return TD_OK;
}

static td_status read_settings(td__arena *arena, const char *path, settings *s)
{
    td__file_map m;
    td__tree *given, *root;
    td_status st;
    TD_TRY(td__file_map_open(&m, path));
    st = td__tree_parse(arena, (const char *)m.data, m.nbytes, path, true, &given);
    td__file_map_close(&m);
    TD_TRY(st);
    if (given->kind == TD_TREE_NULL)
        return TD_OK;
    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: expected a map of keys", path);
    TD_TRY(td__keys_resolve(arena, KEYS, "", given, given, &root));
    for (const td__key *k = KEYS; k->path; k++)
        if (td__keys_node(root, k->path))
            TD_TRY(td__key_fill(arena, k, td__keys_node(root, k->path), s));
    return s->token ? check_private(path) : TD_OK;
}

static td_status find_settings(td__arena *arena, settings *s)
{
    const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
    char path[4096];
    if (config && *config)
        snprintf(path, sizeof path, "%s/tandem/client.yaml", config);
    else
        snprintf(path, sizeof path, "%s/.config/tandem/client.yaml", home ? home : "");
    return access(path, F_OK) ? TD_OK : read_settings(arena, path, s);
}

static td_status read_token(td__arena *arena, const char *path, const char **out)
{
    td__file_map m;
    TD_TRY(check_private(path));
    TD_TRY(td__file_map_open(&m, path));
    char *token = td__arena_printf(arena, "%.*s", (int)m.nbytes, (const char *)m.data);
    td__file_map_close(&m);
    if (!token)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    token[strcspn(token, " \t\r\n")] = 0;
    if (!*token)
        return TD_FAIL(TD_EINVAL, "%s holds no token", path);
    *out = token;
    return TD_OK;
}

static td_status resolve(td__client *c, td__arena *arena)
{
    const char *server = td__args_value(c->args, "server");
    const char *token = NULL, *file = td__args_value(c->args, "token-file");
    settings s = {0};
    TD_TRY(find_settings(arena, &s));
    if (!server)
        server = getenv("TANDEM_SERVER");
    if (!server || !*server)
        server = s.server && *s.server ? s.server : DEFAULT_SERVER;
    if (!file) {
        token = getenv("TANDEM_TOKEN");
        if (!token || !*token)
            token = s.token;
        if ((!token || !*token) && s.token_file && *s.token_file)
            file = s.token_file;
    }
    if (file)
        TD_TRY(read_token(arena, file, &token));
    if (strncmp(server, "http://", 7) != 0 && strncmp(server, "https://", 8) != 0)
        return TD_FAIL(TD_EINVAL, "'%s' is not an address: expected http://HOST:PORT or https://",
                       server);
    td__text text = {0}, header = {0};
    td__text_add(&text, server);
    while (text.used && text.data[text.used - 1] == '/')
        text.data[--text.used] = 0;
    c->server = text.data;
    if (token && *token) {
        td__text_printf(&header, "Authorization: Bearer %s", token);
        c->authorization = header.data;
    }
    TD_TRY(td__text_status(&text));
    TD_TRY(td__text_status(&header));
    return td__http_create(&(td__http_opts){.tls = {.ca_file = s.ca}, .idle_ms = IDLE_MS},
                           &c->http);
}

int td__client_open(const td__args *a, td__client *c)
{
    td__arena *arena;
    *c = (td__client){.args = a};
    td_status st = td__arena_create(&arena);
    if (!st) {
        st = resolve(c, arena);
        td__arena_destroy(arena);
    }
    return st ? td__failure(a, st) : TD_EXIT_OK;
}

void td__client_close(td__client *c)
{
    td__http_destroy(c->http);
    td__free(c->server);
    td__free(c->authorization);
    *c = (td__client){0};
}

/* ---- calls ---- */

/* Prints what the service, or the way to it, had to say. */
static int refused(td__client *c, td_status st, const td__http_response *r)
{
    json_error_t error;
    if (st == TD_EPEER || (st && !r->status)) {
        td__usage_error(
            c->args,
            "cannot reach the service at %s; is `tandem serve` running there? (--server, "
            "TANDEM_SERVER or ~/.config/tandem/client.yaml name another one)",
            c->server);
        return TD_EXIT_FAILED;
    }
    if (st)
        return td__failure(c->args, st);
    json_t *o = r->body.data ? json_loads(r->body.data, 0, &error) : NULL;
    const char *message = td__client_text(json_object_get(o, "error"), "message");
    if (*message)
        td__usage_error(c->args, "%s", message);
    else
        td__usage_error(c->args, "%s answers with status %d: is it a training service?", c->server,
                        r->status);
    json_decref(o);
    return r->status >= 500 ? TD_EXIT_FAILED : TD_EXIT_USAGE;
}

typedef struct request {
    td__text url;
    const char *headers[3];
    td__http_request q;
} request;

static void prepare(td__client *c, const char *method, const char *path, const char *header,
                    request *r)
{
    *r = (request){0};
    td__text_add(&r->url, c->server);
    td__text_add(&r->url, path);
    if (c->authorization)
        r->headers[r->q.n_headers++] = c->authorization;
    if (header)
        r->headers[r->q.n_headers++] = header;
    r->q.method = method;
    r->q.url = r->url.data;
    r->q.headers = r->headers;
    r->q.until = td__deadline_in_ms(CALL_MS);
}

static int perform(td__client *c, request *r, json_t **out)
{
    td__http_response answer;
    int rc = TD_EXIT_OK;
    td_status st = td__http_perform(c->http, &r->q, &answer);
    if (st || answer.status >= 300) {
        rc = refused(c, st, &answer);
    } else if (out) {
        *out = json_loads(answer.body.data ? answer.body.data : "", 0, NULL);
        if (!*out) {
            td__usage_error(c->args, "%s does not answer with JSON: is it a training service?",
                            c->server);
            rc = TD_EXIT_FAILED;
        }
    }
    td__http_response_fini(&answer);
    td__text_fini(&r->url);
    return rc;
}

int td__client_call_with(td__client *c, const char *method, const char *path, const char *header,
                         const json_t *body, json_t **out)
{
    request r;
    if (out)
        *out = NULL;
    prepare(c, method, path, header, &r);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (text) {
        r.headers[r.q.n_headers++] = "Content-Type: application/json";
        r.q.body = text;
        r.q.body_nbytes = strlen(text);
    }
    int rc = perform(c, &r, out);
    free(text);
    return rc;
}

int td__client_call(td__client *c, const char *method, const char *path, const json_t *body,
                    json_t **out)
{
    return td__client_call_with(c, method, path, NULL, body, out);
}

int td__client_upload(td__client *c, const char *path, int fd, uint64_t nbytes, json_t **out)
{
    request r;
    prepare(c, "PUT", path, "Content-Type: application/octet-stream", &r);
    r.q.body_fd = fd;
    r.q.body_nbytes = (size_t)nbytes;
    r.q.until = td__deadline_in_ms(STREAM_MS); /* as long as bytes move */
    return perform(c, &r, out);
}

bool td__client_pause(td__client *c, int tries)
{
    return tries < PAUSES && !td__http_pause(c->http, tries + 1, 0, td__deadline_in_ms(CALL_MS));
}

int td__client_stream(td__client *c, const char *path, td__http_sink sink, void *arg, bool *broken)
{
    request r;
    td__http_response answer;
    int rc = TD_EXIT_OK;
    prepare(c, "GET", path, NULL, &r);
    r.q.sink = sink;
    r.q.sink_user = arg;
    r.q.until = td__deadline_in_ms(STREAM_MS);
    if (broken)
        *broken = false;
    td_status st = td__http_perform(c->http, &r.q, &answer);
    /* A stream that was open before is opened again also while the service is being restarted. */
    bool lost = (st == TD_EPEER || st == TD_ETIMEDOUT) && (answer.status >= 200 || c->streamed);
    lost |= c->streamed && !st && answer.status == 503;
    c->streamed |= answer.status == 200;
    if (st == TD_EABORTED)
        rc = TD_EXIT_OK; /* the sink has enough */
    else if (lost && broken)
        *broken = true;
    else if (st || answer.status >= 300)
        rc = refused(c, st, &answer);
    td__http_response_fini(&answer);
    td__text_fini(&r.url);
    return rc;
}

/* ---- small things ---- */

int td__client_job(const td__args *a, const char *text)
{
    int64_t id;
    if (td__parse_int(text, &id) && id > 0 && id <= INT32_MAX)
        return (int)id;
    td__usage_error(a, "expected the number of a job, found '%s'; tandem jobs lists them", text);
    return 0;
}

const char *td__client_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

int64_t td__json_whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

void td__url_append(td__text *t, const char *s, bool slashes)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     strchr("-._~", c) || (c == '/' && slashes);
        if (plain)
            td__text_append(t, s, 1);
        else
            td__text_printf(t, "%%%02X", c);
    }
}
