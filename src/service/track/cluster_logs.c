/* cluster_logs.c -- output of members: a file in the job's directory for each, which grows by what
 * the other system has and the file has not yet. It stays when the member is removed.
 *
 * A member that somebody looks at while it runs has a follower: a thread that copies its output as
 * it comes, and says LOG. At most FOLLOWERS at a time; who comes later looks again by and by. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "base/log.h"
#include "service/track/cluster_impl.h"

enum { FOLLOWERS = 64, SHOWN_AT_ONCE = 1 << 20 };

struct td__follower {
    td__cluster *c;
    td__cluster_group *g; /* NULL: it is gone, or the tracker ends */
    td__launch *l;        /* a copy: the group may go first */
    int member;
    uint64_t base;
    pthread_t thread;
    atomic_bool told; /* LOG is under way to the loop */
    td__mail grown, done;
    td__follower *next;
};

void td__cluster_log_path(const char *dir, const char *token, int member, char *out, size_t nbytes)
{
    snprintf(out, nbytes, "%s/output-%s-%d.log", dir, token, member);
}

uint64_t td__cluster_log_bytes(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0;
}

typedef struct copy {
    int fd;
    uint64_t skip; /* bytes that the file has already */
    int error;
    void (*grown)(void *);
    void *arg;
} copy;

static bool on_output(void *user, const void *data, size_t nbytes)
{
    copy *x = user;
    size_t done = x->skip < nbytes ? (size_t)x->skip : nbytes;

    x->skip -= done;
    if (done == nbytes)
        return true;
    while (done < nbytes) {
        ssize_t n = write(x->fd, (const char *)data + done, nbytes - done);
        if (n < 0) {
            x->error = errno;
            return false;
        }
        done += (size_t)n;
    }
    if (x->grown)
        x->grown(x->arg);
    return true;
}

td_status td__cluster_fetch(td__cluster *c, const td__launch *l, int member, uint64_t base,
                            bool follow, void (*grown)(void *), void *arg)
{
    char path[4096];
    copy x = {.grown = grown, .arg = arg};

    td__cluster_log_path(l->g.dir, l->g.token, member, path, sizeof path);
    x.fd = td__file_open_plain(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (x.fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot create it: %s", path, strerror(errno));
    uint64_t have = td__cluster_log_bytes(path);
    x.skip = have > base ? have - base : 0;
    td_status st = c->ops->output(c->system, l, member, follow, on_output, &x);
    close(x.fd);
    if (x.error)
        return TD_FAIL(TD_EIO, "%s: cannot write it: %s", path, strerror(x.error));
    return st;
}

void td__cluster_show(const char *path, uint64_t from, const td__log_sink *sink, td_status st)
{
    char block[1 << 14];
    int fd = td__file_open_plain(path, O_RDONLY, 0);
    uint64_t shown = 0;
    ssize_t n;

    while (fd >= 0 && shown < SHOWN_AT_ONCE &&
           (n = pread(fd, block, sizeof block, (off_t)(from + shown))) > 0) {
        sink->data(sink->arg, block, (size_t)n, from + shown);
        shown += (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
    sink->end(sink->arg, fd >= 0 ? TD_OK : st);
}

static td__follower *follower_of(td__cluster *c, const td__cluster_group *g, int member)
{
    td__follower *f = c->followers;
    while (f && (f->g != g || f->member != member))
        f = f->next;
    return f;
}

void td__cluster_logs(td__tracker *t, const char *token, const char *dir, int member, uint64_t from,
                      const td__log_sink *sink)
{
    td__cluster *c = (td__cluster *)t;
    td__cluster_group *g = td__cluster_find(c, token);
    char path[4096];

    td__cluster_log_path(dir, token, member, path, sizeof path);
    bool known = g && !g->over && member >= 0 && member < g->l->members;
    td__call *call =
        known && !follower_of(c, g, member) ? td__cluster_call(g, TD_CALL_OUTPUT) : NULL;
    if (!call) { /* all there is lies in the file */
        td__cluster_show(path, from, sink, TD_OK);
        return;
    }
    call->member = member;
    call->from = from;
    call->sink = *sink;
    td__cluster_push(g, call);
}

/* On the loop thread. */
static void on_grown(void *arg)
{
    td__follower *f = arg;
    atomic_store(&f->told, false);
    if (f->g)
        td__cluster_say(f->g, TD_TRACK_LOG, f->member, NULL);
}

static void on_done(void *arg)
{
    td__follower *f = arg;
    td__follower **at = &f->c->followers;

    pthread_join(f->thread, NULL);
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
    if (f->g) { /* it ended, or the stream was cut: who follows asks again */
        td__cluster_say(f->g, TD_TRACK_LOG, f->member, NULL);
        td__cluster_look_soon(f->g);
    }
    td__launch_destroy(f->l);
    td__free(f);
}

/* On the follower's thread. */
static void tell(void *arg)
{
    td__follower *f = arg;
    if (!atomic_exchange(&f->told, true))
        td__cluster_post(f->c, &f->grown);
}

static void *follow(void *arg)
{
    td__follower *f = arg;
    td_status st = td__cluster_fetch(f->c, f->l, f->member, f->base, true, tell, f);

    if (st && st != TD_EABORTED)
        TD_LOG(INFO, SERVICE, "output of member %d of %s: %s", f->member, f->l->g.token,
               td_last_error());
    td__cluster_post(f->c, &f->done);
    return NULL;
}

void td__cluster_follow(td__cluster_group *g, int member)
{
    td__cluster *c = g->c;
    int n = 0;

    for (td__follower *f = c->followers; f; f = f->next)
        n++;
    if (n >= FOLLOWERS || follower_of(c, g, member))
        return;
    td__follower *f = td__calloc(1, sizeof *f);
    if (!f || td__launch_clone(g->l, &f->l)) {
        td__free(f);
        return;
    }
    f->c = c;
    f->g = g;
    f->member = member;
    f->base = g->log_base[member];
    f->grown = (td__mail){.run = on_grown, .arg = f};
    f->done = (td__mail){.run = on_done, .arg = f};
    f->next = c->followers;
    c->followers = f;
    if (pthread_create(&f->thread, NULL, follow, f) != 0) {
        c->followers = f->next;
        td__launch_destroy(f->l);
        td__free(f);
    }
}

/* Of a group that is forgotten: its followers end when its members do. Of all, at the tracker's
 * end, after stop(): they end now, and are freed by the mail that says so. */
void td__cluster_followers_stop(td__cluster *c, const td__cluster_group *g)
{
    for (td__follower *f = c->followers; f; f = f->next)
        if (!g || f->g == g)
            f->g = NULL;
    while (!g && c->followers) {
        td__cluster_await_mail(c);
        td__cluster_read_mail(c);
    }
}
