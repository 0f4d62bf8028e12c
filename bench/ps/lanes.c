/* lanes.c -- push and pull between one server and one worker (ps/client.h), for bench/ps/run.
 *
 *     tandem launch -n 2 ps_lanes TRANSPORT BYTES KEY_BYTES ROUNDS [busy|block] [copy]
 *
 * The server holds a block of BYTES and adds what is pushed to it. The worker pushes all keys and
 * pulls them into its own memory. What it pushes lies where a worker makes it: in shared memory
 * where the server reads it, over TCP in its own memory, from which it is sent; with `copy` it is
 * copied to there first. busy: both sides spin while they wait; block: they sleep at once.
 * Rank 1, the worker, checks the sums and prints
 *
 *     TRANSPORT BYTES KEY_BYTES MEDIAN LOW HIGH MEMCPY
 *
 * in microseconds; MEMCPY: the same bytes copied twice in its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ps/client.h"
#include "tandem/tandem.h"

enum { MOST_ROUNDS = 1000 };

typedef struct side {
    td__ps_client *client;
    size_t floats, n_keys;
    td__ps_range *keys;
    float *mine, *got; /* what is pushed, and pulled */
    bool copy;
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

/* All keys are pushed and pulled. */
static void work(side *s)
{
    td__ps_ticket t;
    const float *from = s->copy ? s->mine : NULL;
    check(td__ps_push_pull(s->client, s->keys, s->n_keys, from, s->got, &t), "push");
    check(td__ps_wait(s->client, t), "pull");
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

static void *take(size_t n, size_t each)
{
    void *p = calloc(n, each);
    if (!p)
        exit(1);
    return p;
}

static void fill(side *s, size_t key)
{
    s->n_keys = (s->floats + key - 1) / key;
    s->keys = take(s->n_keys, sizeof *s->keys);
    s->mine = take(s->floats, sizeof *s->mine);
    s->got = take(s->floats, sizeof *s->got);
    for (size_t i = 0; i < s->n_keys; i++)
        s->keys[i] = (td__ps_range){i * key, s->floats - i * key < key ? s->floats - i * key : key};
    for (size_t i = 0, n; i < s->floats; i += n) {
        float *area = td__ps_client_area(s->client, i, &n);
        for (size_t k = 0; k < n; k++)
            area[k] = s->mine[i + k] = (float)((i + k) % 7);
    }
}

typedef struct job {
    const char *transport;
    size_t key;
    int rounds;
} job;

static void measure(side *s, const job *j)
{
    static double took[MOST_ROUNDS], copied[MOST_ROUNDS];
    int rounds = j->rounds, warm = rounds / 4 + 1;
    fill(s, j->key);
    for (int r = -warm; r < rounds; r++) {
        double begin = now_us();
        work(s);
        if (r >= 0)
            took[r] = now_us() - begin;
    }
    for (size_t i = 0; i < s->floats; i += s->floats / 64 + 1)
        if (s->got[i] != (float)(i % 7) * (float)(rounds + warm)) {
            fprintf(stderr, "ps_lanes: a wrong sum: %g at %zu\n", (double)s->got[i], i);
            exit(1);
        }
    for (int r = 0; r < rounds; r++) {
        double begin = now_us();
        memcpy(s->got, s->mine, s->floats * sizeof(float));
        memcpy(s->mine, s->got, s->floats * sizeof(float));
        copied[r] = now_us() - begin;
    }
    double mid = median(took, rounds);
    printf("%s %zu %zu %.1f %.1f %.1f %.1f\n", j->transport, s->floats * sizeof(float),
           j->key * sizeof(float), mid, took[0], took[rounds - 1], median(copied, rounds));
}

int main(int argc, char **argv)
{
    side s = {.floats = argc > 2 ? strtoul(argv[2], NULL, 10) / sizeof(float) : 0};
    job j = {.transport = argc > 1 ? argv[1] : "",
             .key = argc > 3 ? strtoul(argv[3], NULL, 10) / sizeof(float) : 0,
             .rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0};
    bool busy = false, block = false;
    td_comm *comm;
    for (int i = 5; i < argc; i++) {
        busy = busy || !strcmp(argv[i], "busy");
        block = block || !strcmp(argv[i], "block");
        s.copy = s.copy || !strcmp(argv[i], "copy");
    }
    if (!s.floats || !j.key || j.rounds < 1 || j.rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: tandem launch -n 2 ps_lanes TRANSPORT BYTES KEY_BYTES ROUNDS "
                        "[busy|block] [copy]\n");
        return 2;
    }
    check(td_comm_world(&(td_comm_opts){.transport = argv[1]}, &comm), "ranks");
    td__ps_wait_mode mode = busy ? TD__PS_BUSY : block ? TD__PS_BLOCK : TD__PS_SPIN_SHORTLY;
    if (td_comm_rank(comm) == 0) {
        td__ps_host *h;
        check(td__ps_host_open(comm, 1, s.floats, &(td__ps_host_opts){.waits = mode}, &h), "host");
        check(td__ps_host_close(h), "end");
    } else {
        check(td__ps_client_open(comm, 1, s.floats, &s.client), "client");
        td__ps_client_waits(s.client, mode);
        measure(&s, &j);
        check(td__ps_client_close(s.client), "end");
    }
    check(td_barrier(comm, &(td_coll_opts){.timeout_ms = 600000}), "end");
    td_comm_destroy(comm);
    free(s.keys);
    free(s.mine);
    free(s.got);
    return 0;
}
