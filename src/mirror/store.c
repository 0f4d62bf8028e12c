/* store.c -- what a mirror does to remote storage: checkpoints, what points to them, the run's
 * other files, and what is no longer kept (see mirror.h). On the mirror's thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "mirror/mirror_impl.h"

/* Beside the checkpoints; those that are there. */
static const char *const ARTIFACTS[] = {"job.yaml",    "metrics.jsonl", "report.html",
                                        "ranks.jsonl", "profile.txt",   "trace.json"};

td_status td__mirror_put_file(td__mirror *m, const char *folder, const char *name, const char *file)
{
    char path[TD__PATH], place[TD__PATH], url[TD__URL_BYTES];

    TD_TRY(td__run_dir_path(folder, file, path));
    snprintf(place, sizeof place, "%s%s%s", name, name[0] ? "/" : "", file);
    TD_TRY(td__url_join(m->url, place, url));
    return td__remote_put_file(m->remote, url, path, NULL, td__deadline_in_ms(TD__SEND_MS));
}

/* Was it sent by this run? What one before has left may have other bits. */
static bool is_sent(const td__mirror *m, uint64_t step)
{
    for (int i = m->n_left; i < m->n_there; i++)
        if (m->there[i] == step)
            return true;
    return false;
}

static td_status remove_object(td__mirror *m, const char *name, const char *file)
{
    char place[TD__PATH], url[TD__URL_BYTES];

    snprintf(place, sizeof place, "%s/%s", name, file);
    TD_TRY(td__url_join(m->url, place, url));
    return td__remote_delete(m->remote, url, td__deadline_in_ms(TD__SEND_MS));
}

/* One of this name that was sent in shards, whose list would go before the whole files. */
static bool may_have_shards(const td__mirror *m, const char *name)
{
    uint64_t step;
    return m->resuming || (td__step_parse(name, &step) && is_sent(m, step));
}

/* All files of a checkpoint, state.json last. */
td_status td__mirror_put_whole(td__mirror *m, const char *folder, const char *name)
{
    char file[TD__MOST_FILES][256];
    int n = 0;
    DIR *d = opendir(folder);

    for (const struct dirent *e; d && n < TD__MOST_FILES && (e = readdir(d));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, TD__STATE_FILE) != 0)
            snprintf(file[n++], sizeof file[0], "%s", e->d_name);
    if (!d)
        return TD_FAIL(TD_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    closedir(d);
    for (int i = 0; i < n; i++)
        TD_TRY(td__mirror_put_file(m, folder, name, file[i]));
    if (may_have_shards(m, name))
        TD_TRY(remove_object(m, name, TD__SHARDS_FILE));
    return td__mirror_put_file(m, folder, name, TD__STATE_FILE);
}

static td_status point(td__mirror *m, const char *pointer, const char *name)
{
    char url[TD__URL_BYTES], line[TD__STEP_NAME + 2];

    TD_TRY(td__url_join(m->url, pointer, url));
    int n = snprintf(line, sizeof line, "%s\n", name);
    return td__remote_put(m->remote, url, line, (size_t)n, td__deadline_in_ms(TD__SEND_MS));
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
    if (m->n_there < TD__MOST_THERE)
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
    if (slash && strncmp(slash + 1, "shard-", 6) == 0)
        json_array_append_new(m->shards, json_string(name));
    if (!slash || slash - name >= TD__STEP_NAME || strcmp(slash + 1, TD__STATE_FILE) != 0)
        return true;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    if (!td__step_parse(folder, &step))
        return true;
    for (; i > 0 && m->there[i - 1] > step; i--) /* the oldest first */
        m->there[i] = m->there[i - 1];
    m->there[i] = step;
    m->n_there = ++m->n_left;
    return m->n_left < TD__MOST_THERE / 2;
}

static bool is_left(const td__mirror *m, uint64_t step)
{
    for (int i = 0; i < m->n_left; i++)
        if (m->there[i] == step)
            return true;
    return false;
}

/* Shards of checkpoints that never became whole, before the one that is sent now. */
static td_status remove_orphans(td__mirror *m, uint64_t now)
{
    json_t *name;
    size_t i;

    json_array_foreach(m->shards, i, name)
    {
        const char *at = json_string_value(name), *slash = strchr(at, '/');
        char folder[TD__STEP_NAME];
        uint64_t step;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - at), at);
        if (td__step_parse(folder, &step) && step < now && !is_left(m, step))
            TD_TRY(remove_object(m, folder, slash + 1));
    }
    return TD_OK;
}

/* checkpoint.keep is about all that is there. A store without lists, or that refuses one, keeps
 * what it has. */
static void look(td__mirror *m, uint64_t now)
{
    m->shards = json_array();
    td_status st = td__remote_list(m->remote, m->url, found, m, td__deadline_in_ms(TD__SEND_MS));
    if (st && st != TD_ENOTSUP && !td__remote_absent(m->remote))
        TD_LOG(INFO, TRAIN, "checkpoint.upload: checkpoints of before stay there: %s",
               td_last_error());
    bool all = !st && m->n_left < TD__MOST_THERE / 2; /* else some may be whole all the same */
    if (all && remove_orphans(m, now))
        TD_LOG(INFO, TRAIN, "checkpoint.upload: parts of checkpoints stay there: %s",
               td_last_error());
    json_decref(m->shards);
    m->shards = NULL;
}

/* The shards of a checkpoint, if it has any. */
static td_status remove_shards(td__mirror *m, const char *name)
{
    char place[TD__PATH], url[TD__URL_BYTES], beside[TD__PATH];
    td__text text = {0};
    json_t *root = NULL, *shard;
    size_t i;

    snprintf(place, sizeof place, "%s/" TD__SHARDS_FILE, name);
    TD_TRY(td__url_join(m->url, place, url));
    td_status st =
        td__remote_get(m->remote, url, TD__SHARDS_JSON_MAX, &text, td__deadline_in_ms(TD__SEND_MS));
    if (!st)
        root = json_loadb(text.data ? text.data : "", text.used, 0, NULL);
    else if (st == TD_EINVAL || td__remote_absent(m->remote))
        st = TD_OK;
    td__text_fini(&text);
    json_array_foreach(json_object_get(root, "shards"), i, shard)
    {
        const char *object = json_string_value(json_object_get(shard, "object"));
        if (st || !object || !td__is_plain_name(object))
            continue;
        snprintf(beside, sizeof beside, "%s.json", object);
        st = remove_object(m, name, object);
        if (!st)
            st = remove_object(m, name, beside);
    }
    if (!st && root)
        st = remove_object(m, name, TD__SHARDS_FILE);
    json_decref(root);
    return st;
}

/* Without state.json it is no checkpoint any more, whatever else is still there. */
static td_status remove_remote(td__mirror *m, uint64_t step)
{
    static const char *const FILES[] = {TD__STATE_FILE,
#define X(id, name) name,
                                        TD__CHECKPOINT_FILE_MAP(X)
#undef X
                                            NULL};
    char name[TD__STEP_NAME];

    td__step_name(step, name);
    for (int i = 0; FILES[i]; i++)
        TD_TRY(remove_object(m, name, FILES[i]));
    TD_TRY(td__mirror_remove_tables(m, step));
    return remove_shards(m, name);
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
        TD_TRY(td__run_dir_path(checkpoints, TD__TABLES_FOLDER, folder));
        TD_TRY(td__mirror_put_tables(m, folder, best, step));
        TD_TRY(td__run_dir_path(checkpoints, best, folder));
        TD_TRY(td__mirror_put_whole(m, folder, best));
        remember(m, step);
    }
    return point(m, TD__BEST_FILE, best);
}

td_status td__mirror_send_artifacts(td__mirror *m)
{
    char path[TD__PATH];

    for (size_t i = 0; i < sizeof ARTIFACTS / sizeof ARTIFACTS[0]; i++) {
        TD_TRY(td__run_dir_path(m->dir, ARTIFACTS[i], path));
        if (access(path, F_OK) == 0)
            TD_TRY(td__mirror_put_file(m, m->dir, "", ARTIFACTS[i]));
    }
    return TD_OK;
}

td_status td__mirror_send(td__mirror *m, const td__parcel *p)
{
    char folder[TD__PATH], best[TD__STEP_NAME], beside[TD__STEP_NAME + 16];
    uint64_t step = 0;
    bool named = td__step_parse(p->name, &step);

    if (!m->described) {
        TD_TRY(td__mirror_put_file(m, m->dir, "", "job.yaml"));
        if (m->resuming)
            look(m, step);
    }
    m->described = true;
    snprintf(beside, sizeof beside, "%s" TD__TABLES_BESIDE, p->name);
    TD_TRY(td__run_dir_path(m->spool, beside, folder));
    TD_TRY(td__mirror_put_tables(m, folder, p->name, step));
    TD_TRY(td__run_dir_path(m->spool, p->name, folder));
    TD_TRY(p->shards ? td__mirror_put_shards(m, folder, p)
                     : td__mirror_put_whole(m, folder, p->name));
    if (named)
        remember(m, step);
    TD_TRY(point(m, TD__LATEST_FILE, p->name));
    TD_TRY(send_best(m, best));
    TD_TRY(prune(m, best));
    if (!td__deadline_passed(m->artifacts))
        return TD_OK;
    m->artifacts = td__deadline_in_ms(TD__ARTIFACTS_MS);
    return td__mirror_send_artifacts(m);
}
