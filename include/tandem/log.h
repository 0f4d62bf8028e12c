/* tandem/log.h -- what the library says: levels x subsystems, and where the lines go.
 *
 * Until told otherwise, warnings and errors go to standard error, and the environment variable
 * TANDEM_LOG (the same text as td_log_configure takes) may change the levels.
 *
 * Threads   All functions may be called from any thread. The sink is called by one thread at a
 *           time, and must not log or call these functions itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LOG_H
#define TD_LOG_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TD_LOG_LEVEL_MAP(X) \
    X(OFF, "off")           \
    X(ERROR, "error")       \
    X(WARN, "warn")         \
    X(INFO, "info")         \
    X(DEBUG, "debug")       \
    X(TRACE, "trace")

typedef enum td_log_level {
#define X(id, name) TD_LOG_##id,
    TD_LOG_LEVEL_MAP(X)
#undef X
        TD_LOG_LEVEL_COUNT
} td_log_level;

/* The parts of the library, named as their folders. */
#define TD_LOG_PART_MAP(X)  \
    X(BASE, "base")         \
    X(TENSOR, "tensor")     \
    X(OPS, "ops")           \
    X(GRAPH, "graph")       \
    X(BACKEND, "backend")   \
    X(NN, "nn")             \
    X(OPTIM, "optim")       \
    X(DATA, "data")         \
    X(NET, "net")           \
    X(COLL, "coll")         \
    X(PLAN, "plan")         \
    X(PARALLEL, "parallel") \
    X(PS, "ps")             \
    X(TRAIN, "train")       \
    X(JOB, "job")           \
    X(LAUNCH, "launch")     \
    X(SERVICE, "service")

typedef enum td_log_part {
#define X(id, name) TD_LOG_PART_##id,
    TD_LOG_PART_MAP(X)
#undef X
        TD_LOG_PART_COUNT
} td_log_part;

TD_API const char *td_log_level_name(td_log_level level); /* "debug"; "?" for an unknown value */
TD_API const char *td_log_part_name(td_log_part part);

/* One level for all parts. */
TD_API void td_log_set_level(td_log_level level);
/* "debug", or "graph=debug,backend=trace", or "warn,graph=debug", read from left to right.
 * TD_EINVAL, and nothing changed, if a name is unknown. */
TD_NODISCARD TD_API td_status td_log_configure(const char *spec);

/* Where lines go. `line` holds the whole line without a newline and is borrowed. NULL: back to
 * standard error. When this returns, the old sink is not running and will not be called again. */
typedef void (*td_log_sink)(void *user, td_log_level level, td_log_part part, const char *line);
TD_API void td_log_set_sink(td_log_sink sink, void *user);

/* Lines of the calling thread carry this rank; -1, as at the start, for none. */
TD_API void td_log_set_rank(int rank);

#ifdef __cplusplus
}
#endif
#endif
