/* driver.h -- what the files of the stand-in for the driver share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_EMULATOR_DRIVER_H
#define TD_TESTS_EMULATOR_DRIVER_H

#include <cuda.h>

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

/* A call of a function is counted, and fails if a test has asked for that. */
CUresult emulated_called(const char *name);
#define CALLED                                   \
    if (CUresult r_ = emulated_called(__func__)) \
        return r_;

extern thread_local CUcontext emulated_context; /* what the thread works with */

#endif
