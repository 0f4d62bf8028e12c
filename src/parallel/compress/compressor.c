/* compressor.c -- the list of compressors, and the sum without any compression. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/compress/compressor.h"

#include <math.h>
#include <string.h>

#include "parallel/kernels/compress.h"

static const td__compressor_ops *const compressors[] = {
#define TD_COMPRESSOR(name) &td__compressor_##name,
#include "parallel/compress/compressors.def"
#undef TD_COMPRESSOR
};
enum { COMPRESSORS = sizeof compressors / sizeof *compressors };

const td__compressor_ops *td__compressor_find(const char *name)
{
    for (int i = 0; i < COMPRESSORS; i++)
        if (strcmp(compressors[i]->name, name) == 0)
            return compressors[i];
    return NULL;
}

const char *td__compressor_list(int i)
{
    return i >= 0 && i < COMPRESSORS ? compressors[i]->name : NULL;
}

uint64_t td__reduce_sum_nbytes(const td__compressor *r, size_t count)
{
    uint64_t n = (uint64_t)td_comm_size(r->o.comm);
    return 2 * count * sizeof(float) * (n - 1) / n;
}

td_status td__reduce_plain(td__compressor *r, int k, float *data)
{
    size_t count = r->o.buckets[k].count;
    r->sent_nbytes += td__reduce_sum_nbytes(r, count);
    r->plain_nbytes += td__reduce_sum_nbytes(r, count);
    if (r->o.nccl)
        return td__nccl_sum(r->o.nccl, data, count);
    return td_allreduce(r->o.comm, data, data, count, TD_F32, TD_REDUCE_SUM,
                        &(td_coll_opts){.algo = r->o.algo});
}

float td__reduce_clip(const td__compressor *r, const float *local, size_t count)
{
    if (!(r->o.clip_norm > 0))
        return 1;
    double norm = sqrt(TD_ISA_PICK(td__cpu_isa(), td__sum_squares)(local, count));
    double most = r->o.clip_norm / sqrt(td_comm_size(r->o.comm));
    return norm > most && isfinite(norm) ? (float)(most / norm) : 1;
}

const char *td__compress_word(int i)
{
    if (i == 0)
        return "none";
    for (int k = 0; td__compressor_list(k); k++)
        if (td__compressor_find(td__compressor_list(k))->compresses && --i == 0)
            return td__compressor_list(k);
    return NULL;
}
