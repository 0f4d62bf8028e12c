/* send.c -- checkpoints on their way to remote storage (see mirror.h).
 *
 * A checkpoint that is to be sent is linked into RUN/.upload first, so that it stays while the run
 * removes old ones. The thread takes the newest and sends its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "mirror/mirror_impl.h"

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
static td_status link_file(const char *from, const char *to, const char *name)
{
    char a[TD__PATH], b[TD__PATH];
    TD_TRY(td__run_dir_path(from, name, a));
    TD_TRY(td__run_dir_path(to, name, b));
    return link(a, b) == 0 ? TD_OK
                           : TD_FAIL(TD_EIO, "%s: cannot be linked: %s", a, strerror(errno));
}

static td_status link_files(const char *from, const char *to)
{
    td_status st = TD_OK;
    DIR *d;

    remove_folder(to);
    if (mkdir(to, 0777) != 0 || !(d = opendir(from)))
        return TD_FAIL(TD_EIO, "%s: cannot be prepared for upload: %s", from, strerror(errno));
    for (const struct dirent *e; !st && (e = readdir(d));)
        if (e->d_name[0] != '.')
            st = link_file(from, to, e->d_name);
    closedir(d);
    return st;
}

/* What the checkpoint needs of files of tables, to a folder beside it. */
static td_status link_tables(const td__mirror *m, const char *name, uint64_t step)
{
    char from[TD__PATH], to[TD__PATH], beside[TD__STEP_NAME + 16];
    json_t *needed, *each;
    size_t i;

    snprintf(beside, sizeof beside, "%s" TD__TABLES_BESIDE, name);
    TD_TRY(td__run_dir_path(m->spool, beside, to));
    TD_TRY(td__run_dir_path(m->dir, "checkpoints/" TD__TABLES_FOLDER, from));
    remove_folder(to);
    td_status st = td__tables_needed(from, step, &needed);
    if (!st && json_array_size(needed) && mkdir(to, 0777) != 0)
        st = TD_FAIL(TD_EIO, "%s: cannot be created: %s", to, strerror(errno));
    json_array_foreach(needed, i, each) if (!st) st = link_file(from, to, json_string_value(each));
    json_decref(needed);
    return st;
}

static void drop(td__mirror *m, td__parcel *p)
{
    char folder[TD__PATH], beside[TD__STEP_NAME + 16];

    if (p->name[0] && !td__run_dir_path(m->spool, p->name, folder))
        remove_folder(folder);
    snprintf(beside, sizeof beside, "%s" TD__TABLES_BESIDE, p->name);
    if (p->name[0] && !td__run_dir_path(m->spool, beside, folder))
        remove_folder(folder);
    td__shard_offer_destroy(p->shards);
    *p = (td__parcel){.name = ""};
}

/* Where the place is taken, the newer one has it. */
static void overtake(td__mirror *m, td__parcel *place, td__parcel *by)
{
    if (strcmp(place->name, by->name) == 0)
        place->name[0] = '\0'; /* the folder is the newer one's */
    m->skipped += place->name[0] != '\0';
    drop(m, place);
    *place = *by;
}

static void enqueue(td__mirror *m, const char *name, uint64_t step)
{
    td__parcel p = {.name = ""}, none = p;

    snprintf(p.name, sizeof p.name, "%s", name);
    if (m->offer && m->offer->step == step) {
        p.shards = m->offer;
        m->offer = NULL;
    }
    if (m->declined) {
        overtake(m, &m->held, &p);
        return;
    }
    if (!p.shards) /* ranks hold none any more: they are others, and one of them may be gone */
        m->abandon = true;
    if (strcmp(m->held.name, p.name) == 0)
        m->held.name[0] = '\0';
    overtake(m, &m->held, &none);
    overtake(m, &m->waiting, &p);
    pthread_cond_signal(&m->more);
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
    if (!st)
        st = link_tables(m, name, e->step);
    if (!st)
        enqueue(m, name, e->step);
    m->declined = false;
    pthread_mutex_unlock(&m->lock);
    if (st) /* the run goes on: its checkpoint is on the disk */
        TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
    return m->next && m->next->checkpoint ? m->next->checkpoint(m->next, e) : TD_OK;
}

/* Ranks send a checkpoint after the other, all of them the same ones: rank 0 says which. While one
 * is on its way the next are passed over, but for the last. */
static td_status on_shards(td__observer *o, const td__shards_event *e)
{
    td__mirror *m = (td__mirror *)o;
    td_status st = TD_OK;

    if (e->rank) /* shard_sender.c */
        return TD_OK;
    pthread_mutex_lock(&m->lock);
    td__shard_offer_destroy(m->offer);
    m->offer = NULL;
    if (m->busy && m->generation != e->generation) {
        m->abandon = true;
        pthread_cond_signal(&m->more);
    }
    m->declined = !e->last && !m->abandon && (m->busy || m->waiting.name[0]);
    if (!m->declined) {
        uint32_t token = (uint32_t)(td__clock_ns() ^ (uint64_t)getpid() << 16) & INT32_MAX;
        token = token ? token : 1;
        st = td__shard_offer_create(e, token, &m->offer);
        if (!st)
            *e->token = token;
    }
    pthread_mutex_unlock(&m->lock);
    if (st) /* it is sent whole */
        TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
    return m->next && m->next->shards ? m->next->shards(m->next, e) : TD_OK;
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

/* A store that was reached once may be away for a while. Meanwhile a newer one may take the place
 * of this, and a run that has failed does not wait. */
static bool tries_again(td__mirror *m, td_status st, td__deadline until)
{
    bool away = (st == TD_EPEER || st == TD_ETIMEDOUT) && m->described;

    pthread_mutex_lock(&m->lock);
    bool wanted = !m->waiting.name[0] && !(m->failed && m->finish);
    pthread_mutex_unlock(&m->lock);
    return away && wanted && !td__deadline_passed(until);
}

/* p NULL: the run's other files. The pauses are the client's. */
static td_status send_patiently(td__mirror *m, const td__parcel *p)
{
    td__deadline until = td__deadline_in_ms(TD__SEND_MS);
    bool told = false;

    for (;;) {
        td_status st = p ? td__mirror_send(m, p) : td__mirror_send_artifacts(m);
        if (!st || !tries_again(m, st, until))
            return st;
        if (!told)
            TD_LOG(WARN, TRAIN, "checkpoint.upload: it is tried again: %s", td_last_error());
        told = true;
    }
}

/* The next one to be sent; false: there is none any more. */
static bool take(td__mirror *m, td__parcel *p)
{
    pthread_mutex_lock(&m->lock);
    m->busy = false;
    while (!m->waiting.name[0] && !m->finish)
        pthread_cond_wait(&m->more, &m->lock);
    if (!m->waiting.name[0] && m->failed)
        drop(m, &m->held);
    td__parcel *next = m->waiting.name[0] ? &m->waiting : &m->held;
    *p = *next;
    *next = (td__parcel){.name = ""};
    m->busy = p->name[0];
    m->abandon = false;
    m->generation = p->shards ? p->shards->generation : 0;
    pthread_mutex_unlock(&m->lock);
    return p->name[0];
}

static void *work(void *arg)
{
    td__mirror *m = arg;

    for (td__parcel p; take(m, &p);) {
        m->st = send_patiently(m, &p);
        snprintf(m->text, sizeof m->text, "%s", m->st ? td_last_error() : "");
        if (m->st)
            TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", m->text);
        pthread_mutex_lock(&m->lock);
        /* The same step may wait again, with other files. */
        if (strcmp(m->waiting.name, p.name) == 0 || strcmp(m->held.name, p.name) == 0)
            p.name[0] = '\0';
        drop(m, &p);
        pthread_mutex_unlock(&m->lock);
    }
    if (m->described && !m->st && send_patiently(m, NULL))
        TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
    return NULL;
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
    td__shard_offer_destroy(m->offer);
    td__remote_destroy(m->remote);
    json_decref(m->tables);
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
                                 .shards = on_shards,
                                 .end = pass_end,
                                 .ranks = pass_ranks,
                                 .spans = pass_spans};
    m->next = next;
    m->keep = keep > 0 ? keep : 1;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->more, &attr);
    pthread_condattr_destroy(&attr);
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

td_status td__mirror_finish(td__mirror *m, bool failed)
{
    if (!m)
        return TD_OK;
    pthread_mutex_lock(&m->lock);
    m->finish = true;
    m->failed = failed;
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
