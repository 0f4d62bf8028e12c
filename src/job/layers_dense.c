/* layers_dense.c -- layers with weights for vectors and images, norms, dropout. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layer.h"

static td_node *act(const td__layer *l, td_node *y)
{
    return td__act_apply(l->g, td__keys_text(l->attrs, "act"), y);
}

static td_node *linear(const td__layer *l, td_node *x)
{
    const char *name = td__keys_text(l->attrs, "act");
    int64_t out = td__layer_size(l, "out");
    td_nn_linear_opts o = {.no_bias = !td__layer_bool(l, "bias"), .act = td__act_fused(name)};
    td_node *y = out ? td_nn_linear(l->g, l->name, x, out, &o) : NULL;

    return o.act ? y : act(l, y);
}
const td__layer_def td__layer_linear = {
    "linear",
    "fully connected layer, x W + b over the last axis: (..., K) to (..., out)",
    {TD_KEY_CLASSES("out", "Output features."),
     TD_KEY_ROW("bias", BOOL, "Add a bias.", .def = "true"), TD_KEY_ACT},
    linear};

/* (rows, H, W) is an image of one channel. */
static td_node *image(td_graph *g, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;

    return s.ndim == 3 ? td_reshape(g, x, TD_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2])) : x;
}

static td_nn_conv2d_opts conv_opts(const td__layer *l)
{
    td_nn_conv2d_opts o = {.conv = {.groups = (int)td__layer_int(l, "groups")},
                           .no_bias = !td__layer_bool(l, "bias")};

    td__layer_pair(l, "stride", o.conv.stride);
    td__layer_pair(l, "padding", o.conv.pad);
    td__layer_pair(l, "dilation", o.conv.dilation);
    o.same = o.conv.pad[0] < 0 || o.conv.pad[1] < 0;
    return o;
}

static td_node *conv2d(const td__layer *l, td_node *x)
{
    td_nn_conv2d_opts o = conv_opts(l);
    int kernel[2];

    td__layer_pair(l, "kernel", kernel);
    o.width = kernel[1];
    return act(l,
               td_nn_conv2d(l->g, l->name, image(l->g, x), td__layer_int(l, "out"), kernel[0], &o));
}
#define SAME "; same: as many as give the input's size, with stride 1."
#define GROUPS \
    TD_KEY_ROW("groups", INT, "Groups of a grouped convolution.", .lo = 1, .hi = 1e6, .def = "1")
#define BIAS TD_KEY_ROW("bias", BOOL, "Add a bias.", .def = "true")
const td__layer_def td__layer_conv2d = {
    "conv2d",
    "2-D convolution: (C, H, W) to (out, H', W'); (H, W) has one channel",
    {TD_KEY_ROW("out", INT, "Output channels.", .lo = 1, .hi = 1e9, .flags = TD_KEY_REQUIRED),
     TD_KEY_ROW("kernel", INT, "Kernel size: of both axes, or [height, width].", .lo = 1,
                .hi = 1024, .def = "3", .flags = TD_KEY_PAIR),
     TD_KEY_ROW("stride", INT, "Stride.", .lo = 1, .hi = 1024, .def = "1", .flags = TD_KEY_PAIR),
     TD_KEY_ROW("padding", INT, "Zero padding" SAME, .hi = 1024, .def = "0", .words = "same=-1",
                .flags = TD_KEY_PAIR),
     TD_KEY_ROW("dilation", INT, "Dilation: spacing of the kernel elements.", .lo = 1, .hi = 1024,
                .def = "1", .flags = TD_KEY_PAIR),
     GROUPS, BIAS, TD_KEY_ACT},
    conv2d};

static td_node *conv1d(const td__layer *l, td_node *x)
{
    td_nn_conv2d_opts o = conv_opts(l);

    if (x && td_node_shape(x).ndim != 3)
        return td__layer_fail(l, "expected (time, width), found %d axes",
                              td_node_shape(x).ndim - 1);
    return act(l, td_nn_conv1d(l->g, l->name, x, td__layer_int(l, "out"),
                               (int)td__layer_int(l, "kernel"), &o));
}
const td__layer_def td__layer_conv1d = {
    "conv1d",
    "1-D convolution over time: (time, width) to (time', out)",
    {TD_KEY_ROW("out", INT, "Output width.", .lo = 1, .hi = 1e9, .flags = TD_KEY_REQUIRED),
     TD_KEY_ROW("kernel", INT, "Kernel size.", .lo = 1, .hi = 1024, .def = "3"),
     TD_KEY_ROW("stride", INT, "Stride.", .lo = 1, .hi = 1024, .def = "1"),
     TD_KEY_ROW("padding", INT, "Zero padding" SAME, .hi = 1024, .def = "0", .words = "same=-1"),
     TD_KEY_ROW("dilation", INT, "Dilation: spacing of the kernel elements.", .lo = 1, .hi = 1024,
                .def = "1"),
     GROUPS, BIAS, TD_KEY_ACT},
    conv1d};

static td_node *batch_norm(const td__layer *l, td_node *x)
{
    td_nn_norm_opts o = {.eps = td__layer_real(l, "eps"),
                         .momentum = td__layer_real(l, "momentum"),
                         .sync = td__layer_bool(l, "sync")};

    return act(l, td_nn_batch_norm(l->g, l->name, x, &o));
}
#define EPS(value) \
    TD_KEY_ROW("eps", REAL, "Added to the variance.", .hi = 1, .flags = TD_KEY_ABOVE, .def = value)
const td__layer_def td__layer_batch_norm = {
    "batch_norm",
    "batch normalization per channel; in training over each micro-batch (train.micro_batches), not "
    "over the whole batch unless sync is true: a micro-batch needs more than one value per channel",
    {TD_KEY_ROW("momentum", REAL, "Weight of the new value in the running averages.", .hi = 1,
                .flags = TD_KEY_ABOVE, .def = "0.1"),
     EPS("1e-5"), TD_KEY_ACT,
     TD_KEY_ROW("sync", BOOL,
                "In training, statistics of the whole batch, over all micro-batches, threads and "
                "ranks; these then go from one batch norm to the next together, and keep all their "
                "activations. With train.accumulate each batch of a step has its own.",
                .def = "false", .flags = TD_KEY_LATER)},
    batch_norm};

static td_node *layer_norm(const td__layer *l, td_node *x)
{
    return td_nn_layer_norm(l->g, l->name, x, &(td_nn_norm_opts){.eps = td__layer_real(l, "eps")});
}
const td__layer_def td__layer_layer_norm = {
    "layer_norm", "layer normalization over the last axis", {EPS("1e-5")}, layer_norm};

static td_node *rms_norm(const td__layer *l, td_node *x)
{
    return td_nn_rms_norm(l->g, l->name, x, &(td_nn_norm_opts){.eps = td__layer_real(l, "eps")});
}
const td__layer_def td__layer_rms_norm = {
    "rms_norm", "divides the last axis by its root mean square", {EPS("1e-6")}, rms_norm};

static td_node *group_norm(const td__layer *l, td_node *x)
{
    return td_nn_group_norm(l->g, l->name, x, (int)td__layer_int(l, "groups"),
                            &(td_nn_norm_opts){.eps = td__layer_real(l, "eps")});
}
const td__layer_def td__layer_group_norm = {
    "group_norm",
    "group normalization over groups of channels of each sample",
    {TD_KEY_ROW("groups", INT, "Number of groups; must divide the channels.", .lo = 1, .hi = 1e6,
                .flags = TD_KEY_REQUIRED),
     EPS("1e-5")},
    group_norm};

static td_node *dropout(const td__layer *l, td_node *x)
{
    return td_nn_dropout(l->g, x, td__layer_real(l, "p"));
}
const td__layer_def td__layer_dropout = {
    "dropout",
    "sets random elements to zero in training",
    {TD_KEY_ROW("p", REAL, "Probability of an element to be set to zero.", .hi = 1,
                .flags = TD_KEY_BELOW, .def = "0.5")},
    dropout};
