/* source_memory.c -- samples that the program which runs the job has in its memory, or makes:
 * td_job_opts names them (tandem/train.h), and the trainer opens its parts from there. Nobody else
 * has any: opening this source as one is the error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "data/source.h"

static td_status memory_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    (void)o;
    (void)part;
    *out = NULL;
    return TD_FAIL(TD_EINVAL, "data.source: memory: the samples are those of a C program, which "
                              "gives them as train, valid and test of td_job_opts; there are none "
                              "here");
}

const td__source_def td__source_memory = {
    .name = "memory",
    .help = "samples of the C program that runs the job: train, valid, test of td_job_opts",
    .reads = "",
    .open = memory_open,
};
