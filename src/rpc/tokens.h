/* tokens.h -- bearer tokens: who may ask a server for what.
 *
 * A server holds only the sha256 of each token, so that a stolen configuration gives no access.
 * Scopes are ordered: who may submit may read, an admin may do both. A table without tokens
 * accepts every caller as admin: servers use such a table on loopback addresses only. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_TOKENS_H
#define TD_RPC_TOKENS_H

#include "tandem/status.h"

#define TD_SCOPE_MAP(X)                                    \
    X(NONE, "none", "nothing but /healthz")                \
    X(READ, "read", "look at jobs, logs and results")      \
    X(SUBMIT, "submit", "also submit and change own jobs") \
    X(ADMIN, "admin", "also change all jobs, quotas and hosts")

typedef enum td__scope {
#define X(id, name, help) TD_SCOPE_##id,
    TD_SCOPE_MAP(X)
#undef X
        TD_SCOPE_COUNT
} td__scope;

const char *td__scope_name(td__scope s);
bool td__scope_parse(const char *name, td__scope *out);

/* Who sends a request. */
typedef struct td__identity {
    const char *user; /* borrowed from the table; "" where there are no tokens */
    td__scope scope;  /* NONE: the token is unknown or missing */
} td__identity;

typedef struct td__tokens td__tokens;

TD_NODISCARD td_status td__tokens_create(td__tokens **out);
void td__tokens_destroy(td__tokens *t); /* NULL is allowed */
/* `sha256` has 64 hexadecimal digits. TD_EINVAL: it has not, or `user` is empty. */
TD_NODISCARD td_status td__tokens_add(td__tokens *t, const char *user, td__scope scope,
                                      const char *sha256);
size_t td__tokens_count(const td__tokens *t); /* NULL: 0 */

/* The caller with this value of an Authorization header, "Bearer TOKEN"; NULL: none was sent. Takes
 * the same time whichever token matches, or none. `t` may be NULL: no tokens. */
td__identity td__tokens_identify(const td__tokens *t, const char *authorization);

#endif
