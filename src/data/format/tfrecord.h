/* tfrecord.h -- records of TFRecord files, and the features of a tf.train.Example.
 *
 * A record is its length (u64, little-endian), the masked crc32c of that, its bytes, and their
 * masked crc32c. An Example is a protobuf message: Example.features (1) holds Features.feature (1),
 * a map of names to Feature, which is a list of bytes (1), floats (2) or int64 (3). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_TFRECORD_H
#define TD_DATA_TFRECORD_H

#include "tandem/status.h"

/* Zero-initialise, with data, nbytes and where set. */
typedef struct td__tfrecords {
    const uint8_t *data;
    size_t nbytes, at;
    const char *where;
    int64_t number;        /* of the record found, from 1 */
    const uint8_t *record; /* that was found */
    size_t record_nbytes;
} td__tfrecords;
/* The next record, its sums checked; *end: there is none. TD_EPROTO: not such a file, or
 * damaged. */
TD_NODISCARD td_status td__tfrecord_next(td__tfrecords *t, bool *end);

typedef enum td__example_kind {
    TD_EXAMPLE_NONE,
    TD_EXAMPLE_BYTES,
    TD_EXAMPLE_FLOATS,
    TD_EXAMPLE_INTS
} td__example_kind;

/* A feature of an Example; pointers into its bytes. */
typedef struct td__example_feature {
    const char *name; /* not terminated */
    size_t name_nbytes;
    td__example_kind kind;
    const uint8_t *list; /* the message of the list */
    size_t list_nbytes;
    int64_t count; /* values */
} td__example_feature;

/* Calls see() for every feature, in the order of the file. False: it is not an Example. */
typedef bool (*td__example_see)(void *user, const td__example_feature *f);
bool td__example_walk(const uint8_t *data, size_t nbytes, td__example_see see, void *user);
/* Value i of numbers; of floats and ints. At most f->count are written. */
void td__example_numbers(const td__example_feature *f, double *out);
/* The first value of bytes; NULL: there is none. */
const uint8_t *td__example_bytes(const td__example_feature *f, size_t *nbytes);

#endif
