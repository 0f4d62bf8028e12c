/* rows.c -- push and pull of rows of a table by id between one server and one worker
 * (ps/tables.h), for bench/ps/run.
 *
 *     tandem launch -n 2 ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS
 *
 * The server holds all VOCAB rows. In a round the worker pushes gradients of IDS different ids,
 * others in every round, which the server subtracts from their rows, and pulls the rows. Rank 1,
 * the worker, checks some of them and prints
 *
 *     TRANSPORT IDS MEDIAN LOW HIGH MEMCPY
 *
 * in microseconds; MEMCPY: as many bytes copied as a push and a pull of these rows have. */
/* SPDX-License-Identifier: Apache-2.0 */
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

/* All rows are made. */
static void fill(td__id_table *t, int64_t vocab, size_t width)
{
    float *rows = take(SLICE * width, sizeof *rows);
    int64_t ids[SLICE];
    for (int64_t at = 0; at < vocab; at += SLICE) {
        size_t n = 0;
        for (; n < SLICE && at + (int64_t)n < vocab; n++)
            ids[n] = at + (int64_t)n;
        check(td__id_table_pull(t, ids, n, true, rows), "rows");
    }
    free(rows);
}

/* As a worker does it (tables.c). */
static void round_trip(td__ps_lane *l, const int64_t *ids, const float *grads, float *rows,
                       size_t n, size_t width)
{
    td__rows_message m = {.verb = TD__ROWS_PUSH, .n = n, .step = 1, .lr = 1};
    td__rows_answer a;
    memcpy(td__rows_ids(l->push), ids, n * sizeof *ids);
    memcpy(td__rows_grads(l->push, n), grads, n * width * sizeof *grads);
    check(td__ps_tell(l, &m, sizeof m), "push");
    check(td__ps_hand(l, l->push, n * (2 + width)), "push");
    check(td__ps_hear(l, &a, sizeof a, false), "push");
    m.verb = TD__ROWS_PULL;
    check(td__ps_tell(l, &m, sizeof m), "pull");
    check(td__ps_hand(l, l->push, 2 * n), "pull");
    check(td__ps_hear(l, &a, sizeof a, false), "pull");
    check(td__ps_take(l, l->pull, n * width), "pull");
    memcpy(rows, l->pull, n * width * sizeof *rows);
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
    int rounds;
} job;

static void work(td__ps_lane *l, const job *j)
{
    static double took[MOST_ROUNDS], copied[MOST_ROUNDS];
    int64_t *ids = take(j->n, sizeof *ids), stride = j->vocab / (int64_t)j->n;
    float *grads = take(j->n * j->width, sizeof *grads),
          *rows = take(j->n * j->width, sizeof *rows);
    int warm = j->rounds / 4 + 1;
    for (size_t i = 0; i < j->n * j->width; i++)
        grads[i] = -1;
    for (int r = -warm; r < j->rounds; r++) {
        uint64_t seed = (uint64_t)(r + warm + 1) * UINT64_C(2654435761);
        for (size_t i = 0; i < j->n; i++) /* spread over the table, in no order */
            ids[(i * 7919) % j->n] =
                (int64_t)i * stride + (int64_t)((seed >> (i % 32)) % (uint64_t)stride);
        float before = rows[0];
        double begin = now_us();
        round_trip(l, ids, grads, rows, j->n, j->width);
        if (r >= 0)
            took[r] = now_us() - begin;
        if (r == -warm && rows[0] == before)
            check(TD_EPROTO, "nothing came");
    }
    float was = rows[j->width + 3];
    round_trip(l, ids, grads, rows, j->n, j->width);
    if (rows[j->width + 3] != was + 1) {
        fprintf(stderr, "ps_rows: %g after %g\n", (double)rows[j->width + 3], (double)was);
        exit(1);
    }
    for (int r = 0; r < j->rounds; r++) {
        double begin = now_us();
        memcpy(grads, rows, j->n * j->width * sizeof *rows);
        memcpy(rows, grads, j->n * j->width * sizeof *rows);
        copied[r] = now_us() - begin;
    }
    double mid = median(took, j->rounds);
    printf("%s %zu %.1f %.1f %.1f %.1f\n", j->transport, j->n, mid, took[0], took[j->rounds - 1],
           median(copied, j->rounds));
    free(ids);
    free(grads);
    free(rows);
}

int main(int argc, char **argv)
{
    if (argc != 6 || strtol(argv[5], NULL, 10) > MOST_ROUNDS) {
        fprintf(stderr, "usage: tandem launch -n 2 ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS\n");
        return 2;
    }
    job j = {argv[1], strtol(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
             strtoul(argv[4], NULL, 10), (int)strtol(argv[5], NULL, 10)};
    static td__ps_lane serve[2], ask;
    static td__rows_guest guests[2];
    td__ps_table table = {.width = j.width, .most = j.n};
    td__ps_tables t = {.ranks = 2,
                       .servers = 1,
                       .at = &table,
                       .n = 1,
                       .serve = serve,
                       .guests = guests,
                       .lock = PTHREAD_MUTEX_INITIALIZER};
    td_comm *comm;
    check(td_comm_world(&(td_comm_opts){.transport = argv[1]}, &comm), "ranks");
    bool server = td_comm_rank(comm) == 0;
    td__ps_lane_size size = {j.n * (2 + j.width), j.n * j.width};
    check(td__ps_lane_open(comm, 0, 1, size, server ? &serve[1] : &ask), "lane");
    if (server) {
        td__id_table_opts o = {
            .name = "rows", .width = j.width, .std = 1, .optim = &(td_optim_opts){.name = "sgd"}};
        check(td__id_table_create(&o, &table.rows), "table");
        fill(table.rows, j.vocab, j.width);
        check(td__rows_serve_start(&t), "threads");
    }
    check(td_barrier(comm, NULL), "begin");
    if (!server)
        work(&ask, &j);
    check(td_barrier(comm, &(td_coll_opts){.timeout_ms = 600000}), "end");
    td__ps_lanes_close(&ask, server ? 0 : 1);
    if (server)
        td__rows_serve_stop(&t);
    td__ps_lanes_close(serve, server ? 2 : 0);
    td__id_table_destroy(table.rows);
    td_comm_destroy(comm);
    return 0;
}
