/* log.h -- writing to the log, inside the library: TD_LOG(DEBUG, GRAPH, "%d nodes", n).
 *
 * When the level is off this costs one relaxed load and a compare, and the arguments are not
 * evaluated. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_LOG_H
#define TD_BASE_LOG_H

#include <stdatomic.h>

#include "tandem/log.h"

/* Level of each part; above all levels until the environment has been read. */
extern atomic_uchar td__log_levels[TD_LOG_PART_COUNT];

bool td__log_enabled_slow(td_log_level level, td_log_part part);

static inline bool td__log_enabled(td_log_level level, td_log_part part)
{
    return level <= atomic_load_explicit(&td__log_levels[part], memory_order_relaxed) &&
           td__log_enabled_slow(level, part);
}

#define TD_LOG(level, part, ...)                                            \
    do {                                                                    \
        if (td__log_enabled(TD_LOG_##level, TD_LOG_PART_##part))            \
            td__log_write(TD_LOG_##level, TD_LOG_PART_##part, __VA_ARGS__); \
    } while (0)

void td__log_write(td_log_level level, td_log_part part, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
