/* comm_rendezvous.c -- how the ranks of a world find each other.
 *
 * Every rank connects to the store (its agent's, or one that rank 0 hosts and whose address it
 * leaves in a file), joins the world's group there, publishes who and where it is, and waits for
 * the same from all others in one answer. The nth world of a process meets the nth worlds of the
 * others: a counter in the store numbers them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/world_link.h"
#include "net/socket.h"

enum { MAX_PATH_BYTES = 300, LONG_WAIT_MS = 5000 };

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
static td_status host_store(td__world_link *l)
{
    char hex[TD_SECRET_HEX], text[512], temp[MAX_PATH_BYTES], listen[80];
    td__world *w = &l->w;
    if (getrandom(w->secret.bytes, sizeof w->secret.bytes, 0) != sizeof w->secret.bytes)
        return TD_FAIL(TD_EIO, "cannot get random bytes for the secret: %s", strerror(errno));
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
        return TD_FAIL(TD_EIO, "cannot write the rendezvous file %s: %s", w->meeting,
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
static td_status connect_by_file(td__world_link *l, td__deadline until)
{
    for (;;) {
        bool found;
        TD_TRY(read_meeting(&l->w, &found));
        td__deadline soon = td__deadline_in_ms(500);
        if (found && !td__store_connect(l->w.store, &l->w.secret, &(td__store_opts){0},
                                        soon < until ? soon : until, &l->store))
            return TD_OK;
        if (td__deadline_passed(until))
            return TD_FAIL(
                TD_ETIMEDOUT,
                "rank %d of %d timed out after %.0f s waiting for rank 0 at %s; if ranks are on "
                "several hosts, use tandem launch or set %s to a folder they share",
                l->w.rank, l->w.size, 1e-9 * (double)(td__clock_ns() - l->began_ns), l->w.meeting,
                td__env_name(TD_ENV_RENDEZVOUS));
        poll(NULL, 0, 2); /* folders on a network tell nobody of new files */
    }
}

/* The host of the store may be gone or stopped, and this comm no longer needed: checked in
 * between, each time after twice as long, so that a server that is only slow is reached too. */
static td_status connect_or_stop(td__world_link *l, const td__store_opts *o, td__deadline until)
{
    enum { FIRST_MS = 500 };
    td__world *w = &l->w;
    td_status st = TD_ETIMEDOUT;
    for (uint64_t ms = FIRST_MS; st == TD_ETIMEDOUT; ms *= 2) {
        td__deadline soon = td__deadline_in_ms(ms);
        TD_TRY(td__comm_stop_check(w->stop));
        st = td__store_connect(w->store, &w->secret, o, soon < until ? soon : until, &l->store);
        if (td__deadline_passed(until))
            break;
    }
    return st;
}

/* The store at a port that all ranks were told. Another world of this process may serve it already:
 * then it is this one's, too. */
static td_status serve_store(td__world_link *l)
{
    td__world *w = &l->w;
    char host[TD_ADDRESS_BYTES], listen[80];
    const char *port = strrchr(w->store, ':');

    if (!port)
        return TD_FAIL(TD_EINVAL, "%s: expected HOST:PORT, found %s", td__env_name(TD_ENV_STORE),
                       w->store);
    if (w->route) {
        td__socket_own_host(host);
        TD_TRY(set_address(w, host));
    }
    snprintf(listen, sizeof listen, "0.0.0.0%.16s", port);
    if (td__store_server_create(&w->secret, &(td__store_opts){.listen = listen}, &l->server))
        TD_LOG(INFO, COLL, "the store is served by another: %s", td_last_error());
    snprintf(listen, sizeof listen, "127.0.0.1%.16s", port);
    snprintf(w->store, sizeof w->store, "%s", listen);
    return TD_OK;
}

td_status td__world_connect(td__world_link *l, td__deadline until)
{
    td__world *w = &l->w;
    char host[TD_ADDRESS_BYTES];
    if (w->server == w->rank + 1)
        TD_TRY(serve_store(l));
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

static td_status publish_self(td__world_link *l, td__deadline until)
{
    char key[64], text[600];
    const td__world *w = &l->w;
    snprintf(key, sizeof key, "%s/rank%d", l->group, w->rank);
    int n = snprintf(text, sizeof text, "%s\n%s\n%d\n%s\n%s\n", w->host, w->hostname, (int)getpid(),
                     w->address, l->options);
    return td__store_set(l->store, key, text, (size_t)n + 1, until);
}

/* The record of rank r. Ranks with other options would make other calls, or wait for connections
 * that nobody makes. */
static td_status parse_member(const td__world_link *l, int r, const char *text, size_t nbytes,
                              td__member *out)
{
    char options[sizeof l->options];
    if (!nbytes || text[nbytes - 1] ||
        sscanf(text, "%63[^\n]\n%63[^\n]\n%d\n%63[^\n]\n%255[^\n]\n", out->host, out->hostname,
               &out->pid, out->address, options) != 5)
        return TD_FAIL(TD_EPROTO,
                       "malformed rank record; do all ranks run the same version of tandem?");
    if (strcmp(options, l->options) != 0)
        return TD_FAIL(TD_EINVAL,
                       "rank %d has %s, but rank %d has %s: give all ranks the same "
                       "(parallel.transport, parallel.algo, TANDEM_ENGINE)",
                       l->w.rank, l->options, r, options);
    return TD_OK;
}

/* Who has not come? Their number, and "2 ranks: 1, 3". *first: no lower rank than this one has. */
static int find_missing(td__world_link *l, char text[160], bool *first)
{
    char some[128] = "", key[64];
    int n_missing = 0;
    size_t used = 0;
    *first = true;
    for (int r = 0; r < l->w.size; r++) {
        void *value = NULL;
        size_t n;
        snprintf(key, sizeof key, "%s/rank%d", l->group, r);
        if (td__store_get(l->store, key, td__deadline_in_ms(200), &value, &n))
            break;
        if (!value && used + 16 < sizeof some)
            used +=
                (size_t)snprintf(some + used, sizeof some - used, "%s%d", n_missing ? ", " : "", r);
        n_missing += !value;
        *first &= !value || r >= l->w.rank;
        td__free(value);
    }
    snprintf(text, 160, "%d rank%s: %s%s", n_missing, n_missing == 1 ? "" : "s", some,
             n_missing > 12 ? ", ..." : "");
    return n_missing;
}

static td_status nobody_came(td__world_link *l, td_status st)
{
    char missing[160], why[400];
    bool first;
    snprintf(why, sizeof why, "%s", td_last_error());
    if (st != TD_ETIMEDOUT || !find_missing(l, missing, &first))
        return TD_FAIL(st, "%s", why);
    return TD_FAIL(TD_ETIMEDOUT, "rank %d of %d timed out after %.0f s waiting for %s", l->w.rank,
                   l->w.size, 1e-9 * (double)(td__clock_ns() - l->began_ns), missing);
}

/* The records of all ranks. When that takes long, the lowest rank that is here says who is missing.
 */
static td_status wait_for_all(td__world_link *l, td__deadline until, void **all, size_t *nbytes)
{
    char key[64], missing[160];
    bool first;
    td__deadline soon = td__deadline_in_ms(LONG_WAIT_MS);
    snprintf(key, sizeof key, "%s/rank", l->group);
    td_status st =
        td__store_wait_all(l->store, key, l->w.size, soon < until ? soon : until, all, nbytes);
    if (st != TD_ETIMEDOUT || td__deadline_passed(until))
        return st;
    if (find_missing(l, missing, &first) && first)
        TD_LOG(WARN, COLL, "rank %d of %d has waited %d s for %s; it gives up in %.0f s", l->w.rank,
               l->w.size, (int)LONG_WAIT_MS / 1000, missing,
               1e-9 * (double)td__deadline_left_ns(until));
    return td__store_wait_all(l->store, key, l->w.size, until, all, nbytes);
}

td_status td__world_meet(td__world_link *l, td__deadline until)
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
    td__watchdog_opts mo = {.rank = w->rank,
                            .size = w->size,
                            .members = l->members,
                            .host = w->meeting[0] ? 1 : w->server};
    TD_TRY(td__watchdog_create(l->store, l->group, &mo, until, &l->watchdog));
    td__watchdog_meeting(l->watchdog, NULL, 0, l->group, 0);
    TD_TRY(publish_self(l, until));

    void *all = NULL;
    size_t nbytes = 0, at = 0;
    td_status st = wait_for_all(l, until, &all, &nbytes);
    if (st)
        return nobody_came(l, st);
    for (int r = 0; r < w->size && !st; r++) {
        uint32_t n = 0;
        if (nbytes - at >= sizeof n)
            memcpy(&n, (char *)all + at, sizeof n);
        at += sizeof n;
        if (at > nbytes || n > nbytes - at)
            st = TD_FAIL(TD_EPROTO, "the store's list of ranks is truncated");
        else
            st = parse_member(l, r, (char *)all + at, n, &l->members[r]);
        at += n;
    }
    td__free(all);
    return st;
}
