/* module.c -- the table of coll/mpi/module.h carried out by whatever MPI this file is compiled
 * with. Nothing here decides anything: matching of messages, deadlines, mismatches are the
 * library's (coll/mpi_mesh.c). Only non-blocking calls are used, so that every wait is ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/mpi/module.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/algo.h"

/* MPI itself is one per process, and so is what is known of it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all calls, where MPI needs it */
static bool serial;                                      /* MPI is not thread-safe */
static bool ours;                                        /* this module has initialised MPI */
static atomic_bool broken;

static void enter(void)
{
    if (serial)
        pthread_mutex_lock(&lock);
}

static int leave(int error, const char *what, char *text)
{
    if (serial)
        pthread_mutex_unlock(&lock);
    if (error == MPI_SUCCESS)
        return 0;
    char why[MPI_MAX_ERROR_STRING] = "unknown error";
    int n = 0;
    MPI_Error_string(error, why, &n);
    snprintf(text, TD_MPI_TEXT, "%s: %.200s", what, why);
    return -1;
}

static void finish(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (done)
        return;
    if (atomic_load(&broken))
        MPI_Abort(MPI_COMM_WORLD, 1);
    else
        MPI_Finalize();
}

static int init(int *rank, int *size, char *text)
{
    int ready = 0, level = MPI_THREAD_SINGLE, error = MPI_Initialized(&ready);

    if (error == MPI_SUCCESS && ready)
        error = MPI_Query_thread(&level);
    else if (error == MPI_SUCCESS)
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (error != MPI_SUCCESS)
        return leave(error, "MPI_Init_thread", text);
    serial = level < MPI_THREAD_MULTIPLE;
    if (!ready && !ours) {
        ours = true;
        atexit(finish);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return 0;
}

static void failed(void)
{
    atomic_store(&broken, true);
}

static int comm_create(void *parent, const int *ranks, int n, int tag, void **comm, char *text)
{
    MPI_Comm *c = malloc(sizeof *c);
    if (!c) {
        snprintf(text, TD_MPI_TEXT, "no memory for a communicator");
        return -1;
    }
    enter();
    int error;
    if (!parent) {
        error = MPI_Comm_dup(MPI_COMM_WORLD, c);
    } else {
        MPI_Group all, some;
        error = MPI_Comm_group(*(MPI_Comm *)parent, &all);
        if (error == MPI_SUCCESS)
            error = MPI_Group_incl(all, n, ranks, &some);
        if (error == MPI_SUCCESS)
            error = MPI_Comm_create_group(*(MPI_Comm *)parent, some, tag, c);
        if (error == MPI_SUCCESS) {
            MPI_Group_free(&some);
            MPI_Group_free(&all);
        }
    }
    if (error == MPI_SUCCESS)
        MPI_Comm_set_errhandler(*c, MPI_ERRORS_RETURN);
    if (leave(error, "making a communicator", text)) {
        free(c);
        return -1;
    }
    *comm = c;
    return 0;
}

/* MPI_Comm_free is collective in the standard; a broken world is left to MPI_Abort. */
static void comm_free(void *comm)
{
    int done = 0;
    enter();
    MPI_Finalized(&done);
    if (!done && !atomic_load(&broken))
        MPI_Comm_free(comm);
    leave(MPI_SUCCESS, "", NULL);
    free(comm);
}

static uint32_t tag_mask(void *comm)
{
    int *most = NULL, found = 0;
    uint32_t mask = 32767; /* what the standard guarantees */

    enter();
    if (MPI_Comm_get_attr(*(MPI_Comm *)comm, MPI_TAG_UB, &most, &found) == MPI_SUCCESS && found)
        while (mask < INT32_MAX && (int64_t)mask * 2 + 1 <= (int64_t)*most)
            mask = mask * 2 + 1;
    leave(MPI_SUCCESS, "", NULL);
    return mask;
}

/* Requests and messages live on the heap: the library sees pointers only. */
static MPI_Request *request_new(char *text)
{
    MPI_Request *r = malloc(sizeof *r);
    if (r)
        *r = MPI_REQUEST_NULL;
    else
        snprintf(text, TD_MPI_TEXT, "no memory for a request");
    return r;
}

static int started(int error, const char *what, MPI_Request *r, void **request, char *text)
{
    if (leave(error, what, text)) {
        free(r);
        return -1;
    }
    *request = r;
    return 0;
}

static int send_message(void *comm, const void *data, size_t nbytes, int peer, uint32_t tag,
                        void **request, char *text)
{
    MPI_Request *r = request_new(text);
    if (!r)
        return -1;
    enter();
    int error = MPI_Isend(data, (int)nbytes, MPI_BYTE, peer, (int)tag, *(MPI_Comm *)comm, r);
    return started(error, "MPI_Isend", r, request, text);
}

static int probe(void *comm, int peer, bool *found, size_t *nbytes, uint32_t *tag, void **message,
                 char *text)
{
    MPI_Message m;
    MPI_Status status;
    int flag = 0, count = 0;

    *found = false;
    enter();
    int error = MPI_Improbe(peer, MPI_ANY_TAG, *(MPI_Comm *)comm, &flag, &m, &status);
    if (error == MPI_SUCCESS && flag)
        error = MPI_Get_count(&status, MPI_BYTE, &count);
    if (leave(error, "MPI_Improbe", text) || !flag)
        return error == MPI_SUCCESS ? 0 : -1;
    MPI_Message *keep = malloc(sizeof *keep);
    if (!keep) {
        snprintf(text, TD_MPI_TEXT, "no memory for a message");
        return -1;
    }
    *keep = m;
    *message = keep;
    *found = true;
    *nbytes = (size_t)count;
    *tag = (uint32_t)status.MPI_TAG;
    return 0;
}

static int recv_message(void *message, void *data, size_t nbytes, void **request, char *text)
{
    MPI_Request *r = request_new(text);
    if (!r)
        return -1;
    enter();
    int error = MPI_Imrecv(data, (int)nbytes, MPI_BYTE, message, r);
    free(message);
    return started(error, "MPI_Imrecv", r, request, text);
}

static MPI_Datatype type_of(int dtype)
{
    switch ((td_dtype)dtype) {
    case TD_F32: return MPI_FLOAT;
    case TD_F64: return MPI_DOUBLE;
    case TD_I32: return MPI_INT32_T;
    case TD_I64: return MPI_INT64_T;
    case TD_BF16:
    case TD_F16: return MPI_UINT16_T; /* moved, never added */
    default: return MPI_UINT8_T;
    }
}

static MPI_Op op_of(int op)
{
    switch ((td_reduce_op)op) {
    case TD_REDUCE_PROD: return MPI_PROD;
    case TD_REDUCE_MIN: return MPI_MIN;
    case TD_REDUCE_MAX: return MPI_MAX;
    default: return MPI_SUM;
    }
}

static int start(void *comm, const td__mpi_call *c, void **request, char *text)
{
    MPI_Comm at = *(MPI_Comm *)comm;
    MPI_Datatype type = type_of(c->dtype);
    MPI_Op op = op_of(c->op);
    int n = (int)c->count, rank = 0, error = MPI_SUCCESS;
    const void *in = c->in == c->out ? MPI_IN_PLACE : c->in;
    MPI_Request *r = request_new(text);

    if (!r)
        return -1;
    enter();
    MPI_Comm_rank(at, &rank);
    bool root = rank == c->root;
    switch ((td__coll)c->kind) {
    case TD_COLL_ALLREDUCE: error = MPI_Iallreduce(in, c->out, n, type, op, at, r); break;
    case TD_COLL_REDUCE:
        error = MPI_Ireduce(root ? in : c->in, c->out, n, type, op, c->root, at, r);
        break;
    case TD_COLL_BROADCAST: error = MPI_Ibcast(c->out, n, type, c->root, at, r); break;
    case TD_COLL_REDUCE_SCATTER:
        error = MPI_Ireduce_scatter_block(c->in, c->out, n, type, op, at, r);
        break;
    case TD_COLL_ALL_GATHER: error = MPI_Iallgather(in, n, type, c->out, n, type, at, r); break;
    case TD_COLL_ALL_TO_ALL: error = MPI_Ialltoall(c->in, n, type, c->out, n, type, at, r); break;
    case TD_COLL_GATHER:
        error = MPI_Igather(c->in, n, type, c->out, n, type, c->root, at, r);
        break;
    case TD_COLL_SCATTER:
        error = MPI_Iscatter(c->in, n, type, c->out, n, type, c->root, at, r);
        break;
    case TD_COLL_BARRIER: error = MPI_Ibarrier(at, r); break;
    default: error = MPI_ERR_OP; break;
    }
    return started(error, "a collective of MPI", r, request, text);
}

static int test(void *request, bool *done, char *text)
{
    int flag = 0;
    enter();
    int error = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    if (leave(error, "MPI_Test", text))
        return -1;
    *done = flag != 0;
    if (flag)
        free(request);
    return 0;
}

/* The request may still touch its buffer, so MPI is not to go on: see `failed`. */
static void forget(void *request)
{
    atomic_store(&broken, true);
    free(request);
}

const td__mpi_api *td_mpi_module(void) __attribute__((visibility("default")));
const td__mpi_api *td_mpi_module(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    static const td__mpi_api API = {
        .abi = TD_MPI_ABI,
        .name = version,
        .init = init,
        .failed = failed,
        .comm_create = comm_create,
        .comm_free = comm_free,
        .tag_mask = tag_mask,
        .send = send_message,
        .probe = probe,
        .recv = recv_message,
        .start = start,
        .test = test,
        .forget = forget,
    };
    int n = 0;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = '\0';
    return &API;
}
