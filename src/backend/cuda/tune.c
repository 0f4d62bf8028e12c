/* tune.c -- see tune.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/tune.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"

void td__tune_begin(td__tune *t)
{
    *t = (td__tune){.good = true};
    t->good = !td__cu.cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING);
}

void td__tune_drop(td__tune *t, int mark)
{
    while (t->n > mark)
        td__cu.cuMemFree_v2(t->at[--t->n]);
}

void td__tune_end(td__tune *t)
{
    td__tune_drop(t, 0);
    if (t->stream)
        td__cu.cuStreamDestroy_v2(t->stream);
}

static void fill(CUdeviceptr to, size_t nbytes, td_dtype type, CUstream stream)
{
    static uint32_t some[1 << 18];
    uint32_t s = 1;
    for (int i = 0; i < TD_LEN(some); i++) {
        s = s * 1664525u + 1013904223u;
        uint32_t sign = s & 0x80008000u, low = 0x3f80u - (s >> 8 & 0x1ffu);
        some[i] = type == TD_BF16 ? sign | low << 16 | (0x3f80u - (s >> 20 & 0x1ffu))
                                  : (sign & 0x80000000u) | low << 16 | (s >> 4 & 0xffffu);
    }
    for (size_t at = 0; at < nbytes; at += sizeof some) {
        size_t n = nbytes - at < sizeof some ? nbytes - at : sizeof some;
        td__cu.cuMemcpyAsync(to + at, (CUdeviceptr)(uintptr_t)some, n, stream);
    }
    td__cu.cuStreamSynchronize(stream);
}

void *td__tune_take(td__tune *t, size_t nbytes, td_dtype type)
{
    CUdeviceptr at = 0;
    TD_ASSERT(t->n < TD__TUNE_MOST, "%d blocks", t->n);
    t->good = t->good && td__cu.cuMemAlloc_v2(&at, nbytes) == CUDA_SUCCESS;
    if (!t->good)
        return NULL;
    t->at[t->n++] = at;
    if (type != TD_DTYPE_COUNT)
        fill(at, nbytes, type, t->stream);
    return (void *)at;
}

int64_t td__tune_time(const td__tune *t, td__tune_fn *call, void *user)
{
    enum {
        CALLS = 10,
        ROUNDS = 3,
        ROUND_NS = 10000000
    }; /* of one that takes longer: fewer calls */
    int64_t best = INT64_MAX, calls = 2;
    for (int r = 0; r <= ROUNDS; r++) { /* the first is not counted */
        uint64_t start = td__clock_ns();
        for (int64_t i = 0; i < calls; i++)
            if (!call(user, t->stream))
                return INT64_MAX;
        if (td__cu.cuStreamSynchronize(t->stream))
            return INT64_MAX;
        int64_t each = (int64_t)(td__clock_ns() - start) / calls;
        best = r && each < best ? each : best;
        if (!r)
            calls = each * CALLS <= ROUND_NS ? CALLS : each * 2 <= ROUND_NS ? ROUND_NS / each : 2;
    }
    return best;
}

int td__tune_version_length(const char *version)
{
    const char *last = strrchr(version, '.');
    return (int)(last ? last - version : (long)strlen(version));
}

bool td__tune_is_version(const char *in_table, const char *version)
{
    size_t n = (size_t)td__tune_version_length(version);
    return strlen(in_table) == n && strncmp(in_table, version, n) == 0;
}
