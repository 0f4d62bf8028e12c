/* init_images.c -- `tandem init` for a folder of images with a folder for each class, or a tar
 * archive of them: a small convolutional network. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "data/files.h"
#include "data/image/image.h"
#include "data/image/images.h"
#include "init.h"

enum { LOOKED_AT = 32, WANT_STEPS = 1500, LARGEST = 128 };

/* What the first images, evenly spread, are like. */
typedef struct seen {
    int64_t least; /* the shortest side of all */
    bool grey;
} seen;

static td_status look_at(const td__image_item *item, seen *s)
{
    td__file_map m = {0};
    td__image im;

    if (!item->data)
        TD_TRY(td__file_map_open(&m, item->name));
    td_status st =
        td__image_decode(item->data ? item->data : m.data, item->data ? item->nbytes : m.nbytes,
                         item->name, TD__IMAGE_PIXELS, &im);
    td__file_map_close(&m);
    if (st)
        return st;
    int64_t side = im.width < im.height ? im.width : im.height;
    s->least = side < s->least ? side : s->least;
    for (int64_t i = 0; i < im.width * im.height && s->grey; i++)
        s->grey = im.rgb[3 * i] == im.rgb[3 * i + 1] && im.rgb[3 * i] == im.rgb[3 * i + 2];
    td__image_fini(&im);
    return TD_OK;
}

static td_status look_at_some(const td__dataset *d, seen *s)
{
    int64_t step = d->count / LOOKED_AT + 1;

    *s = (seen){.least = LARGEST, .grey = true};
    for (int64_t i = 0; i < d->count; i += step)
        TD_TRY(look_at(td__images_item(d, i), s));
    return TD_OK;
}

static void write_job(td__init *in, const td__dataset *d, const seen *s, bool tar, bool split)
{
    td__text *t = &in->text;
    int64_t size = 16;
    td__init_sizes z = td__init_size(d->count * (split ? 8 : 10) / 10, 64, WANT_STEPS);

    while (size < LARGEST && size * 3 / 2 < s->least)
        size *= 2;
    td__text_printf(t, "# %" PRId64 " images of %" PRId64 " classes.\n", d->count,
                    d->fields[1].classes);
    td__text_printf(t, "name: %s\nmodel:\n", in->name);
    int64_t width = 16, side = size;
    for (; side >= 8; side /= 2, width *= 2)
        td__text_printf(t,
                        "  - {conv2d: %" PRId64 ", kernel: 3, padding: 1, act: relu}\n"
                        "  - max_pool: 2\n",
                        width < 128 ? width : 128);
    td__text_add(t, "  - flatten\n  - dropout: 0.2\n  - {linear: 64, act: relu}\n"
                    "  - linear # one value per class\n");
    td__text_printf(t, "metrics: [accuracy]\ndata:\n  source: %s\n  %s: ",
                    tar ? "webdataset" : "images", tar ? "train" : "dir");
    td__init_word(t, in->seen);
    td__text_printf(t, "\n  size: %" PRId64 " # height and width of samples\n", size);
    if (s->grey)
        td__text_add(t, "  channels: 1 # the images are grey\n");
    td__text_add(t, "  resize: crop # the middle; random takes other parts in training, for large "
                    "images\n"
                    "  maps:\n    - crop: {pad: 2} # moved a little in training\n"
                    "    - flip # leave out where left and right differ, as in letters\n"
                    "    - normalize\n  threads: 2 # that decode\n");
    if (split)
        td__text_add(t,
                     "  split: {valid: 0.1, test: 0.1} # drawn at random, the same every time\n");
    td__init_train(in, &z, "0.001", "accuracy");
}

td_status td__init_images(td__init *in, bool tar)
{
    const td__source_def *def = td__source_find(tar ? "webdataset" : "images");
    td__source_opts o = {.dir = tar ? NULL : in->path, .train = tar ? in->path : NULL, .size = 8};
    td__dataset *d = NULL, *valid = NULL;
    seen s;
    td_status st = TD_OK;

    TD_TRY_OR(st, done, def->open(&o, "train", &d));
    TD_TRY_OR(st, done, look_at_some(d, &s));
    td_status has_valid = def->open(&o, "valid", &valid);
    write_job(in, d, &s, tar, has_valid != TD_OK);
    st = td__text_status(&in->text);
done:
    td__dataset_destroy(valid);
    td__dataset_destroy(d);
    return st;
}
