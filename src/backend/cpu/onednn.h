/* onednn.h -- the small part of oneDNN's C API that our kernels share: one engine, memory
 * descriptors from sizes, primitives that run single-threaded on the caller's buffers.
 *
 * A td__dnnl is made at plan time and owns a primitive with its memory objects; running it sets the
 * data pointers and executes. Scratchpads are the caller's (td_kernel.scratch), so nothing is
 * allocated in a step. Kernels are shared by the runners of several threads, memory objects cannot
 * be: there are several sets of them, and a run takes a free one. The CPU backend's enter hook sets
 * the OpenMP team of the thread to one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_ONEDNN_H
#define TD_BACKEND_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "ops/node.h"

enum { TD__DNNL_MAX_ARGS = 8 };

typedef struct td__dnnl {
    dnnl_primitive_t primitive;
    size_t scratch;            /* bytes of scratchpad */
    const char *info;          /* "brg:avx512_core"; lives as long as the primitive */
    int n_args;                /* without the scratchpad */
    struct td__dnnl_set *sets; /* memory objects and stream, one set per concurrent run */
} td__dnnl;

/* The engine; made at first use, with oneDNN's instruction set capped at td__cpu_isa() and below
 * AMX: tile registers are ours. Fails with TD_ENOTSUP if oneDNN has no CPU engine. */
TD_NODISCARD td_status td__dnnl_engine(dnnl_engine_t *out);

/* oneDNN's status as ours; `what` names the call in the error text. */
td_status td__dnnl_status(dnnl_status_t st, const char *what);
#define TD__DNNL_TRY(call) TD_TRY(td__dnnl_status((call), #call))

/* Descriptor of a dense tensor: `strides` in elements, NULL for row-major; any = oneDNN chooses. */
TD_NODISCARD td_status td__dnnl_md(dnnl_memory_desc_t *out, int ndims, const int64_t *dims,
                                   td_dtype dtype, const int64_t *strides);
TD_NODISCARD td_status td__dnnl_md_any(dnnl_memory_desc_t *out, int ndims, const int64_t *dims,
                                       td_dtype dtype);
/* The same from a desc: PLAIN as row-major, NHWC with the strides of its bytes. */
TD_NODISCARD td_status td__dnnl_md_desc(dnnl_memory_desc_t *out, const td_desc *d);

/* A primitive attribute with user scratchpad mode; destroyed by the caller. */
TD_NODISCARD td_status td__dnnl_attr(dnnl_primitive_attr_t *out);

/* Descriptors and primitives are made and destroyed between these, by one thread at a time: oneDNN
 * keeps primitives in a cache of the process, through which one thread gets what another made. Its
 * own order among them is inside a binary that ThreadSanitizer does not see; ours is seen, and
 * plans are made one after another anyway. */
void td__dnnl_lock(void);
void td__dnnl_unlock(void);

/* Make *out from a primitive descriptor (which is destroyed here, also on failure). args[i] are
 * the DNNL_ARG_* that td__dnnl_run gets pointers for, in that order. Under the lock. */
TD_NODISCARD td_status td__dnnl_init(td__dnnl *out, dnnl_primitive_desc_t pd, const int *args,
                                     int n_args);
void td__dnnl_fini(td__dnnl *p); /* takes the lock itself */

/* Execute on ptr[0 .. n_args); scratch has p->scratch bytes. Any number of threads may run one p.
 * Aborts if oneDNN reports an error, which for a primitive that was created means a broken
 * invariant. */
TD_NODISCARD td_status td__dnnl_run(const td__dnnl *p, void *const *ptr, void *scratch);

#endif
