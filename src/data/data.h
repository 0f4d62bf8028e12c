/* data.h -- the data of a job: a source cut in train, valid and test, with its map stages
 * applied.
 *
 * Splits    A part that the source has no file for is cut from "train" by fraction: disjoint,
 *           seeded, the same for everybody. Fractions of 0 leave the part empty (NULL).
 * Maps      Stages that change a sample's fields, applied in order when samples are read. Stages
 *           that draw (crop, flip) are keyed by (seed, epoch, sample), so that they do not depend
 *           on who reads; they are left out in evaluation. Stages stand over each part, after the
 *           splits: what they measure, they measure on train alone.
 * Bytes     A field of bytes (u8, not a class) that no stage has turned into numbers becomes f32 in
 *           0 .. 1 at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_DATA_H
#define TD_DATA_DATA_H

#include "base/text.h"
#include "data/fit.h"
#include "data/source.h"

/* One map or filter stage: a def in one file (map_*.c) and a line in maps.def. */
typedef struct td__map_opts {
    const char *name; /* "normalize", "crop", "flip", "pad", "one_hot", "tokenize", "filter", ... */
    const char *field; /* "x" */
    double a, b;       /* normalize: mean, std (both 0: measured on the train part); pad: value */
    int64_t size, size2, pad;
    const char *text;              /* filter: "y < 5", tokenize: unit */
    const struct td__map_def *def; /* a stage that is not in maps.def, and its own; NULL: by name */
    const void *user;
} td__map_opts;

typedef enum td__part { TD_PART_TRAIN, TD_PART_VALID, TD_PART_TEST, TD_PART_COUNT } td__part;

typedef struct td__data_opts {
    const char *source;
    td__source_opts source_opts;
    double valid_fraction, test_fraction; /* for parts without files */
    const char *order;    /* "file": they are the last samples; NULL, "random": drawn */
    int64_t folds, fold;  /* valid is fold `fold` of so many of what test leaves; 0: a fraction */
    const char *measured; /* "train": tables are measured on rows that stay in train; NULL, "all":
                             on the whole train file */
    const td__map_opts *maps;
    int n_maps;
    /* NULL, "memory", or a file's path (a file per part: PATH.train ...): samples as they are
     * before the first stage that draws. */
    const char *cache;
    uint64_t seed;
    /* NULL, or a file of new samples, with labels or without, that takes the place of the test
     * part. All else is as without it: what would have been cut off as test is set aside. Nothing
     * is cached in a file. */
    const char *input;
    bool input_labelled; /* its samples must have labels */
    /* NULL, or what was measured when a model was trained (fit.h): nothing is measured anew, and
     * with `input` the test part is the only one that is opened. Borrowed while opening. */
    const td__fit *fit;
    const char *changed; /* "accept": a run may go on with other data than it began with */
    /* Bytes of a part up to which its digest is one of all its samples; 0: 1 GB. */
    uint64_t hash_whole;
    /* NULL, or who opens a part instead of the source, with the same statuses: for samples that
     * come from elsewhere. */
    td_status (*open_part)(void *user, td__part part, td__dataset **out);
    void *open_user;
} td__data_opts;

typedef struct td__data td__data;
/* A part as the source gives it. o->source is known; open_part and input are not looked at. */
TD_NODISCARD td_status td__data_open_source(const td__data_opts *o, td__part part,
                                            td__dataset **out);
/* Opens everything there is to open and checks it. opts is copied as far as it is needed later. */
TD_NODISCARD td_status td__data_open(const td__data_opts *opts, td__data **out);
/* Parts that are there already: borrowed, NULL: there is none, taken as they are. */
TD_NODISCARD td_status td__data_of(const char *source, td__dataset *const part[TD_PART_COUNT],
                                   td__data **out);
/* One sample as the test part, after the stages of opts, by opts->fit alone. As the source gives it
 * (td__data_source_part) it is a td__table of zeros, to fill in; no stage drops it. Bytes that no
 * stage has turned into numbers stay bytes, which models scale themselves. */
TD_NODISCARD td_status td__data_sample(const td__data_opts *opts, td__data **out);
void td__data_close(td__data *d);                       /* NULL is allowed */
const char *td__data_source(const td__data *d);         /* "digits" */
td__dataset *td__data_part(td__data *d, td__part part); /* NULL: there is none */
/* A part as the source gives it, before splits and stages; NULL: it has no file of its own. */
td__dataset *td__data_source_part(td__data *d, td__part part);
/* May samples of train be others in the next epoch: a stage draws, or the program makes them? */
bool td__data_draws(const td__data *d);
const char *td__part_name(td__part part); /* "train" */
/* The fields that samples have after the maps, the same for all parts. */
int td__data_fields(const td__data *d, const td__field **out);

/* What was measured on the train part, as the text of a fit, with digests of the parts. Nothing is
 * appended for data that come from elsewhere than a source. */
TD_NODISCARD td_status td__data_fit(td__data *d, td__text *out);
/* How new samples are made of rows, as JSON for other programs, of data that were opened with o and
 * its fit; src/export/samples.py does it by that, in Python:
 *
 *     {"source": "csv",
 *      "options": {"window": 0, "stride": 0, "size": 0, "resize": null},
 *      "measured": {...}, "fields": [...],    as in the fit
 *      "stages": [{"map": "crop", "field": "x", "size": 32, "size2": 32, "pad": 4, "a": 0, "b": 0,
 *                  "unit": null}, ...],       as they were opened, with what they measured
 *      "targets": [...]}                      the fields after the stages */
TD_NODISCARD td_status td__data_recipe(const td__data *d, const td__data_opts *o, td__text *out);
/* What the source says of the columns of the train part, a line each, for people; nothing for
 * sources without columns. */
TD_NODISCARD td_status td__data_columns(const td__data *d, td__text *out);
/* Are these the samples that the fit was made of? If not, `what` says which are not: "the train
 * part has 120 samples, not 150". */
TD_NODISCARD td_status td__data_changed(td__data *d, const td__fit *fit, bool *changed, char *what,
                                        size_t nbytes);

#endif
