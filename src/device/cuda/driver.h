/* driver.h -- the CUDA driver, loaded when a GPU is asked for: one binary runs with and without. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_DRIVER_H
#define TD_DEVICE_CUDA_DRIVER_H

#include <cuda.h>

#include "tandem/status.h"

typedef struct td__cuda_driver {
#define TD_CU(name) __typeof__(&name) name;
#include "device/cuda/driver.def"
#undef TD_CU
} td__cuda_driver;

/* Valid after td__cuda_load() has succeeded; never unloaded. */
extern td__cuda_driver td__cu;

/* Load the library and initialise it; the first call does, others get the same answer. TD_ENOTSUP:
 * this machine has no driver or no GPU, and td_last_error() says which. */
TD_NODISCARD td_status td__cuda_load(void);
/* TD_OK for CUDA_SUCCESS, else a failure with the driver's text: "WHAT: out of memory (...)". */
TD_NODISCARD td_status td__cuda_status(CUresult r, const char *what);
/* "out of memory (CUDA_ERROR_OUT_OF_MEMORY)" */
const char *td__cuda_text(CUresult r, char *to, size_t room);

#endif
