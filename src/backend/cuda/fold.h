/* fold.h -- convolutions of stride 2 over few channels as those of stride 1 over four times as many
 * (kernels/fold.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_FOLD_H
#define TD_BACKEND_CUDA_FOLD_H

#include "backend/cuda/cudnn.h"
#include "backend/cuda/kernels/fold.h"

typedef struct td__conv_fold {
    td__fold_args args;
    td_attr_conv2d at; /* of the folded convolution */
} td__conv_fold;

/* Is this convolution, of x and w as c has them, better folded? Then *out says how. */
bool td__conv_folds(const td__cudnn_conv *c, td__conv_fold *out);
/* Fold c's image into scratch: c, and x, which it points to, are of the folded convolution then. */
TD_NODISCARD td_status td__conv_fold_image(td__cuda *b, td_kernel *k, const td__conv_fold *f,
                                           td__cudnn_conv *c, td_desc *x, size_t *scratch);
/* Filters to their folded form, or back. */
TD_NODISCARD td_status td__conv_fold_filter(td__cuda *b, td_kernel *k, const td__conv_fold *f,
                                            bool back, td__cuda_at from, td__cuda_at to);

#endif
