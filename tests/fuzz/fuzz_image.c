/* fuzz_image.c -- JPEG, PNG and WebP images: whatever is decoded has all its pixels, and scales. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/image.h"
#include "fuzz/fuzz_file.h"

enum { PIXELS = 1 << 18, SMALL = 7 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    uint8_t small[3 * SMALL * SMALL];
    td__image m;
    unsigned sum = 0;

    if (td__image_decode(data, nbytes, "fuzz", PIXELS, &m) == TD_OK) {
        for (int64_t i = 0; i < m.width * m.height * 3; i++)
            sum += m.rgb[i];
        td__box box = td__image_middle(&m, SMALL, SMALL);
        if (box.left < 0 || box.top < 0 || box.left + box.width > m.width ||
            box.top + box.height > m.height || sum > (unsigned)PIXELS * 3 * 255)
            abort();
        if (td__image_scale(&m, &box, SMALL, SMALL, 3, small))
            abort();
        td__image_fini(&m);
    }
    return 0;
}
