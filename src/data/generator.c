/* generator.c -- what sources that make their samples share; see generator.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/generator.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "data/data.h"

enum { TENTH = 10, LEAST = 100 };

td_status td__generator_part(const char *source, const td__source_opts *o, const char *part,
                             int64_t default_count, int64_t *count, uint32_t *number)
{
    int64_t n = o->count ? o->count : default_count;
    int p = 0;

    if (n < 1)
        return TD_FAIL(TD_EINVAL, "%s: count is %" PRId64 ", expected at least 1", source, n);
    if (!(o->noise >= 0) || !isfinite(o->noise))
        return TD_FAIL(TD_EINVAL, "%s: noise is %g, expected a number >= 0", source, o->noise);
    while (p < TD_PART_COUNT && strcmp(part, td__part_name((td__part)p)) != 0)
        p++;
    if (p == TD_PART_COUNT)
        return TD_FAIL(TD_ENOTSUP, "%s has no part '%s'", source, part);
    *number = (uint32_t)p;
    *count = p == TD_PART_TRAIN ? n : n / TENTH < LEAST ? LEAST : n / TENTH;
    return TD_OK;
}

td__rng_key td__generator_key(uint64_t seed, uint32_t part, int64_t sample)
{
    return (td__rng_key){.seed = seed,
                         .stream = UINT32_C(0x6e0d1915) ^ (uint32_t)((uint64_t)sample >> 32),
                         .step = part,
                         .micro_batch = (uint32_t)sample};
}
