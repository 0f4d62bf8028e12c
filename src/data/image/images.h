/* images.h -- samples that are images in files: decoded when they are read, by the threads that
 * prepare batches; what the sources of images share.
 *
 *   x  (channels, height, width), bytes
 *   y  the class
 *
 * An image is cut to the shape of samples and scaled (data.size, data.width), by data.resize:
 *   crop     the largest middle part of the right shape (the default)
 *   stretch  all of it, whatever that does to its shape
 *   random   in training, a random part of 8 % to 100 % of its area, between 3/4 and 4/3 as wide as
 *            the shape asks for, as torchvision's RandomResizedCrop; in evaluation as crop
 * Without data.size all images must have the size of the first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_IMAGES_H
#define TD_DATA_IMAGES_H

#include "base/alloc.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/source.h"

/* One encoded image. */
typedef struct td__image_item {
    const char *name;    /* of its file, for opening and for texts */
    const uint8_t *data; /* NULL: read the file */
    size_t nbytes;
    int32_t label;
} td__image_item;

/* Zero-initialised, then filled by the source; all memory in the arena. */
typedef struct td__image_list {
    td__arena *arena;
    td__image_item *items; /* own */
    int64_t count, room;
    const char **classes; /* sorted; NULL: classes have no names */
    int64_t n_classes;
    td__file_map *maps; /* files that items lie in; own */
    int n_maps;
} td__image_list;

TD_NODISCARD td_status td__image_list_add(td__image_list *l, const td__image_item *item);
void td__image_list_fini(td__image_list *l);
/* The samples; takes what is in the list. `source` is its name in texts. */
TD_NODISCARD td_status td__images_create(td__image_list *l, const char *source,
                                         const td__source_opts *o, td__dataset **out);
/* The classes of a trained model, in place of those of the train part. */
TD_NODISCARD td_status td__image_list_fitted(td__image_list *l, const td__fit *fit);
/* What sample i of such a dataset is read from. */
const td__image_item *td__images_item(const td__dataset *d, int64_t i);
/* -1: there is no such class. */
int64_t td__image_list_class(const td__image_list *l, const char *name);

#endif
