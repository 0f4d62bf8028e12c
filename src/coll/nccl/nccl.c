/* nccl.c -- see nccl.h.
 *
 * NCCL's calls do not block (td__nccl_config): what it still does in the background, setting up
 * connections, and its failures are asked for until it is through; then the stream is waited for.
 * Calls are made through the stream's launch, so that the thread works with its GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/nccl/nccl.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "coll/nccl/library.h"

enum { MEET_MS = 60000, LOOK_MS = 20 }; /* for all ranks to meet; between looks at failures */

struct td__nccl {
    const td__nccl_api *api;
    td_comm *comm;
    td_stream *stream;
    int rank, size;
    void *nccl; /* NULL: aborted */
};

/* ---- Calls and their end --------------------------------------------------------------------- */

typedef struct request {
    td__nccl *n;
    int (*make)(const struct request *q);
    int *result;
    const void *in;
    void *out;
    size_t in_step, out_step, count; /* steps: bytes from rank to rank */
    const td__nccl_id *id;
} request;

static void submit(const void *args)
{
    const request *q = args;
    *q->result = q->make(q);
}

static int abort_it(const request *q)
{
    return q->n->api->CommAbort(q->n->nccl);
}

static void give_up(td__nccl *n)
{
    int ignored;
    request q = {.n = n, .make = abort_it, .result = &ignored};
    if (n->nccl)
        td__stream_launch(n->stream, submit, &q, sizeof q);
    n->nccl = NULL;
}

static td_status failed(td__nccl *n, td_status st, const char *what, const char *why)
{
    char text[300];
    snprintf(text, sizeof text, "NCCL: rank %d: %s: %s", n->rank, what, why);
    give_up(n);
    return TD_FAIL(st, "%s", text);
}

/* Why this rank should wait no longer; TD_OK: it should. */
static td_status look(td__nccl *n, const char *what, td__deadline until)
{
    int result = TD_NCCL_SUCCESS, r = n->api->CommGetAsyncError(n->nccl, &result);
    td_status st = td__comm_cause(n->comm);
    if (st) {
        char why[256];
        snprintf(why, sizeof why, "%s", td_last_error());
        return failed(n, st, what, why);
    }
    r = r ? r : result;
    if (r != TD_NCCL_SUCCESS && r != TD_NCCL_IN_PROGRESS)
        return failed(n, TD_EPEER, what, n->api->GetErrorString(r));
    if (td__deadline_passed(until))
        return failed(n, TD_ETIMEDOUT, what, "another rank did not come in time");
    return TD_OK;
}

/* NCCL has put it into the stream. */
static td_status settle(td__nccl *n, int result, const char *what, td__deadline until)
{
    while (result == TD_NCCL_IN_PROGRESS) {
        sched_yield();
        TD_TRY(look(n, what, until));
        int r = n->api->CommGetAsyncError(n->nccl, &result);
        result = r ? r : result;
    }
    return result == TD_NCCL_SUCCESS ? TD_OK
                                     : failed(n, TD_EPEER, what, n->api->GetErrorString(result));
}

static td_status finish(td__nccl *n, const char *what, td__deadline until)
{
    td_event end;
    td_status st;
    td__event_record(n->stream, &end);
    while ((st = td__event_sync(&end, td__deadline_in_ms(LOOK_MS))) == TD_ETIMEDOUT)
        TD_TRY(look(n, what, until));
    if (!st)
        return look(n, what, td__deadline_in_ms(LOOK_MS));
    char why[256];
    snprintf(why, sizeof why, "%s", td_last_error());
    return failed(n, st, what, why);
}

static td_status call(td__nccl *n, const char *what, request q)
{
    td__deadline until = td__deadline_in_ms(td__comm_timeout_ms(n->comm));
    int result = 0;
    if (!n->nccl)
        return TD_FAIL(TD_EABORTED, "NCCL: rank %d: %s after a failure", n->rank, what);
    q.n = n;
    q.result = &result;
    td__stream_launch(n->stream, submit, &q, sizeof q);
    td_status st = settle(n, result, what, until);
    if (!st)
        st = finish(n, what, until);
    if (st) /* the others wait in NCCL, or will */
        td_comm_abort(n->comm, td_last_error());
    return st;
}
_Static_assert(sizeof(request) <= TD__LAUNCH_ARGS, "a request is the argument of a launch");

/* ---- What it does ---------------------------------------------------------------------------- */

static int swap(const request *q)
{
    const td__nccl *n = q->n;
    void *on = td__stream_native(n->stream);
    int r = n->api->GroupStart();
    for (int i = 0; i < n->size && !r; i++) {
        const char *from = (const char *)q->in + (size_t)i * q->in_step;
        char *to = (char *)q->out + (size_t)i * q->out_step;
        if (from == to)
            continue;
        r = n->api->Send(from, q->count, TD_NCCL_U8, i, n->nccl, on);
        r = r ? r : n->api->Recv(to, q->count, TD_NCCL_U8, i, n->nccl, on);
    }
    int end = n->api->GroupEnd();
    return r ? r : end;
}

static int all_gather(const request *q)
{
    return q->n->api->AllGather(q->in, q->out, q->count, TD_NCCL_U8, q->n->nccl,
                                td__stream_native(q->n->stream));
}

static int sum(const request *q)
{
    return q->n->api->AllReduce(q->out, q->out, q->count, TD_NCCL_F32, TD_NCCL_SUM, q->n->nccl,
                                td__stream_native(q->n->stream));
}

td_status td__nccl_swap(td__nccl *n, const void *send, size_t send_step, void *recv,
                        size_t recv_step, size_t nbytes)
{
    return call(n, "all-to-all",
                (request){.make = swap,
                          .in = send,
                          .out = recv,
                          .in_step = send_step,
                          .out_step = recv_step,
                          .count = nbytes});
}

td_status td__nccl_all_gather(td__nccl *n, const void *in, void *out, size_t nbytes)
{
    return call(n, "all-gather",
                (request){.make = all_gather, .in = in, .out = out, .count = nbytes});
}

td_status td__nccl_sum(td__nccl *n, float *x, size_t count)
{
    return call(n, "all-reduce", (request){.make = sum, .out = x, .count = count});
}

td_stream *td__nccl_stream(const td__nccl *n)
{
    return n->stream;
}

/* ---- Which ranks can ------------------------------------------------------------------------- */

/* What a rank tells the others: bytes, without holes. */
typedef struct card {
    unsigned char processor[16], version[4];
    unsigned char gpu, wish, tls; /* wish: NEVER, MAY, MUST */
} card;
enum { NEVER, MAY, MUST };
_Static_assert(sizeof(card) == 23, "no holes: it is sent");

bool td__nccl_asked(const td_comm *comm)
{
    return strcmp(td__comm_engine(comm), "nccl") == 0;
}

static void fill(card *c, const td_comm *comm, td_device *device, const td__nccl_api **api)
{
    int version = 0;
    *c = (card){.wish = td__nccl_asked(comm) ? MUST : *td__comm_engine(comm) ? NEVER : MAY,
                .tls = td__comm_tls(comm)};
    c->gpu =
        td__stream_native(td__device_stream(device)) && !td__device_processor(device, c->processor);
    if (c->gpu && c->wish != NEVER && !c->tls && !td__nccl_load(api))
        version = (*api)->version;
    memcpy(c->version, &version, sizeof version);
}

/* Why these ranks cannot; "": they can. The same on all of them. */
static void judge(const card *all, int n, char *why, size_t room)
{
    static const unsigned char NONE[4];
    *why = 0;
    for (int r = 0; r < n && !*why; r++) {
        if (!all[r].gpu)
            snprintf(why, room, "rank %d has no GPU", r);
        else if (all[r].wish == NEVER)
            snprintf(why, room, "rank %d has another engine", r);
        else if (all[r].tls)
            snprintf(why, room, "the job is encrypted (--tls), and what NCCL sends is not");
        else if (!memcmp(all[r].version, NONE, sizeof NONE))
            snprintf(why, room, "rank %d has no libnccl.so.2 that can be used", r);
        else if (memcmp(all[r].version, all[0].version, sizeof NONE) != 0)
            snprintf(why, room, "ranks 0 and %d have different versions of it", r);
        for (int k = 0; k < r && !*why; k++)
            if (!memcmp(all[k].processor, all[r].processor, sizeof all[r].processor))
                snprintf(why, room, "ranks %d and %d share a GPU, which it refuses", k, r);
    }
}

static int begin(const request *q)
{
    td__nccl_config config = TD_NCCL_CONFIG;
    td__nccl *n = q->n;
    return n->api->CommInitRankConfig(&n->nccl, n->size, *q->id, n->rank, &config);
}

/* *good: on all ranks. */
static td_status meet(td__nccl *n, bool *good, char *why, size_t room)
{
    td__nccl_id id = {{0}};
    int32_t all;
    int result = 0;
    if (n->rank == 0)
        result = n->api->GetUniqueId(&id);
    TD_TRY(td_broadcast(n->comm, &result, 1, TD_I32, 0, NULL));
    TD_TRY(td_broadcast(n->comm, id.bytes, sizeof id.bytes, TD_U8, 0, NULL));
    request q = {.n = n, .make = begin, .result = &result, .id = &id};
    if (!result)
        td__stream_launch(n->stream, submit, &q, sizeof q);
    all = !settle(n, result, "meeting", td__deadline_in_ms(MEET_MS));
    snprintf(why, room, "%s", all ? "another rank could not begin" : td_last_error());
    TD_TRY(td_allreduce(n->comm, &all, &all, 1, TD_I32, TD_REDUCE_MIN, NULL));
    *good = all;
    return TD_OK;
}

static td_status connect(td_comm *comm, td_device *device, const td__nccl_api *api, char *why,
                         size_t room, td__nccl **out)
{
    bool good = false;
    td__nccl *n = td__calloc(1, sizeof *n);
    if (!n)
        return TD_FAIL(TD_ENOMEM, "no memory for NCCL");
    *n = (td__nccl){
        .api = api, .comm = comm, .rank = td_comm_rank(comm), .size = td_comm_size(comm)};
    td_status st = td__stream_create(device, &n->stream);
    if (!st)
        st = meet(n, &good, why, room);
    if (st || !good)
        td__nccl_close(n);
    else
        *out = n;
    return st;
}

td_status td__nccl_open(td_comm *comm, td_device *device, const char *what, td__nccl **out)
{
    int size = td_comm_size(comm);
    const td__nccl_api *api = NULL;
    bool must = false, any_gpu = false;
    char why[300];
    card own, *all = td__calloc((size_t)size, sizeof *all);

    *out = NULL;
    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", size);
    fill(&own, comm, device, &api);
    td_status st = td_all_gather(comm, &own, all, sizeof own, TD_U8, NULL);
    judge(all, size, why, sizeof why);
    for (int r = 0; r < size; r++) {
        must = must || all[r].wish == MUST;
        any_gpu = any_gpu || (all[r].gpu && all[r].wish != NEVER);
    }
    td__free(all);
    if (!st && !*why)
        st = connect(comm, device, api, why, sizeof why, out);
    if (st)
        return st;
    if (!*out && must)
        return TD_FAIL(TD_ENOTSUP, "the engine is nccl, but NCCL is not for these ranks: %s", why);
    if (td_comm_rank(comm) == 0 && *out)
        TD_LOG(INFO, COLL, "%s of %d GPUs go through NCCL %d.%d.%d", what, size,
               api->version / 10000, api->version / 100 % 100, api->version % 100);
    else if (td_comm_rank(comm) == 0 && any_gpu)
        TD_LOG(INFO, COLL, "NCCL is not used: %s; %s go through memory of the host", why, what);
    return TD_OK;
}

void td__nccl_close(td__nccl *n)
{
    if (!n)
        return;
    if (n->stream)
        give_up(n);
    td__stream_destroy(n->stream);
    td__free(n);
}
