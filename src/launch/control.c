/* control.c -- see control.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/secret_file.h"
#include "net/gate.h"
#include "net/greet.h"
#include "net/link.h"
#include "net/socket.h"

enum { QUESTION = 1, ANSWER = 2 };

struct td__control {
    td__secret secret; /* its own: who has it can give orders, and nothing else */
    td__gate *gate;
    char address[TD_ADDRESS_BYTES], file[4096];
    td__link callers[TD_CONTROL_CALLERS];
    int next;
};

static td_status write_file(td__control *c, const char *path)
{
    TD_TRY(td__secret_file_write(path, c->address, &c->secret));
    snprintf(c->file, sizeof c->file, "%s", path);
    return TD_OK;
}

td_status td__control_create(const char *job, const char *file, td__control **out)
{
    char address[TD_ADDRESS_BYTES];
    int fd;
    td_status st = TD_OK;
    td__control *c = td__calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return TD_FAIL(TD_ENOMEM, "no memory to take orders");
    if (getrandom(c->secret.bytes, sizeof c->secret.bytes, 0) != sizeof c->secret.bytes) {
        td__free(c);
        return TD_FAIL(TD_EIO, "no random numbers for a secret: %s", strerror(errno));
    }
    for (int i = 0; i < TD_CONTROL_CALLERS; i++)
        c->callers[i].conn.fd = -1;
    snprintf(address, sizeof address, "unix:@tandem-%s-control", job);
    TD_TRY_OR(st, fail, td__socket_listen(address, &fd, c->address));
    TD_TRY_OR(st, fail, td__gate_create_take(fd, TD_HS_AGENT, &c->secret, NULL, &c->gate));
    if (file)
        TD_TRY_OR(st, fail, write_file(c, file));
    *out = c;
    return TD_OK;
fail:
    td__control_destroy(c);
    return st;
}

void td__control_destroy(td__control *c)
{
    if (!c)
        return;
    if (c->file[0])
        unlink(c->file);
    for (int i = 0; i < TD_CONTROL_CALLERS; i++)
        td__link_fini(&c->callers[i]);
    td__gate_destroy(c->gate);
    explicit_bzero(&c->secret, sizeof c->secret);
    td__free(c);
}

void td__control_offer(td__control *c, const char *dir)
{
    char path[4096];
    if (c->file[0])
        return;
    if (snprintf(path, sizeof path - 16, "%s/control", dir) >= (int)sizeof path - 16 ||
        write_file(c, path))
        TD_LOG(WARN, LAUNCH, "no orders can be given to this job: %s", td_last_error());
}

void td__control_poll(td__control *c, struct pollfd p[TD_CONTROL_FDS])
{
    p[0] = (struct pollfd){c ? td__gate_fd(c->gate) : -1, POLLIN, 0};
    for (int i = 0; i < TD_CONTROL_CALLERS; i++)
        p[1 + i] = (struct pollfd){c ? c->callers[i].conn.fd : -1,
                                   c ? td__link_events(&c->callers[i]) : 0, 0};
}

static void enter(void *user, td__conn conn)
{
    td__control *c = user;
    td__link *l = &c->callers[c->next++ % TD_CONTROL_CALLERS];
    td__link_fini(l);
    td__link_init_take(l, conn);
}

void td__control_serve(td__control *c, const struct pollfd p[TD_CONTROL_FDS],
                       void (*answer)(void *user, const char *question, td__text *out), void *user)
{
    char question[TD_CONTROL_LINE];
    td__link_msg m;
    if (!c)
        return;
    if (p[0].revents)
        td__gate_serve(c->gate, enter, c);
    for (int i = 0; i < TD_CONTROL_CALLERS; i++) {
        td__link *l = &c->callers[i];
        if (l->conn.fd < 0)
            continue;
        td__link_flush(l);
        td__link_fill(l);
        while (td__link_next(l, &m)) {
            if (m.kind != QUESTION || m.nbytes >= sizeof question)
                continue;
            memcpy(question, m.data, m.nbytes);
            question[m.nbytes] = 0;
            td__text out = {0};
            answer(user, question, &out);
            if (!td__text_status(&out))
                td__link_send(l, ANSWER, out.data, out.used);
            td__text_fini(&out);
        }
        if (!td__link_up(l))
            td__link_fini(l);
    }
}

/* ---- the other side ---- */

static td_status read_file(const char *run, char address[TD_ADDRESS_BYTES], td__secret *secret)
{
    char path[4096];
    struct stat st;
    bool folder = !stat(run, &st) && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s%s", run, folder ? "/control" : "");
    return td__secret_file_read(path, address, secret);
}

td_status td__control_ask(const char *run, const char *question, td__deadline until, td__text *out)
{
    char address[TD_ADDRESS_BYTES];
    td__secret secret;
    td__conn conn;
    td__link link;
    td__link_msg m;
    td_status st = TD_OK;
    TD_TRY(read_file(run, address, &secret));
    st = td__greet_connect(address, TD_HS_AGENT, &secret, NULL, until, &conn);
    explicit_bzero(&secret, sizeof secret);
    if (st)
        return st;
    td__link_init_take(&link, conn);
    td__link_send(&link, QUESTION, question, strlen(question));
    for (;;) {
        if (td__link_next(&link, &m) && m.kind == ANSWER) {
            td__text_append(out, m.data, m.nbytes);
            st = td__text_status(out);
            break;
        }
        if (!td__link_up(&link))
            TD_TRY_OR(st, done, TD_FAIL(TD_EPEER, "%s: the job ended", run));
        if (td__deadline_passed(until))
            TD_TRY_OR(st, done, TD_FAIL(TD_ETIMEDOUT, "%s: the job does not answer", run));
        td__socket_poll(link.conn.fd, false, until);
        td__link_fill(&link);
    }
done:
    td__link_fini(&link);
    return st;
}
