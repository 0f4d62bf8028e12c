/* tune.h -- timing the choices that a library offers (TANDEM_CUDA_TUNE), for tables that ship. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_TUNE_H
#define TD_BACKEND_CUDA_TUNE_H

#include "device/cuda/cuda.h"

enum { TD__TUNE_MOST = 64 };
/* Memory and a stream of the device that the calling thread works with. */
typedef struct td__tune {
    CUdeviceptr at[TD__TUNE_MOST];
    int n;
    CUstream stream;
    bool good; /* nothing has failed */
} td__tune;

void td__tune_begin(td__tune *t);
void td__tune_end(td__tune *t);
/* Memory full of numbers of that type between -1 and 1: a GPU is faster with zeros.
 * TD_DTYPE_COUNT: as it is. NULL if there is none. */
void *td__tune_take(td__tune *t, size_t nbytes, td_dtype type);
/* What was taken since t->n was `mark` is given back. */
void td__tune_drop(td__tune *t, int mark);

/* ns of one call, the best of three rounds; INT64_MAX: it fails. */
typedef bool td__tune_fn(void *user, CUstream stream);
int64_t td__tune_time(const td__tune *t, td__tune_fn *call, void *user);

/* Of a version "13.1.0" a table has "13.1": the length of that, and whether it fits. */
int td__tune_version_length(const char *version);
bool td__tune_is_version(const char *in_table, const char *version);

#endif
