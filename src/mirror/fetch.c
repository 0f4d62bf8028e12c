/* fetch.c -- the newest checkpoint of remote storage as a run's directory (see mirror.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "mirror/mirror.h"
#include "mirror/shards.h"
#include "mirror/tables.h"
#include "remote/remote.h"
#include "remote/url.h"
#include "run/run_dir.h"

enum { FETCH_MS = 3600000, LOCK_POLL_MS = 20, SMALL = 16 << 20 };

typedef struct fetch {
    td__remote *remote;
    const char *url;
    char checkpoints[TD__PATH];
    td__deadline until;
} fetch;

static td_status get(const fetch *f, const char *name, td__text *out)
{
    char url[TD__URL_BYTES];
    TD_TRY(td__url_join(f->url, name, url));
    return td__remote_get(f->remote, url, SMALL, out, f->until);
}

/* "step-00000100" out of `latest` or `best`; "" if there is none. */
static td_status pointer(const fetch *f, const char *file, char name[TD__STEP_NAME], uint64_t *step)
{
    char shown[512];
    td__text t = {0};
    td_status st = get(f, file, &t);

    name[0] = '\0';
    if (st && td__remote_absent(f->remote))
        st = TD_OK;
    else if (!st) {
        snprintf(name, TD__STEP_NAME, "%.*s", (int)strcspn(t.data, "\r\n"), t.data);
        td__url_shown(f->url, shown, sizeof shown);
        if (!td__step_parse(name, step))
            st = TD_FAIL(TD_EPROTO, "%s/%s: '%s' is no checkpoint's name", shown, file, name);
    }
    td__text_fini(&t);
    return st;
}

static td_status put_text(const char *folder, const char *name, const char *text, size_t nbytes)
{
    char path[TD__PATH];
    td__file_out f;

    TD_TRY(td__run_dir_path(folder, name, path));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, text, nbytes);
    return td__file_out_commit(&f);
}

typedef struct getter {
    const fetch *f;
    const char *name; /* of the checkpoint */
} getter;

static td_status get_object(void *user, const char *object, const char *path, const char *sha256)
{
    const getter *g = user;
    char place[TD__PATH], url[TD__URL_BYTES];

    snprintf(place, sizeof place, "%s/%s", g->name, object);
    TD_TRY(td__url_join(g->f->url, place, url));
    return td__remote_get_file(g->f->remote, url, path, sha256, g->f->until);
}

/* Of a file that was put together: is it what it should be? */
static td_status check_file(const char *path, const char *sha256)
{
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX];
    td__file_map m;

    TD_TRY(td__file_map_open(&m, path));
    td_status st = td__sha256_of(m.data, m.nbytes, digest);
    td__file_map_close(&m);
    TD_TRY(st);
    td__sha256_hex(digest, hex);
    return strcmp(hex, sha256) == 0
               ? TD_OK
               : TD_FAIL(TD_EPROTO, "%s: its sha256 is %.12s..., and should be %.12s...", path, hex,
                         sha256);
}

/* The list of shards, if the checkpoint was sent in shards; NULL: it was sent whole. A store that
 * may not say what is absent refuses it. */
static td_status get_shards(const fetch *f, const char *name, json_t **out)
{
    char place[TD__PATH];
    td__text text = {0};

    *out = NULL;
    snprintf(place, sizeof place, "%s/" TD__SHARDS_FILE, name);
    td_status st = get(f, place, &text);
    if (st == TD_EINVAL || td__remote_absent(f->remote))
        st = TD_OK;
    else if (!st) {
        json_t *root = json_loadb(text.data ? text.data : "", text.used, 0, NULL);
        const char *format = json_string_value(json_object_get(root, "format"));
        *out = json_incref(json_object_get(root, "shards"));
        if (!json_is_array(*out) || !format || strcmp(format, TD__SHARDS_FORMAT) != 0 ||
            json_integer_value(json_object_get(root, "version")) != 1)
            st = TD_FAIL(TD_EPROTO, "%s/" TD__SHARDS_FILE ": damaged, or of a newer program", name);
        json_decref(root);
    }
    td__text_fini(&text);
    return st;
}

static bool is_in_shards(const json_t *shards, const char *file)
{
    json_t *shard, *row;
    size_t i, k;

    json_array_foreach(shards, i, shard)
        json_array_foreach(json_object_get(shard, "ranges"), k, row)
    {
        const char *of = json_string_value(json_array_get(row, 0));
        if (of && strcmp(of, file) == 0)
            return true;
    }
    return false;
}

/* The files that are in shards, anew. */
static td_status put_together(const fetch *f, const char *name, const json_t *shards,
                              const json_t *state, const char *folder)
{
    char path[TD__PATH];
    getter g = {f, name};
    json_t *file;
    const char *key;

    json_object_foreach(json_object_get(state, "files"), key, file)
    {
        if (!td__is_plain_name(key) || !is_in_shards(shards, key))
            continue;
        TD_TRY(td__run_dir_path(folder, key, path));
        unlink(path);
    }
    return td__shards_assemble(shards, state, folder, get_object, &g);
}

static td_status fetch_files(const fetch *f, const char *name, const char *folder, json_t *root)
{
    char path[TD__PATH];
    getter g = {f, name};
    json_t *files = json_object_get(root, "files"), *shards = NULL, *file;
    const char *key;
    td_status st;

    if (!json_is_object(files))
        return TD_FAIL(TD_EPROTO, "%s/" TD__STATE_FILE ": damaged, or no checkpoint of ours", name);
    TD_TRY_OR(st, done, get_shards(f, name, &shards));
    if (shards)
        TD_TRY_OR(st, done, put_together(f, name, shards, root, folder));
    json_object_foreach(files, key, file)
    {
        const char *sha256 = json_string_value(json_object_get(file, "sha256"));
        if (!td__is_plain_name(key) || !sha256 || strlen(sha256) != TD_SHA256_HEX - 1) {
            st = TD_FAIL(TD_EPROTO, "%s/" TD__STATE_FILE ": malformed list of files", name);
            break;
        }
        TD_TRY_OR(st, done, td__run_dir_path(folder, key, path));
        TD_TRY_OR(st, done,
                  is_in_shards(shards, key) ? check_file(path, sha256)
                                            : get_object(&g, key, path, sha256));
    }
done:
    json_decref(shards);
    return st;
}

static td_status make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return TD_FAIL(TD_EIO, "%s: cannot be created: %s", path, strerror(errno));
    return TD_OK;
}

/* Files of tables, if the checkpoint has some, to where the run has them. */
static td_status fetch_tables(const fetch *f, const char *name)
{
    char place[TD__PATH], url[TD__URL_BYTES], folder[TD__PATH], path[TD__PATH];
    json_t *files = NULL, *file;
    td__text text = {0};
    const char *key;

    snprintf(place, sizeof place, "%s/" TD__TABLES_FILE, name);
    td_status st = get(f, place, &text);
    if (!st)
        st = td__tables_parse(text.data, text.used, name, &files);
    else if (st == TD_EINVAL || td__remote_absent(f->remote))
        st = TD_OK;
    td__text_fini(&text);
    if (!st && files)
        st = td__run_dir_path(f->checkpoints, TD__TABLES_FOLDER, folder);
    if (!st && files)
        st = make_folder(folder);
    json_object_foreach(files, key, file)
    {
        snprintf(place, sizeof place, TD__TABLES_FOLDER "/%s",
                 json_string_value(json_object_get(file, "object")));
        TD_TRY_OR(st, done, st);
        TD_TRY_OR(st, done, td__run_dir_path(folder, key, path));
        TD_TRY_OR(st, done, td__url_join(f->url, place, url));
        st = td__remote_get_file(f->remote, url, path,
                                 json_string_value(json_object_get(file, "sha256")), f->until);
    }
done:
    json_decref(files);
    return st;
}

/* The checkpoint under another name, then its own. Files that an earlier attempt has fetched are
 * kept: they have the right sha256, or are fetched again. */
static td_status fetch_checkpoint(const fetch *f, const char *name)
{
    char place[TD__PATH], temp[TD__PATH], hidden[TD__STEP_NAME + 16];
    td__text state = {0};
    json_t *root = NULL;
    td_status st;

    snprintf(place, sizeof place, "%s/" TD__STATE_FILE, name);
    snprintf(hidden, sizeof hidden, ".fetch-%s", name);
    TD_TRY(td__run_dir_path(f->checkpoints, hidden, temp));
    TD_TRY_OR(st, done, get(f, place, &state));
    if (mkdir(temp, 0777) != 0 && errno != EEXIST) {
        st = TD_FAIL(TD_EIO, "%s: cannot be created: %s", temp, strerror(errno));
        goto done;
    }
    root = json_loadb(state.data ? state.data : "", state.used, 0, NULL);
    TD_TRY_OR(st, done, fetch_files(f, name, temp, root));
    TD_TRY_OR(st, done, fetch_tables(f, name));
    TD_TRY_OR(st, done, put_text(temp, TD__STATE_FILE, state.data, state.used));
    st = td__checkpoint_put(f->checkpoints, temp, name);
done:
    json_decref(root);
    td__text_fini(&state);
    return st;
}

static bool has(const fetch *f, const char *name)
{
    td__checkpoint_info info;
    return td__checkpoint_any(f->checkpoints) && !td__checkpoint_find(f->checkpoints, name, &info);
}

/* `best` and its checkpoint, unless the run has one. Without it the run would take the next that it
 * saves for the best. */
static td_status fetch_best(const fetch *f)
{
    char name[TD__STEP_NAME];
    uint64_t step;

    if (has(f, TD__BEST_FILE))
        return TD_OK;
    TD_TRY(pointer(f, TD__BEST_FILE, name, &step));
    if (!name[0])
        return TD_OK;
    if (!has(f, name))
        TD_TRY(fetch_checkpoint(f, name));
    return put_text(f->checkpoints, TD__BEST_FILE, name, strlen(name));
}

/* Curves begin where the run did, and what this run goes on to send holds all of them. */
static td_status fetch_metrics(const fetch *f, const char *dir)
{
    char url[TD__URL_BYTES], path[TD__PATH];

    TD_TRY(td__url_join(f->url, "metrics.jsonl", url));
    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    td_status st = td__remote_get_file(f->remote, url, path, NULL, f->until);
    return st == TD_EINVAL || td__remote_absent(f->remote) ? TD_OK : st;
}

static td_status fetch_run(fetch *f, const char *dir)
{
    char name[TD__STEP_NAME], path[TD__PATH], shown[512];
    td__checkpoint_info have;
    td__text job = {0};
    uint64_t step;
    td_status st;

    TD_TRY(pointer(f, TD__LATEST_FILE, name, &step));
    td__url_shown(f->url, shown, sizeof shown);
    if (!name[0])
        return TD_FAIL(TD_EINVAL, "%s: there is no checkpoint to continue from (no '%s')", shown,
                       TD__LATEST_FILE);
    if (td__checkpoint_any(f->checkpoints) && !td__checkpoint_find(f->checkpoints, NULL, &have) &&
        have.state.step >= step)
        return TD_OK;
    TD_TRY(td__run_dir_path(dir, "job.yaml", path));
    if (access(path, F_OK) != 0) {
        TD_TRY_OR(st, done, get(f, "job.yaml", &job));
        TD_TRY_OR(st, done, put_text(dir, "job.yaml", job.data ? job.data : "", job.used));
    }
    TD_TRY_OR(st, done, fetch_best(f));
    if (!has(f, name))
        TD_TRY_OR(st, done, fetch_checkpoint(f, name));
    TD_TRY_OR(st, done, fetch_metrics(f, dir));
    st = put_text(f->checkpoints, TD__LATEST_FILE, name, strlen(name));
done:
    td__text_fini(&job);
    return st;
}

/* One process at a time fetches into a folder. */
static td_status lock_file(const char *path, int fd, td__deadline until)
{
    while (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (fd < 0 || errno != EWOULDBLOCK)
            return TD_FAIL(TD_EIO, "%s: cannot be locked: %s", path, strerror(errno));
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "%s: another process does not let go of it", path);
        (void)poll(NULL, 0, LOCK_POLL_MS); /* locks cannot be waited for with a deadline */
    }
    return TD_OK;
}

td_status td__mirror_fetch(const char *url, const char *dir)
{
    char lock[TD__PATH];
    fetch f = {.url = url, .until = td__deadline_in_ms(FETCH_MS)};
    td_status st;

    TD_TRY(td__mirror_check(url));
    TD_TRY(make_folder(dir));
    TD_TRY(td__run_dir_path(dir, "checkpoints", f.checkpoints));
    TD_TRY(make_folder(f.checkpoints));
    TD_TRY(td__run_dir_path(dir, ".fetch.lock", lock));
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    TD_TRY_OR(st, done, lock_file(lock, fd, f.until));
    TD_TRY_OR(st, done, td__remote_create(NULL, &f.remote));
    st = fetch_run(&f, dir);
    td__remote_destroy(f.remote);
done:
    if (fd >= 0)
        close(fd);
    return st;
}

td_status td__mirror_any(const char *url, bool *any)
{
    fetch f = {.url = url, .until = td__deadline_in_ms(FETCH_MS)};
    char name[TD__STEP_NAME];
    uint64_t step;

    *any = false;
    TD_TRY(td__mirror_check(url));
    TD_TRY(td__remote_create(NULL, &f.remote));
    td_status st = pointer(&f, TD__LATEST_FILE, name, &step);
    td__remote_destroy(f.remote);
    *any = !st && name[0];
    return st;
}
