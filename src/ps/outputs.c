/* outputs.c -- see outputs.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/outputs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/secret_file.h"
#include "net/gate.h"
#include "net/greet.h"
#include "net/link.h"
#include "net/tls.h"

enum { ASK = 1, OUTPUTS = 2, REFUSED = 3 };
enum { CALLERS = 16, PATH = 4096, ANSWER_MS = 60 * 1000 };

typedef struct ask {
    uint64_t rows, nbytes;
} ask;

typedef struct answer {
    uint64_t step, rows, row_nbytes;
} answer;

static td_status name_file(const char *folder, char out[PATH])
{
    return snprintf(out, PATH, "%s/outputs", folder) < PATH
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "%.60s...: the name is too long", folder);
}

/* The folder of the certificate, and what is in it. */
static td_status name_tls(const char *folder, const char *file, char out[PATH])
{
    return snprintf(out, PATH, "%s/outputs.tls%s", folder, file) < PATH
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "%.60s...: the name is too long", folder);
}

/* ---- Server 0 -------------------------------------------------------------------------------- */

struct td__ps_outputs {
    td__ps_outputs_opts o;
    td__secret secret; /* its own: who has it can ask, and nothing else */
    td__gate *gate;
    td__tls *tls; /* where clients may be elsewhere */
    char file[PATH];
    td__link callers[CALLERS];
    int next;
    bool fresh; /* all params are here, of this turn */
};

static void remove_tls(const char *folder)
{
    char path[PATH];
    if (!name_tls(folder, "/key.pem", path))
        unlink(path);
    if (!name_tls(folder, "/cert.pem", path))
        unlink(path);
    if (!name_tls(folder, "", path))
        rmdir(path);
}

/* A new one for every server: who has an old one is a stranger. */
static td_status make_tls(td__ps_outputs *o)
{
    char path[PATH];
    if (!o->o.address)
        return TD_OK;
    remove_tls(o->o.folder);
    TD_TRY(name_tls(o->o.folder, "", path));
    if (mkdir(path, 0700))
        return TD_FAIL(TD_EIO, "%s: cannot be created: %s", path, strerror(errno));
    TD_TRY(td__tls_make(path));
    return td__tls_create(path, &o->tls);
}

static td_status listen_there(td__ps_outputs *o)
{
    char address[TD_ADDRESS_BYTES], actual[TD_ADDRESS_BYTES], file[PATH];
    uint64_t name;
    int fd;
    if (getrandom(o->secret.bytes, sizeof o->secret.bytes, 0) != sizeof o->secret.bytes ||
        getrandom(&name, sizeof name, 0) != sizeof name)
        return TD_FAIL(TD_EIO, "no random numbers for a secret: %s", strerror(errno));
    TD_TRY(name_file(o->o.folder, file));
    snprintf(address, sizeof address, "unix:@tandem-outputs-%016llx", (unsigned long long)name);
    TD_TRY(make_tls(o));
    TD_TRY(td__socket_listen(o->o.address ? o->o.address : address, &fd, actual));
    TD_TRY(td__gate_create_take(fd, TD_HS_OUTPUTS, &o->secret, o->tls, &o->gate));
    TD_TRY(td__secret_file_write(file, actual, &o->secret));
    memcpy(o->file, file, sizeof file);
    return TD_OK;
}

td_status td__ps_outputs_create(const td__ps_outputs_opts *opts, td__ps_outputs **out)
{
    *out = NULL;
    td__ps_outputs *o = td__calloc(1, sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "no memory for clients");
    o->o = *opts;
    for (int i = 0; i < CALLERS; i++)
        o->callers[i].conn.fd = -1;
    td_status st = listen_there(o);
    if (st) {
        td__ps_outputs_destroy(o);
        return st;
    }
    *out = o;
    return TD_OK;
}

void td__ps_outputs_destroy(td__ps_outputs *o)
{
    if (!o)
        return;
    if (o->file[0])
        unlink(o->file);
    for (int i = 0; i < CALLERS; i++)
        td__link_fini(&o->callers[i]);
    td__gate_destroy(o->gate);
    td__tls_destroy(o->tls);
    if (o->o.address)
        remove_tls(o->o.folder);
    explicit_bzero(&o->secret, sizeof o->secret);
    td__free(o);
}

/* In a free place; where there is none, somebody else has to go. */
static void enter(void *user, td__conn conn)
{
    td__ps_outputs *o = user;
    int at = 0;
    while (at < CALLERS && o->callers[at].conn.fd >= 0)
        at++;
    td__link *l = &o->callers[at < CALLERS ? at : o->next++ % CALLERS];
    td__link_fini(l);
    td__link_init_take(l, conn);
}

static void refuse(td__link *l, const char *why)
{
    td__link_send(l, REFUSED, why, strlen(why));
}

/* The outputs behind the words that announce them. */
static void tell(td__link *l, uint64_t step, int64_t rows, const void *out, size_t row_nbytes)
{
    answer a = {step, (uint64_t)rows, row_nbytes};
    size_t room = TD_LINK_MOST - sizeof a, nbytes;
    if (!td__size_mul((size_t)rows, row_nbytes, &nbytes) || nbytes > room) {
        refuse(l, "the outputs are too large for a message: send fewer samples at once");
        return;
    }
    char *message = td__malloc(sizeof a + nbytes);
    if (!message) {
        refuse(l, "no memory for the outputs");
        return;
    }
    memcpy(message, &a, sizeof a);
    memcpy(message + sizeof a, out, nbytes);
    td__link_send(l, OUTPUTS, message, sizeof a + nbytes);
    td__free(message);
}

static td_status reply(td__ps_outputs *o, td__link *l, const td__link_msg *m, uint64_t step)
{
    ask a;
    void *out = NULL;
    size_t row_nbytes;
    if (m->kind != ASK || m->nbytes < sizeof a) {
        refuse(l, "this is no question");
        return TD_OK;
    }
    memcpy(&a, m->data, sizeof a);
    if (!a.rows || a.rows > TD_LINK_MOST || a.nbytes != m->nbytes - sizeof a) {
        refuse(l, "a question of another length than it says, or of no samples");
        return TD_OK;
    }
    if (!o->fresh && o->o.params)
        TD_TRY(o->o.params(o->o.user));
    o->fresh = true;
    td_status st = o->o.outputs(o->o.user, (int64_t)a.rows, (const char *)m->data + sizeof a,
                                (size_t)a.nbytes, &out, &row_nbytes);
    if (st)
        refuse(l, td_last_error());
    else
        tell(l, step, (int64_t)a.rows, out, row_nbytes);
    td__free(out);
    return TD_OK;
}

td_status td__ps_outputs_serve(td__ps_outputs *o, uint64_t step)
{
    td__link_msg m;
    if (!o)
        return TD_OK;
    o->fresh = false;
    td__gate_serve(o->gate, enter, o);
    for (int i = 0; i < CALLERS; i++) {
        td__link *l = &o->callers[i];
        if (l->conn.fd < 0)
            continue;
        td__link_flush(l);
        td__link_fill(l);
        while (td__link_next(l, &m))
            TD_TRY(reply(o, l, &m, step));
        if (!td__link_up(l))
            td__link_fini(l);
    }
    return TD_OK;
}

/* ---- A client -------------------------------------------------------------------------------- */

struct td__ps_live {
    td__link link;
    td__tls *tls; /* NULL: the run is on this host */
    uint64_t step;
};

static td_status connect_to(td__ps_live *l, const char *folder)
{
    char path[PATH], address[TD_ADDRESS_BYTES];
    td__secret secret;
    td__conn conn;
    TD_TRY(name_file(folder, path));
    TD_TRY(td__secret_file_read(path, address, &secret));
    td_status st = name_tls(folder, "", path);
    if (!st && strncmp(address, "unix:", 5) != 0)
        st = td__tls_create(path, &l->tls);
    if (!st)
        st = td__greet_connect(address, TD_HS_OUTPUTS, &secret, l->tls,
                               td__deadline_in_ms(ANSWER_MS), &conn);
    explicit_bzero(&secret, sizeof secret);
    TD_TRY(st);
    td__link_init_take(&l->link, conn);
    return TD_OK;
}

td_status td__ps_live_open(const char *folder, td__ps_live **out)
{
    td__ps_live *l = td__calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a connection");
    l->link.conn.fd = -1;
    td_status st = connect_to(l, folder);
    if (st) {
        td__ps_live_close(l);
        return st;
    }
    *out = l;
    return TD_OK;
}

void td__ps_live_close(td__ps_live *l)
{
    if (!l)
        return;
    td__link_fini(&l->link);
    td__tls_destroy(l->tls);
    td__free(l);
}

uint64_t td__ps_live_step(const td__ps_live *l)
{
    return l->step;
}

static td_status await(td__ps_live *l, td__link_msg *m)
{
    td__deadline until = td__deadline_in_ms(ANSWER_MS);
    while (!td__link_next(&l->link, m)) {
        if (!td__link_up(&l->link))
            return TD_FAIL(TD_EPEER, "the run has ended, or its server 0 was replaced");
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "the run does not answer within %d s", ANSWER_MS / 1000);
        td__socket_poll(l->link.conn.fd, td__link_events(&l->link) != POLLIN, until);
        td__link_flush(&l->link);
        td__link_fill(&l->link);
    }
    return TD_OK;
}

static td_status take(td__ps_live *l, int64_t rows, size_t row_nbytes, void *out)
{
    td__link_msg m;
    answer a;
    TD_TRY(await(l, &m));
    if (m.kind == REFUSED)
        return TD_FAIL(TD_EINVAL, "the run refuses the samples: %.*s", (int)m.nbytes,
                       (const char *)m.data);
    if (m.kind != OUTPUTS || m.nbytes < sizeof a)
        return TD_FAIL(TD_EPROTO, "the run answers something else than outputs");
    memcpy(&a, m.data, sizeof a);
    if (a.rows != (uint64_t)rows || a.row_nbytes != row_nbytes ||
        m.nbytes - sizeof a != (size_t)rows * row_nbytes)
        return TD_FAIL(TD_EPROTO, "the run answers %llu rows of %llu bytes, not %lld of %zu",
                       (unsigned long long)a.rows, (unsigned long long)a.row_nbytes,
                       (long long)rows, row_nbytes);
    memcpy(out, (const char *)m.data + sizeof a, (size_t)rows * row_nbytes);
    l->step = a.step;
    return TD_OK;
}

td_status td__ps_live_outputs(td__ps_live *l, int64_t rows, int n, const void *const *inputs,
                              const size_t *nbytes, size_t row_nbytes, void *out)
{
    size_t sample = 0, larger;
    for (int i = 0; i < n; i++)
        sample += nbytes[i];
    larger = sample > row_nbytes ? sample : row_nbytes;
    int64_t most = larger ? (int64_t)((TD_LINK_MOST - sizeof(answer)) / larger) : rows;
    if (!most)
        return TD_FAIL(TD_EINVAL, "a sample of %zu bytes is too large for a message", larger);
    most = most < rows ? most : rows;
    char *message = td__malloc(sizeof(ask) + (size_t)most * sample);
    td_status st =
        message ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %lld samples", (long long)most);
    for (int64_t at = 0, some; !st && at < rows; at += some) {
        some = rows - at < most ? rows - at : most;
        ask a = {(uint64_t)some, (uint64_t)some * sample};
        char *to = message + sizeof a;
        memcpy(message, &a, sizeof a);
        for (int i = 0; i < n; i++) {
            memcpy(to, (const char *)inputs[i] + (size_t)at * nbytes[i], (size_t)some * nbytes[i]);
            to += (size_t)some * nbytes[i];
        }
        td__link_send(&l->link, ASK, message, (size_t)(to - message));
        st = take(l, some, row_nbytes, (char *)out + (size_t)at * row_nbytes);
    }
    td__free(message);
    return st;
}
