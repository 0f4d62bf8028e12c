/* store.c -- the database: opening, schema, transactions, and everything in it but jobs
 * (store_jobs.c); see store.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/store/store.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "service/spec.h"
#include "service/store/schema.h"
#include "service/store/store_impl.h"

enum { BUSY_MS = 2000 }; /* a reader of the same file, as sqlite3(1), may hold it so long */

static const char *const STATEMENTS[] = {
#define X(id, text) [TD_STATEMENT_##id] = text,
    TD_STATEMENT_MAP(X)
#undef X
};

td_status td__sql_fail(td__job_store *s, const char *what)
{
    int code = sqlite3_errcode(s->db);
    td_status st = code == SQLITE_NOMEM ? TD_ENOMEM : TD_EIO;

    return TD_FAIL(st, "store: %s: %s", what, sqlite3_errmsg(s->db));
}

sqlite3_stmt *td__sql(td__job_store *s, td__statement which)
{
    sqlite3_stmt **q = &s->statements[which];

    if (!*q &&
        sqlite3_prepare_v3(s->db, STATEMENTS[which], -1, SQLITE_PREPARE_PERSISTENT, q, NULL)) {
        td__sql_fail(s, "prepare");
        return NULL;
    }
    sqlite3_reset(*q);
    sqlite3_clear_bindings(*q);
    return *q;
}

const char *td__sql_text(sqlite3_stmt *q, int column)
{
    const unsigned char *text = sqlite3_column_text(q, column);

    return text ? (const char *)text : "";
}

static td_status broken(td__job_store *s, td_status st)
{
    s->broken = s->broken ? s->broken : st;
    return st;
}

td_status td__sql_begin(td__job_store *s, const char *op)
{
    td_status st = td__point(s->points, TD_POINT_FILE, op);

    if (st)
        return broken(s, st);
    if (s->broken)
        return TD_FAIL(s->broken, "store: an earlier write of this transaction failed");
    if (s->dirty)
        return TD_OK;
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_BEGIN);
    if (!q || sqlite3_step(q) != SQLITE_DONE)
        return broken(s, td__sql_fail(s, "begin"));
    sqlite3_reset(q);
    s->dirty = true;
    return TD_OK;
}

td_status td__sql_run(td__job_store *s, sqlite3_stmt *q, const char *op)
{
    if (!q || sqlite3_step(q) != SQLITE_DONE)
        return broken(s, td__sql_fail(s, op));
    sqlite3_reset(q);
    return TD_OK;
}

bool td__job_store_dirty(const td__job_store *s)
{
    return s->dirty;
}

td_status td__job_store_commit(td__job_store *s)
{
    td_status st = s->broken;

    if (!s->dirty && !st)
        return TD_OK;
    if (!st)
        st = td__point(s->points, TD_POINT_FILE, "commit");
    if (!st)
        st = td__sql_run(s, td__sql(s, TD_STATEMENT_COMMIT), "commit");
    if (!st)
        st = td__point(s->points, TD_POINT_FILE, "committed");
    if (st && s->dirty) {
        sqlite3_stmt *q = td__sql(s, TD_STATEMENT_ROLLBACK);
        if (q)
            sqlite3_step(q);
    }
    s->dirty = false;
    s->broken = TD_OK;
    return st;
}

static td_status execute(td__job_store *s, const char *text, const char *what)
{
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) ? td__sql_fail(s, what) : TD_OK;
}

static td_status number(td__job_store *s, const char *text, int64_t *out)
{
    sqlite3_stmt *q = NULL;

    *out = 0;
    if (sqlite3_prepare_v2(s->db, text, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW) {
        td_status st = td__sql_fail(s, text);
        sqlite3_finalize(q);
        return st;
    }
    *out = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return TD_OK;
}

static td_status bring_up_to_date(td__job_store *s, const char *path)
{
    int64_t version;

    TD_TRY(number(s, "PRAGMA user_version", &version));
    if (version > TD_LEN(TD__SCHEMA))
        return TD_FAIL(TD_EINVAL,
                       "%s was written by a newer version of tandem (schema %lld, known: %d); use "
                       "that version",
                       path, (long long)version, TD_LEN(TD__SCHEMA));
    for (; version < TD_LEN(TD__SCHEMA); version++) {
        char set[64];
        snprintf(set, sizeof set, "PRAGMA user_version = %d", (int)version + 1);
        TD_TRY(execute(s, "BEGIN IMMEDIATE", "schema"));
        TD_TRY(execute(s, TD__SCHEMA[version], "schema"));
        TD_TRY(execute(s, set, "schema"));
        TD_TRY(execute(s, "COMMIT", "schema"));
    }
    return TD_OK;
}

td_status td__job_store_open(const char *path, const td__job_store_opts *o, td__job_store **out)
{
    td_status st = TD_OK;
    td__job_store *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", path);
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL)) {
        st = TD_FAIL(TD_EIO, "cannot open %s: %s", path, s->db ? sqlite3_errmsg(s->db) : "memory");
        goto fail;
    }
    sqlite3_busy_timeout(s->db, BUSY_MS);
    /* One process owns the file: no lock has to be taken and given back for each transaction. */
    TD_TRY_OR(st, fail, execute(s, "PRAGMA locking_mode = EXCLUSIVE", path));
    if (sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL)) {
        st = sqlite3_errcode(s->db) == SQLITE_BUSY
                 ? TD_FAIL(TD_EINVAL, "%s is in use by another service; stop it first", path)
                 : td__sql_fail(s, path);
        goto fail;
    }
    TD_TRY_OR(st, fail,
              execute(s, o->full_sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
                      path));
    TD_TRY_OR(st, fail, bring_up_to_date(s, path));
    TD_TRY_OR(st, fail, td__spec_create(&s->defaults));
    TD_TRY_OR(st, fail,
              number(s,
                     "SELECT IFNULL(MAX(seq), 0) FROM sqlite_sequence "
                     "WHERE name = 'events'",
                     &s->last_seq));
    s->points = o->points;
    *out = s;
    return TD_OK;
fail:
    td__job_store_close(s);
    return st;
}

void td__job_store_close(td__job_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < TD_STATEMENT_COUNT; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db); /* rolls back */
    td__spec_destroy(s->defaults);
    td__free(s);
}

/* Events. */

const char *td__event_kind_name(td__event_kind k)
{
    static const char *const NAMES[] = {
#define X(id, name) [TD_EVENT_##id] = name,
        TD_EVENT_KIND_MAP(X)
#undef X
    };
    return NAMES[k];
}

td_status td__job_store_event(td__job_store *s, td__job_event *e)
{
    TD_TRY(td__sql_begin(s, "event"));
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_EVENT);
    if (q) {
        sqlite3_bind_int(q, 1, e->job);
        sqlite3_bind_int(q, 2, (int)e->kind);
        sqlite3_bind_int(q, 3, (int)e->state);
        sqlite3_bind_int(q, 4, e->member);
        sqlite3_bind_int64(q, 5, e->time_ms);
        sqlite3_bind_text(q, 6, e->text, -1, SQLITE_STATIC);
    }
    TD_TRY(td__sql_run(s, q, "event"));
    e->seq = s->last_seq = sqlite3_last_insert_rowid(s->db);
    return TD_OK;
}

int64_t td__job_store_last_seq(const td__job_store *s)
{
    return s->last_seq;
}

td_status td__job_store_events(td__job_store *s, int32_t job, int64_t after, int limit,
                               td__event_each each, void *arg)
{
    sqlite3_stmt *q = td__sql(s, job ? TD_STATEMENT_JOB_EVENTS : TD_STATEMENT_EVENTS);
    int rc = SQLITE_DONE;

    if (!q)
        return td__sql_fail(s, "events");
    sqlite3_bind_int64(q, 1, after);
    sqlite3_bind_int(q, 2, limit > 0 ? limit : -1);
    if (job)
        sqlite3_bind_int(q, 3, job);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        td__job_event e = {.seq = sqlite3_column_int64(q, 0),
                           .job = sqlite3_column_int(q, 1),
                           .kind = (td__event_kind)sqlite3_column_int(q, 2),
                           .state = (td__job_state)sqlite3_column_int(q, 3),
                           .member = sqlite3_column_int(q, 4),
                           .time_ms = sqlite3_column_int64(q, 5),
                           .text = td__sql_text(q, 6)};
        if (!each(arg, &e))
            break;
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? TD_OK : td__sql_fail(s, "events");
}

/* Artifacts. */

td_status td__job_store_artifact(td__job_store *s, const td__artifact *a)
{
    TD_TRY(td__sql_begin(s, "artifact"));
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_ARTIFACT);
    if (q) {
        sqlite3_bind_int(q, 1, a->job);
        sqlite3_bind_text(q, 2, a->name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 3, a->nbytes);
        sqlite3_bind_text(q, 4, a->sha256, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 5, a->time_ms);
    }
    return td__sql_run(s, q, "artifact");
}

td_status td__job_store_artifacts(td__job_store *s, int32_t job, td__artifact_each each, void *arg)
{
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_ARTIFACTS);
    int rc = SQLITE_DONE;

    if (!q)
        return td__sql_fail(s, "artifacts");
    sqlite3_bind_int(q, 1, job);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        td__artifact a = {.job = job,
                          .name = td__sql_text(q, 0),
                          .nbytes = sqlite3_column_int64(q, 1),
                          .time_ms = sqlite3_column_int64(q, 3)};
        snprintf(a.sha256, sizeof a.sha256, "%s", td__sql_text(q, 2));
        if (!each(arg, &a))
            break;
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? TD_OK : td__sql_fail(s, "artifacts");
}

/* Quotas. */

td_status td__job_store_quota(td__job_store *s, const td__quota *u)
{
    TD_TRY(td__sql_begin(s, "quota"));
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_QUOTA);
    if (q) {
        sqlite3_bind_text(q, 1, u->user, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 2, u->slots);
        sqlite3_bind_int64(q, 3, u->gpus);
        sqlite3_bind_int64(q, 4, u->memory_mb);
        sqlite3_bind_int64(q, 5, u->queued);
        sqlite3_bind_double(q, 6, u->weight);
    }
    return td__sql_run(s, q, "quota");
}

td_status td__job_store_delete_quota(td__job_store *s, const char *user, bool *found)
{
    *found = false;
    TD_TRY(td__sql_begin(s, "quota"));
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_DELETE_QUOTA);
    if (q)
        sqlite3_bind_text(q, 1, user, -1, SQLITE_STATIC);
    TD_TRY(td__sql_run(s, q, "quota"));
    *found = sqlite3_changes(s->db) > 0;
    return TD_OK;
}

td_status td__job_store_quotas(td__job_store *s, td__quota_each each, void *arg)
{
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_QUOTAS);
    int rc = SQLITE_DONE;

    if (!q)
        return td__sql_fail(s, "quotas");
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        td__quota u = {.user = td__sql_text(q, 0),
                       .slots = sqlite3_column_int64(q, 1),
                       .gpus = sqlite3_column_int64(q, 2),
                       .memory_mb = sqlite3_column_int64(q, 3),
                       .queued = sqlite3_column_int64(q, 4),
                       .weight = sqlite3_column_double(q, 5)};
        if (!each(arg, &u))
            break;
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? TD_OK : td__sql_fail(s, "quotas");
}
