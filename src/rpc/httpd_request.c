/* httpd_request.c -- one request: what is checked before its handler runs, its body, its answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rpc/httpd_impl.h"

/* The word that stands for a status in errors. */
static const struct {
    unsigned status;
    const char *code;
} CODES[] = {
    {400, "invalid_argument"},   {401, "unauthenticated"},    {403, "permission_denied"},
    {404, "not_found"},          {405, "method_not_allowed"}, {409, "failed_precondition"},
    {411, "length_required"},    {413, "too_large"},          {415, "unsupported_media_type"},
    {429, "resource_exhausted"}, {500, "internal"},           {501, "unimplemented"},
    {503, "unavailable"},        {504, "deadline_exceeded"},
};

static const char *code_of(unsigned status)
{
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++)
        if (CODES[i].status == status)
            return CODES[i].code;
    return status < 500 ? "invalid_argument" : "internal";
}

/* ---- what the handler asks ---- */

const char *td__httpd_param(const td__httpd_request *r, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < r->n_params; i++)
        if (strncmp(r->params[i].name, name, n) == 0 && strcspn(r->params[i].name, ".}") == n)
            return r->params[i].value;
    return "";
}

const char *td__httpd_query(const td__httpd_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->conn->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *td__httpd_header(const td__httpd_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->conn->mhd, MHD_HEADER_KIND, name);
}

td__identity td__httpd_identity(const td__httpd_request *r)
{
    return r->caller;
}

const char *td__httpd_body(const td__httpd_request *r, size_t *nbytes)
{
    *nbytes = r->body.used;
    return r->body.data ? r->body.data : "";
}

const char *td__httpd_upload(const td__httpd_request *r, uint64_t *nbytes, const char **sha256)
{
    *nbytes = r->upload.nbytes;
    *sha256 = r->upload.hex;
    return r->upload.path;
}

/* ---- answers ---- */

void td__httpd_set(td__httpd_request *r, const char *name, const char *value)
{
    if (r->n_headers == TD__HTTPD_HEADERS)
        return;
    r->headers[r->n_headers].name = td__strdup(name);
    r->headers[r->n_headers++].value = td__strdup(value);
}

void td__httpd_answer(td__httpd_request *r, unsigned status, const char *type,
                      struct MHD_Response *response)
{
    static const char *const ALWAYS[][2] = {
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"},
    };
    bool cached = false;
    if (r->answered) {
        if (response)
            MHD_destroy_response(response);
        return;
    }
    r->answered = true;
    r->status = status;
    r->answer = response;
    if (response) {
        for (size_t i = 0; i < sizeof ALWAYS / sizeof *ALWAYS; i++)
            MHD_add_response_header(response, ALWAYS[i][0], ALWAYS[i][1]);
        if (type)
            MHD_add_response_header(response, "Content-Type", type);
        for (int i = 0; i < r->n_headers; i++)
            if (r->headers[i].name && r->headers[i].value) {
                MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
                cached |= strcasecmp(r->headers[i].name, "Cache-Control") == 0;
            }
        if (!cached)
            MHD_add_response_header(response, "Cache-Control", "no-store");
    }
    r->h->counters.errors += status >= 500;
    if (!r->handled)
        return; /* refused: answered in the callback that is under way */
    *(r->prev ? &r->prev->next : &r->h->waiting) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    r->next = r->h->ready;
    r->h->ready = r;
    td__httpd_wake(r->h);
}

void td__httpd_reply(td__httpd_request *r, unsigned status, const char *type, td__text *body)
{
    struct MHD_Response *response = NULL;
    if (!body->failed)
        response = MHD_create_response_from_buffer(body->used, body->used ? body->data : "",
                                                   MHD_RESPMEM_MUST_COPY);
    r->h->counters.bytes_out += body->used;
    td__text_fini(body);
    td__httpd_answer(r, status, type, response);
}

void td__httpd_reply_json(td__httpd_request *r, unsigned status, td__text *body)
{
    td__httpd_reply(r, status, "application/json", body);
}

void td__httpd_reply_static(td__httpd_request *r, const char *type, const void *data, size_t nbytes)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(nbytes, (void *)(uintptr_t)data, MHD_RESPMEM_PERSISTENT);
    r->h->counters.bytes_out += nbytes;
    td__httpd_answer(r, 200, type, response);
}

void td__httpd_reply_file(td__httpd_request *r, const char *type, int fd, uint64_t nbytes)
{
    struct MHD_Response *response = MHD_create_response_from_fd64(nbytes, fd);
    if (!response)
        close(fd);
    r->h->counters.bytes_out += nbytes;
    td__httpd_answer(r, 200, type, response);
}

static void fail_text(td__httpd_request *r, unsigned status, const char *message)
{
    td__text t = {0};
    td__text_add(&t, "{\"error\":{\"code\":");
    td__text_json(&t, code_of(status));
    td__text_add(&t, ",\"message\":");
    td__text_json(&t, message);
    td__text_add(&t, "}}\n");
    td__httpd_reply_json(r, status, &t);
}

void td__httpd_fail(td__httpd_request *r, unsigned status, const char *fmt, ...)
{
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    fail_text(r, status, message);
}

/* ---- before the handler ---- */

static bool find_route(td__httpd_request *r, const char *method)
{
    bool head = strcmp(method, "HEAD") == 0, other = false;
    char allow[64] = "";
    for (const td__httpd_route *at = r->h->o.routes; at->method; at++) {
        bool same = strcmp(at->method, head ? "GET" : method) == 0;
        if (same && td__httpd_match(at->path, r->path, r->params, &r->n_params)) {
            r->route = at;
            return true;
        }
        char *copy = same ? NULL : td__strdup(r->path);
        if (copy && td__httpd_match(at->path, copy, r->params, &r->n_params)) {
            size_t used = strlen(allow);
            if (!strstr(allow, at->method))
                snprintf(allow + used, sizeof allow - used, "%s%s", used ? ", " : "", at->method);
            other = true;
        }
        td__free(copy);
    }
    if (other) {
        td__httpd_set(r, "Allow", allow);
        td__httpd_fail(r, 405, "%s is not possible here, %s is", method, allow);
    } else {
        td__httpd_fail(r, 404, "there is no %s", r->path);
    }
    return false;
}

static uint64_t most_bytes(const td__httpd_request *r)
{
    return r->route->body == TD_HTTPD_NO_BODY ? 0
           : r->route->body == TD_HTTPD_FILE  ? r->h->limits.upload
                                              : r->h->limits.body;
}

static bool upload_open(td__httpd_request *r)
{
    td__text path = {0};
    td__text_printf(&path, "%s/upload-%d-%llu", r->h->o.spool ? r->h->o.spool : "", (int)getpid(),
                    (unsigned long long)r->h->uploads++);
    r->upload.fd = -1;
    if (!path.failed && r->h->o.spool && !td__sha256_init(&r->upload.hash)) {
        r->upload.path = path.data;
        r->upload.fd = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        path = (td__text){0};
    }
    td__text_fini(&path);
    return r->upload.fd >= 0;
}

static void identify(td__httpd_request *r)
{
    const td__httpd_opts *o = &r->h->o;
    const char *said = td__httpd_header(r, "Authorization");

    r->caller = td__tokens_identify(o->tokens, said);
    if (r->caller.scope != TD_SCOPE_NONE || !o->identify || !said ||
        strncasecmp(said, "Bearer ", 7) != 0)
        return;
    td__scope scope = TD_SCOPE_NONE;
    if (o->identify(o->arg, r, r->route, said + 7 + strspn(said + 7, " "), r->user, &scope))
        r->caller = (td__identity){.user = r->user, .scope = scope};
}

/* May the request go on to its handler? If not, it is answered. */
static bool admit(td__httpd_request *r, const char *method)
{
    td__httpd *h = r->h;
    const union MHD_ConnectionInfo *client =
        MHD_get_connection_info(r->conn->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *host = td__httpd_header(r, "Host"), *origin = td__httpd_header(r, "Origin");
    const char *type = td__httpd_header(r, "Content-Type");
    const char *length = td__httpd_header(r, "Content-Length");
    bool chunked = td__httpd_header(r, "Transfer-Encoding") != NULL;
    unsigned long long announced = length ? strtoull(length, NULL, 10) : 0;
    h->counters.requests++;
    if (!td__rates_take(h->rates, client ? client->client_addr : NULL, td__clock_ns())) {
        td__httpd_set(r, "Retry-After", "1");
        td__httpd_fail(r, 429, "more than %u requests a second; try again later",
                       h->limits.requests_per_s);
    } else if (!td__guard_host(host, h->o.hosts)) {
        td__httpd_fail(r, 403,
                       "this server is not called '%s' (http.hosts in its configuration lists its "
                       "names)",
                       host ? host : "");
    } else if (origin && !td__guard_origin(origin, host, h->o.origins)) {
        td__httpd_fail(r, 403,
                       "pages of %s may not call this server (http.origins lists those that may)",
                       origin);
    } else if (!td__httpd_path_ok(r->path)) {
        td__httpd_fail(r, 400, "malformed path");
    } else if (find_route(r, method)) {
        uint64_t most = most_bytes(r);
        identify(r);
        if (r->caller.scope < r->route->scope && r->caller.scope == TD_SCOPE_NONE) {
            td__httpd_set(r, "WWW-Authenticate", "Bearer");
            td__httpd_fail(r, 401, "a valid token is needed: Authorization: Bearer TOKEN");
        } else if (r->caller.scope < r->route->scope) {
            td__httpd_fail(r, 403, "this needs a token with the scope %s; %s has %s",
                           td__scope_name(r->route->scope), r->caller.user,
                           td__scope_name(r->caller.scope));
        } else if (announced > most) {
            td__httpd_fail(r, 413, "a body of %llu bytes; at most %llu are accepted here",
                           announced, (unsigned long long)most);
        } else if (r->route->body == TD_HTTPD_JSON && (announced || chunked) && type &&
                   strncasecmp(type, "application/json", 16) != 0) {
            /* Forms of foreign pages cannot send this type. */
            td__httpd_fail(r, 415, "Content-Type must be application/json, not %s", type);
        } else if (r->route->body == TD_HTTPD_FILE && !upload_open(r)) {
            td__httpd_fail(r, 500, "cannot write to %s: %s",
                           h->o.spool ? h->o.spool : "(no folder)", strerror(errno));
        } else {
            return true;
        }
    }
    h->counters.refused++;
    return false;
}

static bool write_all(int fd, const char *data, size_t nbytes)
{
    while (nbytes) {
        ssize_t n = write(fd, data, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        nbytes -= (size_t)n;
    }
    return true;
}

/* A piece of the body. false: more than a client that means well sends. */
static bool receive(td__httpd_request *r, const char *data, size_t nbytes)
{
    bool file = r->route->body == TD_HTTPD_FILE;
    uint64_t most = most_bytes(r);
    r->conn->received += nbytes;
    if (r->conn->received > most) {
        r->refuse = 413;
        /* The answer can be sent only after the body: take a little more of it, no more. */
        return r->conn->received <= most + (uint64_t)65536;
    }
    if (r->refuse)
        return true;
    if (!file) {
        td__text_append(&r->body, data, nbytes);
        if (r->body.failed)
            r->refuse = 503;
        return true;
    }
    td__sha256_update(&r->upload.hash, data, nbytes);
    r->upload.nbytes += nbytes;
    if (!write_all(r->upload.fd, data, nbytes))
        r->refuse = 500;
    return true;
}

static void handle(td__httpd_request *r)
{
    r->conn->busy = true;
    r->handled = true;
    r->next = r->h->waiting;
    if (r->next)
        r->next->prev = r;
    r->h->waiting = r;
    if (r->upload.fd >= 0) {
        uint8_t digest[TD_SHA256_BYTES];
        td__sha256_final(&r->upload.hash, digest);
        td__sha256_hex(digest, r->upload.hex);
        if (close(r->upload.fd) != 0 && !r->refuse)
            r->refuse = 500;
        r->upload.fd = -1;
    }
    if (r->refuse == 413)
        td__httpd_fail(r, 413, "the body is larger than is accepted here");
    else if (r->refuse)
        td__httpd_fail(r, r->refuse, "the body could not be stored");
    else
        r->route->handle(r->h->o.arg, r);
}

/* ---- libmicrohttpd's side ---- */

static td__httpd_request *begin(td__httpd *h, struct MHD_Connection *c, const char *url)
{
    td__httpd_request *r = td__calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->h = h;
    r->conn = td__httpd_conn_of(c);
    r->upload.fd = -1;
    r->path = td__strdup(url);
    if (!r->path || !r->conn) {
        td__free(r->path);
        td__free(r);
        return NULL;
    }
    r->conn->received = 0;
    r->conn->idle = false;
    return r;
}

static enum MHD_Result send_answer(td__httpd_request *r, struct MHD_Connection *c)
{
    if (!r->answer)
        return MHD_NO; /* out of memory */
    enum MHD_Result sent = MHD_queue_response(c, r->status, r->answer);
    MHD_destroy_response(r->answer);
    r->answer = NULL;
    return sent;
}

enum MHD_Result td__httpd_access(void *arg, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *nbytes, void **state)
{
    td__httpd_request *r = *state;
    (void)version;
    if (!r) {
        r = begin(arg, c, url);
        if (!r)
            return MHD_NO;
        *state = r;
        if (admit(r, method))
            return MHD_YES;
        r->conn->busy = true;
        return send_answer(r, c);
    }
    if (*nbytes) {
        bool proceed = receive(r, data, *nbytes);
        *nbytes = 0;
        return proceed ? MHD_YES : MHD_NO;
    }
    if (r->answered)
        return send_answer(r, c);
    if (!r->handled) {
        MHD_suspend_connection(c);
        handle(r);
    }
    return MHD_YES;
}

void td__httpd_completed(void *arg, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode how)
{
    td__httpd_request *r = *state;
    (void)arg;
    (void)c;
    (void)how;
    if (!r)
        return;
    r->conn->busy = false;
    r->conn->since = td__clock_ns();
    r->conn->heard = td__httpd_heard(r->conn);
    r->conn->idle = r->conn->heard != 0;
    r->conn->received = 0;
    if (r->answer)
        MHD_destroy_response(r->answer);
    if (r->upload.fd >= 0)
        close(r->upload.fd);
    td__sha256_fini(&r->upload.hash);
    if (r->upload.path)
        unlink(r->upload.path);
    td__free(r->upload.path);
    for (int i = 0; i < r->n_headers; i++) {
        td__free(r->headers[i].name);
        td__free(r->headers[i].value);
    }
    td__text_fini(&r->body);
    td__free(r->path);
    td__free(r);
    *state = NULL;
}
