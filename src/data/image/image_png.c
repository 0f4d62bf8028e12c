/* image_png.c -- PNG by libpng. Its errors come by longjmp: what must outlive one is in
 * `decoder`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/image/image.h"

typedef struct decoder {
    const uint8_t *data;
    size_t nbytes, at;
    char text[128];
    png_structp png;
    png_infop info;
    png_bytep *rows;
} decoder;

static void on_error(png_structp png, png_const_charp text)
{
    decoder *d = png_get_error_ptr(png);

    snprintf(d->text, sizeof d->text, "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    decoder *d = png_get_io_ptr(png);

    if (n > d->nbytes - d->at)
        png_error(png, "it ends too early");
    memcpy(to, d->data + d->at, n);
    d->at += n;
}

/* 8 bits of red, green and blue, whatever the file has. */
static void ask_for_rgb(decoder *d)
{
    png_set_strip_16(d->png);
    png_set_palette_to_rgb(d->png);
    png_set_expand_gray_1_2_4_to_8(d->png);
    png_set_gray_to_rgb(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
}

static td_status prepare(decoder *d, const char *where, int64_t most_pixels, td__image *out)
{
    int64_t width = png_get_image_width(d->png, d->info);
    int64_t height = png_get_image_height(d->png, d->info);

    TD_TRY(td__image_alloc(width, height, where, most_pixels, out));
    ask_for_rgb(d);
    if (png_get_rowbytes(d->png, d->info) != (size_t)width * 3)
        return TD_FAIL(TD_EPROTO, "%s: a PNG image of an unknown kind", where);
    d->rows = td__calloc((size_t)height, sizeof *d->rows);
    if (!d->rows)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %lld lines", where, (long long)height);
    for (int64_t y = 0; y < height; y++)
        d->rows[y] = out->rgb + (size_t)y * (size_t)width * 3;
    return TD_OK;
}

/* Nothing here but libpng's calls may be passed over by a longjmp. */
static td_status decode(decoder *d, const char *where, int64_t most_pixels, td__image *out)
{
    if (setjmp(png_jmpbuf(d->png)))
        return TD_FAIL(TD_EPROTO, "%s: a damaged PNG image: %s", where, d->text);
    png_set_read_fn(d->png, d, read_bytes);
    png_set_user_limits(d->png, 0x7fffffff, 0x7fffffff); /* prepare has its own */
    png_read_info(d->png, d->info);
    TD_TRY(prepare(d, where, most_pixels, out));
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
    return TD_OK;
}

td_status td__png_decode(const uint8_t *data, size_t nbytes, const char *where, int64_t most_pixels,
                         td__image *out)
{
    decoder d = {.data = data, .nbytes = nbytes};
    td_status st;

    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    st = d.info ? decode(&d, where, most_pixels, out)
                : TD_FAIL(TD_ENOMEM, "%s: no memory to decode it", where);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    td__free(d.rows);
    if (st)
        td__image_fini(out);
    return st;
}
