/* http.c -- one HTTP request at a time over libcurl's multi interface, which can be woken from
 * another thread and waits no longer than it is told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "remote/http_impl.h"
#include "remote/url.h"

enum {
    CONNECT_MS = 10000,
    IDLE_MS = 30000,
    ATTEMPT_MS = 300000,
    ATTEMPTS = 6,
    MAX_BODY = 16 << 20,
    MAX_ERROR_BODY = 64 << 10,
};

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* The texts of the options are copied, so that their owner need not outlive the client. */
static td_status own_texts(td__http *h)
{
    const char **text[] = {&h->opts.unix_socket,   &h->opts.tls.ca_file,  &h->opts.tls.ca_pem,
                           &h->opts.tls.cert_file, &h->opts.tls.cert_pem, &h->opts.tls.key_file,
                           &h->opts.tls.key_pem};

    TD_TRY(td__arena_create(&h->texts));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (*text[i] && !(*text[i] = td__arena_strdup(h->texts, *text[i])))
            return TD_FAIL(TD_ENOMEM, "out of memory for the options of an HTTP client");
    return TD_OK;
}

td_status td__http_create(const td__http_opts *o, td__http **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    td__http *h = td__calloc(1, sizeof *h);
    td_status st;

    pthread_once(&once, init_curl);
    *out = NULL;
    if (!h)
        return TD_FAIL(TD_ENOMEM, "out of memory for an HTTP client");
    if (o)
        h->opts = *o;
    h->opts.connect_ms = h->opts.connect_ms ? h->opts.connect_ms : CONNECT_MS;
    h->opts.idle_ms = h->opts.idle_ms ? h->opts.idle_ms : IDLE_MS;
    h->opts.attempt_ms = h->opts.attempt_ms ? h->opts.attempt_ms : ATTEMPT_MS;
    h->opts.attempts = h->opts.attempts ? h->opts.attempts : ATTEMPTS;
    TD_TRY_OR(st, fail, own_texts(h));
    h->multi = curl_multi_init();
    h->easy = curl_easy_init();
    if (!h->multi || !h->easy) {
        st = TD_FAIL(TD_ENOMEM, "libcurl cannot be initialised");
        goto fail;
    }
    *out = h;
    return TD_OK;
fail:
    td__http_destroy(h);
    return st;
}

void td__http_destroy(td__http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->easy);
    curl_multi_cleanup(h->multi);
    td__arena_destroy(h->texts);
    td__free(h);
}

void td__http_stop(td__http *h)
{
    atomic_store(&h->stopped, true);
    curl_multi_wakeup(h->multi);
}

void td__http_response_fini(td__http_response *r)
{
    td__text_fini(&r->body);
}

/* What the callbacks of one request share. */
typedef struct exchange {
    td__http *h;
    const td__http_request *q;
    td__http_response *r;
    uint64_t sent;
    uint64_t moved_ns; /* when a byte last went either way */
    bool refused;      /* by the sink */
    bool too_long;
} exchange;

static bool is_success(int status)
{
    return status >= 200 && status < 300;
}

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    exchange *x = user;
    size_t nbytes = size * n;
    long status = 0;

    curl_easy_getinfo(x->h->easy, CURLINFO_RESPONSE_CODE, &status);
    x->r->status = (int)status;
    x->moved_ns = td__clock_ns();
    if (is_success(x->r->status) && x->q->sink) {
        x->refused = !x->q->sink(x->q->sink_user, data, nbytes);
        return x->refused ? 0 : nbytes;
    }
    if (!is_success(x->r->status)) { /* of an error's page the beginning is enough */
        size_t room = x->r->body.used < MAX_ERROR_BODY ? MAX_ERROR_BODY - x->r->body.used : 0;
        td__text_append(&x->r->body, data, nbytes < room ? nbytes : room);
        return nbytes;
    }
    size_t most = x->q->max_body ? x->q->max_body : MAX_BODY;
    x->too_long = nbytes > most - x->r->body.used;
    if (x->too_long)
        return 0;
    td__text_append(&x->r->body, data, nbytes);
    return nbytes;
}

/* The value, if the line is that header. */
static bool header_is(const char *line, const char *name, char *value, size_t nbytes)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    line += n + 1;
    line += strspn(line, " \t");
    snprintf(value, nbytes, "%.*s", (int)strcspn(line, "\r\n"), line);
    return true;
}

static size_t on_header(char *data, size_t size, size_t n, void *user)
{
    exchange *x = user;
    size_t nbytes = size * n;
    char line[TD__ETAG_BYTES + 64], value[TD__ETAG_BYTES];
    unsigned long long begin;
    unsigned seconds;

    snprintf(line, sizeof line, "%.*s", (int)nbytes, data);
    x->moved_ns = td__clock_ns();
    if (strncmp(line, "HTTP/", 5) == 0) { /* after a redirect or 100 Continue all begins anew */
        x->r->etag[0] = '\0';
        x->r->ranged = false;
        x->r->retry_after_ms = 0;
    } else if (header_is(line, "etag", value, sizeof value)) {
        snprintf(x->r->etag, sizeof x->r->etag, "%s", value);
    } else if (header_is(line, "content-range", value, sizeof value)) {
        x->r->ranged = sscanf(value, "bytes %llu-", &begin) == 1;
        x->r->range_begin = x->r->ranged ? begin : 0;
    } else if (header_is(line, "grpc-status", value, sizeof value)) {
        x->r->grpc_status = sscanf(value, "%u", &seconds) == 1 ? (int)seconds : -1;
    } else if (header_is(line, "grpc-message", value, sizeof value)) {
        snprintf(x->r->grpc_message, sizeof x->r->grpc_message, "%s", value);
    } else if (header_is(line, "retry-after", value, sizeof value)) {
        x->r->retry_after_ms = sscanf(value, "%u", &seconds) == 1 ? 1000ull * seconds : 0;
    }
    return nbytes;
}

static size_t on_send(char *to, size_t size, size_t n, void *user)
{
    exchange *x = user;
    uint64_t left = x->q->body_nbytes - x->sent;
    size_t nbytes = size * n < left ? size * n : (size_t)left;

    x->moved_ns = td__clock_ns();
    if (nbytes == 0)
        return 0;
    if (x->q->body) {
        memcpy(to, (const char *)x->q->body + x->sent, nbytes);
    } else {
        ssize_t got = pread(x->q->body_fd, to, nbytes, (off_t)(x->q->body_offset + x->sent));
        if (got <= 0)
            return CURL_READFUNC_ABORT; /* the file became shorter, or cannot be read */
        nbytes = (size_t)got;
    }
    x->sent += nbytes;
    return nbytes;
}

static int on_seek(void *user, curl_off_t offset, int origin)
{
    exchange *x = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->q->body_nbytes)
        return CURL_SEEKFUNC_CANTSEEK;
    x->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void set_blob(CURL *e, CURLoption option, const char *pem)
{
    struct curl_blob blob = {(void *)(uintptr_t)pem, strlen(pem), CURL_BLOB_COPY};
    curl_easy_setopt(e, option, &blob);
}

static void set_tls(CURL *e, const td__http_tls *t)
{
    if (t->ca_pem)
        set_blob(e, CURLOPT_CAINFO_BLOB, t->ca_pem);
    else if (t->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, t->ca_file);
    if (t->cert_pem)
        set_blob(e, CURLOPT_SSLCERT_BLOB, t->cert_pem);
    else if (t->cert_file)
        curl_easy_setopt(e, CURLOPT_SSLCERT, t->cert_file);
    if (t->key_pem)
        set_blob(e, CURLOPT_SSLKEY_BLOB, t->key_pem);
    else if (t->key_file)
        curl_easy_setopt(e, CURLOPT_SSLKEY, t->key_file);
    if (t->insecure) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static void set_method(CURL *e, const td__http_request *q)
{
    const char *method = q->method ? q->method : "GET";

    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    } else if (q->body_nbytes || strcmp(method, "PUT") == 0) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->body_nbytes);
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    } else if (strcmp(method, "POST") == 0) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE, 0L);
    } else {
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    }
}

static void set_up(exchange *x, struct curl_slist *headers)
{
    CURL *e = x->h->easy;
    const td__http_opts *o = &x->h->opts;

    curl_easy_reset(e); /* connections stay open */
    curl_easy_setopt(e, CURLOPT_URL, x->q->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_ms);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, x->h->error);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L); /* keys are signed as they are */
    if (o->unix_socket) {
        curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, o->unix_socket);
        curl_easy_setopt(e, CURLOPT_PROXY, "");
    }
    if (x->q->follow) {
        curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(e, CURLOPT_MAXREDIRS, 5L);
    }
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
    if (x->q->grpc)
        curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(e, CURLOPT_READDATA, x);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, x);
    set_tls(e, &o->tls);
    set_method(e, x->q);
}

static td_status failed(const exchange *x, td_status st, const char *why)
{
    char shown[512];
    td__url_shown(x->q->url, shown, sizeof shown);
    return TD_FAIL(st, "%s %s: %s", x->q->method ? x->q->method : "GET", shown, why);
}

/* libcurl's codes as ours. */
static td_status outcome(const exchange *x, CURLcode code)
{
    const char *why = x->h->error[0] ? x->h->error : curl_easy_strerror(code);

    switch (code) {
    case CURLE_OK: return TD_OK;
    case CURLE_OPERATION_TIMEDOUT: return failed(x, TD_ETIMEDOUT, why);
    case CURLE_OUT_OF_MEMORY: return failed(x, TD_ENOMEM, why);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return failed(x, TD_EPEER, why);
    case CURLE_ABORTED_BY_CALLBACK:
        return failed(x, TD_EIO, "the file to be sent became shorter or cannot be read");
    case CURLE_WRITE_ERROR:
        if (x->too_long)
            return failed(x, TD_EPROTO, "the answer is longer than is believable");
        if (x->refused)
            return failed(x, TD_EABORTED, "the answer was not wanted any more");
        return failed(x, TD_EPROTO, why);
    default: return failed(x, TD_EPROTO, why);
    }
}

/* Waits until the transfer is over, stopped, or out of time. */
static td_status transfer(exchange *x)
{
    uint64_t idle_ns = 1000000u * (x->q->idle_ms ? x->q->idle_ms : x->h->opts.idle_ms);
    int running = 1, left;

    for (;;) {
        if (curl_multi_perform(x->h->multi, &running) != CURLM_OK)
            return failed(x, TD_ENOMEM, "libcurl fails");
        for (const CURLMsg *m; (m = curl_multi_info_read(x->h->multi, &left));)
            if (m->msg == CURLMSG_DONE)
                return outcome(x, m->data.result);
        if (atomic_load(&x->h->stopped))
            return failed(x, TD_EABORTED, "stopped");
        if (td__deadline_passed(x->q->until))
            return failed(x, TD_ETIMEDOUT, "its deadline passed");
        uint64_t idle = td__clock_ns() - x->moved_ns;
        if (idle >= idle_ns)
            return failed(x, TD_ETIMEDOUT, "the server says nothing any more");
        int ms = td__deadline_left_ms(x->q->until, 1000);
        int idle_ms = (int)((idle_ns - idle) / 1000000u) + 1;
        curl_multi_poll(x->h->multi, NULL, 0, ms < idle_ms ? ms : idle_ms, NULL);
    }
}

static td_status collect_headers(const td__http_request *q, struct curl_slist **out)
{
    struct curl_slist *list = NULL, *more;
    /* No "Expect: 100-continue": it costs a round trip, and some servers do not know it. */
    for (int i = -1; i < q->n_headers; i++) {
        more = curl_slist_append(list, i < 0 ? "Expect:" : q->headers[i]);
        if (!more) {
            curl_slist_free_all(list);
            return TD_FAIL(TD_ENOMEM, "out of memory for the headers of a request");
        }
        list = more;
    }
    *out = list;
    return TD_OK;
}

/* TLS writes to closed connections raise SIGPIPE: it is held back on this thread. */
static void take_pending_sigpipe(void)
{
    sigset_t set, pending;
    const struct timespec at_once = {0};

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1)
        sigtimedwait(&set, NULL, &at_once);
}

td_status td__http_perform(td__http *h, const td__http_request *q, td__http_response *r)
{
    exchange x = {.h = h, .q = q, .r = r, .moved_ns = td__clock_ns()};
    struct curl_slist *headers;
    sigset_t pipe_set, old;
    curl_off_t content = -1;
    long status = 0;
    td_status st;

    *r = (td__http_response){.grpc_status = -1};
    TD_ASSERT(q->until != 0 && q->until != TD_DEADLINE_NEVER, "a request without a deadline: %s",
              q->url);
    TD_TRY(collect_headers(q, &headers));
    h->error[0] = '\0';
    set_up(&x, headers);
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    curl_multi_add_handle(h->multi, h->easy);
    st = transfer(&x);
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    r->status = (int)status;
    curl_easy_getinfo(h->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &content);
    r->content_nbytes = content;
    curl_multi_remove_handle(h->multi, h->easy);
    if (sigismember(&old, SIGPIPE) == 0)
        take_pending_sigpipe();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    if (!st)
        st = td__text_status(&r->body);
    return st;
}
