/* lanes.c -- push and pull between one server and one worker (ps/lane.h), for bench/ps/run.
 *
 *     tandem launch -n 2 ps_lanes TRANSPORT BYTES KEY_BYTES ROUNDS
 *
 * The server holds a table of BYTES and adds what is pushed to it. The worker pushes all keys, in
 * batches of up to 1 MB, and pulls them into its own memory. Where memory is shared the worker
 * writes where the server reads, the table lies where the worker reads it, and a batch is added
 * while the next one is written. Rank 1, the worker, checks the sums and prints
 *
 *     TRANSPORT BYTES KEY_BYTES MEDIAN LOW HIGH MEMCPY
 *
 * in microseconds; MEMCPY: the same bytes copied twice in its memory, as a push and a pull must. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ps/lane.h"
#include "tandem/tandem.h"

enum { BATCH = 1 << 18, MOST_ROUNDS = 1000 }; /* floats of a batch */

typedef struct batch {
    uint64_t begin, count, key; /* floats */
} batch;

typedef struct side {
    td__ps_lane lane;
    size_t floats, key;
    float *mine, *got; /* the worker's */
} side;

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
    fprintf(stderr, "ps_lanes: %s: %s\n", what, td_last_error());
    exit(1);
}

static batch batch_at(const side *s, size_t begin)
{
    size_t left = s->floats - begin;
    return (batch){begin, left < BATCH ? left : BATCH, s->key};
}

static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* One push of all keys, then one pull, of each side. */
static void serve(side *s)
{
    td__ps_lane *l = &s->lane;
    for (size_t at = 0; at < s->floats;) {
        batch b;
        check(td__ps_hear(l, &b, sizeof b, false), "push");
        check(td__ps_take(l, l->push + b.begin, b.count), "push");
        for (size_t k = 0; k < b.count; k += b.key)
            add(l->pull + b.begin + k, l->push + b.begin + k,
                b.key < b.count - k ? b.key : b.count - k);
        at += b.count;
    }
    char done = 1;
    check(td__ps_tell(l, &done, 1), "pull");
    for (size_t at = 0; at < s->floats; at += BATCH)
        check(td__ps_hand(l, l->pull + at, batch_at(s, at).count), "pull");
}

static void work(side *s)
{
    td__ps_lane *l = &s->lane;
    char done;
    for (size_t at = 0; at < s->floats; at += BATCH) {
        batch b = batch_at(s, at);
        for (size_t k = 0; k < b.count; k += b.key)
            memcpy(l->push + at + k, s->mine + at + k,
                   (b.key < b.count - k ? b.key : b.count - k) * sizeof(float));
        check(td__ps_tell(l, &b, sizeof b), "push");
        check(td__ps_hand(l, l->push + at, b.count), "push");
    }
    check(td__ps_hear(l, &done, 1, false), "pull");
    for (size_t at = 0; at < s->floats; at += BATCH) {
        batch b = batch_at(s, at);
        check(td__ps_take(l, l->pull + at, b.count), "pull");
        for (size_t k = 0; k < b.count; k += b.key)
            memcpy(s->got + at + k, l->pull + at + k,
                   (b.key < b.count - k ? b.key : b.count - k) * sizeof(float));
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

int main(int argc, char **argv)
{
    static double took[MOST_ROUNDS], copied[MOST_ROUNDS];
    side s = {.floats = argc > 2 ? strtoul(argv[2], NULL, 10) / sizeof(float) : 0,
              .key = argc > 3 ? strtoul(argv[3], NULL, 10) / sizeof(float) : 0};
    int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0, warm = rounds / 4 + 1;
    td_comm *comm;
    if (!s.floats || !s.key || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: tandem launch -n 2 ps_lanes TRANSPORT BYTES KEY_BYTES ROUNDS\n");
        return 2;
    }
    check(td_comm_world(&(td_comm_opts){.transport = argv[1]}, &comm), "ranks");
    td__ps_lane_size size = {s.floats, s.floats};
    check(td__ps_lanes_open(comm, 1, &size, &s.lane), "lane");
    s.mine = malloc(s.floats * sizeof(float));
    s.got = malloc(s.floats * sizeof(float));
    if (!s.mine || !s.got)
        return 1;
    for (size_t i = 0; i < s.floats; i++) {
        s.mine[i] = (float)(i % 7);
        s.got[i] = 0;
    }
    for (int r = -warm; r < rounds; r++) {
        double begin = now_us();
        (td_comm_rank(comm) == 0 ? serve : work)(&s);
        double end = now_us();
        if (r < 0 || td_comm_rank(comm) == 0)
            continue;
        took[r] = end - begin;
    }
    for (size_t i = 0; td_comm_rank(comm) && i < s.floats; i += s.floats / 64 + 1)
        if (s.got[i] != (float)(i % 7) * (float)(rounds + warm)) {
            fprintf(stderr, "ps_lanes: a wrong sum: %g at %zu\n", (double)s.got[i], i);
            return 1;
        }
    for (int r = 0; td_comm_rank(comm) && r < rounds; r++) {
        double begin = now_us();
        memcpy(s.got, s.mine, s.floats * sizeof(float));
        memcpy(s.mine, s.got, s.floats * sizeof(float));
        copied[r] = now_us() - begin;
    }
    if (td_comm_rank(comm)) {
        double mid = median(took, rounds);
        printf("%s %zu %zu %.1f %.1f %.1f %.1f\n", argv[1], s.floats * sizeof(float),
               s.key * sizeof(float), mid, took[0], took[rounds - 1], median(copied, rounds));
    }
    check(td_barrier(comm, NULL), "end");
    td__ps_lanes_close(&s.lane, 1);
    td_comm_destroy(comm);
    free(s.mine);
    free(s.got);
    return 0;
}
