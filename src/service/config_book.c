/* config_book.c -- the properties file of the book's training service (APP_CONFIG) as overrides of
 * our keys. Properties that its training service does not read are left alone, since one file
 * configures all of its services. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "job/job.h"
#include "service/config.h"

static const struct {
    const char *property, *key;
} PROPERTIES[] = {
    {"ts.server.port", "grpc.listen"},
    {"ts.backend", "tracker.default"},
    {"ts.backend.dockerNetwork", "docker.network"},
    {"ts.backend.kubectlConfigFile", "kubernetes.config"},
    {"ts.backend.kubectlNamespace", "kubernetes.namespace"},
    {"ts.trainer.minio.host", "data.s3.endpoint"},
    {"ts.trainer.ms.host", "data.metadata_service"},
    {"minio.accessKey", "data.s3.access_key"},
    {"minio.secretKey", "data.s3.secret_key"},
    {"ms.minio.bucketName", "data.model_bucket"},
    {"dm.minio.bucketName", "data.bucket"},
};

enum { MOST = TD_LEN(PROPERTIES) + 3 };

typedef struct book {
    td__arena *a;
    const char **sets;
    int n;
    const char *host, *port; /* of the data service */
    const char *path;
} book;

static td_status set(book *b, const char *key, const char *value)
{
    td__text quoted = {0};

    td__text_json(&quoted, value);
    char *text = quoted.data ? td__arena_printf(b->a, "%s=%s", key, quoted.data) : NULL;
    td__text_fini(&quoted);
    if (!text)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", b->path);
    b->sets[b->n++] = text;
    return TD_OK;
}

static td_status property(book *b, const char *name, const char *value)
{
    if (!strcmp(name, "dm.server.host"))
        b->host = td__arena_strdup(b->a, value);
    if (!strcmp(name, "dm.server.port"))
        b->port = td__arena_strdup(b->a, value);
    for (int i = 0; i < TD_LEN(PROPERTIES); i++) {
        if (strcmp(name, PROPERTIES[i].property) != 0)
            continue;
        if (b->n >= TD_LEN(PROPERTIES))
            return TD_FAIL(TD_EINVAL, "%s: %s is given more than once", b->path, name);
        if (!strcmp(name, "ts.backend")) {
            if (strcmp(value, "docker") != 0 && strcmp(value, "kubectl") != 0)
                return TD_FAIL(TD_EINVAL, "%s: ts.backend: expected docker or kubectl, found %s",
                               b->path, value);
            return set(b, PROPERTIES[i].key, !strcmp(value, "docker") ? "docker" : "kubernetes");
        }
        if (!strcmp(name, "ts.server.port")) {
            char *address = td__arena_printf(b->a, "0.0.0.0:%s", value);
            return set(b, PROPERTIES[i].key, address ? address : value);
        }
        return set(b, PROPERTIES[i].key, value);
    }
    return TD_OK;
}

/* Java writes a backslash before some signs, as in minio\:9000. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = '\0';
}

/* "name = value", "name: value"; # and ! begin comments. */
static td_status read_line(book *b, const char *line, size_t nbytes)
{
    char text[1024];

    if (nbytes >= sizeof text)
        return TD_FAIL(TD_EINVAL, "%s: a line has %zu bytes, more than %zu", b->path, nbytes,
                       sizeof text - 1);
    snprintf(text, sizeof text, "%.*s", (int)nbytes, line);
    char *name = text + strspn(text, " \t");
    size_t n = strcspn(name, "=: \t\r");
    if (!*name || *name == '#' || *name == '!' || *name == '\r' || !n)
        return TD_OK;
    char *value = name + n + strspn(name + n, " \t");
    if (*value == '=' || *value == ':')
        value++;
    value += strspn(value, " \t");
    name[n] = '\0';
    size_t end = strlen(value);
    while (end && strchr(" \t\r", value[end - 1]))
        value[--end] = '\0';
    unescape(value);
    return property(b, name, value);
}

td_status td__config_load_book(const char *path, const char *const *sets, int n_sets,
                               td__service_config **out)
{
    td_status st = TD_OK;
    td__file_map m = {0};
    book b = {.path = path};

    *out = NULL;
    TD_TRY(td__arena_create(&b.a));
    b.sets = td__arena_alloc(b.a, (size_t)(MOST + n_sets) * sizeof *b.sets);
    if (!b.sets) {
        st = TD_FAIL(TD_ENOMEM, "%s: out of memory", path);
        goto done;
    }
    TD_TRY_OR(st, done, td__job_open(path, &m));
    for (size_t at = 0; at < m.nbytes;) {
        const char *line = (const char *)m.data + at;
        const char *end = memchr(line, '\n', m.nbytes - at);
        size_t n = end ? (size_t)(end - line) : m.nbytes - at;
        TD_TRY_OR(st, done, read_line(&b, line, n));
        at += n + 1;
    }
    if (b.host && b.port) {
        char *address = td__arena_printf(b.a, "%s:%s", b.host, b.port);
        TD_TRY_OR(st, done, set(&b, "data.service", address ? address : b.host));
    }
    /* Its clients know no tokens, and come from other containers. */
    TD_TRY_OR(st, done, set(&b, "security.open", "true"));
    for (int i = 0; i < n_sets; i++)
        b.sets[b.n++] = sets[i];
    TD_TRY_OR(st, done, td__config_load(NULL, b.sets, b.n, out));
done:
    td__file_map_close(&m);
    td__arena_destroy(b.a);
    return st;
}
