/* prog_world.c -- a rank for the end-to-end tests: meets the others and does what it is told.
 *
 *     nothing          ends at once, without meeting anybody
 *     join             meets, one barrier; prints the transport
 *     all [ALGO...]    every collective, with each algorithm, against closed forms
 *     loop SECONDS     allreduces until an error, which it prints; exit status 3
 *     early            the first half of the ranks leaves at once, the others go on for a second
 *     digest [ALGO]    sums of fractions; prints their bits
 *     speed BYTES ALGO...   best time of an allreduce in milliseconds, one line each, on rank 0 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tandem/coll.h"
#include "tandem/log.h"

enum { COUNT = 1003, PATIENCE_MS = 100000 };

static int give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, td_last_error());
    return 1;
}

static int wrong(const char *what, const char *algo, size_t i, double got, double want)
{
    fprintf(stderr, "%s (%s): element %zu is %g instead of %g\n", what, algo ? algo : "default", i,
            got, want);
    return 1;
}

/* in[i] = i + rank differs everywhere; all values are small integers, so sums are exact. */
static int check_all(td_comm *c, const char *algo, float *in, float *out)
{
    int rank = td_comm_rank(c), size = td_comm_size(c);
    size_t n = (size_t)size, r = (size_t)rank;
    td_coll_opts o = {.algo = algo, .timeout_ms = PATIENCE_MS};
    const char *what = "allreduce";
    for (size_t i = 0; i < n * COUNT; i++)
        in[i] = (float)(i + r);
    if (td_allreduce(c, in, out, COUNT, TD_F32, TD_REDUCE_SUM, &o))
        return give_up(what);
    for (size_t i = 0; i < COUNT; i++)
        if (out[i] != (float)(n * i + n * (n - 1) / 2))
            return wrong(what, algo, i, (double)out[i], (double)(n * i + n * (n - 1) / 2));
    o.algo = NULL;
    what = "reduce";
    if (td_reduce(c, in, out, COUNT, TD_F32, TD_REDUCE_MAX, size - 1, &o))
        return give_up(what);
    for (size_t i = 0; rank == size - 1 && i < COUNT; i++)
        if (out[i] != (float)(i + n - 1))
            return wrong(what, algo, i, (double)out[i], (double)(i + n - 1));
    what = "broadcast";
    for (size_t i = 0; i < COUNT; i++)
        out[i] = rank == 0 ? (float)i : -1;
    if (td_broadcast(c, out, COUNT, TD_F32, 0, &o))
        return give_up(what);
    for (size_t i = 0; i < COUNT; i++)
        if (out[i] != (float)i)
            return wrong(what, algo, i, (double)out[i], (double)i);
    what = "reduce_scatter";
    if (td_reduce_scatter(c, in, out, COUNT, TD_F32, TD_REDUCE_SUM, &o))
        return give_up(what);
    for (size_t i = 0; i < COUNT; i++)
        if (out[i] != (float)(n * (r * COUNT + i) + n * (n - 1) / 2))
            return wrong(what, algo, i, (double)out[i],
                         (double)(n * (r * COUNT + i) + n * (n - 1) / 2));
    what = "all_gather";
    if (td_all_gather(c, in, out, COUNT, TD_F32, &o))
        return give_up(what);
    for (size_t i = 0; i < n * COUNT; i++)
        if (out[i] != (float)(i % COUNT + i / COUNT))
            return wrong(what, algo, i, (double)out[i], (double)(i % COUNT + i / COUNT));
    what = "all_to_all";
    if (td_all_to_all(c, in, out, COUNT, TD_F32, &o))
        return give_up(what);
    for (size_t i = 0; i < n * COUNT; i++)
        if (out[i] != (float)(r * COUNT + i % COUNT + i / COUNT))
            return wrong(what, algo, i, (double)out[i],
                         (double)(r * COUNT + i % COUNT + i / COUNT));
    what = "gather";
    if (td_coll_gather(c, in, out, COUNT, TD_F32, 0, &o))
        return give_up(what);
    for (size_t i = 0; rank == 0 && i < n * COUNT; i++)
        if (out[i] != (float)(i % COUNT + i / COUNT))
            return wrong(what, algo, i, (double)out[i], (double)(i % COUNT + i / COUNT));
    what = "scatter";
    if (td_coll_scatter(c, in, out, COUNT, TD_F32, 0, &o))
        return give_up(what);
    for (size_t i = 0; i < COUNT; i++)
        if (out[i] != (float)(r * COUNT + i))
            return wrong(what, algo, i, (double)out[i], (double)(r * COUNT + i));
    what = "send and receive";
    if (size > 1) {
        int next = (rank + 1) % size, before = (rank + size - 1) % size;
        td_status st = rank % 2 ? td_recv(c, out, COUNT, TD_F32, before, &o) : TD_OK;
        st = st ? st : td_send(c, in, COUNT, TD_F32, next, &o);
        st = st || rank % 2 ? st : td_recv(c, out, COUNT, TD_F32, before, &o);
        if (size % 2 == 0 && st)
            return give_up(what);
    }
    if (td_barrier(c, &o))
        return give_up("barrier");
    return 0;
}

static int check_split(td_comm *c)
{
    td_comm *half;
    int rank = td_comm_rank(c), size = td_comm_size(c), sum = rank, want = 0;
    if (td_comm_split(c, rank % 2, rank, &half))
        return give_up("split");
    if (td_allreduce(half, &sum, &sum, 1, TD_I32, TD_REDUCE_SUM, NULL))
        return give_up("allreduce of a half");
    for (int r = rank % 2; r < size; r += 2)
        want += r;
    td_comm_destroy(half);
    return sum == want ? 0 : wrong("split", NULL, 0, sum, want);
}

static int loop(td_comm *c, double seconds)
{
    static float x[1024];
    time_t end = time(NULL) + (time_t)seconds;
    long n = 0;
    while (time(NULL) < end) {
        td_status st = td_allreduce(c, x, x, 1024, TD_F32, TD_REDUCE_MAX, NULL);
        if (st) {
            printf("%s after %ld: %s\n", td_status_name(st), n, td_last_error());
            fflush(stdout);
            return 3;
        }
        if (++n == 10) {
            printf("turning, pid %d\n", (int)getpid());
            fflush(stdout);
        }
    }
    return 0;
}

static int early(td_comm *c)
{
    td_comm *half;
    float x = 1;
    bool leaves = td_comm_rank(c) < td_comm_size(c) / 2;
    if (td_comm_split(c, leaves, 0, &half))
        return give_up("split");
    for (int i = 0; !leaves && i < 100; i++) {
        poll(NULL, 0, 10); /* it is about time that passes */
        if (td_allreduce(half, &x, &x, 1, TD_F32, TD_REDUCE_MAX, NULL))
            return give_up("allreduce of those who stay");
    }
    td_comm_destroy(half);
    return 0;
}

static int digest(td_comm *c, const char *algo)
{
    static float x[COUNT];
    uint32_t h = 2166136261u;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1.0F / (float)(1 + i + 7 * td_comm_rank(c));
    if (td_allreduce(c, x, x, COUNT, TD_F32, TD_REDUCE_SUM, &(td_coll_opts){.algo = algo}))
        return give_up("allreduce");
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 16777619u;
    }
    printf("digest %08x\n", h);
    return 0;
}

static int speed(td_comm *c, float *x, size_t nbytes, const char *algo)
{
    enum { TIMES = 4 };
    double best = 1e9;
    for (int i = 0; i < TIMES; i++) {
        struct timespec a, b;
        if (td_barrier(c, NULL))
            return give_up("barrier");
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (td_allreduce(c, x, x, nbytes / sizeof *x, TD_F32, TD_REDUCE_SUM,
                         &(td_coll_opts){.algo = algo}))
            return give_up("allreduce");
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ms = 1e3 * (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_nsec - a.tv_nsec);
        best = ms < best ? ms : best;
    }
    if (td_comm_rank(c) == 0)
        printf("%s %.3f\n", algo, best);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "join";
    const char *timeout = getenv("PROG_TIMEOUT_MS"), *setup = getenv("PROG_SETUP_MS");
    td_comm_opts o = {.timeout_ms = timeout ? (uint32_t)strtoul(timeout, NULL, 10) : PATIENCE_MS,
                      .setup_ms = setup ? (uint32_t)strtoul(setup, NULL, 10) : PATIENCE_MS};
    td_comm *c;
    int rc = 2;
    if (!strcmp(what, "nothing"))
        return 0;
    if (td_comm_world(&o, &c))
        return give_up("world");
    if (!strcmp(what, "join")) {
        rc = td_barrier(c, NULL) ? give_up("barrier") : 0;
        if (!rc)
            printf("rank %d of %d over %s\n", td_comm_rank(c), td_comm_size(c),
                   td_comm_transport(c));
    } else if (!strcmp(what, "all")) {
        size_t n = (size_t)td_comm_size(c) * COUNT;
        float *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
        rc = in && out ? check_all(c, NULL, in, out) : 1;
        for (int i = 2; i < argc && !rc; i++)
            rc = check_all(c, argv[i], in, out);
        rc = rc ? rc : check_split(c);
        free(in);
        free(out);
        if (!rc)
            printf("good over %s\n", td_comm_transport(c));
    } else if (!strcmp(what, "loop") && argc > 2) {
        rc = loop(c, strtod(argv[2], NULL));
    } else if (!strcmp(what, "speed") && argc > 3) {
        size_t nbytes = strtoul(argv[2], NULL, 10);
        float *x = calloc(1, nbytes);
        rc = x ? 0 : 1;
        for (int i = 3; i < argc && !rc; i++)
            rc = speed(c, x, nbytes, argv[i]);
        free(x);
    } else if (!strcmp(what, "early")) {
        rc = early(c);
    } else if (!strcmp(what, "digest")) {
        rc = digest(c, argc > 2 ? argv[2] : NULL);
    }
    td_comm_destroy(c);
    return rc;
}
