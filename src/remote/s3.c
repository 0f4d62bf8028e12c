/* s3.c -- requests to S3: where a bucket is, who asks, and the list of a bucket's objects. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/fail.h"
#include "remote/remote_impl.h"
#include "remote/s3_xml.h"

static const char *first_of(td__env a, td__env b)
{
    const char *value = td__env_get(a);
    return value ? value : td__env_get(b);
}

td_status td__s3_configure(td__remote *r, const td__s3_opts *o)
{
    const char **text[] = {&r->s3.access_key, &r->s3.secret_key, &r->s3.session_token,
                           &r->s3.region, &r->s3.endpoint};

    if (o)
        r->s3 = *o;
    else
        r->s3 = (td__s3_opts){
            .access_key = td__env_get(TD_ENV_AWS_ACCESS_KEY),
            .secret_key = td__env_get(TD_ENV_AWS_SECRET_KEY),
            .session_token = td__env_get(TD_ENV_AWS_SESSION_TOKEN),
            .region = first_of(TD_ENV_AWS_REGION, TD_ENV_AWS_DEFAULT_REGION),
            .endpoint = first_of(TD_ENV_AWS_ENDPOINT_S3, TD_ENV_AWS_ENDPOINT),
        };
    r->s3.region = r->s3.region ? r->s3.region : "us-east-1";
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (*text[i] && !(*text[i] = td__arena_strdup(r->texts, *text[i])))
            return TD_FAIL(TD_ENOMEM, "out of memory for the options of S3");
    return TD_OK;
}

/* The host with its port, and the path before the key: by path at an endpoint of one's own, and for
 * names with dots, which a certificate for *.s3.REGION.amazonaws.com does not cover. */
static td_status place(const td__remote *r, const td__url *at, td__text *origin, td__text *host,
                       td__text *path)
{
    const td__s3_opts *o = &r->s3;
    bool by_path = o->endpoint || strchr(at->bucket, '.');

    if (o->endpoint) {
        const char *name = strstr(o->endpoint, "://");
        if (!name || strncmp(o->endpoint, "http", 4) != 0)
            return TD_FAIL(TD_EINVAL, "AWS_ENDPOINT_URL: '%s' is not http://HOST or https://HOST",
                           o->endpoint);
        td__text_append(host, name + 3, strcspn(name + 3, "/"));
        td__text_append(origin, o->endpoint,
                        strcspn(name + 3, "/") + (size_t)(name + 3 - o->endpoint));
    } else {
        td__text_printf(host, "%s%ss3.%s.amazonaws.com", by_path ? "" : at->bucket,
                        by_path ? "" : ".", o->region);
        td__text_printf(origin, "https://%s", host->data ? host->data : "");
    }
    td__text_add(path, "/");
    if (by_path) {
        td__text_add(path, at->bucket);
        td__text_add(path, "/");
    }
    td__url_encode(path, at->path, true);
    TD_TRY(td__text_status(origin));
    TD_TRY(td__text_status(host));
    return td__text_status(path);
}

typedef struct signed_texts {
    td__text origin, host, path, url, authorization, line[TD__SIGV4_PAIRS];
} signed_texts;

static void texts_fini(signed_texts *t)
{
    td__text_fini(&t->origin);
    td__text_fini(&t->host);
    td__text_fini(&t->path);
    td__text_fini(&t->url);
    td__text_fini(&t->authorization);
    for (int i = 0; i < TD__SIGV4_PAIRS; i++)
        td__text_fini(&t->line[i]);
}

static td_status payload_hash(const td__s3_request *q, char hex[TD_SHA256_HEX])
{
    uint8_t digest[TD_SHA256_BYTES];

    if (q->payload) {
        snprintf(hex, TD_SHA256_HEX, "%s", q->payload);
        return TD_OK;
    }
    TD_ASSERT(q->http.body || q->http.body_nbytes == 0, "the hash of a file is not known");
    TD_TRY(td__sha256_of(q->http.body, q->http.body_nbytes, digest));
    td__sha256_hex(digest, hex);
    return TD_OK;
}

td_status td__s3_call(td__remote *r, const td__s3_request *q, bool repeat, td__http_response *a)
{
    const char *headers[TD__SIGV4_PAIRS + 8];
    td__http_request h = q->http;
    td__sigv4_times times;
    signed_texts t = {0};
    int n = 0;
    td_status st;
    td__sigv4 s = {.access_key = r->s3.access_key,
                   .secret_key = r->s3.secret_key ? r->s3.secret_key : "",
                   .region = r->s3.region,
                   .now = time(NULL),
                   .method = q->method ? q->method : "GET",
                   .n_query = q->n_query};

    *a = (td__http_response){0};
    memcpy(s.query, q->query, sizeof q->query);
    TD_TRY_OR(st, done, place(r, q->at, &t.origin, &t.host, &t.path));
    TD_TRY_OR(st, done, payload_hash(q, s.payload));
    s.path = t.path.data;
    s.header[s.n_headers++] = (td__sigv4_pair){"host", t.host.data};
    if (r->s3.session_token)
        s.header[s.n_headers++] = (td__sigv4_pair){"x-amz-security-token", r->s3.session_token};
    TD_TRY_OR(st, done, td__sigv4_sign(&s, &times, &t.authorization));
    for (int i = 0; i < s.n_headers; i++) {
        td__text_printf(&t.line[i], "%s: %s", s.header[i].name, s.header[i].value);
        TD_TRY_OR(st, done, td__text_status(&t.line[i]));
        headers[n++] = t.line[i].data;
    }
    if (r->s3.access_key) {
        td__text *line = &t.line[s.n_headers];
        td__text_printf(line, "Authorization: %s", t.authorization.data);
        TD_TRY_OR(st, done, td__text_status(line));
        headers[n++] = line->data;
    }
    for (int i = 0; i < q->n_headers; i++)
        headers[n++] = q->header[i];
    td__text_printf(&t.url, "%s%s%s", t.origin.data, t.path.data, s.n_query ? "?" : "");
    td__sigv4_query(&s, &t.url);
    TD_TRY_OR(st, done, td__text_status(&t.url));
    h.method = q->method;
    h.url = t.url.data;
    h.headers = headers;
    h.n_headers = n;
    st = repeat ? td__http_call(r->http, &h, a) : td__http_perform(r->http, &h, a);
    if (!st && !repeat && (a->status < 200 || a->status > 299) &&
        !td__http_worth_repeating(TD_OK, a->status))
        st = td__http_refused(&h, a);
done:
    r->status = a->status;
    texts_fini(&t);
    return st;
}

/* One page of a list; *token is empty after the last. */
static td_status list_page(td__remote *r, const td__url *bucket, const char *prefix, char *token,
                           size_t token_nbytes, td__remote_each each, void *user, bool *more,
                           td__deadline until)
{
    td__s3_request q = {.at = bucket, .http = {.until = until}};
    char key[TD__URL_BYTES], size[32];
    td__http_response a;
    td__s3_xml x;
    td_status st;

    q.query[q.n_query++] = (td__sigv4_pair){"list-type", "2"};
    q.query[q.n_query++] = (td__sigv4_pair){"prefix", prefix};
    if (token[0])
        q.query[q.n_query++] = (td__sigv4_pair){"continuation-token", token};
    TD_TRY_OR(st, done, td__s3_call(r, &q, true, &a));
    td__s3_xml_init(&x, &a.body);
    while (*more && td__s3_xml_next(&x, "Contents")) {
        unsigned long long nbytes = 0;
        if (!td__s3_xml_text(&x, "Key", key, sizeof key) ||
            !td__s3_xml_text(&x, "Size", size, sizeof size) || sscanf(size, "%llu", &nbytes) != 1 ||
            strncmp(key, prefix, strlen(prefix)) != 0) {
            st = TD_FAIL(TD_EPROTO, "s3://%s: malformed list of objects", bucket->bucket);
            goto done;
        }
        *more = each(user, key + strlen(prefix), nbytes);
    }
    td__s3_xml_init(&x, &a.body);
    if (!td__s3_xml_whole_text(&a.body, "NextContinuationToken", token, token_nbytes))
        token[0] = '\0';
done:
    td__http_response_fini(&a);
    return st;
}

td_status td__s3_list(td__remote *r, const td__url *at, td__remote_each each, void *user,
                      td__deadline until)
{
    char prefix[TD__URL_BYTES + 1], token[2048] = "";
    td__url bucket = *at;
    bool more = true;
    size_t n = strlen(at->path);

    snprintf(prefix, sizeof prefix, "%s%s", at->path, n && at->path[n - 1] != '/' ? "/" : "");
    bucket.path[0] = '\0';
    do {
        TD_TRY(list_page(r, &bucket, prefix, token, sizeof token, each, user, &more, until));
    } while (more && token[0]);
    return TD_OK;
}
