/* elastic_args.c -- see elastic_args.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1024, MOST_SPARES = 64, MOST_MS = 2000000000, MOST_RESTARTS = 1000000 };

bool td__parse_ms(const char *text, uint32_t *out)
{
    char *end;
    double ms = strtod(text, &end);
    if (end == text)
        return false;
    if (!*end || !strcmp(end, "s"))
        ms *= 1e3;
    else if (strcmp(end, "ms") != 0)
        return false;
    if (!(ms >= 1) || ms > MOST_MS) /* in the unit that it is kept in, where it must not overflow */
        return false;
    *out = (uint32_t)(ms + 0.5);
    return true;
}

/* "4" or "2:8". */
static bool parse_range(const char *text, int *min_ranks, int *most, bool *range)
{
    char *end;
    long lo = strtol(text, &end, 10), hi = lo;
    *range = *end == ':';
    if (*range)
        hi = strtol(end + 1, &end, 10);
    if (end == text || *end || lo < 1 || hi < lo || hi > MOST_RANKS)
        return false;
    *min_ranks = *range ? (int)lo : 1;
    *most = (int)hi;
    return true;
}

int td__elastic_args(const td__args *a, td__launch_opts *o)
{
    const char *ranks = td__args_value(a, "ranks"), *heartbeat = td__args_value(a, "heartbeat");
    const char *lease = td__args_value(a, "lease"), *hang = td__args_value(a, "hang");
    bool range = false, asked = td__args_has(a, "elastic") || td__args_has(a, "spares");
    long spares, restarts;
    if ((heartbeat && !td__parse_ms(heartbeat, &o->heartbeat_ms)) ||
        (lease && !td__parse_ms(lease, &o->lease_ms)))
        return td__usage_error(
            a, "--heartbeat, --lease: expected a time such as 1s or 200ms, up to 2000000s");
    if (hang && !strcmp(hang, "0"))
        o->hang_ms = UINT32_MAX;
    else if (hang && !td__parse_ms(hang, &o->hang_ms))
        return td__usage_error(
            a, "--hang: expected a time such as 240s, up to 2000000s, or 0 for never");
    bool fixed = !asked && !(ranks && strchr(ranks, ':'));
    uint32_t b = o->heartbeat_ms ? o->heartbeat_ms : 200;
    uint32_t none = !fixed ? 1000 : o->hang_ms ? o->hang_ms : UINT32_MAX; /* launch.h */
    uint32_t l = o->lease_ms ? o->lease_ms : none;
    if (l < 2 * b)
        return td__usage_error(a, "a lease of %u ms is too short for a heartbeat every %u ms%s", l,
                               b, o->lease_ms ? "" : "; give a longer --hang, or --lease");
    if (fixed) {
        if (!td__args_int(a, "restarts", 1, MOST_RESTARTS, 0, &restarts))
            return TD_EXIT_USAGE;
        o->restarts = (int)restarts;
        return TD_EXIT_OK;
    }
    if (!ranks)
        return td__usage_error(a, "the number of ranks is missing: give -n N or -n MIN:MAX");
    if (!parse_range(ranks, &o->min_ranks, &o->most, &range))
        return td__usage_error(a, "-n: expected N or MIN:MAX, up to %d, found '%s'",
                               (int)MOST_RANKS, ranks);
    o->capped = range;
    if (!td__args_int(a, "spares", 0, MOST_SPARES, 0, &spares) ||
        !td__args_int(a, "restarts", 1, MOST_RESTARTS, 5, &restarts))
        return TD_EXIT_USAGE;
    o->spares = (int)spares;
    o->crashes = (int)restarts;
    return TD_EXIT_OK;
}
