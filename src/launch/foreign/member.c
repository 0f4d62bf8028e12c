/* member.c -- see member.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/foreign/member.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/key.h"
#include "base/fail.h"
#include "net/socket.h"
#include "net/store.h"

enum { CONNECT_MS = 120000, ENDED_MS = 20000, ASK_MS = 10000, TRY_MS = 1000, TRY_MOST_MS = 8000 };

static const char ENDED[] = "foreign/member-ended/"; /* of each rank */

struct td__foreign_member {
    td__agent_spec spec;
    td__rank_plan plan;
    td__store_server *server; /* of rank 0 */
    td__foreign *foreign;
    int rank, size;
};

static td_status number(td__env var, int least, int *out)
{
    const char *text = td__env_get(var);
    int64_t value;

    if (!text || !td__parse_int(text, &value) || value < least || value > 1 << 20)
        return TD_FAIL(TD_EINVAL,
                       "%s is '%s', not the number of a rank or of ranks: it is set in "
                       "jobs of `tandem serve`",
                       td__env_name(var), text ? text : "");
    *out = (int)value;
    return TD_OK;
}

/* MPI: every rank is a host. Others: the members of the group are, of equal size. */
static td_status make_hosts(td__foreign_member *m, bool alone)
{
    td__hosts *h = &m->spec.hosts;
    int local, local_size;

    TD_TRY(number(TD_ENV_TORCH_RANK, 0, &m->rank));
    TD_TRY(number(TD_ENV_TORCH_SIZE, 1, &m->size));
    TD_TRY(number(TD_ENV_TORCH_LOCAL_RANK, 0, &local));
    TD_TRY(number(TD_ENV_TORCH_LOCAL_SIZE, 1, &local_size));
    if (m->rank >= m->size || local >= local_size || m->size % local_size ||
        m->rank % local_size != local)
        return TD_FAIL(TD_EINVAL, "rank %d of %d, local %d of %d: no rank has that place", m->rank,
                       m->size, local, local_size);
    int each = alone ? 1 : local_size;
    *h = (td__hosts){.n = m->size / each, .size = m->size};
    h->host = td__calloc((size_t)h->n, sizeof *h->host);
    if (!h->host)
        return TD_FAIL(TD_ENOMEM, "no memory for %d hosts", h->n);
    for (int i = 0; i < h->n; i++) {
        h->host[i] = (td__host){.first = i * each, .count = each};
        snprintf(h->host[i].name, sizeof h->host[i].name, "member-%d", i);
    }
    m->spec.index = m->rank / each;
    return TD_OK;
}

/* Rank 0 serves at the port of `store`, on this host alone if that is a loopback address. */
static td_status serve(td__foreign_member *m, const char *store)
{
    const char *port = strrchr(store, ':');
    bool here = !strncmp(store, "127.", 4);
    char at[32], own[TD_ADDRESS_BYTES] = "127.0.0.1";

    if (!port)
        return TD_FAIL(TD_EINVAL, "%s: '%s' has no port", td__env_name(TD_ENV_STORE), store);
    snprintf(at, sizeof at, "%s%.12s", here ? "127.0.0.1" : "0.0.0.0", port);
    if (!here)
        td__socket_own_host(own);
    snprintf(m->spec.address, sizeof m->spec.address, "%.63s", own);
    if (m->rank != 0)
        return TD_OK;
    return td__store_server_create(&m->spec.secret, &(td__store_opts){.listen = at}, &m->server);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

/* Rank 0 may come later than the others. */
static td_status await_store(const td__foreign_member *m, const char *store, int stop_fd)
{
    td__deadline until = td__deadline_in_ms(CONNECT_MS);
    td__store *s = NULL;
    td_status st;
    uint64_t ms = TRY_MS; /* more each time: a host may be too busy for a short try */

    do {
        td__deadline once = td__deadline_in_ms(ms);
        ms = ms < TRY_MOST_MS ? 2 * ms : ms;
        if (is_readable(stop_fd))
            return TD_FAIL(TD_EABORTED, "stopped while rank 0 was waited for at %s", store);
        st = td__store_connect(store, &m->spec.secret, &(td__store_opts){0},
                               once < until ? once : until, &s);
    } while ((st == TD_EPEER || st == TD_ETIMEDOUT) && !td__deadline_passed(until));
    td__store_close(s);
    return st;
}

td_status td__foreign_member_create(const char *framework, const char *job,
                                    const td__foreign_http *http, int stop_fd,
                                    td__foreign_member **out)
{
    const char *store = td__env_get(TD_ENV_STORE), *secret = td__env_get(TD_ENV_SECRET);
    td_status st;

    *out = NULL;
    if (!store || !secret)
        return TD_FAIL(TD_EINVAL,
                       "where do the ranks meet? %s and %s are set in jobs of "
                       "`tandem serve`",
                       td__env_name(TD_ENV_STORE), td__env_name(TD_ENV_SECRET));
    TD_TRY(td__foreign_check(framework, http));
    td__foreign_member *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for a server of %s", framework);
    m->spec = (td__agent_spec){.job = job, .framework = framework, .http = http};
    TD_TRY_OR(st, fail, td__secret_parse(secret, &m->spec.secret));
    TD_TRY_OR(st, fail, make_hosts(m, strcmp(framework, "horovod") != 0));
    TD_TRY_OR(st, fail, serve(m, store));
    TD_TRY_OR(st, fail, await_store(m, store, stop_fd));
    m->plan = (td__rank_plan){.hosts = &m->spec.hosts,
                              .host = m->spec.index,
                              .store = store,
                              .job = job,
                              .generation = 1};
    TD_TRY_OR(st, fail, td__foreign_create(&m->spec, &m->plan, &m->foreign));
    *out = m;
    return TD_OK;
fail:
    td__foreign_member_destroy(m, false);
    return st;
}

td_status td__foreign_member_env(td__foreign_member *m, td__texts *env, int *fd)
{
    if (strcmp(m->spec.framework, "horovod") == 0) /* by which its local ranks meet */
        td__texts_add(env, "HOROVOD_HOSTNAME=%s", td__agent_spec_host(&m->spec)->name);
    return td__foreign_rank(m->foreign, m->rank, env, fd);
}

int td__foreign_member_aborted(const td__foreign_member *m)
{
    return m ? td__foreign_aborted(m->foreign, m->rank) : -1;
}

/* Says that this rank has ended; rank 0 then waits for the others, whose last words the store may
 * still have to hear. */
static void say_ended(const td__foreign_member *m)
{
    char key[64];
    td__store *s;
    void *all = NULL;
    size_t nbytes;

    if (td__store_connect(m->plan.store, &m->spec.secret, &(td__store_opts){0},
                          td__deadline_in_ms(ASK_MS), &s))
        return;
    snprintf(key, sizeof key, "%s%d", ENDED, m->rank);
    if (!td__store_set(s, key, "", 0, td__deadline_in_ms(ASK_MS)) && m->server &&
        !td__store_wait_all(s, ENDED, m->size, td__deadline_in_ms(ENDED_MS), &all, &nbytes))
        td__free(all);
    td__store_close(s);
}

void td__foreign_member_destroy(td__foreign_member *m, bool patient)
{
    if (!m)
        return;
    if (patient && m->foreign)
        say_ended(m);
    td__foreign_destroy(m->foreign);
    td__store_server_destroy(m->server);
    td__hosts_fini(&m->spec.hosts);
    explicit_bzero(&m->spec.secret, sizeof m->spec.secret);
    td__free(m);
}
