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

static td_status reduce(td__reducer *r, int k, float *data)
{
    size_t count = r->o.buckets[k].count;
    r->sent_nbytes += count * sizeof *data;
    r->plain_nbytes += count * sizeof *data;
    return td_allreduce(r->o.comm, data, data, count, TD_F32, TD_REDUCE_SUM,
                        &(td_coll_opts){.algo = r->o.algo});
}

const td__reducer_ops td__reducer_allreduce = {
    .name = "allreduce",
    .help = "the plain sum, by any algorithm",
    .create = create,
    .destroy = destroy,
    .reduce = reduce,
};
