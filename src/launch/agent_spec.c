/* agent_spec.c -- see agent_spec.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/agent_spec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "net/socket.h"

static bool take(const char *text, const char *key, const char **value)
{
    size_t n = strlen(key);
    if (strncmp(text, key, n) != 0 || text[n] != '=')
        return false;
    *value = text + n + 1;
    return true;
}

/* Each rank costs three descriptors here, and one of the store. */
static void raise_limits(td__agent_spec *a)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return;
    a->files = r;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static bool take_number(const char *text, td__agent_spec *a)
{
    const char *v;
#define TAKE(key, member)                           \
    if (take(text, key, &v)) {                      \
        a->member = (uint32_t)strtoul(v, NULL, 10); \
        return true;                                \
    }
    TD_SPEC_NUMBERS(TAKE)
#undef TAKE
    return false;
}

/* roles are parsed when all hosts are known. */
static bool take_text(const char *text, td__agent_spec *a, const char **roles)
{
    return take(text, "job", &a->job) || take(text, "cwd", &a->cwd) ||
           take(text, "listen", &a->listen) || take(text, "framework", &a->framework) ||
           take(text, "roles", roles) || take(text, "cert", &a->cert) || take(text, "key", &a->key);
}

td_status td__agent_spec_read(td__agent_spec *a)
{
    td__msg m;
    raise_limits(a);
    TD_TRY(td__channel_await(&a->up, TD_MSG_SPEC, &m));
    char *copy = td__malloc(m.nbytes + 1);
    size_t n = 0, at = 0;
    if (copy)
        memcpy(copy, m.data, m.nbytes);
    a->spec = (td__msg){.data = copy, .nbytes = copy ? m.nbytes : 0};
    while (td__texts_next(a->spec.data, a->spec.nbytes, &at))
        n++;
    a->argv = td__calloc(n + 1, sizeof *a->argv);
    a->env = td__calloc(n + 1, sizeof *a->env);
    td__texts entries = {0};
    const char *text, *v, *roles = NULL;
    td_status st = TD_OK;
    if (!copy || !a->argv || !a->env)
        TD_TRY_OR(st, done, TD_FAIL(TD_ENOMEM, "no memory for an agent"));
    for (at = 0; (text = td__texts_next(copy, m.nbytes, &at));) {
        if (take(text, "secret", &v) && strlen(v) == TD_SECRET_HEX - 1)
            TD_TRY_OR(st, done, td__secret_parse(v, &a->secret));
        else if (take_number(text, a) || take_text(text, a, &roles))
            continue;
        else if (take(text, "index", &v))
            a->index = (int)strtol(v, NULL, 10);
        else if (take(text, "entry", &v)) {
            if (entries.used)
                entries.data[entries.used - 1] = ',';
            td__texts_add(&entries, "%s", v);
        } else if (take(text, "arg", &v))
            a->argv[a->n_argv++] = v;
        else if (take(text, "env", &v))
            a->env[a->n_env++] = v;
        else if (take(text, "terminal", &v))
            a->terminal = true;
        else if (take(text, "elastic", &v) && sscanf(v, "%u:%u", &a->min_ranks, &a->most) == 2)
            continue;
        else if (take(text, "grows", &v))
            a->grows = true;
        else
            TD_TRY_OR(st, done,
                      TD_FAIL(TD_EPROTO,
                              "unknown setting from the launcher: %.20s; is the "
                              "same version of tandem on all hosts?",
                              text));
    }
    if (!a->job || !a->cwd || !a->n_argv || !entries.used || entries.failed)
        TD_TRY_OR(st, done, TD_FAIL(TD_EPROTO, "the launcher's description is incomplete"));
    TD_TRY_OR(st, done, td__hosts_parse(entries.data, 0, &a->hosts));
    TD_TRY_OR(st, done, td__roles_parse(roles, a->hosts.size, &a->roles));
    if (a->index < 0 || a->index >= a->hosts.n)
        st = TD_FAIL(TD_EPROTO, "host %d of %d does not exist", a->index, a->hosts.n);
done:
    td__texts_fini(&entries);
    return st;
}

/* A file in this process' memory alone, and the path by which ranks read it: gone when we are. */
static td_status offer(const char *name, const char *text, int *fd, char path[64])
{
    size_t n = strlen(text);
    *fd = memfd_create(name, MFD_CLOEXEC);
    if (*fd < 0 || fchmod(*fd, 0600) || write(*fd, text, n) != (ssize_t)n)
        return TD_FAIL(TD_EIO, "cannot keep the %s for the ranks: %s", name, strerror(errno));
    snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), *fd);
    return TD_OK;
}

static td_status offer_secret(td__agent_spec *a)
{
    char hex[TD_SECRET_HEX];
    td__secret_hex(&a->secret, hex);
    td_status st = offer("tandem-secret", hex, &a->secret_fd, a->secret_file);
    explicit_bzero(hex, sizeof hex);
    return st;
}

static td_status offer_tls(td__agent_spec *a)
{
    if (!a->cert || !a->key)
        return TD_OK;
    size_t nbytes = strlen(a->cert) + strlen(a->key) + 1;
    char *both = td__calloc(1, nbytes);
    if (!both)
        return TD_FAIL(TD_ENOMEM, "no memory for the certificate of the job");
    snprintf(both, nbytes, "%s%s", a->cert, a->key);
    td_status st = offer("tandem-tls", both, &a->tls_fd, a->tls_file);
    explicit_bzero(both, nbytes);
    td__free(both);
    return st;
}

/* Where the others reach this host. */
static td_status find_address(td__agent_spec *a, const char *parent)
{
    if (a->hosts.n == 1 && a->grows && !a->listen) {
        char own[TD_ADDRESS_BYTES];
        td__socket_own_host(own);
        snprintf(a->address, sizeof a->address, "%.*s", (int)sizeof a->address - 1, own);
        return TD_OK;
    }
    if (a->hosts.n == 1 && !a->grows) {
        snprintf(a->address, sizeof a->address, "127.0.0.1");
        return TD_OK;
    }
    if (a->index == 0 && a->listen) {
        snprintf(a->address, sizeof a->address, "%s", a->listen);
        return TD_OK;
    }
    char peer[TD_ADDRESS_BYTES], host[TD_ADDRESS_BYTES];
    if (a->index)
        snprintf(peer, sizeof peer, "%s", parent);
    else
        TD_TRY(td__socket_join(a->hosts.host[1].name, "9", peer));
    TD_TRY(td__socket_route(peer, host));
    if (strlen(host) >= sizeof a->address)
        return TD_FAIL(TD_EINVAL, "the address %s is too long", host);
    memcpy(a->address, host, strlen(host) + 1);
    return TD_OK;
}

td_status td__agent_spec_offer(td__agent_spec *a, const char *parent)
{
    TD_TRY(find_address(a, parent));
    TD_TRY(offer_tls(a));
    return offer_secret(a);
}

void td__agent_spec_fini(td__agent_spec *a)
{
    if (a->tls_fd >= 0)
        close(a->tls_fd);
    if (a->secret_fd >= 0)
        close(a->secret_fd);
    td__hosts_fini(&a->hosts);
    td__free(a->argv);
    td__free(a->env);
    if (a->spec.data)
        explicit_bzero((void *)(uintptr_t)a->spec.data, a->spec.nbytes);
    td__free((void *)(uintptr_t)a->spec.data);
}
