/* cuda.h -- the CUDA backend, as its planners see it.
 *
 * A planner turns a node into a kernel that is a list of actions, each put into the stream in
 * order: launches of kernels from kernels/, matrix products, zeroing. What an action needs is fixed
 * when it is planned; only the addresses of the call are filled in when it runs. A launch's
 * argument begins with a td__io (kernels/io.h), which the call fills.
 *
 * A planner answers TD_ENOTSUP, without an error text, for what it does not do; the reference
 * executor then takes the node, on the host and with copies both ways: slow, and said in the log.
 * Adding a kernel is one planner and one line in kernels.def. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUDA_H
#define TD_BACKEND_CUDA_CUDA_H

#include "backend/cuda/kernels/io.h"
#include "device/cuda/cuda.h"
#include "graph/backend.h"
#include "ops/attr.h"

typedef struct td__cublaslt td__cublaslt;
typedef struct td__cudnn td__cudnn;

typedef struct td__cuda {
    td_backend base;
    td__cublaslt *lt; /* products by cuBLASLt; NULL: by our own kernel */
    td__cudnn *dnn;   /* once dnn_asked: attention and convolutions by cuDNN, or NULL */
    bool dnn_asked;
} td__cuda;

typedef td_status td__cuda_plan_fn(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k);
#define TD_CUDA_KERNEL(OP, plan) td__cuda_plan_fn plan;
#include "backend/cuda/kernels.def"
#undef TD_CUDA_KERNEL
/* Planner of every operator that has `scalar`; they need no line in kernels.def. */
td__cuda_plan_fn td__cuda_plan_elementwise;

/* The kernel has no actions yet; called before its planner. */
TD_NODISCARD td_status td__cuda_begin(td_kernel *k);
/* What its planner has added so far is dropped. */
TD_NODISCARD td_status td__cuda_begin_again(td_kernel *k);

/* ---- Actions --------------------------------------------------------------------------------- */

/* Memory of a call. */
typedef enum td__cuda_space {
    TD__AT_NONE,
    TD__AT_IN,
    TD__AT_OUT,
    TD__AT_SCRATCH,
    TD__AT_PACKED
} td__cuda_space;
typedef struct td__cuda_at {
    td__cuda_space space;
    int index; /* IN, OUT */
    size_t offset;
} td__cuda_at;
#define TD__IN(i) ((td__cuda_at){TD__AT_IN, (i), 0})
#define TD__OUT(i) ((td__cuda_at){TD__AT_OUT, (i), 0})
#define TD__SCRATCH(offset) ((td__cuda_at){TD__AT_SCRATCH, 0, (offset)})
#define TD__PACKED(offset) ((td__cuda_at){TD__AT_PACKED, 0, (offset)})
void *td__cuda_address(const td_kernel_call *c, td__cuda_at at); /* NULL for NONE */

enum { TD__CUDA_THREADS = 256 };
/* Blocks of TD__CUDA_THREADS threads for n elements, one each, at most what fills the GPU often. */
td__cuda_grid td__cuda_grid_for(const td__cuda *b, int64_t n);
/* One block of TD__CUDA_THREADS threads for each of n things. */
td__cuda_grid td__cuda_grid_each(int64_t n);

/* Add a launch: kernel "NAME_f32" or "NAME_bf16" (dtype TD_DTYPE_COUNT: NAME itself), its grid and
 * its argument, a struct of nbytes that begins with a td__io and is copied. */
TD_NODISCARD td_status td__cuda_add(td__cuda *b, td_kernel *k, const char *name, td_dtype dtype,
                                    td__cuda_grid grid, const void *args, size_t nbytes);
/* The same, whose kernel finds in io.in[i] and io.out[i] what `in` and `out` name instead. */
typedef struct td__cuda_bind {
    td__cuda_at in[8], out[4];
} td__cuda_bind;
TD_NODISCARD td_status td__cuda_add_bound(td__cuda *b, td_kernel *k, const char *name,
                                          td_dtype dtype, td__cuda_grid grid, const void *args,
                                          size_t nbytes, const td__cuda_bind *bind);
TD_NODISCARD td_status td__cuda_add_zero(td_kernel *k, td__cuda_at at, size_t nbytes);
TD_NODISCARD td_status td__cuda_add_copy(td_kernel *k, td__cuda_at to, td__cuda_at from,
                                         size_t nbytes);
/* An action of another kind: what it needs at run time, freed by td__free. */
typedef struct td__cuda_action td__cuda_action;
struct td__cuda_action {
    td__cuda_action *next;
    void (*run)(const td__cuda_action *a, const td_kernel_call *c);
    void (*fini)(td__cuda_action *a); /* (optional) */
};
void td__cuda_push(td_kernel *k, td__cuda_action *a);
/* What is added from now on belongs to the preparation of weights, or again to the run. */
void td__cuda_preparing(td_kernel *k, bool on);

/* Have at least this much scratch memory. */
static inline void td__cuda_want_scratch(td_kernel *k, size_t nbytes)
{
    k->scratch = k->scratch > nbytes ? k->scratch : nbytes;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static inline const td_desc *td__in_desc_of(const td_node *n, int i)
{
    return &n->in[i]->out[0];
}

static inline bool td__cuda_takes(td_dtype t)
{
    return t == TD_F32 || t == TD_BF16;
}

/* Elements of shape s's axes [from, to). */
int64_t td__cuda_extent(const td_shape *s, int from, int to);
/* Steps in elements along (N, C, H, W) of an image as it lies. */
void td__cuda_image_of(const td_desc *d, td__image *out);

#endif
