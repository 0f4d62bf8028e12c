/* rows.c -- push and pull of rows of a table by id between one server and one worker
 * (ps/tables.h), for bench/ps/run.
 *
 *     tandem launch -n 2 ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS
 *
 * The server holds all VOCAB rows. In a round the worker pushes gradients of IDS different ids,
 * others in every round, has the server apply them (its rows less the gradients), and pulls the
 * rows, by the functions that training calls. Rank 1, the worker, checks some rows and prints
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

typedef struct side {
    td__ps_tables *t;
    td__ps_lane order; /* the worker says which step is to be applied; 0: it is over */
    uint64_t step;
} side;

/* Gradients of some ids, which lie in the table, to the server; then rows come in their place. */
static void round_trip(side *s, size_t n)
{
    td__ps_table *b = &s->t->at[0];
    b->n = n;
    s->step++;
    check(td__rows_push(s->t, 0, 1, s->step), "push");
    check(td__ps_tell(&s->order, &s->step, sizeof s->step), "order");
    check(td__ps_hear(&s->order, &s->step, sizeof s->step, false), "order");
    check(td__rows_fetch(s->t, 0, b, true), "pull");
}

static void serve(side *s)
{
    uint64_t step;
    for (;;) {
        check(td__ps_hear(&s->order, &step, sizeof step, true), "order");
        if (!step)
            return;
        check(td__ps_tables_apply(s->t, 0, step), "apply");
        check(td__ps_tell(&s->order, &step, sizeof step), "order");
    }
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

static void fill_grads(td__ps_table *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        b->values[i] = -1;
}

static void work(side *s, const job *j)
{
    static double took[MOST_ROUNDS], copied[MOST_ROUNDS];
    td__ps_table *b = &s->t->at[0];
    size_t count = j->n * j->width;
    int64_t stride = j->vocab / (int64_t)j->n;
    float *copy = take(count, sizeof *copy);
    int warm = j->rounds / 4 + 1;
    for (int r = -warm; r < j->rounds; r++) {
        uint64_t seed = (uint64_t)(r + warm + 1) * UINT64_C(2654435761);
        for (size_t i = 0; i < j->n; i++) /* spread over the table, in no order */
            b->ids[(i * 7919) % j->n] =
                (int64_t)i * stride + (int64_t)((seed >> (i % 32)) % (uint64_t)stride);
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
    check(td__ps_tell(&s->order, &s->step, sizeof s->step), "end");
}

int main(int argc, char **argv)
{
    job j = {argc > 1 ? argv[1] : "", 0, 0, 0, 0};
    if (argc == 6) {
        j.vocab = strtol(argv[2], NULL, 10);
        j.width = strtoul(argv[3], NULL, 10);
        j.n = strtoul(argv[4], NULL, 10);
        j.rounds = (int)strtol(argv[5], NULL, 10);
    }
    if (!j.width || !j.n || j.n % 7919 == 0 || j.vocab < (int64_t)j.n || j.rounds < 1 ||
        j.rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: tandem launch -n 2 ps_rows TRANSPORT VOCAB WIDTH IDS ROUNDS\n");
        return 2;
    }
    td_comm *comm;
    side s = {.step = 0};
    check(td_comm_world(&(td_comm_opts){.transport = argv[1]}, &comm), "ranks");
    bool server = td_comm_rank(comm) == 0;
    check(td__rows_create(comm, 1, 1, &s.t), "tables");
    td__ps_table *b = &s.t->at[0];
    b->width = j.width;
    b->most = j.n;
    check(td__rows_client(b, b), "table");
    if (server) {
        td__id_table_opts o = {
            .name = "rows", .width = j.width, .std = 1, .optim = &(td_optim_opts){.name = "sgd"}};
        check(td__rows_hold(s.t, b, &o), "table");
        fill(b->rows, j.vocab, j.width);
    }
    check(td__rows_open(s.t, comm), "lanes");
    check(td__ps_lane_open(comm, 0, 1, (td__ps_lane_size){0, 0}, &s.order), "lane");
    check(td_barrier(comm, NULL), "begin");
    if (server)
        serve(&s);
    else
        work(&s, &j);
    check(td_barrier(comm, &(td_coll_opts){.timeout_ms = 600000}), "end");
    td__ps_lanes_close(&s.order, 1);
    td__ps_tables_destroy(s.t);
    td_comm_destroy(comm);
    return 0;
}
