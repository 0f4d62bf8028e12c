/* mpi_world.c -- an MPI program that knows nothing of Tandem, compiled by test_launch_mpi.sh with
 * the compiler of each MPI.
 *
 *     mpi_world             every rank says "rank R of N: sum S, ring P, host L of M"
 *     mpi_world abort R     rank R calls MPI_Abort with 7 while the others wait for it
 *     mpi_world die R       rank R exits with 9 before MPI_Init, which the others are in */
/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, sum = 0, from = -1, local, local_size;
    int who = argc > 2 ? (int)strtol(argv[2], NULL, 10) : -1;
    const char *own = getenv("RANK");
    MPI_Comm host;
    if (who >= 0 && !strcmp(argv[1], "die") && own && strtol(own, NULL, 10) == who)
        return 9;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (who >= 0 && !strcmp(argv[1], "abort") && rank == who)
        MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &from, 1, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_size(host, &local_size);
    printf("rank %d of %d: sum %d, ring %d, host %d of %d\n", rank, size, sum, from, local,
           local_size);
    MPI_Comm_free(&host);
    MPI_Finalize();
    return 0;
}
