/* comm_setup.c -- from a description of the world to a comm.
 *
 * Native engine: the ranks find each other through the store (comm_rendezvous.c), agree on meshes
 * (comm_meshes.c), and a watchdog watches over them. Sub-groups are made by the same steps from the
 * same knowledge. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/comm_setup.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm_impl.h"
#include "coll/watchdog.h"
#include "coll/world_link.h"

enum { STALL_MS = 3000 };

/* One comm's part in it: the user of its hooks. */
typedef struct member_link {
    td__world_link *l;
    td__watch *watch;
    td__comm_stop *stop;  /* NULL: none */
    pthread_mutex_t lock; /* protects splitting */
    bool splitting;       /* the waits of the store are those of a split of this comm */
    bool meets;           /* it is a group that is being made */
    int *host_of;         /* (n) */
    int n;
    char key[64];
    int ranks[]; /* (n) world ranks */
} member_link;

/* ---- hooks ---- */

static void release_link(td__world_link *l)
{
    if (--l->n_users > 0)
        return;
    td__watchdog_end(l->watchdog);
    if (l->store && l->w.stop && td__comm_stop_is_set(l->w.stop))
        td__store_hurry(l->store);
    td__store_close(l->store);
    td__watchdog_destroy(l->watchdog);
    td__store_server_destroy(l->server);
    td__free(l->members);
    explicit_bzero(&l->w.secret, sizeof l->w.secret);
    td__free(l);
}

static void tell(void *user, const char *line)
{
    member_link *m = user;
    td__watchdog_tell(m->l->watchdog, m->key, line);
}

static void settle_store(const td__world_link *l, td__deadline until)
{
    char key[64];
    snprintf(key, sizeof key, "%s/settle", l->group);
    td__store_settle(l->store, key, until);
}

static void settle(void *user, td__deadline until)
{
    const member_link *m = user;
    settle_store(m->l, until);
}

/* All ranks of a comm take part in splitting it: if it fails, so does the split. */
static void interrupt(void *user, td_status st, const char *text)
{
    member_link *m = user;
    pthread_mutex_lock(&m->lock);
    if (m->splitting)
        td__store_stop_waits(m->l->store, st, text);
    pthread_mutex_unlock(&m->lock);
}

/* A group is made, or will not be. */
static void end_meeting(member_link *m)
{
    if (m->meets)
        td__watchdog_met(m->l->watchdog);
    m->meets = false;
}

static void attach(void *user, td_comm *c)
{
    member_link *m = user;
    td__watch_begin(m->watch, c);
    end_meeting(m);
    if (m->stop)
        td__comm_stop_has(m->stop, c, NULL);
}

static void detach(void *user)
{
    member_link *m = user;
    if (m->stop)
        td__comm_stop_has(m->stop, NULL, NULL);
    end_meeting(m);
    td__watch_destroy(m->watch);
    release_link(m->l);
    pthread_mutex_destroy(&m->lock);
    td__free(m->host_of);
    td__free(m);
}

static td_status split(void *user, td_comm *parent, const int *ranks, int n, int me,
                       const char *key, td__deadline until, td__comm_parts *out);

/* This rank could not do its part in making the comm `key`: the others need not wait for it. */
static td_status say_failed(td__world_link *l, const char *key, td_status st)
{
    char line[TD_COMM_LINE], why[400];
    snprintf(why, sizeof why, "%s", td_last_error());
    snprintf(line, sizeof line, "poison %d %s", (int)(st == TD_EMISMATCH ? st : TD_EPEER), why);
    if (l->watchdog)
        td__watchdog_tell(l->watchdog, key, line);
    return TD_FAIL(st, "%s", why);
}

/* A mesh that is half made lost a rank, and numbers ranks in its own way: the store knows it
 * better, if not yet then in a moment. */
static td_status first_cause(td__world_link *l, td_status st)
{
    enum { CAUSE_MS = 300, SETTLE_MS = 5000 };
    char why[400];
    td__deadline until = td__deadline_in_ms(CAUSE_MS);
    snprintf(why, sizeof why, "%s", td_last_error());
    while (!td__deadline_passed(until)) {
        TD_TRY(td__store_may_wait(l->store));
        poll(NULL, 0, 1);
    }
    settle_store(l, td__deadline_in_ms(SETTLE_MS));
    TD_TRY(td__store_may_wait(l->store));
    return TD_FAIL(st, "%s", why);
}

/* A comm's part of the world: `of` maps `ranks` to world ranks; NULL: they are. On success *out
 * holds meshes, and hooks to be detached in the end. */
static td_status make_parts(td__world_link *l, const member_link *of, const int *ranks, int n,
                            int me, const char *key, td__deadline until, td__comm_parts *out)
{
    member_link *m = td__calloc(1, sizeof *m + (size_t)n * sizeof m->ranks[0]);
    td_status st = TD_OK;
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for a group of %d ranks", n);
    *m = (member_link){.l = l, .n = n, .stop = of ? NULL : l->w.stop};
    l->n_users++;
    snprintf(m->key, sizeof m->key, "%s", key);
    for (int i = 0; i < n; i++)
        m->ranks[i] = of ? of->ranks[ranks[i]] : i;
    *out = (td__comm_parts){.rank = me,
                            .size = n,
                            .tls = l->w.tls,
                            .hooks = {.user = m,
                                      .tell = tell,
                                      .settle = settle,
                                      .attach = attach,
                                      .detach = detach,
                                      .split = split,
                                      .interrupt = interrupt}};
    pthread_mutex_init(&m->lock, NULL);
    m->host_of = td__calloc((size_t)n, sizeof *m->host_of);
    if (!m->host_of)
        TD_TRY_OR(st, fail, TD_FAIL(TD_ENOMEM, "no memory for a group of %d ranks", n));
    TD_TRY_OR(st, fail, td__watch_create(l->watchdog, m->ranks, n, key, &m->watch));
    m->meets = of != NULL; /* until its comm is attached: assembling it waits for the others too */
    if (of)
        td__watchdog_meeting(l->watchdog, m->ranks, n, m->key, l->stall_ms);
    st = td__world_meshes(l, m->ranks, n, me, key, m->host_of, until, out);
    if (st == TD_EPEER)
        st = first_cause(l, st);
    if (st && of)
        st = say_failed(l, key, st);
    if (!st)
        return TD_OK;
fail:
    td__mesh_destroy(out->hosts);
    td__mesh_destroy(out->local);
    td__mesh_destroy(out->mesh);
    *out = (td__comm_parts){0};
    detach(m);
    return st;
}

/* Names of comms may be long; their keys in the store are not. */
static void short_key(const td__world_link *l, const char *key, char out[64])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    snprintf(out, 64, "%s.%016llx", l->group, (unsigned long long)h);
}

static void set_splitting(member_link *m, bool splitting)
{
    pthread_mutex_lock(&m->lock);
    m->splitting = splitting;
    td__store_stop_waits(m->l->store, TD_OK, "");
    pthread_mutex_unlock(&m->lock);
}

static td_status split(void *user, td_comm *parent, const int *ranks, int n, int me,
                       const char *key, td__deadline until, td__comm_parts *out)
{
    member_link *of = user;
    char own_key[64];
    short_key(of->l, key, own_key);
    set_splitting(of, true);
    td_status st = td__poison_check(&parent->poison);
    st = st ? st : make_parts(of->l, of, ranks, n, me, own_key, until, out);
    set_splitting(of, false);
    return st;
}

/* ---- the world ---- */

/* Rank 0's store must not go before all have what they need from it. */
static td_status all_are_ready(td__world_link *l, td__deadline until)
{
    char key[64];
    void *all = NULL;
    size_t nbytes;
    if (!l->w.meeting[0])
        return TD_OK;
    snprintf(key, sizeof key, "%s/ready%d", l->group, l->w.rank);
    TD_TRY(td__store_set(l->store, key, "", 0, until));
    if (l->w.rank > 0)
        return TD_OK;
    unlink(l->w.meeting); /* everybody has read it */
    snprintf(key, sizeof key, "%s/ready", l->group);
    td_status st = td__store_wait_all(l->store, key, l->w.size, until, &all, &nbytes);
    td__free(all);
    return st;
}

/* What goes wrong with the store, or in a handshake, does not know in which rank. */
static td_status name_self(const td__world *w, td_status st)
{
    char why[400];
    snprintf(why, sizeof why, "%s", td_last_error());
    if ((st != TD_ETIMEDOUT && st != TD_EPEER && st != TD_EPROTO) || strstr(why, "rank "))
        return st;
    return TD_FAIL(st, "rank %d of %d could not connect to the others: %s", w->rank, w->size, why);
}

static td_status create_native(const td__world *w, const td_comm_opts *o, td_comm **out)
{
    td__deadline until = td__deadline_in_ms(o->setup_ms ? o->setup_ms : TD_COMM_SETUP_MS);
    td__comm_parts parts = {0};
    td_status st = TD_OK;
    td__world_link *l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a world");
    l->n_users = 1;
    l->w = *w;
    l->streams = o->streams;
    l->checksum = o->checksum;
    l->stall_ms = o->stall_ms ? o->stall_ms : STALL_MS;
    snprintf(l->transport, sizeof l->transport, "%s", o->transport ? o->transport : "");
    const char *algo = o->algo ? o->algo : td__env_get(TD_ENV_ALGO);
    char streams[32] = "";
    if (o->streams)
        snprintf(streams, sizeof streams, ", %d streams", o->streams);
    bool nccl = o->engine && !strcmp(o->engine, "nccl");
    snprintf(l->options, sizeof l->options, "transport %s, algorithm %.160s%s%s%s",
             o->transport ? o->transport : "auto", algo ? algo : "auto", streams,
             o->checksum ? ", checksums" : "", nccl ? ", engine nccl" : "");
    l->began_ns = td__clock_ns();
    l->has_faults = o->faults != NULL;
    if (o->faults)
        TD_TRY_OR(st, done, td__fault_parse(o->faults, &l->faults));
    TD_TRY_OR(st, done, td__world_connect(l, until));
    if (l->w.stop)
        td__comm_stop_has(l->w.stop, NULL, l->store);
    TD_TRY_OR(st, done, td__world_meet(l, until));
    TD_TRY_OR(st, done, make_parts(l, NULL, NULL, w->size, w->rank, l->group, until, &parts));
    TD_TRY_OR(st, done, all_are_ready(l, until));
    td__watchdog_met(l->watchdog);
    TD_TRY_OR(st, done, td__watchdog_begin(l->watchdog));
    TD_TRY_OR(st, done, td__comm_assemble(&parts, o, out));
done:
    if (st && l->w.stop)
        td__comm_stop_has(l->w.stop, NULL, NULL);
    if (st)
        st = say_failed(l, l->group, name_self(w, st));
    if (st && w->rank == 0 && w->meeting[0])
        unlink(w->meeting);
    if (st && parts.hooks.detach) {
        detach(parts.hooks.user);
        td__mesh_destroy(parts.hosts);
        td__mesh_destroy(parts.local);
        td__mesh_destroy(parts.mesh);
    }
    release_link(l); /* the comm holds its own share */
    return st;
}

/* ---- */

td_status td__comm_create(const td__world *w, const td_comm_opts *opts, td_comm **out)
{
    td_comm_opts o = opts ? *opts : (td_comm_opts){0};
    *out = NULL;
    if (!o.engine)
        o.engine = td__env_get(TD_ENV_ENGINE);
    if (!o.transport)
        o.transport = td__env_get(TD_ENV_TRANSPORT);
    if (o.engine && strcmp(o.engine, "native") != 0 && strcmp(o.engine, "mpi") != 0 &&
        strcmp(o.engine, "nccl") != 0) /* native, and NCCL for memory of GPUs (nccl/nccl.h) */
        return TD_FAIL(TD_EINVAL, "unknown engine \"%s\"; known: native, mpi, nccl", o.engine);
    if (o.transport && strcmp(o.transport, "shm") != 0 && strcmp(o.transport, "tcp") != 0)
        return TD_FAIL(TD_EINVAL, "unknown transport \"%s\"; known: shm, tcp", o.transport);
    bool asked = o.engine && !strcmp(o.engine, "mpi");
    if (asked || (!o.engine && !o.transport && w->mpi && w->size > 1)) {
        td_status st = td__comm_create_mpi(w, &o, out);
        if (!st || asked || st != TD_ENOTSUP)
            return st;
        TD_LOG(INFO, COLL, "continuing without MPI: %s", td_last_error());
    }
    if (w->size == 1)
        return td__comm_assemble(&(td__comm_parts){.size = 1}, &o, out);
    return create_native(w, &o, out);
}

td_status td_comm_world(const td_comm_opts *opts, td_comm **out)
{
    td__world w;
    if (!out)
        return TD_FAIL(TD_EINVAL, "the world: out is NULL");
    *out = NULL;
    TD_TRY(td__world_from_env(&w));
    td_status st =
        w.elastic ? TD_FAIL(TD_EINVAL, "the ranks of this launch are elastic, and this program "
                                       "wants a fixed world (td_comm_world): give tandem launch "
                                       "--framework none, or -n N")
                  : td__comm_create(&w, opts, out);
    explicit_bzero(&w.secret, sizeof w.secret);
    return st;
}
