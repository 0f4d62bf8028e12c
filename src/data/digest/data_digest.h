/* data_digest.h -- whether the samples of a part are still those that a model was trained on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_DATA_DIGEST_H
#define TD_DATA_DATA_DIGEST_H

#include <jansson.h>

#include "data/data_impl.h"

/* A part as preprocessing.json has it: {"count": 150, "whole": true, "sha256": "..."}. `before`: as
 * it was described then, so that it is hashed likewise; NULL: as is best for its size. Where it
 * cannot be hashed as before (its files are with another rank) it is taken to have the digest it
 * had. */
TD_NODISCARD td_status td__data_describe(const td__data *d, td__dataset *part, const json_t *before,
                                         json_t **out);

#endif
