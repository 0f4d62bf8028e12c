/* config.c -- the configuration file, by the rows of config.def; see config.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/config.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "job/job.h"
#include "job/keys.h"
#include "net/socket.h"
#include "remote/url.h"

const td__key td__config_keys[] = {
#define TD_TO(path) TD_OPTION(td__service_config, path)
#define TD_TO_LIST(path, n) TD_OPTION_LIST(td__service_config, path, n)
#define TD_KEY(...) TD_KEY_ROW(__VA_ARGS__),
#include "service/config.def"
#undef TD_KEY
#undef TD_TO_LIST
#undef TD_TO
    TD_KEYS_END};

/* Items of security.tokens and of quotas. */
#define TO_TOKEN(path)                  \
    {                                   \
        TD_OPTION(td__token_rule, path) \
    }
static const td__key TOKEN_KEYS[] = {
    TD_KEY_ROW("name", TEXT, "User.", .flags = TD_KEY_REQUIRED, .to = TO_TOKEN(name)),
    TD_KEY_ROW("sha256", TEXT, "sha256 of the token, hexadecimal.", .flags = TD_KEY_REQUIRED,
               .to = TO_TOKEN(sha256)),
    TD_KEY_ROW("scope", WORD, "What it opens.", .words = "read submit admin", .def = "submit",
               .to = TO_TOKEN(scope)),
    TD_KEYS_END};

#define TO_QUOTA(path)                  \
    {                                   \
        TD_OPTION(td__quota_rule, path) \
    }
static const td__key QUOTA_KEYS[] = {
    TD_KEY_ROW("user", TEXT, "User; \"*\": everybody else.", .flags = TD_KEY_REQUIRED,
               .to = TO_QUOTA(user)),
    TD_KEY_ROW("slots", INT, "Slots at once; -1: no limit.", .lo = -1, .hi = 1e9, .def = "-1",
               .to = TO_QUOTA(slots)),
    TD_KEY_ROW("gpus", INT, "GPUs at once.", .lo = -1, .hi = 1e9, .def = "-1",
               .to = TO_QUOTA(gpus)),
    TD_KEY_ROW("memory_mb", INT, "Memory at once, MiB.", .lo = -1, .hi = 1e12, .def = "-1",
               .to = TO_QUOTA(memory_mb)),
    TD_KEY_ROW("queued", INT, "Queued jobs.", .lo = -1, .hi = 1e9, .def = "-1",
               .to = TO_QUOTA(queued)),
    TD_KEY_ROW("weight", REAL, "Share beside others.", .hi = 1e6, .flags = TD_KEY_ABOVE, .def = "1",
               .to = TO_QUOTA(weight)),
    TD_KEYS_END};

static td_status fill(td__arena *a, const td__key *keys, const td__tree *root, void *record)
{
    for (const td__key *k = keys; k->path; k++) {
        const td__tree *t = td__keys_node(root, k->path);
        if (t && k->type != TD_KEY_TREE)
            TD_TRY(td__key_fill(a, k, t, record));
        const char **text = (const char **)(void *)((char *)record + k->to.at);
        if (k->to.type == TD_OPTION_TEXT && !*text)
            *text = "";
    }
    return TD_OK;
}

/* A list of maps, each a record of `nbytes` by `keys`. */
static td_status read_list(td__arena *a, const td__tree *root, const char *path,
                           const td__key *keys, size_t nbytes, void *list_out, int *n_out)
{
    const td__tree *list = td__keys_node(root, path);
    int n = 0;

    if (!list || list->kind == TD_TREE_NULL)
        return TD_OK;
    if (list->kind != TD_TREE_LIST)
        return TD_FAIL(TD_EINVAL, "%s: %s: expected a list of maps, found %s",
                       td__tree_where(list).text, path, td__tree_found(list).text);
    char *records = td__arena_alloc(a, (size_t)list->count * nbytes + 1);
    if (!records)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", path);
    for (const td__tree *t = list->first; t; t = t->next, n++) {
        char prefix[128];
        td__tree *item;
        snprintf(prefix, sizeof prefix, "%s.%d.", path, n);
        if (t->kind != TD_TREE_MAP)
            return TD_FAIL(TD_EINVAL, "%s: %.*s: expected a map, found %s", td__tree_where(t).text,
                           (int)strlen(prefix) - 1, prefix, td__tree_found(t).text);
        TD_TRY(td__keys_resolve(a, keys, prefix, t, t, &item));
        TD_TRY(fill(a, keys, item, records + (size_t)n * nbytes));
    }
    *(void **)list_out = records;
    *n_out = n;
    return TD_OK;
}

static td_status check_tokens(const td__service_config *c, const td__tree *root)
{
    for (int i = 0; i < c->n_tokens; i++) {
        const char *hex = c->tokens[i].sha256;
        if (strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64) {
            const td__tree *t = td__tree_at(td__keys_node(root, "security.tokens"), i);
            return TD_FAIL(TD_EINVAL,
                           "%s: security.tokens.%d.sha256: expected 64 hexadecimal digits "
                           "(printf %%s TOKEN | sha256sum)",
                           td__tree_where(t).text, i);
        }
    }
    return TD_OK;
}

/* HOST:PORT; also, can only this machine reach it? */
static bool parse_address(const char *address, bool *loopback)
{
    struct in_addr v4;
    struct in6_addr v6;
    char host[256];
    const char *colon = strrchr(address, ':');
    bool bracket = *address == '[';
    int64_t port;

    if (!colon || !td__parse_int(colon + 1, &port) || port < 0 || port > 65535)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * bracket, address + bracket);
    *loopback = strcmp(host, "localhost") == 0 ||
                (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127) ||
                (inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
    return true;
}

static td_status check_listeners(const td__service_config *c, const td__tree *root, const char *key,
                                 const char *const *list, int n)
{
    for (int i = 0; i < n; i++) {
        const td__tree *t = td__keys_node(root, key);
        bool loopback;
        if (!parse_address(list[i], &loopback))
            return TD_FAIL(TD_EINVAL, "%s: %s: expected HOST:PORT, found %s",
                           td__tree_where(t).text, key, list[i]);
        if (!loopback && !c->n_tokens && !c->open)
            return TD_FAIL(TD_EINVAL,
                           "%s: %s can be reached from other machines: add security.tokens (tandem "
                           "token makes one), listen on 127.0.0.1, or set security.open",
                           key, list[i]);
    }
    return TD_OK;
}

static td_status resolve(td__service_config *c, const td__tree *given)
{
    td__tree *root;

    if (given->kind != TD_TREE_MAP)
        return TD_FAIL(TD_EINVAL, "%s: expected a map of keys, found %s",
                       td__tree_where(given).text, td__tree_found(given).text);
    TD_TRY(td__keys_resolve(c->arena, td__config_keys, "", given, given, &root));
    TD_TRY(fill(c->arena, td__config_keys, root, c));
    TD_TRY(read_list(c->arena, root, "security.tokens", TOKEN_KEYS, sizeof *c->tokens,
                     (void *)&c->tokens, &c->n_tokens));
    TD_TRY(read_list(c->arena, root, "quotas", QUOTA_KEYS, sizeof *c->quotas, (void *)&c->quotas,
                     &c->n_quotas));
    if (!c->data_dir[0])
        return TD_FAIL(TD_EINVAL, "%s: data.dir: expected a directory", td__tree_where(given).text);
    td__url url;
    if (c->artifacts_url[0] && td__url_parse(c->artifacts_url, &url))
        return TD_FAIL(TD_EINVAL, "%s: data.artifacts: '%s' is no address to send files to",
                       td__tree_where(given).text, c->artifacts_url);
    if (c->checkpoints_url[0] && td__url_parse(c->checkpoints_url, &url))
        return TD_FAIL(TD_EINVAL, "%s: data.checkpoints: '%s' is no address to send files to",
                       td__tree_where(given).text, c->checkpoints_url);
    if (!c->tls_cert[0] != !c->tls_key[0])
        return TD_FAIL(TD_EINVAL, "%s: security.tls: give cert and key, or none of them",
                       td__tree_where(given).text);
    TD_TRY(check_tokens(c, root));
    TD_TRY(check_listeners(c, root, "grpc.listen", c->grpc_listen, c->n_grpc_listen));
    TD_TRY(check_listeners(c, root, "http.listen", c->http_listen, c->n_http_listen));
    bool loopback;
    if (c->grpc_advertise[0] && (!parse_address(c->grpc_advertise, &loopback) ||
                                 strlen(c->grpc_advertise) >= TD_ADDRESS_BYTES))
        return TD_FAIL(TD_EINVAL, "%s: grpc.advertise: expected HOST:PORT, found %.100s",
                       td__tree_where(td__keys_node(root, "grpc.advertise")).text,
                       c->grpc_advertise);
    if (c->http_advertise[0] && (!parse_address(c->http_advertise, &loopback) ||
                                 strlen(c->http_advertise) >= TD_ADDRESS_BYTES))
        return TD_FAIL(TD_EINVAL, "%s: http.advertise: expected HOST:PORT, found %.100s",
                       td__tree_where(td__keys_node(root, "http.advertise")).text,
                       c->http_advertise);
    /* Without tokens whoever reaches the socket is trusted with everything. */
    c->allow_code = c->allow_code || !c->n_tokens;
    return TD_OK;
}

static td_status allocate(td__service_config **out)
{
    td__arena *a;

    *out = NULL;
    TD_TRY(td__arena_create(&a));
    *out = td__arena_alloc(a, sizeof **out);
    if (!*out) {
        td__arena_destroy(a);
        return TD_FAIL(TD_ENOMEM, "configuration: out of memory");
    }
    (*out)->arena = a;
    return TD_OK;
}

static td_status read_file(td__service_config *c, const char *path, td__tree **given)
{
    td__file_map m;

    *given = NULL;
    if (!path)
        return td__tree_parse(c->arena, "{}", 2, "configuration", false, given);
    TD_TRY(td__job_open(path, &m));
    char *name = td__arena_strdup(c->arena, path);
    td_status st = name
                       ? td__tree_parse(c->arena, (const char *)m.data, m.nbytes, name, true, given)
                       : TD_FAIL(TD_ENOMEM, "%s: out of memory", path);
    td__file_map_close(&m);
    if (!st && (*given)->kind == TD_TREE_NULL)
        (*given)->kind = TD_TREE_MAP;
    return st;
}

td_status td__config_load(const char *path, const char *const *sets, int n_sets,
                          td__service_config **out)
{
    td_status st = TD_OK;
    td__service_config *c;
    td__tree *given, *value;
    char *key;

    *out = NULL;
    TD_TRY(allocate(&c));
    TD_TRY_OR(st, fail, read_file(c, path, &given));
    for (int i = 0; i < n_sets; i++) {
        TD_TRY_OR(st, fail, td__tree_parse_set(c->arena, sets[i], &key, &value));
        TD_TRY_OR(st, fail, td__tree_set(c->arena, given, key, value));
    }
    TD_TRY_OR(st, fail, resolve(c, given));
    *out = c;
    return TD_OK;
fail:
    td__config_destroy(c);
    return st;
}

void td__config_destroy(td__service_config *c)
{
    if (c)
        td__arena_destroy(c->arena);
}
