/* model_resnet.c -- residual networks (He 2015) with torchvision's structure, names and start.
 *
 * Stages 1..4 have width, 2, 4, 8 times width channels and halve the image from stage 2 on. A basic
 * block (18, 34) is two 3x3 convolutions; a bottleneck (50) is 1x1, 3x3 (which carries the stride),
 * 1x1 to four times the channels. A block whose input does not fit its output adds a 1x1
 * "downsample" to the short cut. Convolutions start as kaiming_normal over fan_out and have no
 * bias. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "nn/nn_util.h"
#include "ops/node.h"

typedef struct arch {
    int depth;
    int blocks[4];
    bool bottleneck;
} arch;

static const arch ARCHS[] = {
    {18, {2, 2, 2, 2}, false}, {34, {3, 4, 6, 3}, false}, {50, {3, 4, 6, 3}, true}};

/* conv without bias, then norm. `gamma`: the norm's first weight, NULL for ones. */
static td_node *conv_norm(td_graph *g, const char *conv, const char *norm, td_node *x, int64_t out,
                          int size, int stride, int pad, const td_init *gamma)
{
    td_init kaiming = {.kind = TD_INIT_KAIMING_NORMAL, .fan_out = true};
    td_nn_conv2d_opts co = {.conv = {.stride = {stride, stride}, .pad = {pad, pad}},
                            .no_bias = true,
                            .weight_init = &kaiming};
    td_nn_norm_opts no = {.weight_init = gamma};

    return td_nn_batch_norm(g, norm, td_nn_conv2d(g, conv, x, out, size, &co), &no);
}

typedef struct block {
    const char *name;  /* "layer1.0" */
    int64_t in, width; /* channels */
    int stride;
    bool bottleneck;
    const td_init *last; /* first weight of the last norm */
} block;

static td_node *branch(td_graph *g, const block *b, int i, td_node *x, int64_t out, int size,
                       int stride, bool last)
{
    return conv_norm(g, td__nn_name("%s.conv%d", b->name, i).text,
                     td__nn_name("%s.bn%d", b->name, i).text, x, out, size, stride, size / 2,
                     last ? b->last : NULL);
}

static td_node *add_block(td_graph *g, const block *b, td_node *x)
{
    int64_t out = b->bottleneck ? 4 * b->width : b->width;
    td_node *cut = x, *y;

    if (b->bottleneck) {
        y = td_relu(g, branch(g, b, 1, x, b->width, 1, 1, false));
        y = td_relu(g, branch(g, b, 2, y, b->width, 3, b->stride, false));
        y = branch(g, b, 3, y, out, 1, 1, true);
    } else {
        y = td_relu(g, branch(g, b, 1, x, b->width, 3, b->stride, false));
        y = branch(g, b, 2, y, out, 3, 1, true);
    }
    if (b->stride != 1 || b->in != out)
        cut =
            conv_norm(g, td__nn_name("%s.downsample.0", b->name).text,
                      td__nn_name("%s.downsample.1", b->name).text, x, out, 1, b->stride, 0, NULL);
    return td_relu(g, td_add(g, y, cut));
}

td_node *td_model_resnet(td_graph *g, td_node *x, const td_resnet_opts *o)
{
    td_resnet_opts zero = {.depth = 0};
    td_init zeros = td__nn_zeros();
    const arch *a = NULL;

    o = o ? o : &zero;
    int depth = o->depth ? o->depth : 18;
    for (int i = 0; i < TD_LEN(ARCHS); i++)
        if (ARCHS[i].depth == depth)
            a = &ARCHS[i];
    if (!a)
        return td__graph_fail(g, TD_EINVAL, "td_model_resnet", "depth is %d, must be 18, 34 or 50",
                              depth);
    int64_t width = td__nn_or(o->width, 64), in = width;
    if (width < 1 || width > INT64_MAX / 64)
        return td__graph_fail(g, TD_EINVAL, "td_model_resnet", "width is %lld", (long long)width);

    if (o->cifar_stem) {
        x = td_relu(g, conv_norm(g, "conv1", "bn1", x, width, 3, 1, 1, NULL));
    } else {
        td_pool2d_opts pool = {.size = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
        x = td_relu(g, conv_norm(g, "conv1", "bn1", x, width, 7, 2, 3, NULL));
        x = td_max_pool2d(g, x, &pool);
    }
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < a->blocks[stage]; i++) {
            td__nn_text name = td__nn_name("layer%d.%d", stage + 1, i);
            block b = {.name = name.text,
                       .in = in,
                       .width = width << stage,
                       .stride = stage && i == 0 ? 2 : 1,
                       .bottleneck = a->bottleneck,
                       .last = o->zero_init_residual ? &zeros : NULL};
            x = add_block(g, &b, x);
            in = a->bottleneck ? 4 * b.width : b.width;
        }
    x = td__nn_flatten(g, td_global_avg_pool(g, x));
    return td_nn_linear(g, "fc", x, td__nn_or(o->classes, o->cifar_stem ? 10 : 1000), NULL);
}
