/* schema.h -- the tables of the store, one text per version: a database of version n gets texts n,
 * n + 1, ... A text that has been released is never changed; changes are further texts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_STORE_SCHEMA_H
#define TD_SERVICE_STORE_SCHEMA_H

/* AUTOINCREMENT: ids of deleted jobs are not used again. spec is JSON (service/spec.h); what lists
 * filter by is repeated in columns. Labels are rows, so that they can be searched by index. */
static const char *const TD__SCHEMA[] = {
    "CREATE TABLE jobs("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " state INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL, algorithm TEXT NOT NULL,"
    " sweep INTEGER NOT NULL, key TEXT,"
    " cancel_asked INTEGER NOT NULL, pause_asked INTEGER NOT NULL,"
    " attempt INTEGER NOT NULL, failures INTEGER NOT NULL, token TEXT NOT NULL,"
    " submitted_ms INTEGER NOT NULL, queued_ms INTEGER NOT NULL, launched_ms INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL, not_before_ms INTEGER NOT NULL,"
    " exit_status INTEGER NOT NULL, exit_class INTEGER NOT NULL, message TEXT NOT NULL,"
    " data_bucket TEXT, data_path TEXT, spec TEXT NOT NULL);"
    "CREATE INDEX jobs_by_state ON jobs(state, id);"
    "CREATE INDEX jobs_by_user ON jobs(user, id);"
    "CREATE INDEX jobs_by_sweep ON jobs(sweep, id) WHERE sweep > 0;"
    "CREATE INDEX jobs_by_end ON jobs(finished_ms) WHERE finished_ms > 0;"
    "CREATE UNIQUE INDEX jobs_by_key ON jobs(user, key) WHERE key IS NOT NULL;"
    "CREATE TABLE labels(job INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY(key, value, job)) WITHOUT ROWID;"
    "CREATE INDEX labels_by_job ON labels(job);"
    "CREATE TABLE events("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " state INTEGER NOT NULL, member INTEGER NOT NULL, time_ms INTEGER NOT NULL, text TEXT);"
    "CREATE INDEX events_by_job ON events(job, seq);"
    "CREATE TABLE artifacts("
    " job INTEGER NOT NULL, name TEXT NOT NULL, nbytes INTEGER NOT NULL, sha256 TEXT NOT NULL,"
    " time_ms INTEGER NOT NULL, PRIMARY KEY(job, name)) WITHOUT ROWID;"
    "CREATE TABLE quotas("
    " user TEXT PRIMARY KEY, slots INTEGER NOT NULL, gpus INTEGER NOT NULL,"
    " memory_mb INTEGER NOT NULL, queued INTEGER NOT NULL, weight REAL NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE documents("
    " kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY(kind, key)) WITHOUT ROWID;"
    "CREATE TABLE numbers(name TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;",
};

#endif
