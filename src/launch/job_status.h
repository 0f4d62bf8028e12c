/* job_status.h -- what a launcher knows of its job, for `tandem status`: what the agents said last
 * of their processes, and what happened lately. Written as one JSON object:
 *
 *     {"seconds": 41.9, "elastic": true, "generation": 9, "ranks": 15, "why": "...",
 *      "min_ranks": 1, "most": 16, "spares": 0, "restarts": 5, "failures": 3,
 *      "hosts": [{"name": "a", "up": true, "age": 0.2, "says": {"host": "a", "leads": true,
 *                 "generation": 9, "wanted": 16, "started": 19, "processes": [...]}}, ...],
 *      "events": [{"ago": 12.1, "text": "rank 4 (host a, pid 7) was ..."}, ...]}
 *
 * One thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_JOB_STATUS_H
#define TD_LAUNCH_JOB_STATUS_H

#include "base/text.h"

enum { TD_STATUS_EVENTS = 8, TD_STATUS_TEXT = 400 };

typedef struct td__job_status td__job_status;
TD_NODISCARD td_status td__job_status_create(int max_agents, td__job_status **out);
void td__job_status_destroy(td__job_status *s); /* NULL is allowed */

/* Agent `index` says this JSON object of its host. */
void td__job_status_host(td__job_status *s, int index, const char *json);
/* One line of what happened; a failure of a process is counted. ranks: how many there are from now
 * on; -1: that comes later. */
void td__job_status_event(td__job_status *s, const char *text, bool failure, int ranks);
/* From now on events are also lines of ranks.jsonl in the run's folder, for its report
 * (run/report_timeline.c), those that are known already first. A file that cannot be written is
 * done without. */
void td__job_status_log(td__job_status *s, const char *dir);

typedef struct td__job_facts {
    bool elastic;
    uint64_t generation;
    int ranks;
    const char *why; /* of the generation */
    int min_ranks, most, spares;
    int restarts; /* fixed: all; elastic: in a row without a step forward */
    int n_agents;
    const char *const *host; /* (n_agents) names */
    const bool *up;          /* (n_agents) */
} td__job_facts;
void td__job_status_write(const td__job_status *s, const td__job_facts *f, td__text *out);

#endif
