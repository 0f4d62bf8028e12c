/* bench_distribute -- data.distribute: how long it takes until rank 0's data are where they are
 * needed, by method, transport and number of ranks, with ranks as threads of this process. For
 * scatter it is the time in which all ranks get their rows of one epoch, batch by batch, without
 * training beside it. A file in memory is read (in the format of MNIST): there is no peer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench_report.h"
#include "coll/comm_setup.h"
#include "net/store.h"
#include "parallel/distribute/distribute.h"

enum { SAMPLES = 65536, SIDE = 28, BATCH = 1024, MOST = 4, ROUNDS = 5 };

static char dir[] = "/tmp/tandem-bench-XXXXXX";
static const td__secret SECRET = {{1, 2, 3}};

typedef struct rank_arg {
    int rank, size;
    const char *method, *transport, *store;
    double seconds;
} rank_arg;

static void check(td_status st)
{
    if (!st)
        return;
    fprintf(stderr, "bench_distribute: %s\n", td_last_error());
    exit(1);
}

/* An IDX file: 0, 0, bytes, axes, sizes (big-endian), data. */
static void write_file(const char *name, const uint32_t *sizes, int axes)
{
    char path[256];
    size_t n = 1;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(1);
    fwrite((const uint8_t[]){0, 0, 8, (uint8_t)axes}, 1, 4, f);
    for (int i = 0; i < axes; i++) {
        uint32_t big = __builtin_bswap32(sizes[i]);
        fwrite(&big, 1, 4, f);
        n *= sizes[i];
    }
    for (size_t i = 0; i < n; i++)
        fputc((int)(i * 7 % 10), f);
    fclose(f);
}

static void write_files(uint32_t train, uint32_t test)
{
    write_file("train-images-idx3-ubyte", (const uint32_t[]){train, SIDE, SIDE}, 3);
    write_file("train-labels-idx1-ubyte", &train, 1);
    write_file("t10k-images-idx3-ubyte", (const uint32_t[]){test, SIDE, SIDE}, 3);
    write_file("t10k-labels-idx1-ubyte", &test, 1);
}

/* This rank's rows of every batch. */
static void read_epoch(td__dataset *d, int rank, int size)
{
    void *out[TD__MAX_FIELDS] = {0};
    int64_t index[BATCH];
    for (int f = 0; f < d->n_fields; f++)
        out[f] = td__alloc_block(td__field_nbytes(&d->fields[f]) * BATCH);
    for (int64_t at = 0; at < d->count; at += BATCH) {
        int64_t begin = (int64_t)BATCH * rank / size, end = (int64_t)BATCH * (rank + 1) / size;
        for (int64_t i = begin; i < end; i++)
            index[i - begin] = at + i;
        check(td__dataset_read(d, index, end - begin, NULL, out));
    }
    for (int f = 0; f < d->n_fields; f++)
        td__free_block(out[f], td__field_nbytes(&d->fields[f]) * BATCH);
}

static void *rank_main(void *user)
{
    rank_arg *a = user;
    td__world w = {.rank = a->rank,
                   .size = a->size,
                   .local_rank = a->rank,
                   .local_size = a->size,
                   .address = "127.0.0.1",
                   .host = "bench",
                   .hostname = "bench",
                   .secret = SECRET};
    td__data_opts data = {.source = "idx", .source_opts = {.dir = dir}};
    td__distribution *keep;
    td__data *got;
    td_comm *comm;

    snprintf(w.store, sizeof w.store, "%s", a->store);
    check(
        td__comm_create(&w, &(td_comm_opts){.engine = "native", .transport = a->transport}, &comm));
    td__distribute_opts o = {.method = a->method, .comm = comm};
    a->seconds = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        check(td_barrier(comm, NULL));
        int64_t begin = bench_now_ns();
        check(td__distribute_open(&data, &o, &keep, &got));
        if (strcmp(a->method, "scatter") == 0) {
            begin = bench_now_ns();
            read_epoch(td__data_part(got, TD_PART_TRAIN), a->rank, a->size);
        }
        check(td_barrier(comm, NULL));
        double seconds = 1e-9 * (double)(bench_now_ns() - begin);
        a->seconds = seconds < a->seconds ? seconds : a->seconds;
        td__distribute_close(keep);
        td__data_close(got);
    }
    td_comm_destroy(comm);
    return NULL;
}

static double measure(const char *method, const char *transport, int size)
{
    rank_arg arg[MOST];
    pthread_t thread[MOST];
    td__store_server *store;

    check(td__store_server_create(&SECRET, &(td__store_opts){.listen = "127.0.0.1:0"}, &store));
    for (int r = 0; r < size; r++) {
        arg[r] = (rank_arg){.rank = r,
                            .size = size,
                            .method = method,
                            .transport = transport,
                            .store = td__store_server_address(store)};
        if (pthread_create(&thread[r], NULL, rank_main, &arg[r]))
            exit(1);
    }
    for (int r = 0; r < size; r++)
        pthread_join(thread[r], NULL);
    td__store_server_destroy(store);
    return arg[0].seconds;
}

int main(int argc, char **argv)
{
    static const char *const TRANSPORTS[] = {"shm", "tcp"};
    char name[128];

    bench_begin(argc, argv);
    if (!mkdtemp(dir))
        return 1;
    write_files(SAMPLES, 16);
    for (int t = 0; t < 2; t++)
        for (int size = 2; size <= MOST; size += 2)
            for (int m = 1; td__distribute_list(m); m++) {
                snprintf(name, sizeof name, "distribute %s %.0f MB, %d ranks, %s",
                         td__distribute_list(m), (double)SAMPLES * (SIDE * SIDE + 4) * 1e-6, size,
                         TRANSPORTS[t]);
                if (bench_wanted(name))
                    bench_row(name, measure(td__distribute_list(m), TRANSPORTS[t], size), 0, "s",
                              false);
            }
    static const char *const FILES[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", dir, FILES[i]);
        unlink(name);
    }
    rmdir(dir);
    return bench_end();
}
