/* backend.h -- what the runner needs of a backend. Lives beside its user; backends implement it.
 *
 * A backend turns every node of a program into a kernel once, at plan time: it picks the
 * implementation, creates primitives and says how much memory it wants. A step is then a walk over
 * an array of kernels; nothing is chosen, created or allocated there. The choice of an
 * implementation is a pure function of descs, attributes and the kind of processor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_BACKEND_H
#define TD_GRAPH_BACKEND_H

#include "device/device.h"
#include "ops/op.h"

typedef struct td_backend td_backend;
typedef struct td_kernel td_kernel;

/* One call of a kernel. Pointers are 64-byte aligned and of the backend's device, where the run's
 * key lies as well; tensors are dense, in the descs' layout. */
typedef struct td_kernel_call {
    const void *const *in;
    void *const *out;
    void *scratch; /* kernel->scratch bytes; contents undefined before and after */
    void *packed;  /* kernel->packed bytes; kept from prepare to the next prepare */
    const td_kernel *kernel;
    const td_run_ctx *ctx;
    td_stream *stream; /* that carries it out */
} td_kernel_call;

struct td_kernel {
    const td_node *node;
    const char *impl; /* "amx gemm", "onednn brgconv nhwc": for profiles and logs */
    void (*run)(const td_kernel_call *c);
    /* (optional) Runs once after every change of the params: fills c->packed from the inputs that
     * are params (weights rounded, transposed, tiled). Only those in[] may be read; plan has set
     * `packs`, the bit mask of the inputs it reads. */
    void (*prepare)(const td_kernel_call *c);
    unsigned packs;
    /* (optional) How in[1], a param, lies at the beginning of `packed`: kernels that say the same
     * of the same param share it, and it is packed once. */
    const char *packing;
    size_t scratch, packed;
    bool not_taped;            /* it does more than put work into the stream */
    void *state;               /* the backend's own: primitives, blockings */
    void (*fini)(void *state); /* (optional) */
};

typedef struct td_backend_ops {
    const char *name;
    void (*destroy)(td_backend *b);
    const char *device; /* whose memory and streams kernels run on */
    /* Make the kernel for node n. `is_param[i]` says that input i comes from the param block, so
     * that `prepare` may read it. Never called for leaves and views. */
    td_status (*plan)(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k);
    /* Before and after a run on the calling thread: floating-point modes, tile registers. */
    void (*enter)(td_backend *b, unsigned *saved);
    void (*leave)(td_backend *b, unsigned saved);
    /* Is NHWC worth having for image chains here? Programs for other backends stay PLAIN. */
    bool wants_nhwc;
    /* Are nodes wanted that do the work of several in one pass (rewrite_joined.c,
     * rewrite_one_pass.c)? Others never see them. */
    bool wants_one_pass;
} td_backend_ops;

struct td_backend {
    const td_backend_ops *ops;
    td_device *device;
    bool nondeterministic; /* kernels may be planned whose bits change from run to run */
};

/* For kernels: if st is a failure, the run ends with it and with its text, behind the name of the
 * node. */
/* "node 'fc1' (linear of f32 (2, 3), f32 (3, 4))", in buf. */
char *td__kernel_text(const td_node *n, char *buf, size_t room);
void td__kernel_check(const td_kernel_call *c, td_status st);

/* By name: "cpu", "cuda" (an NVIDIA GPU), "ref" (reference kernels only, the judge), "null" (no
 * arithmetic), "far" (the kernels of cpu on device far). */
TD_NODISCARD td_status td__backend_create(const char *name, td_backend **out);
void td__backend_destroy(td_backend *b); /* NULL is allowed */

#endif
