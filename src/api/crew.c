/* crew.c -- see crew.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/crew.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/backend_auto.h"

td_status td__crew_size(const td__session *s, int *out)
{
    const char *backend = s->opts.backend;
    const td__gpus *gpus = td__backend_traits(backend).gpus;
    int wanted = td__job_parallel_opts(s->job)->devices, seen = 0;

    *out = 1;
    if (wanted == 1 || (!gpus && wanted == TD__ALL_DEVICES))
        return TD_OK;
    if (!gpus)
        return TD_FAIL(TD_EINVAL,
                       "parallel.devices: %d: backend %s uses no GPU; set train.backend to cuda",
                       wanted, backend ? backend : "cpu");
    td_status st = gpus->count(&seen);
    if (wanted == TD__ALL_DEVICES) { /* without one the trainer says why */
        *out = st || seen < 1 ? 1 : seen;
        return TD_OK;
    }
    TD_TRY(st);
    if (wanted > seen)
        return TD_FAIL(TD_EINVAL,
                       "parallel.devices: %d: this process sees %d GPU%s (tandem devices); use "
                       "fewer, or ranks that share them (-n %d)",
                       wanted, seen, seen == 1 ? "" : "s", wanted);
    *out = wanted;
    return TD_OK;
}

td_status td__crew_check(const td__session *s)
{
    int wanted = td__job_parallel_opts(s->job)->devices;
    int ranks = s->comm ? td_comm_size(s->comm) : 1;

    if (wanted == TD__ALL_DEVICES || wanted == 1 || (ranks == wanted && !s->members))
        return TD_OK;
    if (s->members)
        return TD_FAIL(TD_EINVAL, "parallel.devices: %d: not with elastic ranks", wanted);
    return TD_FAIL(TD_EINVAL,
                   "parallel.devices: %d: the job runs on %d rank%s; leave -n out, or start "
                   "as many (a program: td_comm_threads)",
                   wanted, ranks, ranks == 1 ? "" : "s");
}

typedef struct one {
    td__crew_fn *fn;
    void *user;
    td_comm *comm;
    pthread_t thread;
    int rc;
} one;

static void *be(void *of)
{
    one *x = of;
    x->rc = x->fn(x->user, x->comm);
    return NULL;
}

static td_status start(one *all, int n, td_comm **comms)
{
    int begun = 1, error = 0;

    while (begun < n && !error) {
        error = pthread_create(&all[begun].thread, NULL, be, &all[begun]);
        begun += !error;
    }
    if (error)
        td_comm_abort(comms[0], "no thread for another rank");
    else
        be(&all[0]);
    for (int r = 1; r < begun; r++)
        pthread_join(all[r].thread, NULL);
    return error ? TD_FAIL(TD_EIO, "no thread for rank %d: %s", begun, strerror(error)) : TD_OK;
}

td_status td__crew_run(const td__session *s, int n, td__crew_fn *fn, void *user, int *rc)
{
    const td__job_parallel *p = td__job_parallel_opts(s->job);
    const td_comm_opts opts = {.algo = p->algo, .timeout_ms = (uint32_t)(p->timeout * 1000)};
    td_comm **comms = td__calloc((size_t)n, sizeof(td_comm *));
    one *all = td__calloc((size_t)n, sizeof *all);
    td_status st = comms && all ? td_comm_threads(n, &opts, comms)
                                : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n);

    *rc = 0;
    for (int r = 0; r < n && !st; r++)
        all[r] = (one){.fn = fn, .user = user, .comm = comms[r]};
    if (!st) {
        st = start(all, n, comms);
        for (int r = 0; r < n && !*rc; r++)
            *rc = all[r].rc;
        for (int r = 0; r < n; r++)
            td_comm_destroy(comms[r]);
    }
    td__free(comms);
    td__free(all);
    return st;
}
