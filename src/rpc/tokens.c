/* tokens.c -- see tokens.h. The digest of what the caller sent is compared with every entry, whole:
 * neither the position of a match nor its first different byte can be measured. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/tokens.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/sha256.h"

typedef struct token {
    char *user;
    td__scope scope;
    uint8_t digest[TD_SHA256_BYTES];
} token;

struct td__tokens {
    token *list;
    size_t n;
};

static const char *const NAMES[] = {
#define X(id, name, help) name,
    TD_SCOPE_MAP(X)
#undef X
};

const char *td__scope_name(td__scope s)
{
    return (unsigned)s < TD_SCOPE_COUNT ? NAMES[s] : NAMES[TD_SCOPE_NONE];
}

bool td__scope_parse(const char *name, td__scope *out)
{
    for (int i = TD_SCOPE_READ; i < TD_SCOPE_COUNT; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (td__scope)i;
            return true;
        }
    return false;
}

td_status td__tokens_create(td__tokens **out)
{
    *out = td__calloc(1, sizeof **out);
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory");
}

void td__tokens_destroy(td__tokens *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        td__free(t->list[i].user);
    td__free(t->list);
    td__free(t);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_digest(const char *hex, uint8_t digest[TD_SHA256_BYTES])
{
    for (int i = 0; i < TD_SHA256_BYTES; i++) {
        int high = hex_digit(hex[2 * i]);
        int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);
        if (low < 0)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return hex[2 * TD_SHA256_BYTES] == 0;
}

td_status td__tokens_add(td__tokens *t, const char *user, td__scope scope, const char *sha256)
{
    token fresh = {.scope = scope};
    if (!*user)
        return TD_FAIL(TD_EINVAL, "a token needs the name of its user");
    if (!read_digest(sha256, fresh.digest))
        return TD_FAIL(TD_EINVAL,
                       "token of %s: sha256 must have 64 hexadecimal digits (the output of "
                       "`tandem token`, not the token itself)",
                       user);
    for (size_t i = 0; i < t->n; i++)
        if (memcmp(t->list[i].digest, fresh.digest, sizeof fresh.digest) == 0)
            return TD_FAIL(TD_EINVAL, "%s and %s have the same token", t->list[i].user, user);
    token *list = td__realloc(t->list, (t->n + 1) * sizeof *list);
    if (!list)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    t->list = list;
    fresh.user = td__strdup(user);
    if (!fresh.user)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    t->list[t->n++] = fresh;
    return TD_OK;
}

size_t td__tokens_count(const td__tokens *t)
{
    return t ? t->n : 0;
}

/* 1: equal; without a branch on the bytes. */
static unsigned same_digest(const uint8_t *a, const uint8_t *b)
{
    volatile uint8_t differs = 0;
    for (int i = 0; i < TD_SHA256_BYTES; i++)
        differs = (uint8_t)(differs | (a[i] ^ b[i]));
    return differs == 0;
}

td__identity td__tokens_identify(const td__tokens *t, const char *authorization)
{
    static const char SCHEME[] = "Bearer ";
    td__identity none = {"", TD_SCOPE_NONE};
    uint8_t digest[TD_SHA256_BYTES];
    if (!td__tokens_count(t))
        return (td__identity){"", TD_SCOPE_ADMIN};
    if (!authorization || strncasecmp(authorization, SCHEME, sizeof SCHEME - 1) != 0)
        return none;
    const char *sent = authorization + sizeof SCHEME - 1;
    if (td__sha256_of(sent, strlen(sent), digest))
        return none;
    size_t found = 0; /* index + 1 */
    for (size_t i = 0; i < t->n; i++)
        found |= (0 - (size_t)same_digest(digest, t->list[i].digest)) & (i + 1);
    return found && found <= t->n
               ? (td__identity){t->list[found - 1].user, t->list[found - 1].scope}
               : none;
}
