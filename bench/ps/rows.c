/* rows.c -- push and pull of rows of a table by id between servers and workers (ps/tables.h), for
 * bench/ps/run.
 *
 *     tandem launch -n RANKS ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS [SERVERS [copies]]
 *
 * The servers (1), which are the first ranks, hold all VOCAB rows; with `copies` each has those of
 * the one before it too, as with parallel.replicas. In a round a worker pushes gradients of IDS
 * different ids, others in every round and for every worker, has the servers apply them (their rows
 * less the gradients), and pulls the rows, by the functions that training calls. Each worker checks
 * all rows of its last round and prints
 *
 *     TRANSPORT IDS MEDIAN LOW HIGH MEMCPY
 *
 * in microseconds; MEMCPY: as many bytes copied as a push and a pull of these rows have. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ps/tables_impl.h"
#include "tandem/tandem.h"

enum { MOST_ROUNDS = 1000, SLICE = 4096 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void check(td_status st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "ps_rows: %s: %s\n", what, td_last_error());
    exit(1);
}

static void *take(size_t n, size_t each)
{
    void *p = calloc(n, each);
    if (!p)
        exit(1);
    return p;
}

/* All rows that this server has are made. */
static void fill(const td__ps_tables *t, int64_t vocab, size_t width)
{
    float *rows = take(SLICE * width, sizeof *rows);
    int64_t ids[SLICE];
    size_t n = 0;
    for (int64_t id = 0; id < vocab; id++) {
        if (td__rows_has(t->servers, t->copies, t->server, td__rows_owner(t, id)))
            ids[n++] = id;
        if (n < SLICE && id + 1 < vocab)
            continue;
        check(td__id_table_pull(t->at[0].rows, ids, n, true, rows), "rows");
        n = 0;
    }
    free(rows);
}

typedef struct side {
    td__ps_tables *t;
    td__ps_lane *order; /* (servers) a worker says which step is to be applied; 0: it is over */
    uint64_t step;
} side;

/* Gradients of some ids, which lie in the table, to the servers; then rows come in their place. */
static void round_trip(side *s, size_t n)
{
    td__ps_table *b = &s->t->at[0];
    uint64_t done;
    b->n = n;
    s->step++;
    check(td__rows_push(s->t, 0, 1, s->step), "push");
    for (int k = 0; k < s->t->servers; k++)
        check(td__ps_tell(&s->order[k], &s->step, sizeof s->step), "order");
    for (int k = 0; k < s->t->servers; k++)
        check(td__ps_hear(&s->order[k], &done, sizeof done, false), "order");
    check(td__rows_fetch(s->t, 0, b, true), "pull");
}

/* What a server does for one worker. */
typedef struct guest {
    td__ps_tables *t;
    td__ps_lane order;
    int worker;
    pthread_t thread;
} guest;

static void *serve(void *arg)
{
    guest *g = arg;
    uint64_t step;
    for (;;) {
        check(td__ps_hear(&g->order, &step, sizeof step, true), "order");
        if (!step)
            return NULL;
        check(td__ps_tables_apply(g->t, g->worker, step), "apply");
        check(td__ps_tell(&g->order, &step, sizeof step), "order");
    }
}

static void serve_all(guest *g, int workers)
{
    for (int w = 1; w < workers; w++)
        if (pthread_create(&g[w].thread, NULL, serve, &g[w]))
            exit(1);
    serve(&g[0]);
    for (int w = 1; w < workers; w++)
        pthread_join(g[w].thread, NULL);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

typedef struct job {
    const char *transport;
    int64_t vocab;
    size_t width, n;
    int rounds, servers, workers;
    bool copies;
} job;

static void fill_grads(td__ps_table *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        b->values[i] = -1;
}

static void work(side *s, const job *j, int worker)
{
    static double took[MOST_ROUNDS], copied[MOST_ROUNDS];
    td__ps_table *b = &s->t->at[0];
    size_t count = j->n * j->width;
    int64_t stride = j->vocab / (int64_t)j->n, own = stride / j->workers; /* of it, a worker's */
    float *copy = take(count, sizeof *copy);
    int warm = j->rounds / 4 + 1;
    for (int r = -warm; r < j->rounds; r++) {
        uint64_t seed = (uint64_t)(r + warm + 1) * UINT64_C(2654435761);
        for (size_t i = 0; i < j->n; i++) /* spread over the table, in no order */
            b->ids[(i * 7919) % j->n] =
                (int64_t)i * stride + worker * own + (int64_t)((seed >> (i % 32)) % (uint64_t)own);
        fill_grads(b, count);
        double begin = now_us();
        round_trip(s, j->n);
        if (r >= 0)
            took[r] = now_us() - begin;
    }
    memcpy(copy, b->values, count * sizeof *copy);
    fill_grads(b, count);
    round_trip(s, j->n);
    for (size_t i = 0; i < count; i++)
        if (b->values[i] != copy[i] + 1) {
            fprintf(stderr, "ps_rows: %g after %g, less a gradient of -1\n", (double)b->values[i],
                    (double)copy[i]);
            exit(1);
        }
    for (int r = 0; r < j->rounds; r++) {
        double begin = now_us();
        memcpy(copy, b->values, count * sizeof *copy);
        memcpy(b->values, copy, count * sizeof *copy);
        copied[r] = now_us() - begin;
    }
    double mid = median(took, j->rounds);
    printf("%s %zu %.1f %.1f %.1f %.1f\n", j->transport, j->n, mid, took[0], took[j->rounds - 1],
           median(copied, j->rounds));
    free(copy);
    s->step = 0;
    for (int k = 0; k < j->servers; k++)
        check(td__ps_tell(&s->order[k], &s->step, sizeof s->step), "end");
}

/* The table, as each rank has it. */
static void make_table(td__ps_tables *t, const job *j)
{
    td__ps_table *b = &t->at[0];
    b->width = j->width;
    b->most = j->n;
    t->copies = j->copies;
    check(td__rows_client(b, b), "table");
    if (t->server < 0)
        return;
    td__id_table_opts o = {
        .name = "rows", .width = j->width, .std = 1, .optim = &(td_optim_opts){.name = "sgd"}};
    check(td__rows_hold(t, b, &o), "table");
    fill(t, j->vocab, j->width);
}

/* A lane for orders between each server and each worker. */
static void open_orders(td_comm *comm, const job *j, side *s, guest *guests)
{
    int rank = td_comm_rank(comm);
    for (int k = 0; k < j->servers; k++)
        for (int w = 0; w < j->workers; w++) {
            td__ps_lane none, *l = rank == k                ? &guests[w].order
                                   : rank == j->servers + w ? &s->order[k]
                                                            : &none;
            check(td__ps_lane_open(comm, k, j->servers + w, (td__ps_lane_size){0, 0}, l), "lane");
            if (l != &none && td__ps_tables_crowded(s->t)) /* as in training */
                td__ps_lane_waits(l, TD__PS_BLOCK);
            if (rank == k)
                guests[w] = (guest){.t = s->t, .order = guests[w].order, .worker = w};
        }
}

int main(int argc, char **argv)
{
    job j = {.transport = argc > 1 ? argv[1] : "", .servers = 1};
    if (argc >= 6) {
        j.vocab = strtol(argv[2], NULL, 10);
        j.width = strtoul(argv[3], NULL, 10);
        j.n = strtoul(argv[4], NULL, 10);
        j.rounds = (int)strtol(argv[5], NULL, 10);
        j.servers = argc > 6 ? (int)strtol(argv[6], NULL, 10) : 1;
        j.copies = argc > 7 && !strcmp(argv[7], "copies");
    }
    if (!j.width || !j.n || j.n % 7919 == 0 || j.vocab < (int64_t)j.n || j.rounds < 1 ||
        j.rounds > MOST_ROUNDS || j.servers < 1) {
        fprintf(stderr, "usage: tandem launch -n RANKS ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS "
                        "[SERVERS [copies]]\n");
        return 2;
    }
    td_comm *comm;
    check(td_comm_world(&(td_comm_opts){.transport = argv[1]}, &comm), "ranks");
    int rank = td_comm_rank(comm);
    j.workers = td_comm_size(comm) - j.servers;
    if (j.workers < 1 || j.vocab / (int64_t)j.n < j.workers) {
        fprintf(stderr, "ps_rows: %d workers, and %ld rows\n", j.workers, (long)j.vocab);
        return 2;
    }
    side s = {.order = take((size_t)j.servers, sizeof *s.order)};
    guest *guests = take((size_t)j.workers, sizeof *guests);
    check(td__rows_create(comm, j.servers, 1, &s.t), "tables");
    make_table(s.t, &j);
    check(td__rows_open(s.t, comm), "lanes");
    open_orders(comm, &j, &s, guests);
    check(td_barrier(comm, &(td_coll_opts){.timeout_ms = 600000}), "begin");
    if (rank < j.servers)
        serve_all(guests, j.workers);
    else
        work(&s, &j, rank - j.servers);
    check(td_barrier(comm, &(td_coll_opts){.timeout_ms = 600000}), "end");
    for (int w = 0; rank < j.servers && w < j.workers; w++)
        td__ps_lanes_close(&guests[w].order, 1);
    if (rank >= j.servers)
        td__ps_lanes_close(s.order, j.servers);
    td__ps_tables_destroy(s.t);
    td_comm_destroy(comm);
    free(s.order);
    free(guests);
    return 0;
}
