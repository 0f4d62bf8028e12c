/* cuda_none.c -- a build without CUDA: its backend is known by name, and has no GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"
#include "base/fail.h"

static td_status count(int *out)
{
    *out = 0;
    return TD_FAIL(TD_ENOTSUP, "this build has no CUDA; configure it where nvcc is");
}

static td_status describe(int number, td__gpu_info *out)
{
    (void)number;
    *out = (td__gpu_info){.memory = 0};
    return TD_FAIL(TD_ENOTSUP, "this build has no CUDA; configure it where nvcc is");
}

static td_status create(const char *name, td_backend **out)
{
    (void)name;
    *out = NULL;
    return TD_FAIL(TD_ENOTSUP,
                   "backend cuda: this build has none; configure it where nvcc is (docs/gpu.md), "
                   "or set train.backend to cpu");
}

const td__gpus td__cuda_gpus = {.count = count, .describe = describe, .create = create};

td_status td__cuda_create(td_backend **out)
{
    return create("cuda", out);
}
