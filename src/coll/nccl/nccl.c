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
#include "coll/comm_impl.h"
#include "coll/nccl/library.h"

enum { MEET_MS = 60000, LOOK_MS = 20 }; /* at most, for all to meet; between looks at failures */

struct td__nccl {
    const td__nccl_api *api;
    td_comm *comm;
    td_stream *stream;
    int rank, size;
    void *nccl;        /* NULL: aborted */
    td__deadline look; /* when the watchdog is told next that this rank looked in vain */
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

static td_status failed(const td__nccl *n, td_status st, const char *what, const char *why)
{
    char text[300]; /* why may be the last error's text */
    snprintf(text, sizeof text, "NCCL: rank %d: %s: %s", n->rank, what, why);
    return TD_FAIL(st, "%s", text);
}

static td_status late(const td__nccl *n, const char *what)
{
    char why[80] = "another rank did not come in time";
    if (n->size == 2)
        snprintf(why, sizeof why, "rank %d did not come in time", 1 - n->rank);
    return failed(n, TD_ETIMEDOUT, what, why);
}

/* Why this rank should wait no longer; TD_OK: it should. */
static td_status look(td__nccl *n, const char *what, td__deadline until)
{
    int result = TD_NCCL_SUCCESS, r = n->api->CommGetAsyncError(n->nccl, &result);
    TD_TRY(td__comm_cause(n->comm));
    r = r ? r : result;
    if (r != TD_NCCL_SUCCESS && r != TD_NCCL_IN_PROGRESS)
        return failed(n, TD_EPEER, what, n->api->GetErrorString(r));
    if (td__deadline_passed(n->look)) {
        td__comm_looked(n->comm);
        n->look = td__deadline_in_ms(LOOK_MS);
    }
    return td__deadline_passed(until) ? late(n, what) : TD_OK;
}

/* NCCL has put it into the stream. */
static td_status settle(td__nccl *n, int result, const char *what, td__deadline until)
{
    n->look = td__deadline_in_ms(LOOK_MS);
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
    return st ? failed(n, st, what, td_last_error()) : look(n, what, td__deadline_in_ms(LOOK_MS));
}

typedef struct under_way {
    request *q;
    const char *what;
} under_way;

static td_status carry(void *user, td__deadline until)
{
    const under_way *u = user;
    td__nccl *n = u->q->n;
    int result = 0;
    u->q->result = &result;
    td__stream_launch(n->stream, submit, u->q, sizeof *u->q);
    TD_TRY(settle(n, result, u->what, until));
    return finish(n, u->what, until);
}

/* As a call of the comm: the watchdog sees it, and the first cause ends it on all ranks. NCCL is
 * given up after that, since its other ranks notice, and do not know why. */
static td_status call(td__nccl *n, td__coll kind, const char *what, request q)
{
    bool sums = kind == TD_COLL_ALLREDUCE;
    td__coll_call as = {
        .kind = kind, .count = q.count, .dtype = sums ? TD_F32 : TD_U8, .op = TD_REDUCE_SUM};
    if (!n->nccl)
        return TD_FAIL(TD_EABORTED, "NCCL: rank %d: %s after a failure", n->rank, what);
    q.n = n;
    td_status st = td__comm_carried(n->comm, as, "nccl", carry, &(under_way){&q, what});
    if (!st)
        return TD_OK;
    char why[400];
    snprintf(why, sizeof why, "%s", td_last_error());
    give_up(n);
    return TD_FAIL(st, "%s", why);
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
    return call(n, TD_COLL_ALL_TO_ALL, "all-to-all",
                (request){.make = swap,
                          .in = send,
                          .out = recv,
                          .in_step = send_step,
                          .out_step = recv_step,
                          .count = nbytes});
}

td_status td__nccl_all_gather(td__nccl *n, const void *in, void *out, size_t nbytes)
{
    return call(n, TD_COLL_ALL_GATHER, "all-gather",
                (request){.make = all_gather, .in = in, .out = out, .count = nbytes});
}

td_status td__nccl_sum(td__nccl *n, float *x, size_t count)
{
    return call(n, TD_COLL_ALLREDUCE, "all-reduce",
                (request){.make = sum, .out = x, .count = count});
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

td_status td__nccl_is_used(const td_comm *comm, const char *who, const char *device)
{
    if (!td__nccl_asked(comm) || comm->nccl || comm->size == 1)
        return TD_OK;
    return TD_FAIL(TD_ENOTSUP,
                   "the engine is nccl, but with sync rule %s on device %s nothing goes through "
                   "NCCL, which carries gradients of data-parallel ranks with a GPU each: leave "
                   "TANDEM_ENGINE out",
                   who, device);
}

void td__nccl_hear(td_comm *comm, const td_comm *group)
{
    comm->nccl = comm->nccl || (group && group->nccl);
}

static void fill(card *c, const td_comm *comm, td_device *device, const td__nccl_api **api)
{
    int version = 0;
    *c = (card){.wish = td__nccl_asked(comm)     ? MUST
                        : *td__comm_engine(comm) ? NEVER
                                                 : MAY,
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
    uint32_t ms = td__comm_timeout_ms(n->comm);
    all = !settle(n, result, "meeting", td__deadline_in_ms(ms < MEET_MS ? ms : MEET_MS));
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
    comm->nccl = true;
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
