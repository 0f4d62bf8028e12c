/* images.h -- the kernels that the library holds: fat binaries, each with machine code for one kind
 * of GPU and PTX for others (cmake/cuda.cmake makes them and this table). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_IMAGES_H
#define TD_DEVICE_CUDA_IMAGES_H

typedef struct td__cuda_image {
    const char *name;
    const unsigned char *begin, *end;
} td__cuda_image;
extern const td__cuda_image td__cuda_images[];
extern const int td__cuda_n_images;

#endif
