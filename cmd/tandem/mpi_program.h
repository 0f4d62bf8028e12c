/* mpi_program.h -- is a program one of MPI's? Those get their world by a protocol of that MPI,
 * not from variables: under a launcher that does not speak it each is a world of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_MPI_PROGRAM_H
#define TD_CMD_MPI_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* The MPI library that `program` (a path, or a name looked up in PATH) is linked with, such as
 * "libmpi.so.40"; false: it is linked with none, or cannot be read. */
bool td__mpi_program(const char *program, char *library, size_t nbytes);
/* Which MPI such a library is of: "mpich", also for those with its ABI, or "openmpi". */
const char *td__mpi_framework(const char *library);

/* Do its ranks join elastic ones? That is so of `tandem`, of programs that hold Tandem's library,
 * and may be so of shells, what these start being unknown. */
bool td__program_joins(const char *program);

#endif
