/* cublaslt_impl.h -- what the files about cuBLASLt share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUBLASLT_IMPL_H
#define TD_BACKEND_CUDA_CUBLASLT_IMPL_H

#include <cublasLt.h>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/library.h"

struct td__cublaslt {
    td__held held;
    cublasLtHandle_t handle;
    /* Products that were timed by TANDEM_CUDA_TUNE, each once; one thread plans then. */
    struct {
        uint64_t key;
        int choice;
    } timed[256];
    int n_timed;
#define TD_LT(name) __typeof__(&name) name;
#include "backend/cuda/cublaslt.def"
#undef TD_LT
};

typedef struct td__lt_product {
    td__cuda_action action;
    td__cublaslt *lt; /* the backend's, which outlives its kernels */
    td__cuda_product p;
    int batch, epilogue;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    td__cuda_at workspace;
    size_t workspace_bytes;
} td__lt_product;

/* Fill algo and workspace_bytes of a described product. False: there is no algorithm for it. */
bool td__lt_choose(td_device *d, td__lt_product *l);

#endif
