/* cudnn.h -- cuDNN, loaded when a kernel first wants it, and its graph API: operations on tensors
 * that are put together and carried out as one action of a kernel.
 *
 * A td__dnn is such a graph under construction; its tensors are numbers. The first failure sticks,
 * so that builders need no checks; td__dnn_add() then answers TD_ENOTSUP, and the caller plans
 * kernels of our own. A build without cuDNN's headers (TD_CUDNN 0) never has a td__dnn. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUDNN_H
#define TD_BACKEND_CUDA_CUDNN_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/attention.h"

/* ---- The library ----------------------------------------------------------------------------- */

/* The library for a device, with which the calling thread works, with one holder more; NULL if it
 * is not on this machine or does not work, which is said once in the log. */
TD_NODISCARD td_status td__cudnn_get(const td_device *d, td__cudnn **out);
void td__cudnn_release(td__cudnn *l); /* NULL is allowed */
/* "9.19.0"; NULL: none. */
const char *td__cudnn_version(const td__cudnn *l);

/* Of the one that a backend of this process holds; "": none does. */
void td__cudnn_held(char version[32]);
/* The one that would be loaded; "": none, or the build has no headers of it. */
void td__cudnn_look(char version[32]);

/* ---- Kernels by it --------------------------------------------------------------------------- */

/* TD_ENOTSUP without an error text: it does not take these shapes, or is not there. */
TD_NODISCARD td_status td__cudnn_add_attention(td__cuda *b, td_kernel *k,
                                               const td__attention_args *a, const td__cuda_bind *at,
                                               bool back);
/* A convolution: y, dx or dw. w lies as (O, KH, KW, C). */
typedef enum td__dnn_conv_kind {
    TD__DNN_CONV,
    TD__DNN_CONV_DATA,
    TD__DNN_CONV_WEIGHT
} td__dnn_conv_kind;
typedef struct td__cudnn_conv {
    td__dnn_conv_kind kind;
    const td_attr_conv2d *at;
    const td_desc *x, *y;
    td_shape w; /* (O, C, KH, KW) */
    td_dtype w_type;
    td__cuda_at at_x, at_w, at_y;
} td__cudnn_conv;
TD_NODISCARD td_status td__cudnn_add_conv(td__cuda *b, td_kernel *k, const td__cudnn_conv *c,
                                          size_t scratch);

#if TD_CUDNN
#include <cudnn_graph.h>

/* ---- Graphs, for the files of those kernels -------------------------------------------------- */

typedef struct td__dnn td__dnn;
TD_NODISCARD td_status td__dnn_create(td__cuda *b, td__dnn **out); /* TD_ENOTSUP: no cuDNN */

typedef struct td__dnn_size {
    int64_t dim[4], step[4]; /* steps in elements */
} td__dnn_size;
/* Tensors: memory of the call, what is never in memory, a number. */
int td__dnn_at(td__dnn *d, td_dtype t, td__dnn_size s, td__cuda_at at);
/* A sum in f32 that blocks add to with atomics, in an order of cuDNN's own; zeros before. */
int td__dnn_summed(td__dnn *d, td__dnn_size s, td__cuda_at at);
int td__dnn_inner(td__dnn *d, td_dtype t, td__dnn_size s);
int td__dnn_value(td__dnn *d, float value);

/* Operations, in the order in which they are to be. */
void td__dnn_product(td__dnn *d, int a, int b, int to);
/* y = mode(x, b, t); -1: has none. */
void td__dnn_pointwise(td__dnn *d, cudnnPointwiseMode_t mode, int x, int b, int t, int to);
/* The index along `axis` of each element of x's shape. */
void td__dnn_index(td__dnn *d, int axis, int x, int to);
void td__dnn_reduce(td__dnn *d, cudnnReduceTensorOp_t op, int x, int to);
void td__dnn_view(td__dnn *d, int x, int to);

typedef struct td__dnn_conv {
    int64_t stride[2], pad[2], dilation[2];
} td__dnn_conv;
void td__dnn_convolve(td__dnn *d, td__dnn_conv_kind kind, const td__dnn_conv *c, int x, int w,
                      int y);

/* Make the graph an action of the kernel and take it, in any case. Room behind `scratch` is wanted
 * as needed. */
TD_NODISCARD td_status td__dnn_add_take(td__dnn *d, td__cuda *b, td_kernel *k, size_t scratch);
#endif
#endif
