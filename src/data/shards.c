/* shards.c -- see shards.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/files.h"

enum { MOST_SHARDS = 65536 };

/* "a-{00..11}.tar": the places of the braces, the numbers and how many digits they have. */
typedef struct range {
    size_t begin, end;
    int64_t from, to;
    int digits;
} range;

static bool find_range(const char *name, range *r)
{
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL;
    const char *dots = open ? strstr(open, "..") : NULL;
    char *stop;

    if (!close || !dots || dots > close || dots - open > 10 || close - dots > 11)
        return false;
    r->from = strtol(open + 1, &stop, 10);
    bool good = stop == dots && stop > open + 1;
    r->to = strtol(dots + 2, &stop, 10);
    r->digits = (int)(dots - open - 1);
    r->begin = (size_t)(open - name);
    r->end = (size_t)(close - name) + 1;
    return good && stop == close && stop > dots + 2 && r->from >= 0 && r->to >= r->from;
}

static td_status map_one(const char *dir, const char *name, const char *expected,
                         td__file_map *maps, int *n)
{
    char path[TD__PATH];

    TD_TRY(td__data_path(dir, name, path));
    TD_TRY(td__data_map(path, expected, &maps[*n]));
    ++*n;
    return TD_OK;
}

td_status td__shards_open(const char *source, const char *dir, const char *name,
                          const char *expected, td__file_map **maps, int *n)
{
    range r = {0};
    bool several = find_range(name, &r);

    if (several && r.to - r.from >= MOST_SHARDS)
        return TD_FAIL(TD_EINVAL, "%s: %s: more than %d files", source, name, MOST_SHARDS);
    *maps = td__calloc(several ? (size_t)(r.to - r.from) + 1 : 1, sizeof **maps);
    if (!*maps)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for its files", source);
    if (!several)
        return map_one(dir, name, expected, *maps, n);
    for (int64_t i = r.from; i <= r.to; i++) {
        char one[TD__PATH];
        int len = snprintf(one, sizeof one, "%.*s%0*" PRId64 "%s", (int)r.begin, name, r.digits, i,
                           name + r.end);
        if (len < 0 || len >= (int)sizeof one)
            return TD_FAIL(TD_EINVAL, "%s: the name %.60s... is too long", source, name);
        TD_TRY(map_one(dir, one, expected, *maps, n));
    }
    return TD_OK;
}
