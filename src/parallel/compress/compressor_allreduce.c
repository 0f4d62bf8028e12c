/* reduce_allreduce.c -- the plain sum, by whatever algorithm is asked for or is the cheapest. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/compress/compressor.h"

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    td__compressor *r = *out = td__calloc(1, sizeof *r);
    if (!r)
        return TD_FAIL(TD_ENOMEM, "no memory for a compressor");
    *r = (td__compressor){.ops = &td__compressor_allreduce, .o = *o};
    return TD_OK;
}

static void destroy(td__compressor *r)
{
    td__free(r);
}

const td__compressor_ops td__compressor_allreduce = {
    .name = "allreduce",
    .help = "the plain sum, by any algorithm",
    .create = create,
    .destroy = destroy,
    .reduce = td__reduce_plain,
};
