/* agent_spec.h -- what an agent is told by its launcher, and what it prepares for its ranks: the
 * secret as a file, the certificate, its own address.
 *
 * SPEC holds "key=value" texts:
 *
 *     secret=HEX job=NAME index=N entry=HOST:COUNT... cwd=PATH arg=TEXT...
 *     [listen=ADDRESS] [env=K=V...] [cert=PEM key=PEM] [terminal=], and the numbers below
 *     [elastic=MIN:MAX grows=1]
 *     [framework=NAME roles=NAME:COUNT,...]: of fixed ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_AGENT_SPEC_H
#define TD_LAUNCH_AGENT_SPEC_H

#include <sys/resource.h>

#include "coll/comm_setup.h"
#include "launch/foreign/http.h"
#include "launch/hosts.h"
#include "launch/message.h"
#include "launch/roles.h"

/* Key, and member of both td__launch_opts and td__agent_spec. */
#define TD_SPEC_NUMBERS(X)                                                           \
    X("grace", grace_ms)                                                             \
    X("heartbeat", heartbeat_ms)                                                     \
    X("lease", lease_ms)                                                             \
    X("hang", hang_ms)                                                               \
    X("generation", generation) /* of fixed ranks, */                                \
    X("restarts", restarts)                                                          \
    X("failures", failures)                                                          \
    X("first", n_first) /* of elastic ones: agents that were there from the start */ \
    X("spares", spares)                                                              \
    X("crashes", crashes)

typedef struct td__agent_spec {
    td__channel up; /* to the launcher */
    td__msg spec;   /* a copy; texts below point into it */
    td__secret secret;
    const char *job, *cwd, *listen, *cert, *key; /* cert, key: NULL without TLS */
    const char *framework;                       /* see foreign/foreign.h; NULL: none */
    const char **argv, **env;                    /* NULL-terminated */
    int n_argv, n_env, index;
    const td__foreign_http *http; /* of this program; NULL: it has none */
#define TD_SPEC_MEMBER(key, member) uint32_t member;
    TD_SPEC_NUMBERS(TD_SPEC_MEMBER)
#undef TD_SPEC_MEMBER
    td__hosts hosts;
    td__roles roles;
    char address[64]; /* where the others reach this host */
    char secret_file[64], tls_file[64];
    int secret_fd, tls_fd; /* of these files, in memory */
    bool terminal;         /* ranks write to our standard output */
    struct rlimit files;   /* of the ranks: as it was before ours was raised */
    /* Of an elastic launch; most is 0 otherwise. */
    uint32_t min_ranks, most;
    bool grows; /* hosts may come later */
} td__agent_spec;

/* The zeroed struct, but for `up` and fds of -1, becomes what the launcher says. */
TD_NODISCARD td_status td__agent_spec_read(td__agent_spec *a);
/* Find the address of this host (parent: who is to be reached, "" for the first agent), leave the
 * certificate and the secret where ranks find them. */
TD_NODISCARD td_status td__agent_spec_offer(td__agent_spec *a, const char *parent);
void td__agent_spec_fini(td__agent_spec *a); /* but for `up` */

static inline const td__host *td__agent_spec_host(const td__agent_spec *a)
{
    return &a->hosts.host[a->index];
}
static inline const char *td__agent_spec_tls(const td__agent_spec *a)
{
    return a->tls_file[0] ? a->tls_file : NULL;
}

#endif
