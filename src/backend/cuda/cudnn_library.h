/* cudnn_library.h -- cuDNN once it is loaded (cudnn_load.c), for the files that call it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUDNN_LIBRARY_H
#define TD_BACKEND_CUDA_CUDNN_LIBRARY_H

#include <pthread.h>

#include "backend/cuda/cudnn.h"
#include "backend/cuda/library.h"

#if TD_CUDNN
enum { TD__CUDNN_PLANS = 512 };

/* Plans take a tenth of a second; layers of one shape share one. */
typedef struct td__cudnn_plan {
    uint64_t key; /* of the graph: a hash of all that it is made of */
    cudnnBackendDescriptor_t plan;
    int64_t workspace;
} td__cudnn_plan;

struct td__cudnn {
    td__held held;
    td__cudnn_plan plans[TD__CUDNN_PLANS];
    int n_plans;
    pthread_mutex_t lock; /* of the handle and the plans: whoever uses it, or adds one */
    cudnnHandle_t handle;
#define TD_DNN(name) __typeof__(&name) name;
#include "backend/cuda/cudnn.def"
#undef TD_DNN
};
#endif
#endif
