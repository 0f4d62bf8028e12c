/* send_shards.c -- a checkpoint whose large files the ranks send in shards: rank 0's shard, the
 * wait for the others', and the list that makes one checkpoint of them (see shards.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/unnamed_file.h"
#include "mirror/mirror_impl.h"

enum { LOOK_MOST_MS = 3200, LIST_NBYTES = 4096 };

static td_status object_url(const td__mirror *m, const char *name, const char *object,
                            const char *suffix, char url[TD__URL_BYTES])
{
    char place[TD__PATH];
    snprintf(place, sizeof place, "%s/%s%s", name, object, suffix);
    return td__url_join(m->url, place, url);
}

/* The ranges of a file of the folder, to the end of fd. */
static td_status copy_range(const char *folder, json_t *row, int fd, uint64_t *at)
{
    char path[TD__PATH], block[1 << 16];
    const char *file = json_string_value(json_array_get(row, 0));
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(row, 1));
    uint64_t nbytes = (uint64_t)json_integer_value(json_array_get(row, 2));

    TD_TRY(td__run_dir_path(folder, file, path));
    int from = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = from >= 0;
    for (uint64_t done = 0; ok && done < nbytes;) {
        size_t n = nbytes - done < sizeof block ? (size_t)(nbytes - done) : sizeof block;
        ok = td__unnamed_get(from, begin + done, block, n) &&
             td__unnamed_put(fd, *at + done, block, n);
        done += n;
    }
    *at += nbytes;
    td_status st =
        ok ? TD_OK
           : TD_FAIL(TD_EIO, "%s: cannot be prepared for upload: %s", path, strerror(errno));
    if (from >= 0)
        close(from);
    return st;
}

td_status td__shard_put(td__remote *r, const char *url, int fd, char sha256[TD_SHA256_HEX],
                        td__deadline until)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* it has no other name */
    return td__remote_put_file(r, url, path, sha256, until);
}

/* Rank 0's. */
static td_status send_own(td__mirror *m, const char *folder, const char *name, json_t *shard)
{
    char url[TD__URL_BYTES], sha256[TD_SHA256_HEX];
    uint64_t at = 0;
    json_t *row;
    size_t i;
    td_status st = TD_OK;

    TD_TRY(object_url(m, name, json_string_value(json_object_get(shard, "object")), "", url));
    int fd = td__unnamed_open(m->spool);
    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: no room for a shard: %s", m->spool, strerror(errno));
    json_array_foreach(json_object_get(shard, "ranges"), i, row) if (!st) st =
        copy_range(folder, row, fd, &at);
    if (!st)
        st = td__shard_put(m->remote, url, fd, sha256, td__deadline_in_ms(TD__SEND_MS));
    close(fd);
    if (!st && json_object_set_new(shard, "sha256", json_string(sha256)))
        st = TD_FAIL(TD_ENOMEM, "out of memory for a list of shards");
    return st;
}

/* What another rank says of its own: it is whole. */
static td_status take_note(const char *text, size_t nbytes, json_t *shard)
{
    json_t *root = json_loadb(text, nbytes, 0, NULL);
    json_int_t have = 0;
    const char *sha256 = NULL, *object = json_string_value(json_object_get(shard, "object"));
    bool ok = json_unpack(root, "{s:I, s:s}", "nbytes", &have, "sha256", &sha256) == 0 &&
              (uint64_t)have == td__shard_nbytes(shard) &&
              json_object_set_new(shard, "sha256", json_string(sha256)) == 0;

    json_decref(root);
    return ok ? TD_OK : TD_FAIL(TD_EPROTO, "%s.json: not what that rank was to send", object);
}

/* False: nobody waits for it any more. */
static bool pause_for(td__mirror *m, int ms)
{
    td__deadline end = td__deadline_in_ms((uint64_t)ms);
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                             .tv_nsec = (long)(end % 1000000000u)};

    pthread_mutex_lock(&m->lock);
    while (!m->abandon && !m->failed && !td__deadline_passed(end))
        (void)pthread_cond_timedwait(&m->more, &m->lock, &until);
    bool wanted = !m->abandon && !m->failed;
    pthread_mutex_unlock(&m->lock);
    return wanted;
}

/* Until another rank's is there. A store that may not say so refuses what is absent. */
static td_status await(td__mirror *m, const char *name, json_t *shard, td__deadline until)
{
    const char *object = json_string_value(json_object_get(shard, "object"));
    char url[TD__URL_BYTES];

    TD_TRY(object_url(m, name, object, ".json", url));
    for (int ms = TD__LOOK_MS;; ms = ms < LOOK_MOST_MS ? 2 * ms : ms) {
        td__text text = {0};
        td_status st = td__remote_get(m->remote, url, LIST_NBYTES, &text, until);
        bool absent = st == TD_EINVAL || td__remote_absent(m->remote);
        if (!st)
            st = take_note(text.data ? text.data : "", text.used, shard);
        td__text_fini(&text);
        if (!st || !absent)
            return st;
        if (!pause_for(m, ms))
            return TD_FAIL(TD_EABORTED, "%s: given up: ranks that were to send it are gone", name);
        if (td__deadline_passed(until))
            return TD_FAIL(TD_EABORTED, "%s/%s: its rank has not sent it", name, object);
    }
}

static int append(const char *data, size_t nbytes, void *text)
{
    td__text_append(text, data, nbytes);
    return 0;
}

static td_status send_list(td__mirror *m, const char *name, int ranks, json_t *shards)
{
    char url[TD__URL_BYTES];
    td__text text = {0};
    json_t *root = json_pack("{s:s, s:i, s:i, s:O}", "format", TD__SHARDS_FORMAT, "version", 1,
                             "ranks", ranks, "shards", shards);

    if (!root || json_dump_callback(root, append, &text, JSON_COMPACT) != 0)
        text.failed = true;
    json_decref(root);
    td_status st = td__text_status(&text);
    if (!st)
        st = object_url(m, name, TD__SHARDS_FILE, "", url);
    if (!st)
        st = td__remote_put(m->remote, url, text.data, text.used, td__deadline_in_ms(TD__SEND_MS));
    td__text_fini(&text);
    return st;
}

/* The files that are not in shards, state.json last. */
static td_status send_rest(td__mirror *m, const char *folder, const char *name)
{
    char path[TD__PATH];
    const char *file = td__checkpoint_file_name(TD__FILE_PREPROCESSING);

    TD_TRY(td__run_dir_path(folder, file, path));
    if (access(path, F_OK) == 0)
        TD_TRY(td__mirror_put_file(m, folder, name, file));
    return td__mirror_put_file(m, folder, name, TD__STATE_FILE);
}

static td_status put_shards(td__mirror *m, const char *folder, const td__parcel *p)
{
    td__deadline until = td__deadline_in_ms(TD__SEND_MS);
    json_t *shards;
    td_status st;

    TD_TRY(td__shard_places(p->shards, folder, &shards));
    TD_TRY_OR(st, done, send_own(m, folder, p->name, json_array_get(shards, 0)));
    for (int r = 1; r < p->shards->ranks; r++)
        TD_TRY_OR(st, done, await(m, p->name, json_array_get(shards, (size_t)r), until));
    TD_TRY_OR(st, done, send_list(m, p->name, p->shards->ranks, shards));
    st = send_rest(m, folder, p->name);
done:
    json_decref(shards);
    return st;
}

/* Rank 0 has the whole files: where the others are gone or too slow, and no newer checkpoint waits
 * that they may yet send, it sends those. */
td_status td__mirror_put_shards(td__mirror *m, const char *folder, const td__parcel *p)
{
    td_status st = put_shards(m, folder, p);

    pthread_mutex_lock(&m->lock);
    bool alone = st == TD_EABORTED && !m->waiting.name[0] && !m->failed;
    pthread_mutex_unlock(&m->lock);
    if (!alone)
        return st;
    TD_LOG(WARN, TRAIN, "checkpoint.upload: %s; rank 0 sends all of it", td_last_error());
    return td__mirror_put_whole(m, folder, p->name);
}
