/* describe.h -- which GPUs there are, without opening one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_DESCRIBE_H
#define TD_DEVICE_CUDA_DESCRIBE_H

#include "tandem/status.h"

/* The kind of GPU: what kernels are chosen by. */
typedef struct td__cuda_kind {
    char name[96];
    int major, minor; /* compute capability */
    int processors;   /* multiprocessors */
    size_t memory;    /* bytes */
    int driver;       /* 13000: CUDA 13.0 */
} td__cuda_kind;
/* GPUs that the process sees (CUDA_VISIBLE_DEVICES). TD_ENOTSUP: no driver, or no GPU. */
TD_NODISCARD td_status td__cuda_count(int *out);
TD_NODISCARD td_status td__cuda_describe(int index, td__cuda_kind *out);
/* Has it the kernels of this build? TD_ENOTSUP says what it has instead. */
TD_NODISCARD td_status td__cuda_runs_on(const td__cuda_kind *kind);

#endif
