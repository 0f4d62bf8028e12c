/* backend_auto.h -- backends by name: what is known of one, which one a job gets that leaves the
 * choice to the machine, and what bits belong to besides the processor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_BACKEND_AUTO_H
#define TD_GRAPH_BACKEND_AUTO_H

#include <stdbool.h>
#include <stddef.h>

#include "tandem/status.h"

typedef struct td_backend td_backend; /* graph/backend.h */

/* The GPUs of a backend: those that this process may use, by number. */
typedef struct td__gpu_info {
    char what[224]; /* "NVIDIA H200, compute capability 9.0, ..." */
    char name[96];  /* "NVIDIA H200" */
    size_t memory;  /* bytes */
    char bits[224]; /* what bits belong to: see td__backend_gpu() */
} td__gpu_info;

typedef struct td__gpus {
    /* At least one; TD_ENOTSUP says why there is none. */
    TD_NODISCARD td_status (*count)(int *out);
    TD_NODISCARD td_status (*describe)(int number, td__gpu_info *out);
    /* (optional) TD_ENOTSUP says why its kernels do not run on that one. */
    TD_NODISCARD td_status (*runs_on)(int number);
    /* (optional) Libraries that it is fast with: which are here, which are missing. */
    void (*libraries)(char *out, size_t room);
    TD_NODISCARD td_status (*create)(const char *name, td_backend **out); /* on "cuda:1" */
} td__gpus;

/* What is known of a backend by its name, before there is one. */
typedef struct td_backend_traits {
    bool host_reads;      /* the host may read and write the memory of its device */
    bool on_processor;    /* kernels run on threads of the host: ranks there share them, and bits
                           * belong to the kind of processor */
    const td__gpus *gpus; /* what it runs on; NULL: the processor, in some way */
} td_backend_traits;

td_backend_traits td__backend_traits(const char *name); /* NULL, or an unknown one: as cpu */
const char *td__backend_name(int i);                    /* of backends.def; NULL after the last */
/* Those that train.backend can be: "cpu cuda ... auto". */
extern const char td__backend_words[];

/* What "auto" stands for on this machine: the first backend whose first GPU can run its kernels,
 * else "cpu"; a line of the log says why. */
const char *td__backend_auto(void);

/* The backend as a rank has it that is number local_rank of those on its host: of several GPUs,
 * ranks take one each, in turn ("cuda:1"). */
void td__backend_for(const char *name, int local_rank, char *out, size_t room);

/* "NVIDIA H200, driver for CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.19.0": the kind of GPU of backend
 * `name`, with the libraries that its programs of this process have loaded. "": it uses none. */
void td__backend_gpu(const char *name, char *out, size_t room);
/* Are two of those the same GPU and driver, and libraries that both name of the same version? A
 * process names what any of its jobs has loaded. */
bool td__backend_same_gpu(const char *a, const char *b);

#endif
