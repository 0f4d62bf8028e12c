/* sigv4.c -- AWS Signature Version 4 (see sigv4.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/sigv4.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "remote/url.h"

enum { BLOCK = 64 };

static td_status hmac(const uint8_t *key, size_t key_nbytes, const char *data, size_t nbytes,
                      uint8_t out[TD_SHA256_BYTES])
{
    uint8_t block[BLOCK] = {0}, pad[BLOCK], inner[TD_SHA256_BYTES];
    td__sha256 h;

    if (key_nbytes > BLOCK)
        TD_TRY(td__sha256_of(key, key_nbytes, block));
    else
        memcpy(block, key, key_nbytes);
    for (int i = 0; i < BLOCK; i++)
        pad[i] = block[i] ^ 0x36;
    TD_TRY(td__sha256_init(&h));
    td__sha256_update(&h, pad, BLOCK);
    td__sha256_update(&h, data, nbytes);
    td__sha256_final(&h, inner);
    for (int i = 0; i < BLOCK; i++)
        pad[i] = block[i] ^ 0x5c;
    TD_TRY(td__sha256_init(&h));
    td__sha256_update(&h, pad, BLOCK);
    td__sha256_update(&h, inner, sizeof inner);
    td__sha256_final(&h, out);
    return TD_OK;
}

static td_status hmac_text(const uint8_t key[TD_SHA256_BYTES], const char *text,
                           uint8_t out[TD_SHA256_BYTES])
{
    return hmac(key, TD_SHA256_BYTES, text, strlen(text), out);
}

static int by_name(const void *a, const void *b)
{
    const td__sigv4_pair *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->value, y->value);
}

void td__sigv4_query(const td__sigv4 *s, td__text *out)
{
    for (int i = 0; i < s->n_query; i++) {
        if (i)
            td__text_add(out, "&");
        td__url_encode(out, s->query[i].name, false);
        td__text_add(out, "=");
        td__url_encode(out, s->query[i].value, false);
    }
}

static void header_names(const td__sigv4 *s, td__text *out)
{
    for (int i = 0; i < s->n_headers; i++)
        td__text_printf(out, "%s%s", i ? ";" : "", s->header[i].name);
}

static td_status canonical_digest(const td__sigv4 *s, char hex[TD_SHA256_HEX])
{
    uint8_t digest[TD_SHA256_BYTES];
    td__text t = {0};
    td_status st;

    td__text_printf(&t, "%s\n%s\n", s->method, s->path);
    td__sigv4_query(s, &t);
    td__text_add(&t, "\n");
    for (int i = 0; i < s->n_headers; i++)
        td__text_printf(&t, "%s:%s\n", s->header[i].name, s->header[i].value);
    td__text_add(&t, "\n");
    header_names(s, &t);
    td__text_printf(&t, "\n%s", s->payload);
    TD_TRY_OR(st, done, td__text_status(&t));
    TD_TRY_OR(st, done, td__sha256_of(t.data, t.used, digest));
    td__sha256_hex(digest, hex);
done:
    td__text_fini(&t);
    return st;
}

static td_status signing_key(const td__sigv4 *s, const char *day, uint8_t key[TD_SHA256_BYTES])
{
    td__text secret = {0};
    td_status st;

    td__text_printf(&secret, "AWS4%s", s->secret_key);
    TD_TRY_OR(st, done, td__text_status(&secret));
    TD_TRY_OR(st, done, hmac((const uint8_t *)secret.data, secret.used, day, strlen(day), key));
    TD_TRY_OR(st, done, hmac_text(key, s->region, key));
    TD_TRY_OR(st, done, hmac_text(key, "s3", key));
    TD_TRY_OR(st, done, hmac_text(key, "aws4_request", key));
done:
    if (secret.data)
        explicit_bzero(secret.data, secret.used);
    td__text_fini(&secret);
    return st;
}

td_status td__sigv4_sign(td__sigv4 *s, td__sigv4_times *times, td__text *authorization)
{
    char canonical[TD_SHA256_HEX], signature[TD_SHA256_HEX];
    uint8_t key[TD_SHA256_BYTES], mac[TD_SHA256_BYTES];
    td__text scope = {0}, text = {0};
    struct tm tm;
    td_status st;

    if (s->n_headers + 2 > TD__SIGV4_PAIRS)
        return TD_FAIL(TD_EINVAL, "a request to S3 has too many headers");
    gmtime_r(&s->now, &tm);
    strftime(times->stamp, sizeof times->stamp, "%Y%m%dT%H%M%SZ", &tm);
    strftime(times->day, sizeof times->day, "%Y%m%d", &tm);
    s->header[s->n_headers++] = (td__sigv4_pair){"x-amz-date", times->stamp};
    s->header[s->n_headers++] = (td__sigv4_pair){"x-amz-content-sha256", s->payload};
    qsort(s->header, (size_t)s->n_headers, sizeof s->header[0], by_name);
    qsort(s->query, (size_t)s->n_query, sizeof s->query[0], by_name);

    TD_TRY_OR(st, done, canonical_digest(s, canonical));
    td__text_printf(&scope, "%s/%s/s3/aws4_request", times->day, s->region);
    TD_TRY_OR(st, done, td__text_status(&scope));
    td__text_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", times->stamp, scope.data, canonical);
    TD_TRY_OR(st, done, td__text_status(&text));
    TD_TRY_OR(st, done, signing_key(s, times->day, key));
    TD_TRY_OR(st, done, hmac_text(key, text.data, mac));
    td__sha256_hex(mac, signature);
    td__text_printf(authorization,
                    "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", s->access_key, scope.data);
    header_names(s, authorization);
    td__text_printf(authorization, ", Signature=%s", signature);
    st = td__text_status(authorization);
done:
    td__text_fini(&scope);
    td__text_fini(&text);
    return st;
}
