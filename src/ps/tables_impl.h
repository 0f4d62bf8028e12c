/* tables_impl.h -- what the two sides of tables on servers share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_TABLES_IMPL_H
#define TD_PS_TABLES_IMPL_H

#include <pthread.h>

#include "ps/id_table.h"
#include "ps/lane.h"
#include "ps/tables.h"

enum { TD__TABLES_PATH = 3500 };

typedef enum td__rows_verb {
    TD__ROWS_PULL, /* ids -> rows */
    TD__ROWS_PUSH, /* ids and gradients -> word that they are kept */
    TD__ROWS_SAVE, /* -> word that it is done */
    TD__ROWS_LOAD
} td__rows_verb;

/* What a client says; ids (int64) and gradients (width floats each) of n rows lie in its area. */
typedef struct td__rows_message {
    int32_t verb, table;
    uint64_t n, step;
    double lr;
    int32_t train, pad;
} td__rows_message;

/* What a server answers; rows (n, width) lie in the other area. */
typedef struct td__rows_answer {
    int32_t status;
    char text[252];
} td__rows_answer;

/* Gradients of one worker that are not applied yet. */
typedef struct td__rows_kept {
    uint64_t step; /* 0: none */
    double lr;
    size_t n, room;
    int64_t *ids;
    float *grads;
} td__rows_kept;

/* A table: what all know, what servers have of it, what clients need. */
typedef struct td__ps_table {
    td__model_table is;
    int param, list, field; /* of the params, of the gradients' lists, of the data */
    size_t width, most;     /* most: rows of the param */
    size_t offset;          /* in the params' block */
    /* Servers; under the lock. */
    td__id_table *rows;
    td__rows_kept *kept; /* (workers) */
    /* Clients: the ids of the last batch, each once, and where its ids lie now. */
    int64_t *ids; /* (most) */
    size_t n;
    void *local;     /* the field */
    size_t room;     /* bytes of it */
    float *values;   /* (most, width) rows, then gradients */
    uint32_t *place; /* (2 ^ bits) of an id in ids, plus 1 */
    int bits;
    uint32_t *to; /* (most) indices by server, in turn */
    bool *known;  /* (most) the rows of ids that need not be asked for */
} td__ps_table;

typedef struct td__rows_guest {
    td__ps_tables *t;
    int rank;
    pthread_t thread;
    bool started;
} td__rows_guest;

typedef struct td__rows_ahead td__rows_ahead; /* table_ahead.c */

struct td__ps_tables {
    const td__sync_ctx *x;
    int rank, ranks, servers, server; /* server: this rank's number; -1: it is a worker */
    bool together, copies; /* copies: each server has the rows of the one before it, too */
    td__ps_table *at;      /* (n) */
    int n;
    td__ps_lane *ask;       /* (servers) where this rank asks; not of itself */
    td__ps_lane *serve;     /* (ranks) servers: where others ask */
    td__rows_guest *guests; /* (ranks) servers: threads that listen */
    pthread_mutex_t lock;
    td__rows_ahead *ahead;        /* workers that pull ahead; else NULL */
    td__batch batch;              /* with ids as row numbers */
    uint64_t last;                /* step of the last one */
    bool keeps_old;               /* old files that cannot be removed, as was said */
    uint64_t saved;               /* files of this server so far */
    char folder[TD__TABLES_PATH]; /* of files, as server 0 knows it; "": none */
    td__sync_ctx own;             /* x, where tables are only read */
    uint64_t unread;              /* the step whose files are to be read; 0: none */
    uint64_t moment;              /* servers: steps of the run that rows have seen */
    bool placed;                  /* they are there, of that moment: no files are to be read */
};

/* Of so many servers. */
static inline int td__rows_owner_of(int servers, int64_t id)
{
    uint64_t h = (uint64_t)id * UINT64_C(0xD6E8FEB86659FD93);
    return (int)((h >> 40) % (uint64_t)servers);
}
static inline int td__rows_owner(const td__ps_tables *t, int64_t id)
{
    return td__rows_owner_of(t->servers, id);
}

/* Has server s of so many the rows of an id? With copies those of the server before it, too. */
static inline bool td__rows_has(int servers, bool copies, int s, int owner)
{
    return owner == s || (copies && owner == (s + servers - 1) % servers);
}

/* Where ids and gradients lie in an area. */
static inline int64_t *td__rows_ids(float *area)
{
    return (int64_t *)(void *)area;
}
static inline float *td__rows_grads(float *area, uint64_t n)
{
    return area + 2 * n;
}

/* table_server.c */
TD_NODISCARD td_status td__rows_serve_start(td__ps_tables *t);
void td__rows_serve_stop(td__ps_tables *t);
/* What a server does for others, and for itself. */
TD_NODISCARD td_status td__rows_pull(td__ps_tables *t, int table, const int64_t *ids, size_t n,
                                     bool train, float *out);
/* table_create.c: n tables between the ranks of comm, of which the first `servers` hold rows; the
 * caller fills in `at` (width, most), makes what clients (td__rows_client) and servers
 * (td__rows_hold) need of each, and opens them: lanes, and the servers' threads. Training
 * (td__ps_tables_create) and the benchmark (bench/ps/rows.c) both begin so. td__rows_open is
 * collective. */
TD_NODISCARD td_status td__rows_create(td_comm *comm, int servers, int n, td__ps_tables **out);
TD_NODISCARD td_status td__rows_hold(td__ps_tables *t, td__ps_table *b, const td__id_table_opts *o);
TD_NODISCARD td_status td__rows_open(td__ps_tables *t, td_comm *comm);
/* What a client needs of a table like `of`, from zeros. */
TD_NODISCARD td_status td__rows_client(const td__ps_table *of, td__ps_table *b);
void td__rows_client_free(td__ps_table *b);
/* tables.c: what a model asks for its tables' rows (td__model_lookup), user: the tables. */
TD_NODISCARD td_status td__rows_lookup(void *user, const td__batch *batch, bool train,
                                       const td__batch **out);
TD_NODISCARD td_status td__rows_clear(void *user);
/* The ids of a batch, each once, to b, whose `local` are row numbers then; their rows,
 * but of those that are known, to b->values. Where an id is in b->place, or would be. */
TD_NODISCARD td_status td__rows_number(td__ps_tables *t, td__ps_table *b, const td__batch *batch);
TD_NODISCARD td_status td__rows_fetch(td__ps_tables *t, int k, td__ps_table *b, bool train);
size_t td__rows_find(const td__ps_table *b, int64_t id);
/* Of table k, b->values as gradients of b->ids to all servers, which have them when it returns. */
TD_NODISCARD td_status td__rows_push(td__ps_tables *t, int k, double lr, uint64_t step);
/* table_ahead.c; a may be NULL but to create. wait: until the lanes are free, and how it failed if
 * it did; ask: for the batch after `now`; use: what was pulled of a batch's ids, which are then
 * known. */
TD_NODISCARD td_status td__rows_ahead_create(td__ps_tables *t, td__rows_ahead **out);
void td__rows_ahead_destroy(td__rows_ahead *a);
TD_NODISCARD td_status td__rows_ahead_wait(td__rows_ahead *a);
void td__rows_ahead_ask(td__rows_ahead *a, const td__batch *now);
void td__rows_ahead_use(td__rows_ahead *a, int k, td__ps_table *b, const td__batch *now);
/* table_files.c */
TD_NODISCARD td_status td__rows_save(td__ps_tables *t, uint64_t step);
TD_NODISCARD td_status td__rows_load(td__ps_tables *t, uint64_t step);
/* Server 0, when all have saved: what is of a run that went another way is removed. */
TD_NODISCARD td_status td__rows_clean(td__ps_tables *t, uint64_t step);
/* Are there files of all tables at this step, of all servers? */
TD_NODISCARD td_status td__rows_are_saved(const td__ps_tables *t, uint64_t step, bool *yes);
/* table_move.c: elastic ranks. Rows of the last generation come to the servers of this one; where
 * they are lost, and no file has them, the generation ends (TD_EPEER). Collective. */
TD_NODISCARD td_status td__rows_move(td__ps_tables *t);
/* Rows stay in this process until the next generation. */
void td__rows_stay(td__ps_tables *t);

#endif
