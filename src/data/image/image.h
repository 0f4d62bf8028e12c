/* image.h -- one image in memory: decoded from JPEG, PNG or WebP, scaled, in grey or colour.
 *
 * Pixels are what Pillow gives for the same bytes: the same libraries with the same settings
 * (libjpeg-turbo with its exact DCT and smooth upsampling; alpha is dropped, palettes and grey are
 * spread out, of 16 bits the upper 8 stay), its formula for grey and its bilinear resampling. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_IMAGE_H
#define TD_DATA_IMAGE_H

#include "tandem/status.h"

typedef struct td__image {
    int64_t width, height;
    uint8_t *rgb; /* (height, width, 3); own */
} td__image;

/* Pixels that an image may have, so that a small file cannot ask for all memory. */
enum { TD__IMAGE_PIXELS = 1 << 26 };

/* By the first bytes, not by a name. TD_EPROTO, with `where`: not such an image, or damaged. */
TD_NODISCARD td_status td__image_decode(const uint8_t *data, size_t nbytes, const char *where,
                                        int64_t most_pixels, td__image *out);
void td__image_fini(td__image *m); /* a zeroed struct is allowed */
/* Does the name end as those of images do? */
bool td__image_name(const char *name);

/* The formats; `out` is empty, and on failure stays so. */
TD_NODISCARD td_status td__jpeg_decode(const uint8_t *data, size_t nbytes, const char *where,
                                       int64_t most_pixels, td__image *out);
TD_NODISCARD td_status td__png_decode(const uint8_t *data, size_t nbytes, const char *where,
                                      int64_t most_pixels, td__image *out);
TD_NODISCARD td_status td__webp_decode(const uint8_t *data, size_t nbytes, const char *where,
                                       int64_t most_pixels, td__image *out);
/* Room for an image of this size, if it is allowed. */
TD_NODISCARD td_status td__image_alloc(int64_t width, int64_t height, const char *where,
                                       int64_t most_pixels, td__image *out);

/* A part of an image, in pixels. */
typedef struct td__box {
    int64_t left, top, width, height;
} td__box;
/* The largest box of this shape, in the middle. */
td__box td__image_middle(const td__image *m, int64_t width, int64_t height);

/* The box scaled to width x height, as `channels` planes: (channels, height, width); 1: grey. */
TD_NODISCARD td_status td__image_scale(const td__image *m, const td__box *box, int64_t width,
                                       int64_t height, int64_t channels, uint8_t *out);

/* Grey of a pixel, as ITU-R 601-2 has it. */
static inline uint8_t td__grey(unsigned r, unsigned g, unsigned b)
{
    return (uint8_t)((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

/* The weights that scale a line of `in` bytes to `out`; see image_scale.c. */
typedef struct td__resampler td__resampler;
TD_NODISCARD td_status td__resampler_create(int64_t in, int64_t out, td__resampler **r);
void td__resampler_destroy(td__resampler *r); /* NULL is allowed */
/* Output o of a line of bytes that lie `step` apart. */
uint8_t td__resample_at(const td__resampler *r, int64_t o, const uint8_t *x, int64_t step);

#endif
