/* send.c -- checkpoints on their way to remote storage (see mirror.h).
 *
 * A checkpoint that is to be sent is linked into RUN/.upload first, so that it stays while the run
 * removes old ones. The thread takes the newest and sends its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "mirror/mirror.h"
#include "remote/remote.h"
#include "remote/url.h"
#include "run/run_dir.h"

enum { SEND_MS = 600000, MOST_FILES = 32, MOST_KEPT = 4096 };

struct td__mirror {
    td__observer observer; /* first: it is handed out as this */
    td__observer *next;
    char url[TD__URL_BYTES], dir[TD__PATH], spool[TD__PATH];
    int keep;
    td__remote *remote;
    pthread_t thread;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t more;
    char waiting[TD__STEP_NAME]; /* in the spool; "": none */
    bool finish;
    int skipped; /* checkpoints that a newer one has overtaken */
    /* The thread's own. */
    uint64_t there[MOST_KEPT]; /* steps: what a run before has left, then those sent, in order */
    int n_there, n_left;       /* n_left: of those that a run before has left */
    bool described;            /* job.yaml is there */
    bool resuming;             /* a run before has had checkpoints */
    td_status st;              /* of the last one */
    char text[1024];
};

td_status td__mirror_check(const char *url)
{
    td__url u;
    return td__url_parse(url, &u);
}

static void remove_folder(const char *path)
{
    char file[TD__PATH];
    DIR *d = opendir(path);

    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && !td__run_dir_path(path, e->d_name, file))
            unlink(file);
    if (d)
        closedir(d);
    rmdir(path);
}

/* ---- on the trainer's thread ---- */

/* Links cost nothing and keep the bytes. */
static td_status link_files(const char *from, const char *to)
{
    char a[TD__PATH], b[TD__PATH];
    td_status st = TD_OK;
    DIR *d;

    remove_folder(to);
    if (mkdir(to, 0777) != 0 || !(d = opendir(from)))
        return TD_FAIL(TD_EIO, "%s: cannot be prepared for upload: %s", from, strerror(errno));
    for (const struct dirent *e; !st && (e = readdir(d));) {
        if (e->d_name[0] == '.' || td__run_dir_path(from, e->d_name, a) ||
            td__run_dir_path(to, e->d_name, b))
            continue;
        if (link(a, b) != 0)
            st = TD_FAIL(TD_EIO, "%s: cannot be linked: %s", a, strerror(errno));
    }
    closedir(d);
    return st;
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    td__mirror *m = (td__mirror *)o;
    const char *slash = strrchr(e->path, '/'), *name = slash ? slash + 1 : e->path;
    char path[TD__PATH];

    pthread_mutex_lock(&m->lock);
    td_status st = td__run_dir_path(m->spool, name, path);
    if (!st)
        st = link_files(e->path, path);
    if (!st) {
        char old[TD__PATH];
        if (m->waiting[0] && strcmp(m->waiting, name) != 0 &&
            !td__run_dir_path(m->spool, m->waiting, old)) {
            remove_folder(old);
            m->skipped++;
        }
        snprintf(m->waiting, sizeof m->waiting, "%s", name);
        pthread_cond_signal(&m->more);
    }
    pthread_mutex_unlock(&m->lock);
    if (st) /* the run goes on: its checkpoint is on the disk */
        TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
    return m->next && m->next->checkpoint ? m->next->checkpoint(m->next, e) : TD_OK;
}

#define PASS_ON(name, type)                                      \
    static td_status pass_##name(td__observer *o, type e)        \
    {                                                            \
        td__observer *next = ((td__mirror *)o)->next;            \
        return next && next->name ? next->name(next, e) : TD_OK; \
    }
PASS_ON(begin, const td__train_info *)
PASS_ON(step, const td__step_event *)
PASS_ON(eval, const td__eval_event *)
PASS_ON(end, const td__train_result *)
PASS_ON(ranks, const td__ranks_event *)
PASS_ON(spans, const td__spans_event *)

/* ---- on the mirror's thread ---- */

static td_status put_file(td__mirror *m, const char *folder, const char *name, const char *file)
{
    char path[TD__PATH], place[TD__PATH], url[TD__URL_BYTES];

    TD_TRY(td__run_dir_path(folder, file, path));
    snprintf(place, sizeof place, "%s%s%s", name, name[0] ? "/" : "", file);
    TD_TRY(td__url_join(m->url, place, url));
    return td__remote_put_file(m->remote, url, path, NULL, td__deadline_in_ms(SEND_MS));
}

/* All files of a checkpoint, state.json last. */
static td_status send_folder(td__mirror *m, const char *folder, const char *name)
{
    char file[MOST_FILES][256];
    int n = 0;
    DIR *d = opendir(folder);

    for (const struct dirent *e; d && n < MOST_FILES && (e = readdir(d));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, TD__STATE_FILE) != 0)
            snprintf(file[n++], sizeof file[0], "%s", e->d_name);
    if (!d)
        return TD_FAIL(TD_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    closedir(d);
    for (int i = 0; i < n; i++)
        TD_TRY(put_file(m, folder, name, file[i]));
    return put_file(m, folder, name, TD__STATE_FILE);
}

static td_status point(td__mirror *m, const char *pointer, const char *name)
{
    char url[TD__URL_BYTES], line[TD__STEP_NAME + 2];

    TD_TRY(td__url_join(m->url, pointer, url));
    int n = snprintf(line, sizeof line, "%s\n", name);
    return td__remote_put(m->remote, url, line, (size_t)n, td__deadline_in_ms(SEND_MS));
}

/* Was it sent by this run? What one before has left may have other bits. */
static bool is_sent(const td__mirror *m, uint64_t step)
{
    for (int i = m->n_left; i < m->n_there; i++)
        if (m->there[i] == step)
            return true;
    return false;
}

static void forget(td__mirror *m, int i)
{
    m->n_left -= i < m->n_left;
    m->n_there--;
    memmove(&m->there[i], &m->there[i + 1], (size_t)(m->n_there - i) * sizeof m->there[0]);
}

static void remember(td__mirror *m, uint64_t step)
{
    if (is_sent(m, step))
        return;
    for (int i = 0; i < m->n_left; i++)
        if (m->there[i] == step)
            forget(m, i--);
    if (m->n_there < MOST_KEPT)
        m->there[m->n_there++] = step;
}

/* One of the objects that a run before has left. */
static bool found(void *user, const char *name, uint64_t nbytes)
{
    td__mirror *m = user;
    char folder[TD__STEP_NAME];
    const char *slash = strchr(name, '/');
    uint64_t step;
    int i = m->n_left;

    (void)nbytes;
    if (!slash || slash - name >= TD__STEP_NAME || strcmp(slash + 1, TD__STATE_FILE) != 0)
        return true;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    if (!td__step_parse(folder, &step))
        return true;
    for (; i > 0 && m->there[i - 1] > step; i--) /* the oldest first */
        m->there[i] = m->there[i - 1];
    m->there[i] = step;
    m->n_there = ++m->n_left;
    return m->n_left < MOST_KEPT / 2;
}

/* checkpoint.keep is about all that is there. A store without lists, or that refuses one, keeps
 * what it has. */
static void look(td__mirror *m)
{
    td_status st = td__remote_list(m->remote, m->url, found, m, td__deadline_in_ms(SEND_MS));
    if (st && st != TD_ENOTSUP && !td__remote_absent(m->remote))
        TD_LOG(INFO, TRAIN, "checkpoint.upload: checkpoints of before stay there: %s",
               td_last_error());
}

/* Without state.json it is no checkpoint any more, whatever else is still there. */
static td_status remove_remote(td__mirror *m, uint64_t step)
{
    static const char *const FILES[] = {TD__STATE_FILE,
#define X(id, name) name,
                                        TD__CHECKPOINT_FILE_MAP(X)
#undef X
                                            NULL};
    char name[TD__STEP_NAME], place[TD__PATH], url[TD__URL_BYTES];

    td__step_name(step, name);
    for (int i = 0; FILES[i]; i++) {
        snprintf(place, sizeof place, "%s/%s", name, FILES[i]);
        TD_TRY(td__url_join(m->url, place, url));
        TD_TRY(td__remote_delete(m->remote, url, td__deadline_in_ms(SEND_MS)));
    }
    return TD_OK;
}

static td_status prune(td__mirror *m, const char *best)
{
    uint64_t best_step = UINT64_MAX;

    (void)td__step_parse(best, &best_step);
    for (int i = 0; i < m->n_there - m->keep;)
        if (m->there[i] == best_step) {
            i++;
        } else {
            TD_TRY(remove_remote(m, m->there[i]));
            forget(m, i);
        }
    return TD_OK;
}

/* The best one, if it was overtaken on its way. */
static td_status send_best(td__mirror *m, char best[TD__STEP_NAME])
{
    char folder[TD__PATH], checkpoints[TD__PATH];
    uint64_t step;

    best[0] = '\0';
    TD_TRY(td__run_dir_path(m->dir, "checkpoints", checkpoints));
    if (!td__checkpoint_pointer(checkpoints, TD__BEST_FILE, best) || !td__step_parse(best, &step))
        return TD_OK;
    if (!is_sent(m, step)) {
        TD_TRY(td__run_dir_path(checkpoints, best, folder));
        TD_TRY(send_folder(m, folder, best));
        remember(m, step);
    }
    return point(m, TD__BEST_FILE, best);
}

static td_status send_one(td__mirror *m, const char *name)
{
    char folder[TD__PATH], best[TD__STEP_NAME];
    uint64_t step = 0;

    if (!m->described) {
        TD_TRY(put_file(m, m->dir, "", "job.yaml"));
        if (m->resuming)
            look(m);
    }
    m->described = true;
    TD_TRY(td__run_dir_path(m->spool, name, folder));
    TD_TRY(send_folder(m, folder, name));
    if (td__step_parse(name, &step))
        remember(m, step);
    TD_TRY(point(m, TD__LATEST_FILE, name));
    TD_TRY(send_best(m, best));
    return prune(m, best);
}

static void *work(void *arg)
{
    td__mirror *m = arg;
    char name[TD__STEP_NAME], taken[TD__PATH], folder[TD__PATH];

    for (;;) {
        pthread_mutex_lock(&m->lock);
        while (!m->waiting[0] && !m->finish)
            pthread_cond_wait(&m->more, &m->lock);
        memcpy(name, m->waiting, sizeof name);
        m->waiting[0] = '\0';
        pthread_mutex_unlock(&m->lock);
        if (!name[0])
            return NULL;
        m->st = send_one(m, name);
        snprintf(m->text, sizeof m->text, "%s", m->st ? td_last_error() : "");
        if (m->st)
            TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", m->text);
        snprintf(taken, sizeof taken, "%s", m->spool);
        pthread_mutex_lock(&m->lock);
        /* The same step may wait again, with other files. */
        if (strcmp(m->waiting, name) != 0 && !td__run_dir_path(taken, name, folder))
            remove_folder(folder);
        pthread_mutex_unlock(&m->lock);
    }
}

/* ---- create, finish ---- */

/* What a run that was killed has left. */
static void sweep(const char *spool)
{
    char path[TD__PATH];
    DIR *d = opendir(spool);

    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && !td__run_dir_path(spool, e->d_name, path))
            remove_folder(path);
    if (d)
        closedir(d);
}

static void destroy(td__mirror *m)
{
    td__remote_destroy(m->remote);
    pthread_cond_destroy(&m->more);
    pthread_mutex_destroy(&m->lock);
    td__free(m);
}

td_status td__mirror_create(const char *url, const char *dir, int keep, td__observer *next,
                            td__mirror **out)
{
    td__mirror *m = td__calloc(1, sizeof *m);
    td_status st;

    *out = NULL;
    if (!m)
        return TD_FAIL(TD_ENOMEM, "out of memory for checkpoint.upload");
    m->observer = (td__observer){.begin = pass_begin,
                                 .step = pass_step,
                                 .eval = pass_eval,
                                 .checkpoint = on_checkpoint,
                                 .end = pass_end,
                                 .ranks = pass_ranks,
                                 .spans = pass_spans};
    m->next = next;
    m->keep = keep > 0 ? keep : 1;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->more, NULL);
    TD_TRY_OR(st, fail, td__mirror_check(url));
    snprintf(m->url, sizeof m->url, "%s", url);
    snprintf(m->dir, sizeof m->dir, "%s", dir);
    m->resuming = td__checkpoint_any(dir);
    TD_TRY_OR(st, fail, td__run_dir_path(dir, ".upload", m->spool));
    if (mkdir(m->spool, 0777) != 0 && errno != EEXIST) {
        st = TD_FAIL(TD_EIO, "%s: cannot be created: %s", m->spool, strerror(errno));
        goto fail;
    }
    sweep(m->spool);
    TD_TRY_OR(st, fail, td__remote_create(NULL, &m->remote));
    if (pthread_create(&m->thread, NULL, work, m) != 0) {
        st = TD_FAIL(TD_ENOMEM, "the thread of checkpoint.upload cannot be started");
        goto fail;
    }
    *out = m;
    return TD_OK;
fail:
    destroy(m);
    return st;
}

td__observer *td__mirror_observer(td__mirror *m)
{
    return &m->observer;
}

td_status td__mirror_finish(td__mirror *m)
{
    if (!m)
        return TD_OK;
    pthread_mutex_lock(&m->lock);
    m->finish = true;
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    if (m->skipped)
        TD_LOG(INFO, TRAIN, "checkpoint.upload: %d checkpoints were overtaken by newer ones",
               m->skipped);
    rmdir(m->spool);
    td_status st = m->st ? TD_FAIL(m->st, "checkpoint.upload: %s", m->text) : TD_OK;
    destroy(m);
    return st;
}
