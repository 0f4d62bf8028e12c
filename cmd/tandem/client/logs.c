/* logs.c -- `tandem logs`: what a job of a training service has written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/client.h"

typedef struct printing {
    unsigned long long at; /* bytes printed so far */
} printing;

static bool print(void *arg, const void *data, size_t nbytes)
{
    printing *p = arg;
    p->at += nbytes;
    return fwrite(data, 1, nbytes, stdout) == nbytes && fflush(stdout) == 0;
}

static int run(const td__args *a)
{
    td__client c = {0};
    printing p = {0};
    long member, attempt;
    bool follow = td__args_has(a, "follow"), broken = true;
    int job = td__client_job(a, td__args_at(a, 0));
    if (!job || !td__args_int(a, "member", 0, 65535, 0, &member) ||
        !td__args_int(a, "attempt", 0, 1000000, 0, &attempt))
        return TD_EXIT_USAGE;
    int rc = td__client_open(a, &c);
    /* A lost connection, or one that was silent for long, goes on where it was. */
    for (int tries = 0; !rc && broken; tries++) {
        char path[160];
        unsigned long long before = p.at;
        snprintf(path, sizeof path, "/v1/jobs/%d/logs?member=%ld&attempt=%ld&from=%llu&follow=%d",
                 job, member, attempt, p.at, follow);
        rc = td__client_stream(&c, path, print, &p, &broken);
        if (!rc && broken && !td__client_pause(&c, tries))
            break;
        if (p.at > before)
            tries = 0;
    }
    td__client_close(&c);
    return rc;
}

static const td__flag FLAGS[] = {
    {"follow", 'f', NULL, "wait for more until the job ends", NULL},
    {"member", 'm', "N", "which member of the group; 0", NULL},
    {"attempt", 0, "N", "which launch, from 1; the last", NULL},
    TD_CLIENT_FLAGS,
    {0},
};
static const char *const EXAMPLES[] = {"tandem logs -f 12", "follow the output of job 12", NULL};

const td__command td__command_logs = {
    .name = "logs",
    .args = "JOB",
    .summary = "print what a job of a training service has written",
    .text = "Output and errors of one member of the job's group, in the order in which they came.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
