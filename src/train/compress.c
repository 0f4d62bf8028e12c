/* compress.c -- see compress.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/compress.h"

#include <string.h>

#include "base/fail.h"

enum { WARMUP_SHARE = 10 };

const char *td__compress_word(int i)
{
    if (i == 0)
        return "none";
    for (int k = 0; td__compressor_list(k); k++)
        if (td__compressor_find(td__compressor_list(k))->compresses && --i == 0)
            return td__compressor_list(k);
    return NULL;
}

td_status td__compress_check(const td__train_opts *o)
{
    const td__compressor_ops *ops = o->compressor ? td__compressor_find(o->compressor) : NULL;
    const char *optimizer = o->optim.name ? o->optim.name : "sgd";
    if (!o->compressor)
        return TD_OK;
    if (!ops)
        return TD_FAIL(TD_EINVAL, "there is no way '%s' to reduce gradients", o->compressor);
    if (ops->compresses && o->zero > 0)
        return TD_FAIL(TD_EINVAL, "%s needs whole gradients on all ranks: parallel.zero must be 0",
                       ops->name);
    if (ops->sgd_only && strcmp(optimizer, "sgd") != 0)
        return TD_FAIL(TD_EINVAL,
                       "%s needs the optimizer sgd: what it sends late adds up where updates are "
                       "sums of gradients, which those of %s are not; bf16, f16 and powersgd go "
                       "with all",
                       ops->name, optimizer);
    if (ops->takes_momentum && o->optim.momentum > 0 && o->optim.dampening > 0)
        return TD_FAIL(TD_EINVAL, "%s applies the momentum itself, without dampening: leave it out",
                       ops->name);
    return TD_OK;
}

td_status td__compress_resolve(td__train_opts *o, int ranks)
{
    TD_TRY(td__compress_check(o));
    if (ranks == 1)
        o->compressor = NULL;
    o->compress_with.seed = o->seed;
    if (!o->compressor || !td__compressor_find(o->compressor)->takes_momentum)
        return TD_OK;
    o->compress_with.momentum = o->optim.momentum;
    o->compress_with.nesterov = o->optim.nesterov;
    o->compress_with.clip_norm = o->optim.clip_norm;
    o->optim.weight_decay /= 1 - o->optim.momentum;
    o->optim.momentum = TD_ZERO;
    o->optim.nesterov = false;
    o->optim.clip_norm = TD_ZERO;
    return TD_OK;
}

int64_t td__compress_warmup(const td__train_opts *o, uint64_t steps)
{
    int64_t given = o->compress_with.warmup_steps;
    if (given != TD__WARMUP_AUTO || !o->compressor)
        return given > 0 ? given : 0;
    return strcmp(o->compressor, "topk") == 0 ? (int64_t)(steps / WARMUP_SHARE) : 0;
}
