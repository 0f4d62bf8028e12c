/* store_impl.h -- the inside of td__job_store, and statements: prepared once, bound by type. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_STORE_STORE_IMPL_H
#define TD_SERVICE_STORE_STORE_IMPL_H

#include <sqlite3.h>

#include "service/store/store.h"

/* Statements of fixed text; those of lists are made for their filter. */
#define TD_STATEMENT_MAP(X)                                                                       \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                   \
    X(COMMIT, "COMMIT")                                                                           \
    X(ROLLBACK, "ROLLBACK")                                                                       \
    X(INSERT,                                                                                     \
      "INSERT INTO jobs(state, user, name, algorithm, sweep, key, cancel_asked, pause_asked, "    \
      "attempt, failures, token, submitted_ms, queued_ms, launched_ms, started_ms, finished_ms, " \
      "not_before_ms, exit_status, exit_class, message, data_bucket, data_path, spec) "           \
      "VALUES(?1, ?15, ?16, ?17, ?18, ?19, ?2, ?3, ?4, ?5, ?6, ?20, ?7, ?8, ?9, ?10, ?11, ?12, "  \
      "?13, ?14, ?21, ?22, ?23)")                                                                 \
    X(UPDATE, "UPDATE jobs SET state = ?1, cancel_asked = ?2, pause_asked = ?3, attempt = ?4, "   \
              "failures = ?5, token = ?6, queued_ms = ?7, launched_ms = ?8, started_ms = ?9, "    \
              "finished_ms = ?10, not_before_ms = ?11, exit_status = ?12, exit_class = ?13, "     \
              "message = ?14, data_bucket = ?21, data_path = ?22 WHERE id = ?24")                 \
    X(LABEL, "INSERT INTO labels(job, key, value) VALUES(?1, ?2, ?3)")                            \
    X(DELETE_JOB, "DELETE FROM jobs WHERE id = ?1")                                               \
    X(DELETE_LABELS, "DELETE FROM labels WHERE job = ?1")                                         \
    X(DELETE_EVENTS, "DELETE FROM events WHERE job = ?1")                                         \
    X(DELETE_ARTIFACTS, "DELETE FROM artifacts WHERE job = ?1")                                   \
    X(BY_KEY, "SELECT id FROM jobs WHERE user = ?1 AND key = ?2")                                 \
    X(COUNTS, "SELECT state, COUNT(*) FROM jobs GROUP BY state")                                  \
    X(EVENT,                                                                                      \
      "INSERT INTO events(job, kind, state, member, time_ms, text) VALUES(?1, ?2, ?3, ?4, ?5, "   \
      "?6)")                                                                                      \
    X(EVENTS,                                                                                     \
      "SELECT seq, job, kind, state, member, time_ms, text FROM events WHERE seq > ?1 ORDER BY "  \
      "seq LIMIT ?2")                                                                             \
    X(JOB_EVENTS,                                                                                 \
      "SELECT seq, job, kind, state, member, time_ms, text FROM events WHERE seq > ?1 AND "       \
      "job = ?3 ORDER BY seq LIMIT ?2")                                                           \
    X(LAST_SEQ, "SELECT IFNULL(MAX(seq), 0) FROM events")                                         \
    X(ARTIFACT,                                                                                   \
      "INSERT OR REPLACE INTO artifacts(job, name, nbytes, sha256, time_ms) VALUES(?1, ?2, ?3, "  \
      "?4, ?5)")                                                                                  \
    X(ARTIFACTS,                                                                                  \
      "SELECT name, nbytes, sha256, time_ms FROM artifacts WHERE job = ?1 ORDER BY name")         \
    X(QUOTA,                                                                                      \
      "INSERT OR REPLACE INTO quotas(user, slots, gpus, memory_mb, queued, weight) VALUES(?1, "   \
      "?2, ?3, ?4, ?5, ?6)")                                                                      \
    X(DELETE_QUOTA, "DELETE FROM quotas WHERE user = ?1")                                         \
    X(QUOTAS, "SELECT user, slots, gpus, memory_mb, queued, weight FROM quotas ORDER BY user")    \
    X(PUT, "INSERT OR REPLACE INTO documents(kind, key, value) VALUES(?1, ?2, ?3)")               \
    X(TAKE, "DELETE FROM documents WHERE kind = ?1 AND key = ?2")                                 \
    X(VALUE, "SELECT value FROM documents WHERE kind = ?1 AND key = ?2")                          \
    X(VALUES, "SELECT key, value FROM documents WHERE kind = ?1 ORDER BY key")                    \
    X(VALUES_FROM,                                                                                \
      "SELECT key, value FROM documents WHERE kind = ?1 AND key >= ?2 AND key < ?3 ORDER BY key") \
    X(NUMBER,                                                                                     \
      "INSERT INTO numbers(name, last) VALUES(?1, 1) ON CONFLICT(name) DO UPDATE SET last = "     \
      "last + 1 RETURNING last")

typedef enum td__statement {
#define X(id, text) TD_STATEMENT_##id,
    TD_STATEMENT_MAP(X)
#undef X
        TD_STATEMENT_COUNT
} td__statement;

struct td__job_store {
    sqlite3 *db;
    sqlite3_stmt *statements[TD_STATEMENT_COUNT]; /* prepared at first use */
    td__points *points;
    td__job_spec *defaults;
    bool dirty;
    td_status broken; /* the first failed write since the last commit */
    int64_t last_seq;
};

td_status td__sql_fail(td__job_store *s, const char *what);
/* Prepared and reset; NULL after an error. */
sqlite3_stmt *td__sql(td__job_store *s, td__statement which);
/* A transaction is open afterwards; tells the points. */
TD_NODISCARD td_status td__sql_begin(td__job_store *s, const char *op);
/* Step a statement that returns no rows; a failure breaks the transaction. */
TD_NODISCARD td_status td__sql_run(td__job_store *s, sqlite3_stmt *q, const char *op);
/* Text of a column, "" for NULL. */
const char *td__sql_text(sqlite3_stmt *q, int column);

#endif
