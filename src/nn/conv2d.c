/* conv2d.c -- torch.nn.Conv2d and torch.nn.Conv1d; weight and bias start uniform within
 * 1/sqrt(fan_in).
 *
 * A convolution over time is one over images of height 1. `same` pads by d (k - 1) in all; where
 * that is odd, the larger half comes after, as in PyTorch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "nn/nn_util.h"
#include "ops/node.h"

typedef struct sizes {
    int64_t out, kernel[2];
    bool flat; /* the weight has one axis for the kernel: conv1d */
} sizes;

/* Sets conv->pad, and puts one more row or column of zeros behind x where the padding is odd. */
static td_node *pad_same(td_graph *g, td_node *x, const sizes *s, td_conv2d_opts *conv)
{
    int64_t before[4] = {0}, after[4] = {0};
    bool odd = false;

    for (int i = 0; i < 2; i++) {
        int64_t all = (s->kernel[i] - 1) * (conv->dilation[i] ? conv->dilation[i] : 1);
        conv->pad[i] = (int)(all / 2);
        after[2 + i] = all % 2;
        odd = odd || all % 2;
    }
    return odd ? td_pad(g, x, before, after, 0) : x;
}

/* x (N, C, H, W) */
static td_node *convolve(td_graph *g, const char *call, const char *name, td_node *x,
                         const sizes *s, const td_nn_conv2d_opts *o)
{
    td_conv2d_opts conv = o->conv;
    td_shape in;

    if (!td__nn_shape(g, call, name, x, 4, 4, &in))
        return NULL;
    int groups = conv.groups ? conv.groups : 1;
    if (groups < 0 || in.dim[1] % groups != 0)
        return td__graph_fail(g, TD_EINVAL, call,
                              "layer '%s': %d groups do not divide %lld channels", name, groups,
                              (long long)in.dim[1]);
    if (o->same && (conv.stride[0] > 1 || conv.stride[1] > 1))
        return td__graph_fail(g, TD_EINVAL, call, "layer '%s': padding 'same' needs stride 1",
                              name);
    int64_t channels = in.dim[1] / groups, fan = channels * s->kernel[0] * s->kernel[1];
    td_init standard = td__nn_uniform(fan > 0 ? 1 / sqrt((double)fan) : 0);
    td_shape full = TD_SHAPE(s->out, channels, s->kernel[0], s->kernel[1]);
    td_shape own = s->flat ? TD_SHAPE(s->out, channels, s->kernel[1]) : full;
    td_node *w = td__nn_param(g, name, "weight", own, o->weight_init, standard);
    td_node *b =
        o->no_bias ? NULL : td__nn_param(g, name, "bias", TD_SHAPE(s->out), o->bias_init, standard);
    td_graph_push_scope(g, name);
    if (o->same)
        x = pad_same(g, x, s, &conv);
    td_node *y = td_conv2d(g, x, s->flat ? td_reshape(g, w, full) : w, b, &conv);
    td_graph_pop_scope(g);
    return y;
}

td_node *td_nn_conv2d(td_graph *g, const char *name, td_node *x, int64_t out, int size,
                      const td_nn_conv2d_opts *o)
{
    td_nn_conv2d_opts zero = {.no_bias = false};

    o = o ? o : &zero;
    sizes s = {.out = out, .kernel = {size, o->width ? o->width : size}};
    return convolve(g, "td_nn_conv2d", name, x, &s, o);
}

td_node *td_nn_conv1d(td_graph *g, const char *name, td_node *x, int64_t out, int size,
                      const td_nn_conv2d_opts *o)
{
    td_nn_conv2d_opts line = {.no_bias = false};
    sizes s = {.out = out, .kernel = {1, size}, .flat = true};
    td_shape in;

    if (o)
        line = *o;
    line.conv.stride[0] = line.conv.dilation[0] = 1;
    line.conv.pad[0] = 0;
    if (!td__nn_shape(g, "td_nn_conv1d", name, x, 3, 3, &in))
        return NULL;
    x = td_reshape(g, td_permute(g, x, (const int[]){0, 2, 1}),
                   TD_SHAPE(in.dim[0], in.dim[2], 1, in.dim[1]));
    td_node *y = convolve(g, "td_nn_conv1d", name, x, &s, &line);
    if (!y)
        return NULL;
    td_shape got = td_node_shape(y);
    y = td_reshape(g, y, TD_SHAPE(got.dim[0], got.dim[1], got.dim[3]));
    return td_permute(g, y, (const int[]){0, 2, 1});
}
