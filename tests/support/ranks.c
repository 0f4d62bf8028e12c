/* ranks.c -- see ranks.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/ranks.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/comm_impl.h"
#include "coll/comm_setup.h"
#include "net/mesh_inproc.h"
#include "net/store.h"
#include "support/check.h"
#include "support/sanitized.h"

enum { PATIENCE_MS = SANITIZED ? 1000000 : 280000 }; /* of a machine that is busy elsewhere */
enum { MOST = 64, TEXT = 1024 };

/* The meshes of one world, ready (inproc) or to be joined by each rank. */
typedef struct plan {
    const ranks_opts *o;
    const char *transport;
    int size, per_host, n_hosts;
    td__mesh *mesh[MOST], *local[MOST], *hosts[MOST]; /* inproc */
    char store[256]; /* where ranks of other transports meet; "" for inproc */
} plan;

typedef struct job {
    plan *p;
    ranks_body body;
    ranks_ctx ctx;
    pthread_t thread;
    _Atomic(td_comm *) comm; /* for the report of what was stuck */
} job;

static const td__secret SECRET = {{1, 2, 3}};

void ranks_fail(ranks_ctx *r, const char *file, int line, const char *cond, const char *fmt, ...)
{
    va_list ap;

    if (r->text[0])
        return;
    int used =
        snprintf(r->text, TEXT, "%s:%d: rank %d of %d: %s: ", file, line, r->rank, r->size, cond);
    va_start(ap, fmt);
    if (used > 0 && used < TEXT)
        vsnprintf(r->text + used, TEXT - (size_t)used, fmt, ap);
    va_end(ap);
}

static int host_size(const plan *p, int host)
{
    int left = p->size - host * p->per_host;
    return left < p->per_host ? left : p->per_host;
}

static void make_inproc(plan *p)
{
    CHECK_OK(td__mesh_inproc_create(p->size, p->mesh));
    if (p->n_hosts < 2)
        return;
    td__mesh *leaders[MOST];
    CHECK_OK(td__mesh_inproc_create(p->n_hosts, leaders));
    for (int h = 0; h < p->n_hosts; h++) {
        CHECK_OK(td__mesh_inproc_create(host_size(p, h), &p->local[h * p->per_host]));
        p->hosts[h * p->per_host] = leaders[h];
    }
}

static td_status make_inproc_comm(const plan *p, int rank, td_comm **out)
{
    int host_of[MOST];
    td__comm_parts parts = {
        .rank = rank,
        .size = p->size,
        .mesh = p->mesh[rank],
        .local = p->local[rank],
        .hosts = p->hosts[rank],
        .host_of = host_of,
        .gamma = 1e-10,
    };
    for (int r = 0; r < p->size; r++)
        host_of[r] = r / p->per_host;
    return td__comm_assemble(&parts, &p->o->comm, out);
}

static td_status make_comm(const plan *p, int rank, td_comm **out)
{
    td_comm_opts o = p->o->comm;
    td__world w = {
        .rank = rank,
        .size = p->size,
        .local_rank = rank % p->per_host,
        .local_size = host_size(p, rank / p->per_host),
        .address = "127.0.0.1",
        .secret = SECRET,
    };

    if (!p->store[0])
        return make_inproc_comm(p, rank, out);
    memcpy(w.store, p->store, sizeof w.store);
    snprintf(w.host, sizeof w.host, "host%d", rank / p->per_host);
    snprintf(w.hostname, sizeof w.hostname, "%s", w.host);
    if (p->o->tls_dir) {
        w.tls = true;
        snprintf(w.tls_dir, sizeof w.tls_dir, "%s", p->o->tls_dir);
    }
    o.engine = o.engine ? o.engine : "native";
    if (p->n_hosts == 1)
        o.transport = p->transport;
    return td__comm_create(&w, &o, out);
}

static void *serve(void *arg)
{
    job *j = arg;

    if (!j->ctx.comm) {
        td_status st = make_comm(j->p, j->ctx.rank, &j->ctx.comm);
        if (st) {
            ranks_fail(&j->ctx, __FILE__, __LINE__, "make_comm", "%s", td_last_error());
            return NULL;
        }
    }
    atomic_store(&j->comm, j->ctx.comm);
    j->body(&j->ctx);
    if (j->ctx.text[0])
        td_comm_abort(j->ctx.comm, "the test failed");
    atomic_store(&j->comm, NULL);
    td_comm_destroy(j->ctx.comm);
    return NULL;
}

static void report_stuck(const job *j)
{
    td_comm *c = atomic_load(&j->comm);
    td__comm_activity a;
    char text[200];

    if (!c)
        return;
    td__comm_activity_get(c, &a);
    print_error("rank %d: %s %s", j->ctx.rank, a.in_call ? "in" : "after",
                td__comm_activity_text(&a, text, sizeof text));
    for (int i = 0; i < a.n_waiting && i < TD_COMM_WAITING; i++)
        print_error("%s %d", i ? "," : ", waiting for", a.waiting[i]);
    print_error("\n");
}

static td__store_server *make_store(plan *p)
{
    td__store_server *s = NULL;

    if (strcmp(p->transport, "inproc") == 0)
        return NULL;
    td__store_opts o = {.listen = "127.0.0.1:0", .tls_dir = p->o->tls_dir};
    CHECK_OK(td__store_server_create(&SECRET, &o, &s));
    snprintf(p->store, sizeof p->store, "%s", td__store_server_address(s));
    return s;
}

static void run_threads(job *jobs, int size, unsigned ms)
{
    struct timespec until;
    int stuck = 0;

    td__store_server *store = make_store(jobs[0].p);
    for (int r = 0; r < size; r++)
        CHECK(pthread_create(&jobs[r].thread, NULL, serve, &jobs[r]) == 0, "no thread");
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000 + 1;
    for (int r = 0; r < size; r++)
        stuck += pthread_timedjoin_np(jobs[r].thread, NULL, &until) != 0;
    if (stuck) { /* threads that nobody can end: the program ends */
        print_error("%d of %d ranks are stuck\n", stuck, size);
        for (int r = 0; r < size; r++) {
            report_stuck(&jobs[r]);
            if (jobs[r].ctx.text[0])
                print_error("%s\n", jobs[r].ctx.text);
        }
        abort();
    }
    td__store_server_destroy(store);
}

/* The store has a thread, and a process that forks should have none: ranks are started first, and
 * get its address through a pipe. */
static void run_processes(job *jobs, int size, unsigned ms)
{
    plan *p = jobs[0].p;
    pid_t pid[MOST];
    int done[2], address[2];

    CHECK(pipe(done) == 0 && pipe(address) == 0, "no pipe");
    for (int r = 0; r < size; r++) {
        pid[r] = fork();
        CHECK(pid[r] >= 0, "no process");
        if (pid[r] == 0) {
            close(done[0]);
            close(address[1]);
            if (read(address[0], p->store, sizeof p->store) != sizeof p->store)
                _exit(2);
            serve(&jobs[r]);
            _exit(jobs[r].ctx.text[0] ? 1 : 0);
        }
    }
    close(done[1]); /* the pipe ends with the last rank */
    close(address[0]);
    td__store_server *store = make_store(p);
    for (int r = 0; r < size; r++)
        CHECK(write(address[1], p->store, sizeof p->store) == sizeof p->store, "no address");
    close(address[1]);
    struct pollfd ended = {.fd = done[0], .events = POLLIN};
    bool stuck = poll(&ended, 1, (int)ms) == 0;
    close(done[0]);
    for (int r = 0; r < size; r++) {
        int status = 0;
        if (stuck)
            kill(pid[r], SIGKILL);
        waitpid(pid[r], &status, 0);
        if (status && !jobs[r].ctx.text[0])
            snprintf(jobs[r].ctx.text, TEXT, "rank %d of %d ended with status %#x%s", r, size,
                     (unsigned)status, stuck ? ": it was stuck" : "");
    }
    td__store_server_destroy(store);
}

void ranks_run(int size, const ranks_opts *opts, ranks_body body, void *arg)
{
    static const ranks_opts NONE = {0};
    const ranks_opts *o = opts ? opts : &NONE;
    unsigned ms = o->deadline_ms ? o->deadline_ms : PATIENCE_MS;
    static job jobs[MOST];
    td_comm *comms[MOST] = {NULL};
    plan p = {.o = o, .size = size, .transport = o->transport ? o->transport : "inproc"};

    CHECK(size <= MOST, "%d ranks; at most %d", size, MOST);
    p.per_host = o->per_host ? o->per_host : size;
    p.n_hosts = (size + p.per_host - 1) / p.per_host;
    if (strcmp(p.transport, "inproc") == 0) {
        if (p.n_hosts > 1)
            make_inproc(&p);
        else
            CHECK_OK(td_comm_threads(size, &o->comm, comms));
    }
    size_t nbytes = (size_t)size * TEXT;
    char *texts = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(texts != MAP_FAILED, "no memory");
    for (int r = 0; r < size; r++)
        jobs[r] =
            (job){.p = &p, .body = body, .ctx = {comms[r], r, size, arg, texts + (size_t)r * TEXT}};
    if (o->processes)
        run_processes(jobs, size, ms);
    else
        run_threads(jobs, size, ms);
    char first[TEXT] = "";
    for (int r = 0; r < size; r++)
        if (texts[(size_t)r * TEXT]) {
            print_error("%s\n", texts + (size_t)r * TEXT);
            if (!first[0])
                memcpy(first, texts + (size_t)r * TEXT, TEXT);
        }
    munmap(texts, nbytes);
    CHECK(!first[0], "%s", first);
}

float *ranks_floats(const ranks_ctx *r, size_t count)
{
    float *p = check_alloc_guarded(count * sizeof *p);
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(r->rank + 1);
    return p;
}
