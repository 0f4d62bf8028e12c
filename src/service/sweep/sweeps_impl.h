/* sweeps_impl.h -- the sweeps of a service and their trials; what they are on disk
 * (sweeps_store.c) and to clients. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SWEEP_SWEEPS_IMPL_H
#define TD_SERVICE_SWEEP_SWEEPS_IMPL_H

#include "rpc/loop.h"
#include "service/sweep/sweep.h"
#include "service/sweep/sweeps.h"

#define TD_SWEEP_STATE_MAP(X) \
    X(RUNNING, "running")     \
    X(DONE, "succeeded")      \
    X(FAILED, "failed")       \
    X(CANCELLED, "cancelled")

typedef enum td__sweep_state {
#define X(id, name) TD_SWEEP_STATE_##id,
    TD_SWEEP_STATE_MAP(X)
#undef X
        TD_SWEEP_STATE_COUNT
} td__sweep_state;

const char *td__sweep_state_name(td__sweep_state s);

typedef struct td__trial {
    int32_t job;
    td__job_state state;
    bool stopped; /* by asha */
    bool has;     /* a value */
    double best;  /* of all that it has reported */
    int64_t step; /* of the last report */
    int rung;     /* rungs of asha that it has passed */
    uint64_t at;  /* bytes of its metrics that were read */
    bool reading, again;
} td__trial;

typedef struct td__sweep_run {
    struct td__sweep_run *next;
    int64_t id, created_ms;
    td__sweep *plan;
    char *text, *user; /* as submitted, and by whom */
    bool admin;
    td__sweep_state state;
    char message[256];
    td__trial *trials; /* plan->trials of them */
    int started;       /* have a job; their numbers rise */
    td__asha asha;
    bool changed; /* to be written to the store */
} td__sweep_run;

typedef struct td__sweep_reader td__sweep_reader;

struct td__sweeps {
    td__service *service;
    td__subscription *sub;
    td__sweep_run *runs; /* newest first */
    td__sweep_reader *readers;
    td__task task;
    bool posted;
};

/* Trials that have ended. */
int td__sweep_finished(const td__sweep_run *r);
/* The best trial; NULL: none has a value yet. */
const td__trial *td__sweep_best(const td__sweep_run *r);

TD_NODISCARD td_status td__sweep_run_create(int64_t id, const char *text, size_t nbytes,
                                            td__sweep_run **out);
void td__sweep_run_destroy(td__sweep_run *r); /* NULL is allowed */
TD_NODISCARD td_status td__sweep_run_save(td__sweeps *w, td__sweep_run *r);
TD_NODISCARD td_status td__sweeps_load(td__sweeps *w);
void td__sweep_run_json(const td__sweep_run *r, td__text *out);

#endif
