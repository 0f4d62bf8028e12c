/* shard_sender.c -- what a rank other than 0 holds of a checkpoint, on its way to remote storage
 * (see shards.h): copied to a file without a name while training waits, sent by a thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/unnamed_file.h"
#include "mirror/mirror_impl.h"

/* Rank 0 asks for one at a time, and for the last beside it. */
enum { MOST_WAITING = 4, PIECE = 1 << 16 };

typedef struct load {
    int fd;
    uint64_t nbytes;
    char step[TD__STEP_NAME], object[TD__SHARD_NAME];
} load;

struct td__shard_sender {
    td__observer observer; /* first */
    char url[TD__URL_BYTES];
    td__remote *remote;
    pthread_t thread;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t more;
    load waiting[MOST_WAITING];
    int n;
    bool finish;
};

static td_status copy_rows(const td__shards_event *e, float *piece, load *l)
{
    for (int i = 0; i < e->n; i++)
        for (uint64_t at = 0, n; at < e->row[i].count; at += n) {
            n = e->row[i].count - at < PIECE ? e->row[i].count - at : PIECE;
            TD_TRY(e->read(e->user, i, at, n, piece));
            if (!td__unnamed_put(l->fd, l->nbytes, piece, (size_t)n * sizeof *piece))
                return TD_FAIL(TD_EIO, "%s: cannot write a shard: %s", td__temp_dir(),
                               strerror(errno));
            l->nbytes += n * sizeof *piece;
        }
    return TD_OK;
}

static td_status make_load(const td__shards_event *e, load *l)
{
    *l = (load){.fd = td__unnamed_open(NULL)};
    if (l->fd < 0)
        return TD_FAIL(TD_EIO, "%s: no room for a shard: %s", td__temp_dir(), strerror(errno));
    td__step_name(e->step, l->step);
    td__shard_name(e->rank, e->ranks, *e->token, l->object);
    float *piece = td__malloc(PIECE * sizeof *piece);
    td_status st = piece ? copy_rows(e, piece, l) : TD_FAIL(TD_ENOMEM, "no memory for a shard");
    td__free(piece);
    if (st)
        close(l->fd);
    return st;
}

/* The run goes on whatever happens here: rank 0 does without what it does not see. */
static td_status on_shards(td__observer *o, const td__shards_event *e)
{
    td__shard_sender *s = (td__shard_sender *)o;
    load l;

    if (!e->rank)
        return TD_OK;
    td_status st = make_load(e, &l);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        bool room = s->n < MOST_WAITING;
        if (room)
            s->waiting[s->n++] = l;
        pthread_cond_signal(&s->more);
        pthread_mutex_unlock(&s->lock);
        if (!room) {
            close(l.fd);
            st = TD_FAIL(TD_ETIMEDOUT, "%s: shards before it are still on their way", l.step);
        }
    }
    if (st)
        TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
    return TD_OK;
}

static td_status send_load(td__shard_sender *s, const load *l, td__deadline until)
{
    char place[TD__PATH], url[TD__URL_BYTES], sha256[TD_SHA256_HEX], note[256];

    snprintf(place, sizeof place, "%s/%s", l->step, l->object);
    TD_TRY(td__url_join(s->url, place, url));
    TD_TRY(td__shard_put(s->remote, url, l->fd, sha256, until));
    snprintf(place, sizeof place, "%s/%s.json", l->step, l->object);
    TD_TRY(td__url_join(s->url, place, url));
    int n = snprintf(note, sizeof note, "{\"nbytes\": %llu, \"sha256\": \"%s\"}\n",
                     (unsigned long long)l->nbytes, sha256);
    return td__remote_put(s->remote, url, note, (size_t)n, until);
}

/* The client pauses between its attempts. */
static td_status send_patiently(td__shard_sender *s, const load *l)
{
    td__deadline until = td__deadline_in_ms(TD__SEND_MS);
    td_status st = send_load(s, l, until);

    while ((st == TD_EPEER || st == TD_ETIMEDOUT) && !td__deadline_passed(until))
        st = send_load(s, l, until);
    return st;
}

static void *work(void *arg)
{
    td__shard_sender *s = arg;

    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->n && !s->finish)
            pthread_cond_wait(&s->more, &s->lock);
        load l = s->waiting[0];
        bool over = !s->n;
        if (!over)
            memmove(&s->waiting[0], &s->waiting[1], (size_t)--s->n * sizeof l);
        pthread_mutex_unlock(&s->lock);
        if (over)
            return NULL;
        td_status st = send_patiently(s, &l);
        if (st && st != TD_EABORTED)
            TD_LOG(WARN, TRAIN, "checkpoint.upload: %s", td_last_error());
        close(l.fd);
    }
}

static void destroy(td__shard_sender *s)
{
    td__remote_destroy(s->remote);
    pthread_cond_destroy(&s->more);
    pthread_mutex_destroy(&s->lock);
    td__free(s);
}

td_status td__shard_sender_create(const char *url, td__shard_sender **out)
{
    td__shard_sender *s = td__calloc(1, sizeof *s);
    td_status st;

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "out of memory for checkpoint.upload");
    s->observer.shards = on_shards;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    TD_TRY_OR(st, fail, td__mirror_check(url));
    snprintf(s->url, sizeof s->url, "%s", url);
    TD_TRY_OR(st, fail, td__remote_create(NULL, &s->remote));
    if (pthread_create(&s->thread, NULL, work, s) != 0) {
        st = TD_FAIL(TD_ENOMEM, "the thread of checkpoint.upload cannot be started");
        goto fail;
    }
    *out = s;
    return TD_OK;
fail:
    destroy(s);
    return st;
}

td__observer *td__shard_sender_observer(td__shard_sender *s)
{
    return &s->observer;
}

void td__shard_sender_finish(td__shard_sender *s, bool failed)
{
    if (!s)
        return;
    if (failed) /* what the others of the job do not come to use is of no use */
        td__remote_stop(s->remote);
    pthread_mutex_lock(&s->lock);
    s->finish = true;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    destroy(s);
}
