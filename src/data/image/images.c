/* images.c -- samples that are images in files; see images.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/images.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/rng.h"
#include "data/files.h"
#include "data/fit_json.h"
#include "data/image/image.h"
#include "data/map.h"

enum { MOST_SIZE = 16384, TRIES = 10, FIRST_ROOM = 256 };
enum {
    STREAM_STAGE = 1 << 20
}; /* the source draws as a stage of its own: no map has this number */

typedef struct images {
    td__dataset head;
    td__image_list list;
    int64_t height, width, channels;
    bool stretch, random, any_size;
    _Atomic(td__image *) *kept; /* (count) decoded, by the first thread that wanted it; NULL: no */
} images;

/* ---- The list -------------------------------------------------------------------------------- */

td_status td__image_list_add(td__image_list *l, const td__image_item *item)
{
    if (l->count == l->room) {
        int64_t room = l->room ? l->room * 2 : FIRST_ROOM;
        td__image_item *more = td__realloc(l->items, (size_t)room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for a list of %" PRId64 " images", room);
        l->items = more;
        l->room = room;
    }
    l->items[l->count++] = *item;
    return TD_OK;
}

void td__image_list_fini(td__image_list *l)
{
    for (int i = 0; i < l->n_maps; i++)
        td__file_map_close(&l->maps[i]);
    td__free(l->maps);
    td__free(l->items);
    td__arena_destroy(l->arena);
    *l = (td__image_list){0};
}

static int by_name(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

int64_t td__image_list_class(const td__image_list *l, const char *name)
{
    const char **at =
        l->classes ? bsearch(name, l->classes, (size_t)l->n_classes, sizeof *l->classes, by_name)
                   : NULL;
    return at ? at - l->classes : -1;
}

td_status td__image_list_fitted(td__image_list *l, const td__fit *fit)
{
    td__field fields[TD__MAX_FIELDS];
    int n;

    TD_TRY(td__fit_fields(fit, l->arena, fields, &n));
    for (int i = 0; i < n; i++)
        if (!strcmp(fields[i].name, "y")) {
            l->n_classes = fields[i].classes;
            l->classes = (const char **)(uintptr_t)fields[i].class_names;
            return TD_OK;
        }
    return td__fit_bad(fit, "it has no field y");
}

/* ---- Reading --------------------------------------------------------------------------------- */

const td__image_item *td__images_item(const td__dataset *d, int64_t i)
{
    return &((const images *)d)->list.items[i];
}

static void images_destroy(td__dataset *d)
{
    images *s = (images *)d;

    for (int64_t i = 0; s->kept && i < s->list.count; i++) {
        td__image *m = atomic_load(&s->kept[i]);
        if (m)
            td__image_fini(m);
        td__free(m);
    }
    td__free((void *)s->kept);
    td__image_list_fini(&s->list);
    td__free(s);
}

static double uniform(const td__rng_key *key, uint64_t at)
{
    return ((double)td__rng_u32(key, at) + 0.5) / 4294967296.0;
}

/* A random part; after some tries that do not fit, the middle. */
static td__box random_box(const images *s, const td__image *m, const td__draw *draw, int64_t index)
{
    td__map stage = {.stage = STREAM_STAGE};
    td__rng_key key = td__map_key(&stage, draw, index);
    double shape = (double)s->width / (double)s->height,
           area = (double)m->width * (double)m->height;

    for (uint64_t t = 0; t < TRIES; t++) {
        double part = area * (0.08 + 0.92 * uniform(&key, 4 * t));
        /* Without exp and log, whose last bits differ between processors. */
        double u = 2 * uniform(&key, 4 * t + 1);
        double ratio = u < 1 ? shape * (1 - u / 4) : shape / (1 - (u - 1) / 4);
        int64_t width = llround(sqrt(part * ratio)), height = llround(sqrt(part / ratio));
        if (width < 1 || height < 1 || width > m->width || height > m->height)
            continue;
        uint64_t lefts = (uint64_t)(m->width - width) + 1,
                 tops = (uint64_t)(m->height - height) + 1;
        return (td__box){.left = (int64_t)(td__rng_u32(&key, 4 * t + 2) * lefts >> 32),
                         .top = (int64_t)(td__rng_u32(&key, 4 * t + 3) * tops >> 32),
                         .width = width,
                         .height = height};
    }
    return td__image_middle(m, s->width, s->height);
}

static td_status decode(const td__image_item *item, td__image *out)
{
    td__file_map m;

    if (item->data)
        return td__image_decode(item->data, item->nbytes, item->name, TD__IMAGE_PIXELS, out);
    TD_TRY(td__file_map_open(&m, item->name));
    td_status st = td__image_decode(m.data, m.nbytes, item->name, TD__IMAGE_PIXELS, out);
    td__file_map_close(&m);
    return st;
}

/* What a sample is made of an image. */
static td_status cut(const images *s, const td__image *m, int64_t index, const td__draw *draw,
                     uint8_t *x)
{
    td__box box = {.width = m->width, .height = m->height};

    if (!s->any_size && (m->width != s->width || m->height != s->height))
        return TD_FAIL(TD_EPROTO,
                       "%s: %" PRId64 " x %" PRId64 " pixels, the first image has %" PRId64
                       " x %" PRId64 ": set data.size to scale all to one size",
                       s->list.items[index].name, m->width, m->height, s->width, s->height);
    if (s->random && draw)
        box = random_box(s, m, draw, index);
    else if (!s->stretch)
        box = td__image_middle(m, s->width, s->height);
    return td__image_scale(m, &box, s->width, s->height, s->channels, x);
}

/* The image, which stays. Of two threads that decode it at once one keeps it. */
static td_status keep(const images *s, int64_t index, const td__image **out)
{
    td__image *m = atomic_load(&s->kept[index]), *other = NULL;

    *out = m;
    if (m)
        return TD_OK;
    m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory to cache the image %s", s->list.items[index].name);
    td_status st = decode(&s->list.items[index], m);
    if (st || !atomic_compare_exchange_strong(&s->kept[index], &other, m)) {
        td__image_fini(m);
        td__free(m);
        m = other;
    }
    *out = m;
    return st;
}

static td_status read_one(const images *s, int64_t index, const td__draw *draw, uint8_t *x)
{
    const td__image *kept;
    td__image own;

    if (s->kept) {
        TD_TRY(keep(s, index, &kept));
        return cut(s, kept, index, draw, x);
    }
    TD_TRY(decode(&s->list.items[index], &own));
    td_status st = cut(s, &own, index, draw, x);
    td__image_fini(&own);
    return st;
}

static td_status images_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    const images *s = (const images *)d;
    size_t each = td__field_nbytes(&d->fields[0]);

    for (int64_t i = 0; i < n; i++) {
        TD_TRY(read_one(s, index[i], draw, (uint8_t *)out[0] + (size_t)i * each));
        ((int32_t *)out[1])[i] = s->list.items[index[i]].label;
    }
    return TD_OK;
}

static td_status images_stored(td__dataset *d, int64_t i, td__stored *out)
{
    const td__image_item *item = &((const images *)d)->list.items[i];

    *out = (td__stored){.data = item->data, .nbytes = item->nbytes, .label = item->label};
    if (item->data)
        return TD_OK;
    TD_TRY(td__file_map_open(&out->map, item->name));
    out->data = out->map.data;
    out->nbytes = out->map.nbytes;
    return TD_OK;
}

static td_status images_read_field(td__dataset *d, int field, const int64_t *index, int64_t n,
                                   void *out)
{
    if (field != 1)
        return TD_ENOTSUP;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)out)[i] = ((const images *)d)->list.items[index[i]].label;
    return TD_OK;
}

static const char *images_name(const td__dataset *d, int64_t i)
{
    return td__images_item(d, i)->name;
}

static const td__dataset_ops OPS = {.destroy = images_destroy,
                                    .read = images_read,
                                    .stored = images_stored,
                                    .read_field = images_read_field,
                                    .name = images_name};

/* ---- Opening --------------------------------------------------------------------------------- */

/* The size of the first image is that of all. */
static td_status size_of_first(images *s)
{
    td__image first;

    TD_TRY(decode(&s->list.items[0], &first));
    s->width = first.width;
    s->height = first.height;
    td__image_fini(&first);
    return TD_OK;
}

static td_status check_opts(const td__source_opts *o, const char *source)
{
    if (o->size < 0 || o->size > MOST_SIZE || o->width < 0 || o->width > MOST_SIZE)
        return TD_FAIL(TD_EINVAL, "%s: size %" PRId64 " x %" PRId64 ": expected 1 to %d", source,
                       o->size, o->width, MOST_SIZE);
    if (o->channels != 0 && o->channels != 1 && o->channels != 3)
        return TD_FAIL(TD_EINVAL, "%s: channels is %" PRId64 ", expected 1 (grey) or 3 (colour)",
                       source, o->channels);
    if (!o->size && (o->width || o->resize))
        return TD_FAIL(TD_EINVAL, "%s: %s needs size", source, o->width ? "width" : "resize");
    return TD_OK;
}

static td_status fill(images *s, const char *source, const td__source_opts *o)
{
    s->any_size = o->size != 0;
    s->height = o->size;
    s->width = o->width ? o->width : o->size;
    s->channels = o->channels ? o->channels : 3;
    s->stretch = o->resize && !strcmp(o->resize, "stretch");
    s->random = o->resize && !strcmp(o->resize, "random");
    if (s->list.count == 0)
        return TD_FAIL(TD_EINVAL, "%s: no images", source);
    if (o->keep_images) {
        s->kept = td__calloc((size_t)s->list.count, sizeof *s->kept);
        if (!s->kept)
            return TD_FAIL(TD_ENOMEM, "%s: no memory to cache %" PRId64 " images", source,
                           s->list.count);
    }
    if (!s->any_size)
        TD_TRY(size_of_first(s));
    s->head = (td__dataset){.ops = &OPS, .count = s->list.count, .n_fields = 2, .costly = true};
    s->head.fields[0] = (td__field){
        .name = "x", .dtype = TD_U8, .shape = TD_SHAPE(s->channels, s->height, s->width)};
    s->head.fields[1] = (td__field){
        .name = "y", .dtype = TD_I32, .classes = s->list.n_classes, .class_names = s->list.classes};
    return TD_OK;
}

td_status td__images_create(td__image_list *l, const char *source, const td__source_opts *o,
                            td__dataset **out)
{
    *out = NULL;
    TD_TRY(check_opts(o, source));
    images *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "%s: no memory", source);
    s->list = *l;
    *l = (td__image_list){0};
    td_status st = fill(s, source, o);
    if (st) {
        images_destroy(&s->head);
        return st;
    }
    *out = &s->head;
    return TD_OK;
}
