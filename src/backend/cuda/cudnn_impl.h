/* cudnn_impl.h -- a graph of cuDNN under construction, for the files that make and plan it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUDNN_IMPL_H
#define TD_BACKEND_CUDA_CUDNN_IMPL_H

#include "backend/cuda/cudnn_library.h"

#if TD_CUDNN
typedef cudnnBackendDescriptor_t descriptor;

enum { MOST_TENSORS = 64, MOST_OPS = 48, MOST_MADE = 256 };

typedef struct td__dnn_tensor {
    descriptor desc;
    td__cuda_at at;
    float value;
    bool inner, by_value;
    bool summed; /* blocks add to it, in any order */
    td_dtype type;
    size_t nbytes;
} td__dnn_tensor;

struct td__dnn {
    td__cuda_action action;
    td__cudnn *l; /* the backend's, which outlives its kernels */
    td__dnn_tensor tensors[MOST_TENSORS];
    descriptor ops[MOST_OPS], made[MOST_MADE];
    descriptor plan; /* the library's */
    int n_tensors, n_ops, n_made;
    uint64_t key;
    bool rounded; /* it has operands in bf16 */
    bool nondeterministic;
    bool failed;
    td__cuda_at workspace;
};

void td__dnn_check(td__dnn *d, cudnnStatus_t st, const char *what);
descriptor td__dnn_make(td__dnn *d, cudnnBackendDescriptorType_t type);
void td__dnn_set(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *value);
void td__dnn_set_desc(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                      descriptor value);
void td__dnn_finish(td__dnn *d, descriptor made, const char *what);

/* Carry out `plan` of the graph: at[i] is the memory of tensor i. Under the library's lock. */
cudnnStatus_t td__dnn_execute(const td__dnn *d, descriptor plan, const void *const *at,
                              const void *workspace, CUstream stream);
/* Fill d->plan, made now or before, and *workspace. Under the library's lock. False: there is none
 * for this graph. */
bool td__dnn_choose(td_device *device, td__dnn *d, int64_t *workspace);
#endif
#endif
