/* versions.c -- versions of data sets: chosen by the request, built in the background, found by
 * jobs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/data/data_impl.h"
#include "service/data/intent.h"
#include "service/data/version_hash.h"

typedef DataManagement__DatasetSummary set_t;
typedef DataManagement__CommitInfo commit_t;
typedef DataManagement__VersionedSnapshot version_t;
typedef DataManagement__FileInfo file_t;

static td_status out_of_memory(void)
{
    return TD_FAIL(TD_ENOMEM, "version of a data set: out of memory");
}

static const char *key_of(td__arena *a, const char *id, const char *hash)
{
    return td__arena_printf(a, "%s/%s", id, hash);
}

/* ---- building ---- */

typedef struct build {
    td__data_work base;
    version_t *version;
    bool intent;
    const char **commits; /* directories */
    int n_commits;
    int *n_parts; /* of each commit, of a data set without a form of its own */
    char to[TD__BUCKET_PATH];
    td__intent_counts counts;
} build;

static td_status run_build(td__data_work *w)
{
    build *b = (build *)w;

    if (b->intent)
        return td__intent_version(b->commits, b->n_commits, b->to, &b->counts);
    for (int i = 0; i < b->n_commits; i++) {
        char prefix[32];

        snprintf(prefix, sizeof prefix, "part-%d-", i);
        TD_TRY(td__data_copy(b->commits[i], b->to, prefix, &b->n_parts[i]));
    }
    return TD_OK;
}

static file_t *file_of(td__data *d, td__arena *a, const char *name, const char *dir,
                       const char *file)
{
    file_t *f = td__arena_alloc(a, sizeof *f);

    if (!f)
        return NULL;
    data_management__file_info__init(f);
    f->name = td__data_text(a, name);
    f->bucket = td__data_text(a, d->config->data_bucket);
    f->path = td__arena_printf(a, "%s%s%s", dir, file[0] ? "/" : "", file);
    return f->path ? f : NULL;
}

static char *dir_of(td__arena *a, const version_t *v)
{
    return td__arena_printf(a, "versionedDatasets/%s/%s", v->dataset_id, v->version_hash);
}

static td_status add_statistics(build *b)
{
    td__arena *a = b->base.arena;
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"numLabels", b->counts.labels}, {"numExamples", b->counts.examples}};
    DataManagement__VersionedSnapshot__StatisticsEntry **at = td__arena_alloc(a, 2 * sizeof *at);

    for (int i = 0; i < 2; i++) {
        if (!at || !(at[i] = td__arena_alloc(a, sizeof *at[i])))
            return out_of_memory();
        data_management__versioned_snapshot__statistics_entry__init(at[i]);
        at[i]->key = td__data_text(a, rows[i].name);
        at[i]->value = td__arena_printf(a, "%lld", (long long)rows[i].value);
    }
    b->version->statistics = at;
    b->version->n_statistics = 2;
    return TD_OK;
}

static td_status add_part(build *b, const char *dir, const char *name)
{
    version_t *v = b->version;
    file_t *f = file_of(b->base.data, b->base.arena, name, dir, name);

    if (!f)
        return out_of_memory();
    v->parts[v->n_parts++] = f;
    return TD_OK;
}

/* examples.csv and labels.csv, or part-0-0, part-0-1, part-1-0, ... */
static td_status add_parts(build *b)
{
    td__arena *a = b->base.arena;
    const char *dir = dir_of(a, b->version);
    size_t n = 2;
    char name[64];

    for (int i = 0; i < b->n_commits; i++)
        n += (size_t)b->n_parts[i];
    b->version->parts = td__arena_alloc(a, n * sizeof(file_t *));
    b->version->root = dir ? file_of(b->base.data, a, "root", dir, "") : NULL;
    if (!b->version->parts || !b->version->root)
        return out_of_memory();
    if (b->intent) {
        TD_TRY(add_part(b, dir, "examples.csv"));
        TD_TRY(add_part(b, dir, "labels.csv"));
    }
    for (int i = 0; i < b->n_commits; i++)
        for (int k = 0; k < b->n_parts[i]; k++) {
            snprintf(name, sizeof name, "part-%d-%d", i, k);
            TD_TRY(add_part(b, dir, name));
        }
    return TD_OK;
}

static td__answer finish_build(td__data_work *w, ProtobufCMessage **out)
{
    build *b = (build *)w;
    td_status st = w->st;
    const char *key = key_of(w->arena, b->version->dataset_id, b->version->version_hash);

    (void)out;
    if (!st && b->intent)
        st = add_statistics(b);
    if (!st)
        st = add_parts(b);
    b->version->state =
        st ? DATA_MANAGEMENT__SNAPSHOT_STATE__FAILED : DATA_MANAGEMENT__SNAPSHOT_STATE__READY;
    if (st)
        TD_LOG(WARN, SERVICE, "version %s of data set %s cannot be built: %s",
               b->version->version_hash, b->version->dataset_id,
               w->st ? w->error : td_last_error());
    return td__answer_of(key ? td__doc_put(w->data, TD_DOC_VERSION, key, &b->version->base)
                             : out_of_memory());
}

static td__answer start_build(td__data *d, const set_t *set, const char *hash,
                              commit_t *const *commits, int n)
{
    build *b = td__calloc(1, sizeof *b);
    td__arena *a;
    td__answer answer;
    char *dir;

    if (!b || td__arena_create(&a)) {
        td__free(b);
        return td__answer_of(out_of_memory());
    }
    b->base.arena = a;
    b->base.run = run_build;
    b->base.finish = finish_build;
    b->intent = set->dataset_type == DATA_MANAGEMENT__DATASET_TYPE__TEXT_INTENT;
    b->version = td__arena_alloc(a, sizeof *b->version);
    b->commits = td__arena_alloc(a, (size_t)n * sizeof *b->commits + 1);
    b->n_parts = td__arena_alloc(a, (size_t)n * sizeof *b->n_parts + 1);
    if (b->version) {
        data_management__versioned_snapshot__init(b->version);
        b->version->dataset_id = td__data_text(a, set->dataset_id);
        b->version->version_hash = td__data_text(a, hash);
    }
    dir = b->version ? dir_of(a, b->version) : NULL;
    answer = dir && b->commits && b->n_parts ? td__data_dir(d, d->config->data_bucket, dir, b->to)
                                             : td__answer_of(out_of_memory());
    for (int i = 0; i < n && !answer; i++) {
        char path[TD__BUCKET_PATH];

        answer = td__service_bucket_path(d->service, d->config->data_bucket, commits[i]->path, path,
                                         sizeof path);
        b->commits[b->n_commits++] = td__data_text(a, path);
    }
    if (!answer) /* RUNNING: found again after a restart */
        answer = td__answer_of(
            td__doc_put(d, TD_DOC_VERSION, key_of(a, set->dataset_id, hash), &b->version->base));
    if (answer) {
        td__arena_destroy(a);
        td__free(b);
        return answer;
    }
    td__data_work_start(d, &b->base);
    return TD_ANSWER_OK;
}

/* ---- choosing ---- */

static bool has_tags(const commit_t *c, const DataManagement__DatasetQuery *q)
{
    for (size_t i = 0; i < q->n_tags; i++) {
        size_t k = 0;

        while (k < c->n_tags && (strcmp(c->tags[k]->tag_key, q->tags[i]->tag_key) != 0 ||
                                 strcmp(c->tags[k]->tag_value, q->tags[i]->tag_value) != 0))
            k++;
        if (k == c->n_tags)
            return false;
    }
    return true;
}

/* Commits up to the one that is asked for, if they have all tags. */
static td__answer choose(td__arena *a, const set_t *set, const DataManagement__DatasetQuery *q,
                         commit_t ***out, int *n, td__text *hash)
{
    int *numbers = td__arena_alloc(a, set->n_commits * sizeof *numbers + 1);
    bool last = false;

    *out = td__arena_alloc(a, set->n_commits * sizeof **out + 1);
    *n = 0;
    if (!*out || !numbers)
        return td__answer_of(out_of_memory());
    for (size_t i = 0; i < set->n_commits && !last; i++) {
        commit_t *c = set->commits[i];

        last = !strcmp(c->commit_id, q->commit_id);
        if (has_tags(c, q)) {
            numbers[*n] = (int)strtol(c->commit_id, NULL, 10);
            (*out)[(*n)++] = c;
        }
    }
    if (q->commit_id[0] && !last)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "Commit %s of Dataset %s not found",
                               q->commit_id, set->dataset_id);
    if (!*n)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "Dataset %s has no commit with these tags",
                               set->dataset_id);
    td__version_hash(numbers, *n, hash);
    return td__answer_of(td__text_status(hash));
}

static td__answer find(td__data *d, td__arena *a, const char *id, const char *hash, version_t **out)
{
    const char *key = key_of(a, id, hash);
    ProtobufCMessage *m = NULL;
    td_status st = key ? td__doc_get(d, a, TD_DOC_VERSION, key,
                                     &data_management__versioned_snapshot__descriptor, &m)
                       : out_of_memory();

    *out = (version_t *)m;
    return td__answer_of(st);
}

static td__answer prepare(td__data *d, td__arena *a, const DataManagement__DatasetQuery *q,
                          DataManagement__SnapshotVersion *r, td__text *hash)
{
    version_t *version;
    commit_t **commits;
    set_t *set;
    int n;
    td__answer answer = td__data_summary(d, a, q->dataset_id, &set);

    if (!answer)
        answer = choose(a, set, q, &commits, &n, hash);
    if (!answer)
        answer = find(d, a, set->dataset_id, hash->data, &version);
    /* One that could not be built is tried again: its files may have come back. */
    if (!answer && (!version || version->state == DATA_MANAGEMENT__SNAPSHOT_STATE__FAILED))
        answer = start_build(d, set, hash->data, commits, n);
    if (answer)
        return answer;
    r->dataset_id = set->dataset_id;
    r->name = set->name;
    r->description = set->description;
    r->dataset_type = set->dataset_type;
    r->last_updated_at = set->last_updated_at;
    r->version_hash = td__data_text(a, hash->data);
    r->commits = commits;
    r->n_commits = (size_t)n;
    return TD_ANSWER_OK;
}

td__answer td__data_prepare(td__data *d, td__arena *a, const DataManagement__DatasetQuery *q,
                            DataManagement__SnapshotVersion **out)
{
    DataManagement__SnapshotVersion *r = td__arena_alloc(a, sizeof *r);
    td__text hash = {0};
    td__answer answer;

    if (!r)
        return td__answer_of(out_of_memory());
    data_management__snapshot_version__init(r);
    answer = prepare(d, a, q, r, &hash);
    td__text_fini(&hash);
    *out = r;
    return answer;
}

td__answer td__data_fetch(td__data *d, td__arena *a, const char *id, const char *hash,
                          version_t **out)
{
    set_t *set;
    td__answer answer = td__data_summary(d, a, id, &set);

    if (!answer)
        answer = find(d, a, id, hash, out);
    if (!answer && !*out)
        answer = td__answer_fail(TD_ANSWER_NOT_FOUND, "VersionHash %s for Dataset %s not found",
                                 hash, id);
    return answer;
}

/* ---- jobs ---- */

void td__data_for_job(void *arg, int32_t job, const char *dataset_id, const char *version_hash)
{
    td__data *d = arg;
    version_t *v;
    td__arena *a;
    td__answer answer = td__answer_of(td__arena_create(&a));
    char text[512];

    if (answer) {
        td__service_data(d->service, job, TD_DATA_RUNNING, NULL, NULL, NULL); /* asked again */
        return;
    }
    answer = td__data_fetch(d, a, dataset_id, version_hash, &v);
    if (answer) {
        snprintf(text, sizeof text, "%s: %s", td__answer_name(answer), td_last_error());
        td__service_data(d->service, job, TD_DATA_FAILED, NULL, NULL, text);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__READY) {
        td__service_data(d->service, job, TD_DATA_READY, v->root->bucket, v->root->path, NULL);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__FAILED) {
        snprintf(text, sizeof text, "VersionHash %s for Dataset %s could not be built",
                 version_hash, dataset_id);
        td__service_data(d->service, job, TD_DATA_FAILED, NULL, NULL, text);
    } else {
        td__service_data(d->service, job, TD_DATA_RUNNING, NULL, NULL, NULL);
    }
    td__arena_destroy(a);
}

/* ---- after a restart, and the end ---- */

typedef struct keys {
    td__arena *arena;
    const char *prefix; /* NULL: all that are being built */
    struct key {
        char *id, *hash;
        struct key *next;
    } * first;
    bool failed;
} keys;

static bool collect(void *arg, const char *key, const char *value)
{
    keys *k = arg;
    const char *slash = strchr(key, '/');
    struct key *new;

    if (!slash || (k->prefix ? strncmp(key, k->prefix, strlen(k->prefix)) != 0
                             : strstr(value, "\"state\"") != NULL)) /* RUNNING is the default */
        return true;
    new = td__arena_alloc(k->arena, sizeof *new);
    if (!new || !(new->id = td__arena_printf(k->arena, "%.*s", (int)(slash - key), key)) ||
        !(new->hash = td__arena_strdup(k->arena, slash + 1))) {
        k->failed = true;
        return false;
    }
    new->next = k->first;
    k->first = new;
    return true;
}

/* Which commits are in it is in its name. */
static td__answer rebuild(td__data *d, td__arena *a, const struct key *k)
{
    set_t *set;
    commit_t **commits;
    int n = 0;
    td__answer answer = td__data_summary(d, a, k->id, &set);

    if (answer)
        return answer;
    commits = td__arena_alloc(a, set->n_commits * sizeof *commits + 1);
    if (!commits)
        return td__answer_of(out_of_memory());
    for (size_t i = 0; i < set->n_commits; i++)
        if (td__version_has(k->hash, (int)strtol(set->commits[i]->commit_id, NULL, 10)))
            commits[n++] = set->commits[i];
    return start_build(d, set, k->hash, commits, n);
}

td_status td__versions_resume(td__data *d)
{
    keys k = {0};
    td_status st;

    TD_TRY(td__arena_create(&k.arena));
    st = td__job_store_values(d->store, TD_DOC_VERSION, collect, &k);
    if (!st && k.failed)
        st = out_of_memory();
    for (struct key *key = k.first; key && !st; key = key->next)
        if (rebuild(d, k.arena, key))
            TD_LOG(WARN, SERVICE, "version %s of data set %s: %s", key->hash, key->id,
                   td_last_error());
    td__arena_destroy(k.arena);
    return st;
}

td__answer td__data_delete(td__data *d, const td__caller *who, const char *id)
{
    keys k = {0};
    set_t *set;
    td__answer answer = td__answer_of(td__arena_create(&k.arena));

    if (answer)
        return answer;
    answer = td__data_summary(d, k.arena, id, &set);
    if (!answer)
        answer = td__data_check_owner(d, who, TD_DOC_SET, id);
    k.prefix = td__arena_printf(k.arena, "%s/", id);
    if (!answer && !k.prefix)
        answer = td__answer_of(out_of_memory());
    if (!answer)
        answer = td__answer_of(td__job_store_values(d->store, TD_DOC_VERSION, collect, &k));
    for (struct key *key = k.first; key && !answer; key = key->next)
        answer = td__answer_of(
            td__job_store_take(d->store, TD_DOC_VERSION, key_of(k.arena, key->id, key->hash)));
    if (!answer)
        answer = td__answer_of(td__job_store_take(d->store, TD_DOC_SET, id));
    td__arena_destroy(k.arena);
    return answer;
}
