/* generator.h -- what sources that make their samples share: parts, counts and random keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_GENERATOR_H
#define TD_DATA_GENERATOR_H

#include "base/rng.h"
#include "data/source.h"

/* Checks the options and gives the part's number and its count of samples: `count` for train, a
 * tenth of it, but at least 100, for valid and test. */
TD_NODISCARD td_status td__generator_part(const char *source, const td__source_opts *o,
                                          const char *part, int64_t default_count, int64_t *count,
                                          uint32_t *number);

/* The random stream of one sample. */
td__rng_key td__generator_key(uint64_t seed, uint32_t part, int64_t sample);

#endif
