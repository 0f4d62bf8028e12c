/* pipeline.h -- the datasets of tandem/data.h: samples (dataset.h), how they are given out, and the
 * loader that does so. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_PIPELINE_H
#define TD_DATA_PIPELINE_H

#include <stdatomic.h>

#include "data/loader.h"
#include "data/map.h"
#include "tandem/data.h"

/* How samples are given out: what shuffle, batch, repeat, prefetch and for_rank set. */
typedef struct td__giving {
    bool shuffle, drop_last;
    uint64_t seed;
    int64_t batch;
    uint64_t epochs;
    int prefetch, threads;
    int rank, world;
} td__giving;

struct td_dataset {
    atomic_int refs;      /* the caller's, and one of each dataset made from this one */
    td_dataset *below[2]; /* kept alive */
    td__dataset *samples;
    td__dataset *own; /* samples, if they are made here; NULL: they are those of below[0] */
    td__map *map;     /* of own; NULL: none */
    int stage;        /* map stages up to here: key of what the next one draws */
    td__giving giving;
    td__loader *loader; /* made by the first next() */
    td_batch batch;     /* lent to the caller */
};

td_dataset *td__pipeline_retain(td_dataset *d); /* NULL is allowed */

/* A dataset with samples of its own (taken, also on failure; with the map that they use, or NULL)
 * and the order of `base`, which is kept alive (NULL: none). */
TD_NODISCARD td_status td__pipeline_take(td_dataset *base, td__dataset *own, td__map *map,
                                         td_dataset **out);

/* A dataset of samples that are somebody else's, and outlive it. */
TD_NODISCARD td_status td__pipeline_borrow(td__dataset *samples, td_dataset **out);

/* The other way round: the samples of a dataset, which is kept alive. */
TD_NODISCARD td_status td__pipeline_view(td_dataset *of, td__dataset **out);

/* The caller's description of fields, checked. */
TD_NODISCARD td_status td__pipeline_fields(const char *what, const td_field *fields, int n,
                                           td__field *out);
/* A failure of the caller's function: its status, and a text that names the sample. */
td_status td__pipeline_failed(td_status st, const char *what, int64_t index);

#endif
