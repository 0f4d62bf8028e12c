/* url.c -- addresses: parsed, joined, shown without secrets, percent-encoded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"

/* Bytes of "scheme" before its ':'; 0: the text has none. One letter is no scheme. */
static size_t scheme_bytes(const char *text)
{
    size_t n = 0;

    if (!isalpha((unsigned char)text[0]))
        return 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("+-.", text[n])))
        n++;
    return text[n] == ':' && n > 1 ? n : 0;
}

bool td__url_has_scheme(const char *text)
{
    return scheme_bytes(text) > 0;
}

static bool is_scheme(const char *text, size_t n, const char *name)
{
    return n == strlen(name) && strncasecmp(text, name, n) == 0;
}

/* A part ".." would leave the folder of a key or path that is joined to another. */
static bool climbs(const char *key)
{
    while (key) {
        if (key[0] == '.' && key[1] == '.' && (key[2] == '/' || !key[2]))
            return true;
        key = strchr(key, '/');
        key += key ? 1 : 0;
    }
    return false;
}

static td_status parse_s3(const char *text, td__url *out)
{
    char shown[256];
    const char *slash = strchr(text, '/'), *end = text + strlen(text);
    size_t n = (size_t)((slash ? slash : end) - text);
    const char *key = slash ? slash + 1 : end;

    td__url_shown(text, shown, sizeof shown);
    if (n < 3 || n >= sizeof out->bucket)
        return TD_FAIL(TD_EINVAL, "s3://%s: a bucket's name has 3 to %zu characters", shown,
                       sizeof out->bucket - 1);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i]))
            return TD_FAIL(TD_EINVAL, "s3://%s: a bucket's name has letters, digits, '-', '.', '_'",
                           shown);
    if (climbs(key))
        return TD_FAIL(TD_EINVAL, "s3://%s: a key does not have '..' in it", shown);
    memcpy(out->bucket, text, n);
    out->bucket[n] = '\0';
    memcpy(out->path, key, strlen(key) + 1);
    return TD_OK;
}

td_status td__url_parse(const char *text, td__url *out)
{
    size_t n = scheme_bytes(text);

    *out = (td__url){.kind = TD_URL_FILE};
    if (!text[0])
        return TD_FAIL(TD_EINVAL, "an address is empty (s3://..., http://..., file: or a path)");
    if (strlen(text) >= sizeof out->path)
        return TD_FAIL(TD_EINVAL, "an address is longer than %zu bytes", sizeof out->path - 1);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return TD_FAIL(TD_EINVAL, "an address has a control character in it");
    if (n == 0) {
        memcpy(out->path, text, strlen(text) + 1);
        return TD_OK;
    }
    const char *rest = text + n + 1;
    if (is_scheme(text, n, "file")) {
        const char *path = strncmp(rest, "//", 2) == 0 ? rest + 2 : rest;
        if (!path[0])
            return TD_FAIL(TD_EINVAL, "%s: there is no path after 'file:'", text);
        memcpy(out->path, path, strlen(path) + 1);
        return TD_OK;
    }
    if (is_scheme(text, n, "s3") && strncmp(rest, "//", 2) == 0) {
        out->kind = TD_URL_S3;
        return parse_s3(rest + 2, out);
    }
    if ((is_scheme(text, n, "http") || is_scheme(text, n, "https")) &&
        strncmp(rest, "//", 2) == 0 && rest[2] && rest[2] != '/') {
        out->kind = TD_URL_HTTP;
        memcpy(out->path, text, strlen(text) + 1);
        return TD_OK;
    }
    char shown[256];
    td__url_shown(text, shown, sizeof shown);
    return TD_FAIL(TD_EINVAL,
                   "%s: unknown kind of address (known: s3://BUCKET/KEY, http://HOST/..., "
                   "https://HOST/..., file:PATH, a path)",
                   shown);
}

td_status td__url_join(const char *base, const char *name, char out[TD__URL_BYTES])
{
    size_t n = strlen(base);

    while (n > 0 && base[n - 1] == '/')
        n--;
    if (snprintf(out, TD__URL_BYTES, "%.*s/%s", (int)n, base, name) >= TD__URL_BYTES)
        return TD_FAIL(TD_EINVAL, "an address is longer than %d bytes", TD__URL_BYTES - 1);
    return TD_OK;
}

void td__url_shown(const char *text, char *out, size_t nbytes)
{
    const char *host = strstr(text, "://");
    size_t prefix = host ? (size_t)(host + 3 - text) : 0;
    size_t end = prefix + strcspn(text + prefix, "?#");

    if (host) { /* "user:password@" ends at the last '@' before the path */
        size_t authority = strcspn(text + prefix, "/?#");
        for (size_t i = authority; i > 0; i--)
            if (text[prefix + i - 1] == '@') {
                snprintf(out, nbytes, "%.*s%.*s", (int)prefix, text, (int)(end - prefix - i),
                         text + prefix + i);
                return;
            }
    }
    snprintf(out, nbytes, "%.*s", (int)end, text);
}

void td__url_encode(td__text *to, const char *text, bool keep_slashes)
{
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("-._~", *c) || (*c == '/' && keep_slashes))
            td__text_append(to, c, 1);
        else
            td__text_printf(to, "%%%02X", (unsigned)(unsigned char)*c);
}
