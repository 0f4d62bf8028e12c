/* reduce_allreduce.c -- the plain sum, by whatever algorithm is asked for or is the cheapest. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/reducer.h"

static td_status create(const td__reducer_opts *o, td__reducer **out)
{
    td__reducer *r = *out = td__calloc(1, sizeof *r);
    if (!r)
        return TD_FAIL(TD_ENOMEM, "no memory for a reducer");
    *r = (td__reducer){.ops = &td__reducer_allreduce, .o = *o};
    return TD_OK;
}

static void destroy(td__reducer *r)
{
    td__free(r);
}

const td__reducer_ops td__reducer_allreduce = {
    .name = "allreduce",
    .help = "the plain sum, by any algorithm",
    .create = create,
    .destroy = destroy,
    .reduce = td__reduce_plain,
};
