/* mpi_peer.c -- Open MPI beside `tandem bench comm`: MPI_Allreduce of f32 sums, in place.
 *
 *     mpirun -n 2 mpi_peer SECONDS BYTES...
 *
 * The method is that of the command: every rank rewrites its buffer, a barrier, one call; the time
 * is from the last start to the last end, on the clock that all ranks of a host share; the median
 * over many calls. One line of JSON per size. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_CALLS = 400, LEAST_CALLS = 5, WARM_UP = 2 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double one_call(float *buf, int count, int rank)
{
    for (int i = 0; i < count; i++)
        buf[i] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double mine[2], last[2];
    mine[0] = now_us();
    MPI_Allreduce(MPI_IN_PLACE, buf, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mine[1] = now_us();
    MPI_Allreduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last[1] - last[0];
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    for (int a = 2; a < argc; a++) {
        long nbytes = strtol(argv[a], NULL, 10);
        int count = (int)(nbytes / (long)sizeof(float)), n = 0, more = 1;
        float *buf = malloc((size_t)nbytes);
        double us[MOST_CALLS], begin = now_us();
        if (!buf || count < 1)
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 0; i < WARM_UP; i++)
            one_call(buf, count, rank);
        while (more) {
            us[n++] = one_call(buf, count, rank);
            more = n < LEAST_CALLS || (n < MOST_CALLS && now_us() - begin < seconds * 1e6);
            MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        float want = (float)(size * (size + 1) / 2);
        if (buf[0] != want || buf[count - 1] != want)
            MPI_Abort(MPI_COMM_WORLD, 1);
        qsort(us, (size_t)n, sizeof *us, by_value);
        if (rank == 0)
            printf("{\"bytes\": %ld, \"us\": %.3f, \"low\": %.3f, \"high\": %.3f}\n", nbytes,
                   us[n / 2], us[n / 10], us[n - 1 - n / 10]);
        free(buf);
    }
    MPI_Finalize();
    return 0;
}
