/* log.c -- levels, lines and the sink.
 *
 * A line is made whole on the stack, then given to the sink under `lock`, so that lines of
 * different threads do not mix:
 *
 *     2026-03-01T12:00:00.123Z warn  graph [rank 2] text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/config.h"
#include "base/fail.h"

enum { LINE_BYTES = 2048, UNREAD = 255, DEFAULT_LEVEL = TD_LOG_WARN };

atomic_uchar td__log_levels[TD_LOG_PART_COUNT] = {
#define X(id, name) [TD_LOG_PART_##id] = UNREAD,
    TD_LOG_PART_MAP(X)
#undef X
};

static const char *const LEVELS[TD_LOG_LEVEL_COUNT] = {
#define X(id, name) [TD_LOG_##id] = name,
    TD_LOG_LEVEL_MAP(X)
#undef X
};

static const char *const PARTS[TD_LOG_PART_COUNT] = {
#define X(id, name) [TD_LOG_PART_##id] = name,
    TD_LOG_PART_MAP(X)
#undef X
};

static void write_stderr(void *user, td_log_level level, td_log_part part, const char *line)
{
    (void)user;
    (void)level;
    (void)part;
    fprintf(stderr, "%s\n", line);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* sink and its calls; a leaf lock */
static td_log_sink sink = write_stderr;
static void *sink_user;
static _Thread_local int rank_of_thread = -1;

const char *td_log_level_name(td_log_level level)
{
    return (unsigned)level < TD_LOG_LEVEL_COUNT ? LEVELS[level] : "?";
}

const char *td_log_part_name(td_log_part part)
{
    return (unsigned)part < TD_LOG_PART_COUNT ? PARTS[part] : "?";
}

static int find_name(const char *const *names, int n, const char *s, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0)
            return i;
    return -1;
}

/* Apply a specification to `levels`; the offending item's start on failure, else NULL. */
static const char *parse_spec(const char *spec, unsigned char *levels)
{
    for (const char *s = spec; *s; s += *s == ',') {
        size_t len = strcspn(s, ",");
        const char *eq = memchr(s, '=', len);
        const char *name = eq ? eq + 1 : s;
        int level = find_name(LEVELS, TD_LOG_LEVEL_COUNT, name, len - (size_t)(name - s));
        int part = eq ? find_name(PARTS, TD_LOG_PART_COUNT, s, (size_t)(eq - s)) : 0;
        if (level < 0 || part < 0)
            return s;
        if (eq)
            levels[part] = (unsigned char)level;
        else
            memset(levels, level, TD_LOG_PART_COUNT);
        s += len;
    }
    return NULL;
}

static void store_levels(const unsigned char *levels)
{
    for (int i = 0; i < TD_LOG_PART_COUNT; i++)
        atomic_store_explicit(&td__log_levels[i], levels[i], memory_order_relaxed);
}

static void read_environment(void)
{
    unsigned char levels[TD_LOG_PART_COUNT];
    const char *spec = td__env_get(TD_ENV_LOG);

    memset(levels, DEFAULT_LEVEL, sizeof levels);
    if (spec && parse_spec(spec, levels))
        fprintf(stderr, "tandem: %s=%s is not a log level; ignored\n", td__env_name(TD_ENV_LOG),
                spec);
    store_levels(levels);
}

bool td__log_enabled_slow(td_log_level level, td_log_part part)
{
    pthread_once(&once, read_environment);
    return level <= atomic_load_explicit(&td__log_levels[part], memory_order_relaxed);
}

void td_log_set_level(td_log_level level)
{
    unsigned char levels[TD_LOG_PART_COUNT];

    pthread_once(&once, read_environment);
    memset(levels, (unsigned)level < TD_LOG_LEVEL_COUNT ? (int)level : TD_LOG_TRACE, sizeof levels);
    store_levels(levels);
}

td_status td_log_configure(const char *spec)
{
    unsigned char levels[TD_LOG_PART_COUNT];

    pthread_once(&once, read_environment);
    for (int i = 0; i < TD_LOG_PART_COUNT; i++)
        levels[i] = atomic_load_explicit(&td__log_levels[i], memory_order_relaxed);
    const char *bad = parse_spec(spec, levels);
    if (bad)
        return TD_FAIL(TD_EINVAL, "log levels \"%s\": \"%.*s\" is neither a level nor part=level",
                       spec, (int)strcspn(bad, ","), bad);
    store_levels(levels);
    return TD_OK;
}

void td_log_set_sink(td_log_sink to, void *user)
{
    pthread_mutex_lock(&lock);
    sink = to ? to : write_stderr;
    sink_user = to ? user : NULL;
    pthread_mutex_unlock(&lock);
}

void td_log_set_rank(int rank)
{
    rank_of_thread = rank;
}

void td__log_write(td_log_level level, td_log_part part, const char *fmt, ...)
{
    char line[LINE_BYTES], rank[24] = "";
    struct timespec now;
    struct tm tm;
    va_list ap;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    if (rank_of_thread >= 0)
        snprintf(rank, sizeof rank, " [rank %d]", rank_of_thread);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %-5s %s%s ", now.tv_nsec / 1000000,
                          LEVELS[level], PARTS[part], rank);
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - n, fmt, ap);
    va_end(ap);

    pthread_mutex_lock(&lock);
    sink(sink_user, level, part, line);
    pthread_mutex_unlock(&lock);
}
