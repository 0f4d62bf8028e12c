/* cudnn_choose.c -- which engine of cuDNN carries out a graph: a function of the graph, of the kind
 * of GPU and of the library's version, never of a timing in the run, so that bits are the same in
 * every run.
 *
 * cuDNN's heuristic names engines, best first as it believes. plans.def has, for graphs that were
 * timed, which of them was the fastest; others take the first that can be used.
 * TANDEM_CUDA_TUNE=FILE times those that a run plans, and appends rows for the table to FILE. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn_impl.h"

#if TD_CUDNN
#include <stdio.h>
#include <string.h>

#include "backend/cuda/tune.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"

enum { MOST_CONFIGS = 16 };
static const int64_t MOST_WORKSPACE = 2LL << 30;

typedef struct row {
    const char *gpu, *version; /* "NVIDIA H200", "9.19" */
    uint64_t key;
    int choice;
} row;

static const row ROWS[] = {
#define TD_PLAN(gpu, version, key, choice) {gpu, version, key, choice},
#include "backend/cuda/plans.def"
#undef TD_PLAN
};

/* Of graphs whose bits may change more engines can be taken, and another one may be the fastest. */
static uint64_t key_of(const td__dnn *d)
{
    return d->key ^ (d->nondeterministic ? 0x9e3779b97f4a7c15u : 0);
}

static int find_key(td_device *device, const td__dnn *d, uint64_t key)
{
    const char *gpu = td__cuda_kind_of(device)->name;
    for (int i = 0; i < TD_LEN(ROWS); i++)
        if (ROWS[i].key == key && strcmp(ROWS[i].gpu, gpu) == 0 &&
            td__tune_is_version(ROWS[i].version, d->l->held.version))
            return ROWS[i].choice;
    return -1;
}

static int find_row(td_device *device, const td__dnn *d)
{
    int found = find_key(device, d, key_of(d));
    return found < 0 ? find_key(device, d, d->key) : found;
}

/* Engines that are not used: sums in an order that changes from run to run, sums of lower
 * precision, and for f32 what rounds the operands or computes in another domain. */
static bool unwanted(const td__dnn *d, cudnnBackendNumericalNote_t note)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return !d->nondeterministic;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return !d->rounded;
    default: return false;
    }
}

static bool takes(td__dnn *d, descriptor config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, engines = 0;
    bool good = true;
    descriptor engine = td__dnn_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (d->failed ||
        d->l->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines,
                                       (void *)&engine) ||
        d->l->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, TD_LEN(notes), &n, notes))
        return false;
    for (int64_t i = 0; i < n; i++)
        good = good && !unwanted(d, notes[i]);
    return good;
}

/* The plan of this choice, if it has one that can be; the caller's. */
static descriptor plan_of(td__dnn *d, descriptor config, int64_t *workspace)
{
    td__cudnn *l = d->l;
    descriptor plan = NULL;
    int64_t n;
    if (!takes(d, config) ||
        l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
        return NULL;
    if (!l->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                     (const void *)&l->handle) &&
        !l->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&config) &&
        !l->cudnnBackendFinalize(plan) &&
        !l->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &n, workspace) &&
        *workspace <= MOST_WORKSPACE)
        return plan;
    l->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* The engines that a heuristic names. */
static int ask(td__dnn *d, descriptor graph, cudnnBackendHeurMode_t mode,
               descriptor configs[MOST_CONFIGS])
{
    int64_t n = 0;
    descriptor heuristic = td__dnn_make(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    td__dnn_set_desc(d, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    td__dnn_set(d, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    td__dnn_finish(d, heuristic, "a heuristic");
    for (int i = 0; i < MOST_CONFIGS; i++)
        configs[i] = td__dnn_make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!d->failed)
        td__dnn_check(d,
                      d->l->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS,
                                                     &n, (void *)configs),
                      "engines");
    return d->failed ? 0 : (int)n;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

typedef struct timed {
    const td__dnn *d;
    descriptor plan;
    const void *at[MOST_TENSORS];
    const void *workspace;
} timed;

static bool call(void *user, CUstream stream)
{
    const timed *t = user;
    return !td__dnn_execute(t->d, t->plan, t->at, t->workspace, stream);
}

/* The fastest of the engines, written to `file`. */
static int tune(const char *file, td_device *device, td__dnn *d, const descriptor *configs, int n)
{
    td__tune t;
    timed call_of = {.d = d};
    int64_t best = INT64_MAX, first = 0;
    int choice = -1;
    uint64_t key = key_of(d); /* engines are no part of it: the caller restores it */
    td__tune_begin(&t);
    for (int i = 0; i < d->n_tensors; i++)
        if (!d->tensors[i].inner && !d->tensors[i].by_value)
            call_of.at[i] = td__tune_take(&t, d->tensors[i].nbytes, d->tensors[i].type);
    for (int i = 0; i < n && t.good; i++) {
        int64_t workspace = 0;
        call_of.plan = plan_of(d, configs[i], &workspace);
        if (!call_of.plan)
            continue;
        int mark = t.n;
        call_of.workspace = td__tune_take(&t, (size_t)workspace + 256, TD_DTYPE_COUNT);
        int64_t ns = t.good ? td__tune_time(&t, call, &call_of) : INT64_MAX;
        td__tune_drop(&t, mark);
        d->l->cudnnBackendDestroyDescriptor(call_of.plan);
        first = choice < 0 ? ns : first;
        if (ns < best - best / 100) { /* a later one must be better by more than noise */
            best = ns;
            choice = i;
        }
    }
    td__tune_end(&t);
    FILE *to = choice >= 0 ? fopen(file, "a") : NULL;
    if (to) {
        fprintf(to, "TD_PLAN(\"%s\", \"%.*s\", 0x%016llx, %d) /* %.3f of %.3f */\n",
                td__cuda_kind_of(device)->name, td__tune_version_length(d->l->held.version),
                d->l->held.version, (unsigned long long)key, choice, (double)best * 1e-6,
                (double)first * 1e-6);
        fclose(to);
    }
    return choice;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static bool choose(td_device *device, td__dnn *d, descriptor graph, cudnnBackendHeurMode_t mode,
                   int wanted, int64_t *workspace)
{
    descriptor configs[MOST_CONFIGS];
    const char *file = td__env_get(TD_ENV_CUDA_TUNE);
    uint64_t key = d->key;
    int n = ask(d, graph, mode, configs);
    d->key = key;
    if (file && *file)
        wanted = tune(file, device, d, configs, n);
    if (wanted >= 0 && wanted < n)
        d->plan = plan_of(d, configs[wanted], workspace);
    for (int i = 0; i < n && !d->plan; i++)
        d->plan = plan_of(d, configs[i], workspace);
    TD_LOG(DEBUG, BACKEND, "cuDNN: %d engines of heuristic %d, %s", n, (int)mode,
           d->plan ? "one taken" : "none taken");
    return d->plan;
}

bool td__dnn_choose(td_device *device, td__dnn *d, int64_t *workspace)
{
    descriptor graph = td__dnn_make(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    td__dnn_set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, d->n_ops,
                (const void *)d->ops);
    td__dnn_set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                (const void *)&d->l->handle);
    uint64_t key = key_of(d);
    for (int i = 0; i < d->l->n_plans; i++)
        if (d->l->plans[i].key == key) {
            d->plan = d->l->plans[i].plan;
            *workspace = d->l->plans[i].workspace;
            return true;
        }
    int wanted = find_row(device, d);
    td__dnn_finish(d, graph, "a graph");
    if (d->failed || d->l->n_plans == TD__CUDNN_PLANS ||
        (!choose(device, d, graph, CUDNN_HEUR_MODE_A, wanted, workspace) &&
         !choose(device, d, graph, CUDNN_HEUR_MODE_FALLBACK, -1, workspace)))
        return false;
    d->l->plans[d->l->n_plans++] = (td__cudnn_plan){key, d->plan, *workspace};
    return true;
}
#endif
