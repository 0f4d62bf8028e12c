/* data_sets.c -- data sets and their commits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/data/data_impl.h"
#include "service/data/intent.h"

typedef DataManagement__DatasetSummary set_t;
typedef DataManagement__CommitInfo commit_t;

td__answer td__data_summary(td__data *d, td__arena *a, const char *id, set_t **out)
{
    ProtobufCMessage *m;
    td_status st =
        td__doc_get(d, a, TD_DOC_SET, id, &data_management__dataset_summary__descriptor, &m);

    *out = (set_t *)m;
    if (st)
        return td__answer_of(st);
    return m ? TD_ANSWER_OK : td__answer_fail(TD_ANSWER_NOT_FOUND, "Dataset %s not found", id);
}

/* ---- statistics and tags ---- */

typedef DataManagement__CommitInfo__StatisticsEntry entry_t;

static td_status set_counts(commit_t *c, td__arena *a, const td__intent_counts *n)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"numLabels", n->labels}, {"numExamples", n->examples}};
    entry_t **at = td__arena_alloc(a, 2 * sizeof *at);

    for (int i = 0; i < 2 && at; i++) {
        at[i] = td__arena_alloc(a, sizeof *at[i]);
        if (!at[i])
            return TD_FAIL(TD_ENOMEM, "data set: out of memory");
        data_management__commit_info__statistics_entry__init(at[i]);
        at[i]->key = td__data_text(a, rows[i].name);
        at[i]->value = td__arena_printf(a, "%lld", (long long)rows[i].value);
    }
    c->statistics = at;
    c->n_statistics = at ? 2 : 0;
    return at ? TD_OK : TD_FAIL(TD_ENOMEM, "data set: out of memory");
}

static td_status copy_tags(commit_t *c, td__arena *a, DataManagement__Tag *const *tags, size_t n)
{
    c->tags = td__arena_alloc(a, n * sizeof *c->tags + 1);
    for (size_t i = 0; i < n && c->tags; i++) {
        c->tags[i] = td__arena_alloc(a, sizeof **c->tags);
        if (!c->tags[i])
            return TD_FAIL(TD_ENOMEM, "data set: out of memory");
        data_management__tag__init(c->tags[i]);
        c->tags[i]->tag_key = td__data_text(a, tags[i]->tag_key);
        c->tags[i]->tag_value = td__data_text(a, tags[i]->tag_value);
    }
    c->n_tags = n;
    return c->tags ? TD_OK : TD_FAIL(TD_ENOMEM, "data set: out of memory");
}

/* ---- commits ---- */

typedef struct commit_work {
    td__data_work base;
    set_t *new_set; /* NULL: a commit of one that exists */
    commit_t *commit;
    bool intent; /* TEXT_INTENT */
    char from[TD__BUCKET_PATH], to[TD__BUCKET_PATH];
    td__intent_counts counts;
} commit_work;

static td_status run_commit(td__data_work *w)
{
    commit_work *c = (commit_work *)w;
    int n;

    return c->intent ? td__intent_commit(c->from, c->to, &c->counts)
                     : td__data_copy(c->from, c->to, "part-", &n);
}

static td_status append_commit(set_t *set, td__arena *a, commit_t *commit)
{
    commit_t **at = td__arena_alloc(a, (set->n_commits + 1) * sizeof *at);

    if (!at)
        return TD_FAIL(TD_ENOMEM, "data set: out of memory");
    if (set->n_commits)
        memcpy(at, set->commits, set->n_commits * sizeof *at);
    at[set->n_commits++] = commit;
    set->commits = at;
    return TD_OK;
}

static td__answer finish_commit(td__data_work *w, ProtobufCMessage **out)
{
    commit_work *c = (commit_work *)w;
    td__data *d = w->data;
    set_t *set = c->new_set;
    td__answer a = td__data_work_failed(w);

    if (!a && !set)
        a = td__data_summary(d, w->arena, c->commit->dataset_id, &set);
    if (a)
        return a;
    c->commit->created_at = td__data_now(d, w->arena);
    set->last_updated_at = c->commit->created_at;
    if (c->intent)
        a = td__answer_of(set_counts(c->commit, w->arena, &c->counts));
    if (!a)
        a = td__answer_of(append_commit(set, w->arena, c->commit));
    if (!a)
        a = td__answer_of(td__doc_put(d, TD_DOC_SET, set->dataset_id, &set->base));
    *out = &set->base;
    return a;
}

/* Answers a request that cannot begin. */
static void refuse(commit_work *c, td__answer a)
{
    c->base.done(c->base.arg, a, NULL);
    td__arena_destroy(c->base.arena);
    td__free(c);
}

static commit_work *new_work(td__data_done done, void *arg)
{
    commit_work *c = td__calloc(1, sizeof *c);
    td__arena *a;

    if (!c || td__arena_create(&a)) {
        td__free(c);
        done(arg, td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory"), NULL);
        return NULL;
    }
    c->base.arena = a;
    c->base.run = run_commit;
    c->base.finish = finish_commit;
    c->base.done = done;
    c->base.arg = arg;
    return c;
}

/* Where the files come from and go to; then to the workers. */
static td__answer start(td__data *d, commit_work *c, const char *id, const char *bucket,
                        const char *path, DataManagement__Tag *const *tags, size_t n_tags,
                        const char *message)
{
    td__arena *a = c->base.arena;
    commit_t *m = td__arena_alloc(a, sizeof *m);
    int64_t number;
    td__answer answer;
    td__text counter = {0};
    td_status st;

    if (!m)
        return td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
    td__text_printf(&counter, "commit/%s", id);
    st = counter.failed ? TD_FAIL(TD_ENOMEM, "out of memory")
                        : td__job_store_number(d->store, counter.data, &number);
    td__text_fini(&counter);
    if (st)
        return td__answer_of(st);
    data_management__commit_info__init(m);
    m->dataset_id = td__data_text(a, id);
    m->commit_id = td__arena_printf(a, "%lld", (long long)number);
    m->commit_message = td__data_text(a, message);
    m->path = td__arena_printf(a, "dataset/%s/commit/%lld", id, (long long)number);
    c->commit = m;
    if (!m->commit_id || !m->path || copy_tags(m, a, tags, n_tags))
        return td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
    answer = td__service_bucket_path(d->service, bucket, path, c->from, sizeof c->from);
    if (!answer)
        answer = td__data_dir(d, d->config->data_bucket, m->path, c->to);
    if (!answer)
        td__data_work_start(d, &c->base);
    return answer;
}

void td__data_create_set(td__data *d, const td__caller *who,
                         const DataManagement__CreateDatasetRequest *q, td__data_done done,
                         void *arg)
{
    commit_work *c = new_work(done, arg);
    set_t *set;
    int64_t number;
    td__answer a;

    if (!c)
        return;
    set = td__arena_alloc(c->base.arena, sizeof *set);
    a = set ? td__answer_of(td__job_store_number(d->store, TD_DOC_SET, &number))
            : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
    if (!a) {
        data_management__dataset_summary__init(set);
        set->dataset_id = td__arena_printf(c->base.arena, "%lld", (long long)number);
        set->name = td__data_text(c->base.arena, q->name);
        set->description = td__data_text(c->base.arena, q->description);
        set->dataset_type = q->dataset_type;
        c->new_set = set;
        c->intent = q->dataset_type == DATA_MANAGEMENT__DATASET_TYPE__TEXT_INTENT;
        a = set->dataset_id ? td__answer_of(td__data_set_owner(d, who, TD_DOC_SET, set->dataset_id))
                            : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");
        if (!a)
            a = start(d, c, set->dataset_id, q->bucket, q->path, q->tags, q->n_tags,
                      "Initial commit");
    }
    if (a)
        refuse(c, a);
}

void td__data_commit(td__data *d, const td__caller *who,
                     const DataManagement__CreateCommitRequest *q, td__data_done done, void *arg)
{
    commit_work *c = new_work(done, arg);
    set_t *set;
    td__answer a;

    if (!c)
        return;
    a = td__data_summary(d, c->base.arena, q->dataset_id, &set);
    if (!a)
        a = td__data_check_owner(d, who, TD_DOC_SET, q->dataset_id);
    if (!a) {
        c->intent = set->dataset_type == DATA_MANAGEMENT__DATASET_TYPE__TEXT_INTENT;
        a = start(d, c, set->dataset_id, q->bucket, q->path, q->tags, q->n_tags, q->commit_message);
    }
    if (a)
        refuse(c, a);
}

/* ---- all of them ---- */

typedef struct ids {
    void (*each)(void *arg, const char *id);
    void *arg;
} ids;

static bool tell_id(void *arg, const char *key, const char *value)
{
    ids *i = arg;

    (void)value;
    i->each(i->arg, key);
    return true;
}

td__answer td__data_list(td__data *d, void (*each)(void *arg, const char *id), void *arg)
{
    return td__answer_of(td__job_store_values(d->store, TD_DOC_SET, tell_id, &(ids){each, arg}));
}
