/* image.c -- images by their first bytes; see image.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/image.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { MOST_SIDE = 65535 }; /* products with the size of a sample stay far from their limits */

td_status td__image_alloc(int64_t width, int64_t height, const char *where, int64_t most_pixels,
                          td__image *out)
{
    if (width < 1 || height < 1 || height > most_pixels / width)
        return TD_FAIL(TD_EPROTO,
                       "%s: an image of %" PRId64 " x %" PRId64 " pixels; at most %" PRId64
                       " can be read",
                       where, width, height, most_pixels);
    if (width > MOST_SIDE || height > MOST_SIDE)
        return TD_FAIL(TD_EPROTO,
                       "%s: an image of %" PRId64 " x %" PRId64 " pixels; sides of at most %d can "
                       "be read",
                       where, width, height, MOST_SIDE);
    uint8_t *rgb = td__malloc((size_t)width * (size_t)height * 3);
    if (!rgb)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %" PRId64 " x %" PRId64 " pixels", where,
                       width, height);
    *out = (td__image){.width = width, .height = height, .rgb = rgb};
    return TD_OK;
}

void td__image_fini(td__image *m)
{
    td__free(m->rgb);
    *m = (td__image){0};
}

bool td__image_name(const char *name)
{
    static const char *const ENDS[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *dot = strrchr(name, '.');

    for (int i = 0; dot && i < TD_LEN(ENDS); i++)
        if (!strcasecmp(dot, ENDS[i]))
            return true;
    return false;
}

td_status td__image_decode(const uint8_t *data, size_t nbytes, const char *where,
                           int64_t most_pixels, td__image *out)
{
    static const uint8_t PNG[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

    *out = (td__image){0};
    if (nbytes >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff)
        return td__jpeg_decode(data, nbytes, where, most_pixels, out);
    if (nbytes >= sizeof PNG && !memcmp(data, PNG, sizeof PNG))
        return td__png_decode(data, nbytes, where, most_pixels, out);
    if (nbytes >= 12 && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4))
        return td__webp_decode(data, nbytes, where, most_pixels, out);
    return TD_FAIL(TD_EPROTO, "%s: not an image in JPEG, PNG or WebP", where);
}

td__box td__image_middle(const td__image *m, int64_t width, int64_t height)
{
    td__box b = {.width = m->width, .height = m->height};

    if (m->width * height > m->height * width) {
        b.width = (m->height * width + height / 2) / height;
        b.width = b.width < 1 ? 1 : b.width > m->width ? m->width : b.width;
    } else {
        b.height = (m->width * height + width / 2) / width;
        b.height = b.height < 1 ? 1 : b.height > m->height ? m->height : b.height;
    }
    b.left = (m->width - b.width) / 2;
    b.top = (m->height - b.height) / 2;
    return b;
}
