/* model_cnn.c -- two small convolutional networks for 28 x 28 images.
 *
 *     cnn      conv1 3x3 32, relu, conv2 3x3 64, relu, max pool 2, fc1 128, relu, fc2: the network
 *              of PyTorch's MNIST example, 1,199,882 params
 *     lenet5   conv1 5x5 6 (pad 2), tanh, avg pool 2, conv2 5x5 16, tanh, avg pool 2, fc1 120,
 *              tanh, fc2 84, tanh, fc3: LeCun 1998 with full connections, 61,706 params */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"

td_node *td_model_cnn(td_graph *g, td_node *x, const td_cnn_opts *o)
{
    td_cnn_opts zero = {.classes = 0};
    td_pool2d_opts pool = {.size = {2, 2}};
    td_nn_linear_opts relu = {.act = TD_ACT_RELU};

    o = o ? o : &zero;
    double second = 2 * o->dropout > 0.9 ? 0.9 : 2 * o->dropout;
    x = td_relu(g, td_nn_conv2d(g, "conv1", x, 32, 3, NULL));
    x = td_relu(g, td_nn_conv2d(g, "conv2", x, 64, 3, NULL));
    x = td_nn_dropout(g, td_max_pool2d(g, x, &pool), o->dropout);
    x = td_nn_linear(g, "fc1", td__nn_flatten(g, x), 128, &relu);
    return td_nn_linear(g, "fc2", td_nn_dropout(g, x, second), td__nn_or(o->classes, 10), NULL);
}

td_node *td_model_lenet5(td_graph *g, td_node *x, const td_cnn_opts *o)
{
    td_pool2d_opts pool = {.size = {2, 2}};
    td_nn_conv2d_opts padded = {.conv = {.pad = {2, 2}}};
    int64_t classes = td__nn_or(o ? o->classes : 0, 10);

    x = td_tanh(g, td_nn_conv2d(g, "conv1", x, 6, 5, &padded));
    x = td_avg_pool2d(g, x, &pool);
    x = td_tanh(g, td_nn_conv2d(g, "conv2", x, 16, 5, NULL));
    x = td_avg_pool2d(g, x, &pool);
    x = td_tanh(g, td_nn_linear(g, "fc1", td__nn_flatten(g, x), 120, NULL));
    x = td_tanh(g, td_nn_linear(g, "fc2", x, 84, NULL));
    return td_nn_linear(g, "fc3", x, classes, NULL);
}
