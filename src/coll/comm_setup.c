/* comm_setup.c -- from a description of the world to a comm.
 *
 * Native engine: every rank connects to the store (its agent's, or one that rank 0 hosts and whose
 * address it leaves in a file), joins the world's group there, says who and where it is, and waits
 * for the same from all others in one answer. From these every rank sees alike who shares memory
 * with whom, which decides the meshes:
 *
 *     all on one host    shm
 *     several hosts      tcp between all; beside it shm inside each host and tcp between the first
 *                        ranks of the hosts, for the hierarchical algorithms
 *
 * The nth world of a process meets the nth worlds of the others: a counter in the store numbers
 * them. Sub-groups are made by the same steps from the same knowledge. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/comm_setup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm_impl.h"
#include "coll/monitor.h"
#include "net/mesh_inproc.h"
#include "net/mesh_shm.h"
#include "net/mesh_tcp.h"
#include "net/socket.h"

enum { STALL_MS = 3000, MAX_PATH_BYTES = 300 };

/* What the comms of one world have in common. */
typedef struct world_link {
    int n_users; /* comms; they are made and destroyed by one thread at a time */
    td__world w;
    td__store_server *server; /* rank 0 of a world without an agent; otherwise NULL */
    td__store *store;
    td__monitor *monitor;
    td__member *members; /* (size) */
    char group[32];
    char transport[16]; /* asked for; "" */
    td__fault_plan faults;
    bool has_faults;
    int streams;
    bool checksum;
    uint32_t stall_ms;
} world_link;

/* One comm's part in it: the user of its hooks. */
typedef struct member_link {
    world_link *l;
    td__watch *watch;
    td__comm_stop *stop;  /* NULL: none */
    pthread_mutex_t lock; /* protects splitting */
    bool splitting;       /* the waits of the store are those of a split of this comm */
    int *host_of;         /* (n) */
    int n;
    char key[64];
    int ranks[]; /* (n) world ranks */
} member_link;

/* ---- meeting through a file ---- */

static td_status set_address(td__world *w, const char *host)
{
    int n = snprintf(w->address, sizeof w->address, "%s", host);
    w->route = false;
    return n < (int)sizeof w->address ? TD_OK
                                      : TD_FAIL(TD_EINVAL, "the address %s is too long; set %s",
                                                host, td__env_name(TD_ENV_ADDRESS));
}

/* Rank 0 writes, with a new secret; nobody sees half a file, since it is renamed into place. */
static td_status host_store(world_link *l)
{
    char hex[TD_SECRET_HEX], text[512], temp[MAX_PATH_BYTES], listen[80];
    td__world *w = &l->w;
    if (getrandom(w->secret.bytes, sizeof w->secret.bytes, 0) != sizeof w->secret.bytes)
        return TD_FAIL(TD_EIO, "no random numbers for the secret: %s", strerror(errno));
    if (w->route) {
        char host[TD_ADDRESS_BYTES];
        td__socket_own_host(host);
        TD_TRY(set_address(w, host));
    }
    snprintf(listen, sizeof listen, "%s:0", w->address);
    TD_TRY(td__store_server_create(&w->secret, &(td__store_opts){.listen = listen}, &l->server));
    snprintf(w->store, sizeof w->store, "%s", td__store_server_address(l->server));
    td__secret_hex(&w->secret, hex);
    int n = snprintf(text, sizeof text, "%s %s\n", hex, w->store);
    explicit_bzero(hex, sizeof hex);
    snprintf(temp, sizeof temp, "%s.%d", w->meeting, (int)getpid());
    unlink(temp);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, (size_t)n) == n;
    explicit_bzero(text, sizeof text);
    if (fd >= 0)
        close(fd);
    if (!good || rename(temp, w->meeting))
        return TD_FAIL(TD_EIO, "cannot write %s, through which the ranks meet: %s", w->meeting,
                       strerror(errno));
    return TD_OK;
}

/* The others read. *found: it is there, and only its owner could have written it. */
static td_status read_meeting(td__world *w, bool *found)
{
    char text[512] = "", hex[TD_SECRET_HEX];
    struct stat st;
    *found = false;
    int fd = open(w->meeting, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return TD_OK;
    bool good = !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077);
    ssize_t n = good ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    if (!good)
        return TD_FAIL(TD_EINVAL, "%s must belong to you and have mode 0600", w->meeting);
    *found = n > 0 && sscanf(text, "%64s %255s", hex, w->store) == 2;
    td_status status = *found ? td__secret_parse(hex, &w->secret) : TD_OK;
    explicit_bzero(text, sizeof text);
    explicit_bzero(hex, sizeof hex);
    return status;
}

/* Until the file is there and somebody listens at its address: an old one may lie there still. */
static td_status connect_by_file(world_link *l, td__deadline until)
{
    for (;;) {
        bool found;
        TD_TRY(read_meeting(&l->w, &found));
        td__deadline soon = td__deadline_in_ms(500);
        if (found && !td__store_connect(l->w.store, &l->w.secret, &(td__store_opts){0},
                                        soon < until ? soon : until, &l->store))
            return TD_OK;
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT,
                           "rank %d of %d waited in vain for rank 0 at %s; if ranks are on several "
                           "hosts, use tandem launch or set %s to a folder they share",
                           l->w.rank, l->w.size, l->w.meeting, td__env_name(TD_ENV_RENDEZVOUS));
        poll(NULL, 0, 2); /* folders on a network tell nobody of new files */
    }
}

static td_status check_stop(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    td_status st = s->stopped ? TD_FAIL(TD_EABORTED, "%s", s->why) : TD_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Whoever hosts the store may be gone or stopped, and this comm not wanted any more: looked at in
 * between, each time after twice as long, so that a server that is only slow is reached too. */
static td_status connect_or_stop(world_link *l, const td__store_opts *o, td__deadline until)
{
    enum { FIRST_MS = 500 };
    td__world *w = &l->w;
    td_status st = TD_ETIMEDOUT;
    for (uint64_t ms = FIRST_MS; st == TD_ETIMEDOUT; ms *= 2) {
        td__deadline soon = td__deadline_in_ms(ms);
        TD_TRY(check_stop(w->stop));
        st = td__store_connect(w->store, &w->secret, o, soon < until ? soon : until, &l->store);
        if (td__deadline_passed(until))
            break;
    }
    return st;
}

static td_status connect_store(world_link *l, td__deadline until)
{
    td__world *w = &l->w;
    char host[TD_ADDRESS_BYTES];
    if (!w->store[0] && w->rank == 0)
        TD_TRY(host_store(l));
    if (w->store[0]) {
        td__store_opts o = {.tls_dir = w->tls ? w->tls_dir : NULL};
        TD_TRY(w->stop ? connect_or_stop(l, &o, until)
                       : td__store_connect(w->store, &w->secret, &o, until, &l->store));
    } else {
        TD_TRY(connect_by_file(l, until));
    }
    if (!w->route)
        return TD_OK;
    TD_TRY(td__socket_route(w->store, host));
    return set_address(w, host);
}

/* ---- meeting ---- */

static td_status publish_self(world_link *l, td__deadline until)
{
    char key[64], text[320];
    const td__world *w = &l->w;
    snprintf(key, sizeof key, "%s/rank%d", l->group, w->rank);
    int n = snprintf(text, sizeof text, "%s\n%s\n%d\n%s\n", w->host, w->hostname, (int)getpid(),
                     w->address);
    return td__store_set(l->store, key, text, (size_t)n + 1, until);
}

static td_status parse_member(const char *text, size_t nbytes, td__member *out)
{
    if (!nbytes || text[nbytes - 1] ||
        sscanf(text, "%63[^\n]\n%63[^\n]\n%d\n%63[^\n]\n", out->host, out->hostname, &out->pid,
               out->address) != 4)
        return TD_FAIL(TD_EPROTO, "a rank introduced itself in words that are not understood; is "
                                  "it the same version of tandem?");
    return TD_OK;
}

/* Who did not come? For the text of a meeting that failed. */
static td_status nobody_came(world_link *l, td_status st)
{
    char missing[128] = "", key[64];
    int n_missing = 0;
    size_t used = 0;
    for (int r = 0; r < l->w.size && st == TD_ETIMEDOUT; r++) {
        void *value = NULL;
        size_t n;
        snprintf(key, sizeof key, "%s/rank%d", l->group, r);
        if (td__store_get(l->store, key, td__deadline_in_ms(200), &value, &n))
            break;
        if (!value && used + 16 < sizeof missing)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d",
                                     n_missing ? ", " : "", r);
        n_missing += !value;
        td__free(value);
    }
    if (!n_missing)
        return st;
    return TD_FAIL(TD_ETIMEDOUT, "rank %d of %d waited in vain for %d ranks to come: %s%s",
                   l->w.rank, l->w.size, n_missing, missing, n_missing > 12 ? ", ..." : "");
}

static td_status meet(world_link *l, td__deadline until)
{
    char key[64];
    int64_t number;
    td__world *w = &l->w;
    if (w->space[0]) {
        snprintf(l->group, sizeof l->group, "%s", w->space);
    } else {
        snprintf(key, sizeof key, "worlds/%d", w->rank);
        TD_TRY(td__store_add(l->store, key, 1, until, &number));
        snprintf(l->group, sizeof l->group, "w%lld", (long long)number);
    }
    l->members = td__calloc((size_t)w->size, sizeof *l->members);
    if (!l->members)
        return TD_FAIL(TD_ENOMEM, "no memory for a world of %d ranks", w->size);
    td__monitor_opts mo = {
        .rank = w->rank, .size = w->size, .members = l->members, .hosted = w->meeting[0] != 0};
    TD_TRY(td__monitor_create(l->store, l->group, &mo, until, &l->monitor));
    td__monitor_meeting(l->monitor, NULL, 0, l->group, 0);
    TD_TRY(publish_self(l, until));

    void *all = NULL;
    size_t nbytes = 0, at = 0;
    snprintf(key, sizeof key, "%s/rank", l->group);
    td_status st = td__store_wait_all(l->store, key, w->size, until, &all, &nbytes);
    if (st)
        return nobody_came(l, st);
    for (int r = 0; r < w->size && !st; r++) {
        uint32_t n = 0;
        if (nbytes - at >= sizeof n)
            memcpy(&n, (char *)all + at, sizeof n);
        at += sizeof n;
        if (at > nbytes || n > nbytes - at)
            st = TD_FAIL(TD_EPROTO, "the store's list of ranks is cut off");
        else
            st = parse_member((char *)all + at, n, &l->members[r]);
        at += n;
    }
    td__free(all);
    return st;
}

/* ---- meshes ---- */

/* By rank: number of its host, in order of first ranks. Returns how many there are. */
static int number_hosts(const world_link *l, const int *ranks, int n, int *host_of)
{
    int n_hosts = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < i && strcmp(l->members[ranks[k]].host, l->members[ranks[i]].host) != 0)
            k++;
        host_of[i] = k < i ? host_of[k] : n_hosts++;
    }
    return n_hosts;
}

static td_status tcp_mesh(world_link *l, const char *prefix, int rank, int size, td__deadline until,
                          td__mesh **out)
{
    int local_size = 0;
    for (int r = 0; r < l->w.size; r++)
        local_size += !strcmp(l->members[r].host, l->w.host);
    td__mesh_tcp_opts o = {.streams = l->streams,
                           .checksum = l->checksum,
                           .host = l->w.address,
                           .tls_dir = l->w.tls ? l->w.tls_dir : NULL,
                           .faults = l->has_faults ? &l->faults : NULL,
                           .local_size = local_size};
    return td__mesh_tcp_create(l->store, prefix, rank, size, &l->w.secret, &o, until, out);
}

/* Beside a mesh over several hosts: one inside this host, one between the hosts' first ranks. */
static td_status inner_meshes(world_link *l, const char *key, const int *host_of, int n, int me,
                              td__deadline until, td__comm_parts *out)
{
    char prefix[96];
    int local_rank = 0, local_size = 0, n_hosts = 0;
    for (int i = 0; i < n; i++) {
        local_size += host_of[i] == host_of[me];
        local_rank += host_of[i] == host_of[me] && i < me;
        n_hosts = host_of[i] >= n_hosts ? host_of[i] + 1 : n_hosts;
    }
    if (n_hosts == n)
        return TD_OK;
    if (local_size > 1) {
        snprintf(prefix, sizeof prefix, "%s/local%d/", key, host_of[me]);
        TD_TRY(td__mesh_shm_create(l->store, prefix, local_rank, local_size, until, &out->local));
    } else {
        TD_TRY(td__mesh_inproc_create(1, &out->local));
    }
    if (local_rank)
        return TD_OK;
    snprintf(prefix, sizeof prefix, "%s/hosts/", key);
    return tcp_mesh(l, prefix, host_of[me], n_hosts, until, &out->hosts);
}

/* host_of is (n), filled here. */
static td_status make_meshes(world_link *l, const int *ranks, int n, int me, const char *key,
                             int *host_of, td__deadline until, td__comm_parts *out)
{
    char prefix[96];
    int n_hosts = number_hosts(l, ranks, n, host_of);
    bool want_tcp = !strcmp(l->transport, "tcp");
    snprintf(prefix, sizeof prefix, "%s/all/", key);
    if (n_hosts == 1 && !want_tcp)
        return td__mesh_shm_create(l->store, prefix, me, n, until, &out->mesh);
    if (!strcmp(l->transport, "shm")) {
        int other = 1;
        while (!host_of[other])
            other++;
        return TD_FAIL(TD_EINVAL,
                       "transport shm: rank 0 on host %s and rank %d on host %s share no memory; "
                       "leave the choice open, or take tcp",
                       l->members[ranks[0]].hostname, other, l->members[ranks[other]].hostname);
    }
    TD_TRY(tcp_mesh(l, prefix, me, n, until, &out->mesh));
    if (n_hosts == 1)
        return TD_OK;
    out->host_of = host_of;
    TD_TRY(inner_meshes(l, key, host_of, n, me, until, out));
    if (out->hosts) { /* measured between hosts, where ranks 0 and 1 of all may share one */
        out->mesh->alpha = out->hosts->alpha;
        out->mesh->beta = out->hosts->beta;
    }
    return TD_OK;
}

/* ---- hooks ---- */

void td__comm_stop_init(td__comm_stop *s)
{
    *s = (td__comm_stop){0};
    pthread_mutex_init(&s->lock, NULL);
}

void td__comm_stop_fini(td__comm_stop *s)
{
    pthread_mutex_destroy(&s->lock);
}

void td__comm_stop_now(td__comm_stop *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    snprintf(s->why, sizeof s->why, "%s", why);
    if (s->comm)
        td_comm_abort(s->comm, why);
    else if (s->store)
        td__store_stop_waits(s->store, TD_EABORTED, why);
    pthread_mutex_unlock(&s->lock);
}

void td__comm_stop_reset(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = false;
    pthread_mutex_unlock(&s->lock);
}

/* What is to be ended, if the time has come already: at once. */
static void stop_has(td__comm_stop *s, td_comm *c, td__store *store)
{
    pthread_mutex_lock(&s->lock);
    s->comm = c;
    s->store = store;
    if (s->stopped && c)
        td_comm_abort(c, s->why);
    else if (s->stopped && store)
        td__store_stop_waits(store, TD_EABORTED, s->why);
    pthread_mutex_unlock(&s->lock);
}

static bool is_stopped(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    pthread_mutex_unlock(&s->lock);
    return stopped;
}

static void release_link(world_link *l)
{
    if (--l->n_users > 0)
        return;
    td__monitor_end(l->monitor);
    if (l->store && l->w.stop && is_stopped(l->w.stop))
        td__store_hurry(l->store);
    td__store_close(l->store);
    td__monitor_destroy(l->monitor);
    td__store_server_destroy(l->server);
    td__free(l->members);
    explicit_bzero(&l->w.secret, sizeof l->w.secret);
    td__free(l);
}

static void tell(void *user, const char *line)
{
    member_link *m = user;
    td__monitor_tell(m->l->monitor, m->key, line);
}

static void settle_store(const world_link *l, td__deadline until)
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

static void attach(void *user, td_comm *c)
{
    member_link *m = user;
    td__watch_begin(m->watch, c);
    if (m->stop)
        stop_has(m->stop, c, NULL);
}

static void detach(void *user)
{
    member_link *m = user;
    if (m->stop)
        stop_has(m->stop, NULL, NULL);
    td__watch_destroy(m->watch);
    release_link(m->l);
    pthread_mutex_destroy(&m->lock);
    td__free(m->host_of);
    td__free(m);
}

static td_status split(void *user, td_comm *parent, const int *ranks, int n, int me,
                       const char *key, td__deadline until, td__comm_parts *out);

/* This rank could not do its part in making the comm `key`: the others need not wait for it. */
static td_status say_failed(world_link *l, const char *key, td_status st)
{
    char line[TD_COMM_LINE], why[400];
    snprintf(why, sizeof why, "%s", td_last_error());
    snprintf(line, sizeof line, "poison %d %s", (int)(st == TD_EMISMATCH ? st : TD_EPEER), why);
    if (l->monitor)
        td__monitor_tell(l->monitor, key, line);
    return TD_FAIL(st, "%s", why);
}

/* A mesh that is half made lost a rank, and numbers ranks in its own way: the store knows it
 * better, if not yet then in a moment. */
static td_status first_cause(world_link *l, td_status st)
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
static td_status make_parts(world_link *l, const member_link *of, const int *ranks, int n, int me,
                            const char *key, td__deadline until, td__comm_parts *out)
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
    TD_TRY_OR(st, fail, td__watch_create(l->monitor, m->ranks, n, key, &m->watch));
    if (of)
        td__monitor_meeting(l->monitor, m->ranks, n, key, l->stall_ms);
    st = make_meshes(l, m->ranks, n, me, key, m->host_of, until, out);
    if (st == TD_EPEER)
        st = first_cause(l, st);
    if (st && of)
        st = say_failed(l, key, st);
    if (of)
        td__monitor_met(l->monitor);
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
static void short_key(const world_link *l, const char *key, char out[64])
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
static td_status all_are_ready(world_link *l, td__deadline until)
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
    return TD_FAIL(st, "rank %d of %d did not get to the others: %s", w->rank, w->size, why);
}

static td_status create_native(const td__world *w, const td_comm_opts *o, td_comm **out)
{
    td__deadline until = td__deadline_in_ms(o->setup_ms ? o->setup_ms : TD_COMM_SETUP_MS);
    td__comm_parts parts = {0};
    td_status st = TD_OK;
    world_link *l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a world");
    l->n_users = 1;
    l->w = *w;
    l->streams = o->streams;
    l->checksum = o->checksum;
    l->stall_ms = o->stall_ms ? o->stall_ms : STALL_MS;
    snprintf(l->transport, sizeof l->transport, "%s", o->transport ? o->transport : "");
    l->has_faults = o->faults != NULL;
    if (o->faults)
        TD_TRY_OR(st, done, td__fault_parse(o->faults, &l->faults));
    TD_TRY_OR(st, done, connect_store(l, until));
    if (l->w.stop)
        stop_has(l->w.stop, NULL, l->store);
    TD_TRY_OR(st, done, meet(l, until));
    TD_TRY_OR(st, done, make_parts(l, NULL, NULL, w->size, w->rank, l->group, until, &parts));
    TD_TRY_OR(st, done, all_are_ready(l, until));
    td__monitor_met(l->monitor);
    TD_TRY_OR(st, done, td__monitor_begin(l->monitor));
    TD_TRY_OR(st, done, td__comm_assemble(&parts, o, out));
done:
    if (st && l->w.stop)
        stop_has(l->w.stop, NULL, NULL);
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
    if (o.engine && strcmp(o.engine, "native") != 0 && strcmp(o.engine, "mpi") != 0)
        return TD_FAIL(TD_EINVAL, "engine \"%s\" is not known: native or mpi", o.engine);
    if (o.transport && strcmp(o.transport, "shm") != 0 && strcmp(o.transport, "tcp") != 0)
        return TD_FAIL(TD_EINVAL, "transport \"%s\" is not known: shm or tcp", o.transport);
    bool asked = o.engine && !strcmp(o.engine, "mpi");
    if (asked || (!o.engine && !o.transport && w->mpi && w->size > 1)) {
        td_status st = td__comm_create_mpi(w, &o, out);
        if (!st || asked || st != TD_ENOTSUP)
            return st;
        TD_LOG(INFO, COLL, "going on without MPI: %s", td_last_error());
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
    td_status st = td__comm_create(&w, opts, out);
    explicit_bzero(&w.secret, sizeof w.secret);
    return st;
}
