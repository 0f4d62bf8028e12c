/* data_impl.h -- the inside of td__data. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_DATA_IMPL_H
#define TD_DATA_DATA_IMPL_H

#include "data/data.h"
#include "data/map.h"

enum { TD__MAX_MAPS = 32, TD__MAX_OWNED = 3 * (TD__MAX_MAPS + TD__MAX_FIELDS + 4) };

struct td__data {
    td__dataset *part[TD_PART_COUNT];        /* the tops of the chains */
    td__dataset *source_part[TD_PART_COUNT]; /* their bottoms: as the source gives them */
    td__dataset *owned[TD__MAX_OWNED];       /* everything, bottom first */
    int n_owned;
    td__map *maps[TD__MAX_MAPS + TD__MAX_FIELDS];
    int n_maps;
    const td__source_def *def; /* NULL: samples come from elsewhere */
    char source[48];
    uint64_t hash_whole; /* td__data_opts */
    bool draws;          /* samples of train change every epoch, or that is not known */
    bool test_aside;     /* opts.input is the test part, but the share is cut off all the same */
    bool sample;         /* one sample to fill in: filters keep it, whatever it says */
};

/* A further stage over all parts. */
TD_NODISCARD td_status td__data_add_map(td__data *d, const td__map_opts *o, const td__fit *fit);

#endif
