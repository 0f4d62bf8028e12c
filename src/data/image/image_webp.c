/* image_webp.c -- WebP by libwebp: one picture; animations are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <webp/decode.h>

#include "base/fail.h"
#include "data/image/image.h"

td_status td__webp_decode(const uint8_t *data, size_t nbytes, const char *where,
                          int64_t most_pixels, td__image *out)
{
    WebPBitstreamFeatures f;

    if (WebPGetFeatures(data, nbytes, &f) != VP8_STATUS_OK)
        return TD_FAIL(TD_EPROTO, "%s: a damaged WebP image", where);
    if (f.has_animation)
        return TD_FAIL(TD_EPROTO, "%s: an animated WebP image; expected a single one", where);
    TD_TRY(td__image_alloc(f.width, f.height, where, most_pixels, out));
    size_t each = (size_t)out->width * 3;
    if (!WebPDecodeRGBInto(data, nbytes, out->rgb, each * (size_t)out->height, (int)each)) {
        td__image_fini(out);
        return TD_FAIL(TD_EPROTO, "%s: a damaged WebP image", where);
    }
    return TD_OK;
}
