/* store_jobs.c -- jobs in the store; see store.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "service/spec.h"
#include "service/store/store_impl.h"

/* Parameters 1 to 14, 21 and 22 of INSERT and UPDATE: what changes. */
static void bind_changing(sqlite3_stmt *q, const td__job_record *r)
{
    sqlite3_bind_int(q, 1, (int)r->state);
    sqlite3_bind_int(q, 2, r->cancel_asked);
    sqlite3_bind_int(q, 3, r->pause_asked);
    sqlite3_bind_int(q, 4, r->attempt);
    sqlite3_bind_int(q, 5, r->failures);
    sqlite3_bind_text(q, 6, r->token, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 7, r->queued_ms);
    sqlite3_bind_int64(q, 8, r->launched_ms);
    sqlite3_bind_int64(q, 9, r->started_ms);
    sqlite3_bind_int64(q, 10, r->finished_ms);
    sqlite3_bind_int64(q, 11, r->not_before_ms);
    sqlite3_bind_int(q, 12, r->exit_status);
    sqlite3_bind_int(q, 13, (int)r->exit_class);
    sqlite3_bind_text(q, 14, r->message ? r->message : "", -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 21, r->data_bucket, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 22, r->data_path, -1, SQLITE_STATIC);
}

static td_status insert_labels(td__job_store *s, const td__job_record *r)
{
    for (int i = 0; i < r->spec->labels.n; i++) {
        sqlite3_stmt *q = td__sql(s, TD_STATEMENT_LABEL);
        if (q) {
            sqlite3_bind_int(q, 1, r->id);
            sqlite3_bind_text(q, 2, r->spec->labels.at[i].key, -1, SQLITE_STATIC);
            sqlite3_bind_text(q, 3, r->spec->labels.at[i].value, -1, SQLITE_STATIC);
        }
        TD_TRY(td__sql_run(s, q, "label"));
    }
    return TD_OK;
}

td_status td__job_store_insert(td__job_store *s, td__job_record *r, const char *key)
{
    td__text spec = {0};

    TD_TRY(td__sql_begin(s, "insert"));
    td__spec_json(r->spec, &spec);
    td_status st = td__text_status(&spec);
    sqlite3_stmt *q = st ? NULL : td__sql(s, TD_STATEMENT_INSERT);
    if (q) {
        bind_changing(q, r);
        sqlite3_bind_text(q, 15, r->spec->user, -1, SQLITE_STATIC);
        sqlite3_bind_text(q, 16, r->spec->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(q, 17, r->spec->algorithm, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 18, r->spec->sweep);
        sqlite3_bind_text(q, 19, key && *key ? key : NULL, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 20, r->submitted_ms);
        sqlite3_bind_text(q, 23, spec.data, -1, SQLITE_STATIC);
    }
    if (!st)
        st = td__sql_run(s, q, "insert");
    td__text_fini(&spec);
    TD_TRY(st);
    int64_t id = sqlite3_last_insert_rowid(s->db);
    if (id > INT32_MAX)
        return TD_FAIL(TD_EIO, "store: all job ids up to %d are used", INT32_MAX);
    r->id = (int32_t)id;
    return insert_labels(s, r);
}

td_status td__job_store_update(td__job_store *s, const td__job_record *r)
{
    TD_TRY(td__sql_begin(s, "update"));
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_UPDATE);
    if (q) {
        bind_changing(q, r);
        sqlite3_bind_int(q, 24, r->id);
    }
    return td__sql_run(s, q, "update");
}

td_status td__job_store_delete(td__job_store *s, int32_t id)
{
    static const td__statement ALL[] = {TD_STATEMENT_DELETE_JOB, TD_STATEMENT_DELETE_LABELS,
                                        TD_STATEMENT_DELETE_EVENTS, TD_STATEMENT_DELETE_ARTIFACTS};

    TD_TRY(td__sql_begin(s, "delete"));
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        sqlite3_stmt *q = td__sql(s, ALL[i]);
        if (q)
            sqlite3_bind_int(q, 1, id);
        TD_TRY(td__sql_run(s, q, "delete"));
    }
    return TD_OK;
}

td_status td__job_store_by_key(td__job_store *s, const char *user, const char *key, int32_t *id)
{
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_BY_KEY);

    *id = 0;
    if (!q)
        return td__sql_fail(s, "key");
    sqlite3_bind_text(q, 1, user, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, key, -1, SQLITE_STATIC);
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *id = sqlite3_column_int(q, 0);
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? TD_OK : td__sql_fail(s, "key");
}

#define COLUMNS                                                                                 \
    "id, state, cancel_asked, pause_asked, attempt, failures, token, submitted_ms, queued_ms, " \
    "launched_ms, started_ms, finished_ms, not_before_ms, exit_status, exit_class, message, "   \
    "data_bucket, data_path, spec"

static char *copy_or_null(sqlite3_stmt *q, int column)
{
    return sqlite3_column_type(q, column) == SQLITE_NULL ? NULL
                                                         : td__strdup(td__sql_text(q, column));
}

static td_status read_record(td__job_store *s, sqlite3_stmt *q, td__job_record **out)
{
    td__job_record *r = td__calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return TD_FAIL(TD_ENOMEM, "store: out of memory");
    r->id = sqlite3_column_int(q, 0);
    r->state = (td__job_state)sqlite3_column_int(q, 1);
    r->cancel_asked = sqlite3_column_int(q, 2);
    r->pause_asked = sqlite3_column_int(q, 3);
    r->attempt = sqlite3_column_int(q, 4);
    r->failures = sqlite3_column_int(q, 5);
    snprintf(r->token, sizeof r->token, "%s", td__sql_text(q, 6));
    r->submitted_ms = sqlite3_column_int64(q, 7);
    r->queued_ms = sqlite3_column_int64(q, 8);
    r->launched_ms = sqlite3_column_int64(q, 9);
    r->started_ms = sqlite3_column_int64(q, 10);
    r->finished_ms = sqlite3_column_int64(q, 11);
    r->not_before_ms = sqlite3_column_int64(q, 12);
    r->exit_status = sqlite3_column_int(q, 13);
    r->exit_class = (td__exit_class)sqlite3_column_int(q, 14);
    r->message = td__strdup(td__sql_text(q, 15));
    r->data_bucket = copy_or_null(q, 16);
    r->data_path = copy_or_null(q, 17);
    td_status st = r->message ? td__spec_load(td__sql_text(q, 18), s->defaults, &r->spec)
                              : TD_FAIL(TD_ENOMEM, "store: out of memory");
    if (st) {
        td__job_record_destroy(r);
        return st;
    }
    *out = r;
    return TD_OK;
}

td_status td__job_store_get(td__job_store *s, int32_t id, td__job_record **out)
{
    sqlite3_stmt *q = NULL;
    td_status st = TD_OK;

    *out = NULL;
    if (sqlite3_prepare_v2(s->db, "SELECT " COLUMNS " FROM jobs WHERE id = ?1", -1, &q, NULL))
        return td__sql_fail(s, "get");
    sqlite3_bind_int(q, 1, id);
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        st = read_record(s, q, out);
    else if (rc != SQLITE_DONE)
        st = td__sql_fail(s, "get");
    sqlite3_finalize(q);
    return st;
}

/* The statement of a filter; parameters are bound in the order of their places. */
static void write_query(const td__job_filter *f, td__text *t)
{
    td__text_add(t, "SELECT " COLUMNS " FROM jobs WHERE 1");
    if (f->states) {
        const char *before = " AND state IN (";
        for (int i = 0; i < TD_JOB_STATE_COUNT; i++)
            if (f->states & (1u << i)) {
                td__text_printf(t, "%s%d", before, i);
                before = ", ";
            }
        td__text_add(t, ")");
    }
    td__text_add(t, f->user ? " AND user = ?" : "");
    td__text_add(t, f->algorithm ? " AND algorithm = ?" : "");
    td__text_add(t, f->name ? " AND name GLOB ?" : "");
    for (int i = 0; i < f->labels.n; i++)
        td__text_add(t, " AND id IN (SELECT job FROM labels WHERE key = ? AND value = ?)");
    td__text_add(t, f->sweep ? " AND sweep = ?" : "");
    td__text_add(t, f->before ? " AND id < ?" : "");
    td__text_add(t, " ORDER BY id DESC");
    td__text_add(t, f->limit > 0 ? " LIMIT ?" : "");
}

static void bind_filter(sqlite3_stmt *q, const td__job_filter *f)
{
    int i = 0;

    if (f->user)
        sqlite3_bind_text(q, ++i, f->user, -1, SQLITE_STATIC);
    if (f->algorithm)
        sqlite3_bind_text(q, ++i, f->algorithm, -1, SQLITE_STATIC);
    if (f->name)
        sqlite3_bind_text(q, ++i, f->name, -1, SQLITE_STATIC);
    for (int n = 0; n < f->labels.n; n++) {
        sqlite3_bind_text(q, ++i, f->labels.at[n].key, -1, SQLITE_STATIC);
        sqlite3_bind_text(q, ++i, f->labels.at[n].value, -1, SQLITE_STATIC);
    }
    if (f->sweep)
        sqlite3_bind_int64(q, ++i, f->sweep);
    if (f->before)
        sqlite3_bind_int(q, ++i, f->before);
    if (f->limit > 0)
        sqlite3_bind_int(q, ++i, f->limit);
}

typedef struct reading {
    const td__job_record *(*known)(void *arg, int32_t id); /* NULL: none are */
    void *known_arg;
    td__job_each each;
    void *arg;
} reading;

/* All rows of q, which is finalized. */
static td_status read_rows(td__job_store *s, sqlite3_stmt *q, const reading *x)
{
    td_status st = TD_OK;
    bool more = true;
    int rc = SQLITE_DONE;

    while (!st && more && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const td__job_record *known =
            x->known ? x->known(x->known_arg, sqlite3_column_int(q, 0)) : NULL;
        td__job_record *r = NULL;
        if (!known)
            st = read_record(s, q, &r);
        if (st && st != TD_ENOMEM) { /* one damaged row does not take the others with it */
            TD_LOG(ERROR, SERVICE, "store: job %d is damaged and left out: %s",
                   sqlite3_column_int(q, 0), td_last_error());
            st = TD_OK;
            continue;
        }
        if (!st)
            more = x->each(x->arg, known ? known : r);
        td__job_record_destroy(r);
    }
    if (!st && more && rc != SQLITE_DONE)
        st = td__sql_fail(s, "list");
    sqlite3_finalize(q);
    return st;
}

td_status td__job_store_list_known(td__job_store *s, const td__job_filter *f,
                                   const td__job_record *(*known)(void *arg, int32_t id),
                                   void *known_arg, td__job_each each, void *arg)
{
    sqlite3_stmt *q = NULL;
    td__text text = {0};

    write_query(f, &text);
    td_status st = td__text_status(&text);
    if (!st && sqlite3_prepare_v2(s->db, text.data, -1, &q, NULL))
        st = td__sql_fail(s, "list");
    td__text_fini(&text);
    TD_TRY(st);
    bind_filter(q, f);
    return read_rows(s, q, &(reading){known, known_arg, each, arg});
}

td_status td__job_store_list(td__job_store *s, const td__job_filter *f, td__job_each each,
                             void *arg)
{
    return td__job_store_list_known(s, f, NULL, NULL, each, arg);
}

td_status td__job_store_list_ended(td__job_store *s, int64_t before_ms, int limit,
                                   td__job_each each, void *arg)
{
    sqlite3_stmt *q = NULL;

    if (sqlite3_prepare_v2(s->db,
                           "SELECT " COLUMNS " FROM jobs WHERE finished_ms > 0 AND "
                           "finished_ms < ?1 ORDER BY finished_ms LIMIT ?2",
                           -1, &q, NULL))
        return td__sql_fail(s, "list");
    sqlite3_bind_int64(q, 1, before_ms);
    sqlite3_bind_int(q, 2, limit);
    return read_rows(s, q, &(reading){NULL, NULL, each, arg});
}

td_status td__job_store_count(td__job_store *s, int64_t by_state[TD_JOB_STATE_COUNT])
{
    sqlite3_stmt *q = td__sql(s, TD_STATEMENT_COUNTS);
    int rc = SQLITE_ERROR;

    memset(by_state, 0, TD_JOB_STATE_COUNT * sizeof *by_state);
    while (q && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        int state = sqlite3_column_int(q, 0);
        if (state >= 0 && state < TD_JOB_STATE_COUNT)
            by_state[state] = sqlite3_column_int64(q, 1);
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE ? TD_OK : td__sql_fail(s, "count");
}
