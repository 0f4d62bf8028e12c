/* module.h -- the border between the library and the MPI modules: one table of functions.
 *
 * Every MPI has its own ABI, so the code that includes mpi.h is built once per MPI, as a module
 * that is loaded only inside mpirun (libtandem_openmpi.so, libtandem_mpich.so). It knows nothing of
 * the library and the library nothing of MPI: handles are pointers, types and operators are the
 * numbers of tandem/types.h and tandem/coll.h, errors are texts.
 *
 * Threads   The module serialises calls where its MPI cannot. No function blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_MPI_MODULE_H
#define TD_COLL_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MPI_ABI = 1, TD_MPI_TEXT = 256 };

/* Collectives of MPI's own; `count` as in tandem/coll.h. */
typedef struct td__mpi_call {
    int kind; /* td__coll */
    const void *in;
    void *out; /* == in: in place */
    size_t count;
    int dtype, op; /* td_dtype, td_reduce_op: never AVG, never bf16 or f16 in a reduction */
    int root;
} td__mpi_call;

/* All return 0, or -1 with one line in text[TD_MPI_TEXT]. */
typedef struct td__mpi_api {
    uint32_t abi;     /* TD_MPI_ABI */
    const char *name; /* "Open MPI v4.1.4" */

    /* Initialise MPI, once per process; it is finalised at exit, or aborted if `failed` was called,
     * because MPI_Finalize waits for peers that will not come. */
    int (*init)(int *rank, int *size, char *text);
    void (*failed)(void);

    /* A communicator of its own: of the whole world (parent NULL), or of ranks[0..n) of a parent,
     * collective over those; `tag` tells concurrent calls apart. */
    int (*comm_create)(void *parent, const int *ranks, int n, int tag, void **comm, char *text);
    void (*comm_free)(void *comm);
    uint32_t (*tag_mask)(void *comm); /* of the tags that messages can carry */

    /* The buffers are borrowed until test() says done. nbytes at most 2^30. */
    int (*send)(void *comm, const void *data, size_t nbytes, int peer, uint32_t tag, void **request,
                char *text);
    /* Is there a message from this peer? Then it belongs to the caller, who must receive it. */
    int (*probe)(void *comm, int peer, bool *found, size_t *nbytes, uint32_t *tag, void **message,
                 char *text);
    int (*recv)(void *message, void *data, size_t nbytes, void **request, char *text);
    int (*start)(void *comm, const td__mpi_call *call, void **request, char *text);
    /* Done requests are released. */
    int (*test)(void *request, bool *done, char *text);
    void (*forget)(void *request); /* after a failure: nobody will test it again */
} td__mpi_api;

/* What dlsym looks for. */
#define TD_MPI_ENTRY "td_mpi_module"
typedef const td__mpi_api *td__mpi_entry(void);

#endif
