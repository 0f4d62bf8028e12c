/* library.h -- where the libraries of CUDA are found. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_LIBRARY_H
#define TD_BACKEND_CUDA_LIBRARY_H

#include <stddef.h>

#include "tandem/status.h"

/* The first of the n names that is in a folder of TANDEM_CUDA_LIBS, on the loader's path or in
 * /usr/local/cuda, opened by dlopen; NULL: none is. */
void *td__cuda_open_library(const char *const *names, int n);

/* A function of a library and where its address goes in a struct. */
typedef struct td__library_function {
    const char *name;
    size_t at;
} td__library_function;
/* Fill `to`; `what` is the library's name in an error. */
TD_NODISCARD td_status td__cuda_find_functions(void *library, const char *what,
                                               const td__library_function *f, int n, void *to);

#endif
