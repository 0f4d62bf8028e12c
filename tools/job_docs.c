/* job_docs -- docs/job.md from the tables of src/job, to stdout. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/job.h"

int main(void)
{
    td_status st = td__job_help(stdout, NULL, true);

    if (st)
        fprintf(stderr, "job_docs: %s\n", td_last_error());
    return st ? 1 : 0;
}
