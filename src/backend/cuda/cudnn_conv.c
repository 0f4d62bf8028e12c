/* cudnn_conv.c -- convolutions of images that lie as NHWC, by cuDNN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn.h"

#if TD_CUDNN
#include "base/fail.h"

static td__dnn_size image(const td_desc *d)
{
    td__image at;
    td__dnn_size s;
    td__cuda_image_of(d, &at);
    for (int i = 0; i < 4; i++) {
        s.dim[i] = at.dim[i];
        s.step[i] = at.step[i];
    }
    return s;
}

td_status td__cudnn_add_conv(td__cuda *b, td_kernel *k, const td__cudnn_conv *c, size_t scratch)
{
    td__dnn *d;
    const td_attr_conv2d *at = c->at;
    const int64_t *w = c->w.dim;
    if (c->x->layout != TD_LAYOUT_NHWC || c->y->layout != TD_LAYOUT_NHWC || !td__desc_count(c->x) ||
        !td__desc_count(c->y))
        return TD_ENOTSUP;
    td_status st = td__dnn_create(b, &d);
    if (st)
        return st;
    td__dnn_size weight = {{w[0], w[1], w[2], w[3]}, {w[1] * w[2] * w[3], 1, w[3] * w[1], w[1]}};
    td__dnn_conv how = {{at->stride[0], at->stride[1]},
                        {at->pad[0], at->pad[1]},
                        {at->dilation[0], at->dilation[1]}};
    int x = td__dnn_at(d, c->x->dtype, image(c->x), c->at_x);
    int weights = td__dnn_at(d, c->w_type, weight, c->at_w);
    int y = td__dnn_at(d, c->y->dtype, image(c->y), c->at_y);
    td__dnn_convolve(d, c->kind, &how, x, weights, y);
    return td__dnn_add_take(d, b, k, scratch);
}
#endif
