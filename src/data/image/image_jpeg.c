/* image_jpeg.c -- JPEG by libjpeg-turbo. Its errors come by longjmp: what must outlive one is in
 * `decoder`. A file that ends too early is refused, though the library would fill in grey. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/image/image.h"

enum { MOST_SCANS = 100 }; /* of progressive files; each goes over all pixels */

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
    uint8_t *line; /* CMYK */
} decoder;

static void on_error(j_common_ptr jpeg)
{
    decoder *d = jpeg->client_data;

    d->errors.format_message(jpeg, d->text);
    longjmp(d->failed, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF)
        on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    decoder *d = jpeg->client_data;

    if (d->jpeg.input_scan_number > MOST_SCANS) {
        snprintf(d->text, sizeof d->text, "more than %d scans", MOST_SCANS);
        longjmp(d->failed, 1);
    }
}

static unsigned part_of(unsigned a, unsigned b) /* a * b / 255, rounded */
{
    unsigned t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

/* Ink to light. Adobe's files have the ink inverted, and only those are common. */
static void from_cmyk(const decoder *d, uint8_t *rgb)
{
    for (JDIMENSION x = 0; x < d->jpeg.output_width; x++) {
        const uint8_t *ink = d->line + (size_t)x * 4;
        unsigned flip = d->jpeg.saw_Adobe_marker ? 255 : 0, light = 255 - (ink[3] ^ flip);
        for (int c = 0; c < 3; c++) {
            unsigned taken = part_of(ink[c] ^ flip, light);
            rgb[x * 3 + (JDIMENSION)c] = (uint8_t)(light > taken ? light - taken : 0);
        }
    }
}

static void read_lines(decoder *d, td__image *out)
{
    size_t each = (size_t)out->width * 3;

    while (d->jpeg.output_scanline < d->jpeg.output_height) {
        uint8_t *to = out->rgb + each * d->jpeg.output_scanline;
        JSAMPROW row = d->line ? d->line : to;
        jpeg_read_scanlines(&d->jpeg, &row, 1);
        if (d->line)
            from_cmyk(d, to);
    }
}

static td_status prepare(decoder *d, const char *where, int64_t most_pixels, td__image *out)
{
    bool ink = d->jpeg.jpeg_color_space == JCS_CMYK || d->jpeg.jpeg_color_space == JCS_YCCK;

    d->jpeg.out_color_space = ink ? JCS_CMYK : JCS_RGB;
    TD_TRY(td__image_alloc(d->jpeg.image_width, d->jpeg.image_height, where, most_pixels, out));
    if (ink) {
        d->line = td__malloc((size_t)d->jpeg.image_width * 4);
        if (!d->line)
            return TD_FAIL(TD_ENOMEM, "%s: no memory for a line", where);
    }
    return TD_OK;
}

td_status td__jpeg_decode(const uint8_t *data, size_t nbytes, const char *where,
                          int64_t most_pixels, td__image *out)
{
    decoder d = {0};
    td_status st;

    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.progress.progress_monitor = on_progress;
    d.jpeg.client_data = &d;
    if (setjmp(d.failed)) {
        st = TD_FAIL(TD_EPROTO, "%s: a damaged JPEG image: %s", where, d.text);
    } else {
        jpeg_create_decompress(&d.jpeg);
        d.jpeg.client_data = &d;
        d.jpeg.progress = &d.progress;
        jpeg_mem_src(&d.jpeg, data, nbytes);
        jpeg_read_header(&d.jpeg, TRUE);
        st = prepare(&d, where, most_pixels, out);
        if (!st) {
            jpeg_start_decompress(&d.jpeg);
            read_lines(&d, out);
            jpeg_finish_decompress(&d.jpeg);
        }
    }
    jpeg_destroy_decompress(&d.jpeg);
    td__free(d.line);
    if (st)
        td__image_fini(out);
    return st;
}
