/* store_documents.c -- small documents by (kind, key), and numbers that are never given twice; see
 * store.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/check.h"
#include "base/fail.h"
#include "service/store/store_impl.h"

static sqlite3_stmt *bound(td__job_store *s, td__statement which, const char *kind, const char *key)
{
    sqlite3_stmt *q = td__sql(s, which);

    if (q) {
        sqlite3_bind_text(q, 1, kind, -1, SQLITE_STATIC);
        if (key)
            sqlite3_bind_text(q, 2, key, -1, SQLITE_STATIC);
    }
    return q;
}

td_status td__job_store_put(td__job_store *s, const char *kind, const char *key, const char *value)
{
    TD_TRY(td__sql_begin(s, "put"));
    sqlite3_stmt *q = bound(s, TD_STATEMENT_PUT, kind, key);
    if (q)
        sqlite3_bind_text(q, 3, value, -1, SQLITE_STATIC);
    return td__sql_run(s, q, "put");
}

td_status td__job_store_take(td__job_store *s, const char *kind, const char *key)
{
    TD_TRY(td__sql_begin(s, "take"));
    return td__sql_run(s, bound(s, TD_STATEMENT_TAKE, kind, key), "take");
}

td_status td__job_store_value(td__job_store *s, const char *kind, const char *key, char **value)
{
    sqlite3_stmt *q = bound(s, TD_STATEMENT_VALUE, kind, key);
    int rc = q ? sqlite3_step(q) : SQLITE_ERROR;
    td_status st = TD_OK;

    *value = NULL;
    if (rc == SQLITE_ROW) {
        *value = td__strdup(td__sql_text(q, 0));
        st = *value ? TD_OK : TD_FAIL(TD_ENOMEM, "store: out of memory");
    } else if (rc != SQLITE_DONE) {
        st = td__sql_fail(s, "value");
    }
    sqlite3_reset(q);
    return st;
}

static td_status each_value(td__job_store *s, sqlite3_stmt *q, td__value_each each, void *arg)
{
    int rc = SQLITE_ERROR;

    while (q && (rc = sqlite3_step(q)) == SQLITE_ROW)
        if (!each(arg, td__sql_text(q, 0), td__sql_text(q, 1)))
            break;
    sqlite3_reset(q);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? TD_OK : td__sql_fail(s, "values");
}

td_status td__job_store_values(td__job_store *s, const char *kind, td__value_each each, void *arg)
{
    return each_value(s, bound(s, TD_STATEMENT_VALUES, kind, NULL), each, arg);
}

td_status td__job_store_values_below(td__job_store *s, const char *kind, const char *prefix,
                                     td__value_each each, void *arg)
{
    sqlite3_stmt *q = bound(s, TD_STATEMENT_VALUES_FROM, kind, prefix);
    char end[256];
    size_t n = (size_t)snprintf(end, sizeof end, "%s", prefix);

    TD_ASSERT(n > 0 && n < sizeof end, "store: a prefix of %zu bytes", n);
    end[n - 1]++; /* the first key behind all of them */
    if (q)
        sqlite3_bind_text(q, 3, end, -1, SQLITE_STATIC);
    return each_value(s, q, each, arg);
}

td_status td__job_store_number(td__job_store *s, const char *name, int64_t *out)
{
    *out = 0;
    TD_TRY(td__sql_begin(s, "number"));
    sqlite3_stmt *q = bound(s, TD_STATEMENT_NUMBER, name, NULL);
    if (!q || sqlite3_step(q) != SQLITE_ROW)
        return td__sql_fail(s, "number");
    *out = sqlite3_column_int64(q, 0);
    return td__sql_run(s, q, "number");
}
