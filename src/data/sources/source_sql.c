/* source_sql.c -- the rows of a query to a database as a table (records.h). Parts are files of
 * SQLite, or addresses of PostgreSQL databases (postgres.h); all are asked the same query, which
 * must say ORDER BY: without it, rows come in an order that may change, and the same job would have
 * other samples. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "base/fail.h"
#include "base/text.h"
#include "data/postgres.h"
#include "data/records.h"

enum { BUSY_MS = 10000 };
enum { MOST_STEPS = 20000000 }; /* of SQLite's machine, in thousands: minutes */

/* A query that never ends is ended. */
static int count_steps(void *left)
{
    int64_t *n = left;
    return --*n < 0;
}

static bool has_order(const char *query)
{
    for (const char *p = query; *p; p++)
        if (!strncasecmp(p, "order", 5)) {
            const char *by = p + 5;
            while (*by == ' ' || *by == '\t' || *by == '\n')
                by++;
            if (by > p + 5 && !strncasecmp(by, "by", 2))
                return true;
        }
    return false;
}

static td_status failed(sqlite3 *db, const td__records *r, const char *what)
{
    return TD_FAIL(TD_EINVAL, "%s: %s: %s", r->where, what, sqlite3_errmsg(db));
}

static td_status read_names(sqlite3_stmt *q, td__records *r)
{
    int n = sqlite3_column_count(q);
    td__cell *names = td__calloc((size_t)n + 1, sizeof *names);

    if (!names)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", r->where);
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(q, i);
        names[i] = (td__cell){name ? name : "", name ? strlen(name) : 0};
    }
    td_status st = td__records_columns(r, names, n);
    td__free(names);
    return st;
}

/* Texts of a row are SQLite's until the next one. */
static td_status read_row(sqlite3_stmt *q, td__records *r, td__cell *cells)
{
    for (int i = 0; i < (int)r->cols; i++) {
        if (sqlite3_column_type(q, i) == SQLITE_NULL)
            continue;
        const void *from = sqlite3_column_text(q, i);
        size_t nbytes = (size_t)sqlite3_column_bytes(q, i);
        char *text = from ? td__arena_alloc(r->arena, nbytes + 1) : NULL;
        if (!text)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for a cell of %zu bytes", r->where, nbytes);
        if (nbytes)
            memcpy(text, from, nbytes);
        cells[i] = (td__cell){text, nbytes};
    }
    return TD_OK;
}

static td_status read_rows(sqlite3 *db, sqlite3_stmt *q, td__records *r)
{
    int rc = SQLITE_ROW;

    TD_TRY(read_names(q, r));
    for (int64_t row = 1; rc == SQLITE_ROW; row++) {
        td__cell *cells;
        rc = sqlite3_step(q);
        if (rc != SQLITE_ROW)
            break;
        TD_TRY(td__records_row(r, row, &cells));
        TD_TRY(read_row(q, r, cells));
    }
    if (rc == SQLITE_INTERRUPT)
        return TD_FAIL(TD_EINVAL, "%s: data.query: it does not end: stopped after %lld steps",
                       r->where, MOST_STEPS * 1000LL);
    if (rc != SQLITE_DONE)
        return failed(db, r, "data.query");
    return r->rows ? TD_OK : TD_FAIL(TD_EINVAL, "%s: the query gives no rows", r->where);
}

static td_status ask(sqlite3 *db, td__records *r, const char *query)
{
    sqlite3_stmt *q = NULL;
    const char *rest = NULL;
    td_status st = TD_OK;

    if (sqlite3_prepare_v2(db, query, -1, &q, &rest) != SQLITE_OK || !q)
        st = failed(db, r, "data.query");
    else if (rest && rest[strspn(rest, " \t\r\n;")])
        st = TD_FAIL(TD_EINVAL, "data.query: expected one query, found more behind it: '%.40s'",
                     rest);
    else if (!sqlite3_stmt_readonly(q) || sqlite3_column_count(q) < 1)
        st = TD_FAIL(TD_EINVAL, "data.query: expected a SELECT");
    else
        st = read_rows(db, q, r);
    sqlite3_finalize(q);
    return st;
}

static td_status check_query(const char *query)
{
    if (!query)
        return TD_FAIL(TD_EINVAL, "sql: set data.query to a SELECT with an ORDER BY");
    if (!has_order(query))
        return TD_FAIL(TD_EINVAL,
                       "data.query: it has no ORDER BY: rows without one come in an order that may "
                       "change, and with it the samples");
    return TD_OK;
}

/* The database in memory, as it is mapped: nothing beside the file is read or written. */
static int open_bytes(const uint8_t *data, size_t nbytes, sqlite3 **db)
{
    int rc = sqlite3_open_v2(":memory:", db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    return rc ? rc
              : sqlite3_deserialize(*db, "main", (unsigned char *)(uintptr_t)data,
                                    (sqlite3_int64)nbytes, (sqlite3_int64)nbytes,
                                    SQLITE_DESERIALIZE_READONLY);
}

static void add_escaped(td__text *t, const char *path)
{
    for (; *path; path++)
        td__text_printf(t, strchr("%?#", *path) ? "%%%02x" : "%c", (unsigned char)*path);
}

/* A database in WAL mode: what was written last lies in the file -wal beside it, which SQLite reads
 * by its path, without writing rows. Without such a file, or with an empty one, the database is
 * whole, and is read as one that nobody changes, which needs no files beside it. */
static int open_wal(const char *path, sqlite3 **db)
{
    td__text uri = {0}, log = {0};
    struct stat info;
    int rc = SQLITE_NOMEM;

    td__text_printf(&log, "%s-wal", path);
    td__text_add(&uri, path[0] == '/' ? "file://" : "file:");
    add_escaped(&uri, path);
    if (!log.failed)
        td__text_add(&uri, stat(log.data, &info) || !info.st_size ? "?immutable=1" : "?mode=ro");
    if (!log.failed && !uri.failed)
        rc = sqlite3_open_v2(uri.data, db,
                             SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    td__text_fini(&log);
    td__text_fini(&uri);
    return rc;
}

static td_status sql_parse(td__records *r, const td__source_opts *o, const uint8_t *data,
                           size_t nbytes)
{
    int64_t left = MOST_STEPS;
    sqlite3 *db = NULL;
    td_status st = TD_OK;

    TD_TRY(check_query(o->query));
    if (nbytes < 100 || memcmp(data, "SQLite format 3", 16) != 0)
        return TD_FAIL(TD_EPROTO, "%s: not an SQLite database", r->where);
    int rc = data[18] == 2 ? open_wal(r->where, &db) : open_bytes(data, nbytes, &db);
    if (rc != SQLITE_OK) {
        st = failed(db, r, "cannot be opened");
        goto done;
    }
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_progress_handler(db, 1000, count_steps, &left);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    st = ask(db, r, o->query);
done:
    sqlite3_close(db);
    return st;
}

static td_status sql_ask(td__records *r, const td__source_opts *o, const char *name)
{
    TD_TRY(check_query(o->query));
    return td__postgres_read(r, name, o->query);
}

static const td__table_format FORMAT = {
    .source = "sql",
    .expected = "an SQLite database, or postgresql://HOST/DATABASE",
    .parse = sql_parse,
    .is_elsewhere = td__is_postgres,
    .ask = sql_ask,
};

static td_status sql_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, NULL, out);
}

static td_status sql_open_fitted(const td__source_opts *o, const char *part, const td__fit *fit,
                                 td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, fit, NULL, out);
}

static td_status sql_open_cut(const td__source_opts *o, const char *part,
                              const struct td__split *cut, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, cut, out);
}

const td__source_def td__source_sql = {
    .name = "sql",
    .help = "the rows of a query to an SQLite or PostgreSQL database: a label column and feature "
            "columns",
    .reads = "dir train valid test query label columns features missing fit window horizon stride "
             "target",
    .open = sql_open,
    .open_fitted = sql_open_fitted,
    .open_cut = sql_open_cut,
};
