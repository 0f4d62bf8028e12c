/* postgres.c -- see postgres.h.
 *
 * The query runs in a read-only session, through the extended protocol, which takes one statement
 * only; rows come one by one, so that libpq holds one at a time. Cells are the server's texts; of
 * booleans they become 1 and 0, NULL is missing.
 *
 * Time      Connecting ends after 10 s (libpq's connect_timeout), the query after 600 s (the
 *           server's statement_timeout), and so does a server that sends nothing for 60 s.
 * Passwords A job is copied into its run's directory: one in the address is refused. libpq finds
 *           it in PGPASSWORD or ~/.pgpass. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/postgres.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"

/* What libpq-fe.h declares, as far as it is used. */
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
enum { CONNECTION_OK = 0, PGRES_TUPLES_OK = 2, PGRES_SINGLE_TUPLE = 9, BOOL_OID = 16 };

/* name, result, arguments */
#define LIBPQ_MAP(X)                                                                    \
    X(PQconnectdbParams, PGconn *, (const char *const *, const char *const *, int))     \
    X(PQfinish, void, (PGconn *))                                                       \
    X(PQstatus, int, (const PGconn *))                                                  \
    X(PQerrorMessage, char *, (const PGconn *))                                         \
    X(PQsendQueryParams, int,                                                           \
      (PGconn *, const char *, int, const unsigned *, const char *const *, const int *, \
       const int *, int))                                                               \
    X(PQsetSingleRowMode, int, (PGconn *))                                              \
    X(PQsocket, int, (const PGconn *))                                                  \
    X(PQflush, int, (PGconn *))                                                         \
    X(PQsetnonblocking, int, (PGconn *, int))                                           \
    X(PQconsumeInput, int, (PGconn *))                                                  \
    X(PQisBusy, int, (PGconn *))                                                        \
    X(PQgetResult, PGresult *, (PGconn *))                                              \
    X(PQresultStatus, int, (const PGresult *))                                          \
    X(PQclear, void, (PGresult *))                                                      \
    X(PQnfields, int, (const PGresult *))                                               \
    X(PQfname, char *, (const PGresult *, int))                                         \
    X(PQftype, unsigned, (const PGresult *, int))                                       \
    X(PQgetisnull, int, (const PGresult *, int, int))                                   \
    X(PQgetlength, int, (const PGresult *, int, int))                                   \
    X(PQgetvalue, char *, (const PGresult *, int, int))

typedef struct libpq {
#define X(name, result, arguments) result(*name) arguments;
    LIBPQ_MAP(X)
#undef X
} libpq;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the following */
static libpq pq;
static bool loaded;

static td_status load_all(void)
{
    static const char NAME[] = "libpq.so.5";
    void *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;

    if (!library)
        return TD_FAIL(TD_ENOTSUP,
                       "sql: no client library of PostgreSQL (%s); install the package libpq5",
                       dlerror());
#define X(name, result, arguments)                      \
    *(void **)(void *)&pq.name = dlsym(library, #name); \
    missing = pq.name ? missing : #name;
    LIBPQ_MAP(X)
#undef X
    if (!missing)
        return TD_OK;
    dlclose(library);
    return TD_FAIL(TD_ENOTSUP, "sql: %s has no %s", NAME, missing);
}

static td_status load(void)
{
    pthread_mutex_lock(&lock);
    td_status st = loaded ? TD_OK : load_all();
    loaded = !st;
    pthread_mutex_unlock(&lock);
    return st;
}

bool td__is_postgres(const char *name)
{
    return !strncmp(name, "postgresql://", 13) || !strncmp(name, "postgres://", 11);
}

/* The first line of what libpq says, which may be several. */
static td_status failed(const PGconn *c, const td__records *r, const char *what)
{
    const char *text = pq.PQerrorMessage(c);
    if (!strncmp(text, "ERROR:  ", 8))
        text += 8;
    return TD_FAIL(TD_EINVAL, "%s: %s%s%.*s", r->where, what ? what : "", what ? ": " : "",
                   (int)strcspn(text, "\n"), text);
}

/* user:password@, or password= among the options. What is before '@' may have a '?', as libpq
 * reads it. */
static bool has_password(const char *uri)
{
    const char *host = strstr(uri, "://") + 3;
    size_t n = strcspn(host, "/");
    const char *at = memchr(host, '@', n),
               *colon = at ? memchr(host, ':', (size_t)(at - host)) : NULL;
    return colon || strstr(uri, "password=");
}

static td_status connect_to(const td__records *r, const char *uri, PGconn **out)
{
    static const char *const KEYS[] = {"dbname",  "connect_timeout", "application_name",
                                       "options", "client_encoding", NULL};
    const char *const values[] = {
        uri,    "10", "tandem", "-c default_transaction_read_only=on -c statement_timeout=600000",
        "UTF8", NULL};

    *out = NULL;
    if (has_password(uri))
        return TD_FAIL(TD_EINVAL,
                       "sql: the address of the database has a password, which the run's copy of "
                       "the job would keep: leave it to PGPASSWORD or ~/.pgpass");
    TD_TRY(load());
    PGconn *c = pq.PQconnectdbParams(KEYS, values, 1);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a connection", r->where);
    if (pq.PQstatus(c) != CONNECTION_OK || pq.PQsetnonblocking(c, 1)) {
        td_status st = failed(c, r, NULL);
        pq.PQfinish(c);
        return st;
    }
    *out = c;
    return TD_OK;
}

/* The next result, NULL after the last. */
static td_status next_result(PGconn *c, const td__records *r, PGresult **out)
{
    enum { SILENT_S = 60 };
    uint64_t end = td__clock_ns() + SILENT_S * UINT64_C(1000000000);
    int left = pq.PQflush(c);

    *out = NULL;
    while (left == 1 || pq.PQisBusy(c)) {
        struct pollfd p = {.fd = pq.PQsocket(c), .events = left == 1 ? POLLIN | POLLOUT : POLLIN};
        uint64_t now = td__clock_ns();
        int n = now < end ? poll(&p, 1, (int)((end - now) / 1000000) + 1) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return TD_FAIL(TD_ETIMEDOUT, "%s: data.query: nothing from the server in %d s",
                           r->where, SILENT_S);
        if (!pq.PQconsumeInput(c))
            return failed(c, r, "data.query");
        left = pq.PQflush(c);
    }
    if (left < 0)
        return failed(c, r, "data.query");
    *out = pq.PQgetResult(c);
    return TD_OK;
}

static td_status read_names(const PGresult *q, td__records *r)
{
    int n = pq.PQnfields(q);
    td__cell *names = td__calloc((size_t)n + 1, sizeof *names);

    if (!names)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", r->where);
    for (int i = 0; i < n; i++) {
        const char *name = pq.PQfname(q, i);
        names[i] = (td__cell){name ? name : "", name ? strlen(name) : 0};
    }
    td_status st = td__records_columns(r, names, n);
    td__free(names);
    return st;
}

static td_status read_row(const PGresult *q, td__records *r)
{
    td__cell *cells;

    TD_TRY(td__records_row(r, r->rows + 1, &cells));
    for (int i = 0; i < (int)r->cols; i++) {
        if (pq.PQgetisnull(q, 0, i))
            continue;
        const char *from = pq.PQgetvalue(q, 0, i);
        size_t nbytes = (size_t)pq.PQgetlength(q, 0, i);
        if (pq.PQftype(q, i) == BOOL_OID)
            from = from[0] == 't' ? "1" : "0";
        char *text = td__arena_alloc(r->arena, nbytes + 1);
        if (!text)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for a cell of %zu bytes", r->where, nbytes);
        memcpy(text, from, nbytes);
        cells[i] = (td__cell){text, nbytes};
    }
    return TD_OK;
}

/* A result of one row, or the end, which has the columns too. */
static td_status read_result(PGconn *c, const PGresult *q, td__records *r, bool *named)
{
    int status = pq.PQresultStatus(q);

    if (status != PGRES_SINGLE_TUPLE && status != PGRES_TUPLES_OK)
        return *pq.PQerrorMessage(c) ? failed(c, r, "data.query")
                                     : TD_FAIL(TD_EINVAL, "data.query: expected a SELECT");
    if (!*named)
        TD_TRY(read_names(q, r));
    *named = true;
    return status == PGRES_SINGLE_TUPLE ? read_row(q, r) : TD_OK;
}

static td_status read_rows(PGconn *c, td__records *r, const char *query)
{
    bool named = false;
    PGresult *q;
    td_status st = TD_OK;

    if (!pq.PQsendQueryParams(c, query, 0, NULL, NULL, NULL, NULL, 0) || !pq.PQsetSingleRowMode(c))
        return failed(c, r, "data.query");
    do {
        TD_TRY(next_result(c, r, &q));
        if (q)
            st = read_result(c, q, r, &named);
        pq.PQclear(q);
    } while (q && !st);
    if (!st && !r->rows)
        st = TD_FAIL(TD_EINVAL, "%s: the query gives no rows", r->where);
    return st;
}

td_status td__postgres_read(td__records *r, const char *uri, const char *query)
{
    PGconn *c;

    TD_TRY(connect_to(r, uri, &c));
    td_status st = read_rows(c, r, query);
    pq.PQfinish(c);
    return st;
}
