/* elastic_world.h -- an elastic run as threads of one process: every "process" is a thread with a
 * trainer of its own; a director forms generations of those that are there. Faults kill a thread
 * by failing the call it is in: it never takes part again. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_ELASTIC_WORLD_H
#define TD_TESTS_SUPPORT_ELASTIC_WORLD_H

#include "train/trainer.h"

enum { ELASTIC_MOST = 24 };

typedef struct elastic_plan {
    const td__model *model;
    td__data *data;
    td__train_opts opts; /* without members and faults */
    /* (optional) What process number `id`, in the order in which they start, has different. */
    void (*differs)(int id, td__train_opts *o);
    const char *dir;     /* of metrics.jsonl; NULL: none is written */
    int size;            /* processes at the start */
    const char *faults;  /* of every process; NULL: none */
    bool replace;        /* a new process for each that dies */
    bool takes_next;     /* who dies takes the rank after it along, at once */
    uint64_t all_die_in; /* generation in which who dies takes all others along; 0: none */
    bool newest_first;   /* ranks are given from the newest process on: rank 0 moves */
    /* Sizes to come to: when the step is done on rank 0, processes join or are told to go. */
    struct {
        uint64_t step;
        int size;
    } change[4];
    /* (optional) Rank 0 has done a step; its line is about to be written. */
    void (*rank_0_did)(const struct elastic_plan *plan, uint64_t step);
    uint64_t stop_one_after; /* process 0 is asked to stop after that step; 0: no */
    /* The checkpoint of that step (0: none), which a "stop" hits, goes on being written only when
     * its process is about to leave the generation, after the next step. */
    uint64_t slow_disk_at;
    uint64_t stop_all_after; /* the whole job is, once rank 0 has done that step; 0: no */
} elastic_plan;

typedef struct elastic_end {
    int died, drained, finished, failed; /* processes */
    int two_writers; /* processes that left while they might still write that checkpoint */
    uint64_t generations;
    td__train_result result; /* of those that finished: the same on all, or the test fails */
    td__eval_result test;
    td_status failure; /* of the first that failed otherwise; TD_OK: none */
    char text[400];
} elastic_end;

/* Fails the test if it does not end in time. */
void elastic_run(const elastic_plan *plan, elastic_end *out);

/* metrics.jsonl in dir: steps 1 to `steps` and the validations after every second one, each once,
 * in order, then one end. */
void elastic_check_metrics(const char *dir, int steps);

#endif
