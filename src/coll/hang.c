/* hang.c -- see hang.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hang.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *td__phase_name(unsigned phase)
{
    static const char *const NAMES[] = {
#define X(id, name) name,
        TD_PHASE_MAP(X)
#undef X
    };
    return phase < TD_PHASE_COUNT ? NAMES[phase] : "?";
}

const char *td__hang_name(td__hang h)
{
    static const char *const NAMES[] = {
#define X(id, name) name,
        TD_HANG_MAP(X)
#undef X
    };
    return h < TD_HANG_COUNT ? NAMES[h] : "?";
}

char *td__doing_text(const td__doing *d, char *buf, size_t nbytes)
{
    bool what = d->what && *d->what, about = d->about && *d->about;
    snprintf(buf, nbytes, "%s%s%s%s%s%s at step %" PRIu64 " for %.1f s", td__phase_name(d->phase),
             what ? ": " : "", what ? d->what : "", about ? " (" : "", about ? d->about : "",
             about ? ")" : "", d->step, d->seconds);
    return buf;
}

bool td__process_stat(int pid, char *state, unsigned *flags)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* the name before it may hold anything */
    return p && sscanf(p + 1, " %c %*d %*d %*d %*d %*d %u", state, flags) == 2;
}

char td__process_state(int pid)
{
    char state;
    unsigned flags;
    return td__process_stat(pid, &state, &flags) ? state : 0;
}

bool td__process_ends(int pid)
{
    char state;
    unsigned flags;
    return td__process_stat(pid, &state, &flags) &&
           (state == 'Z' || state == 'X' || (flags & TD_PROCESS_EXITS));
}

td__hang td__hang_class(char state, unsigned phase)
{
    if (state == 0 || state == 'Z' || state == 'X')
        return TD_HANG_DEAD;
    if (state == 'T' || state == 't')
        return TD_HANG_STOPPED;
    if (state == 'D' || phase == TD_PHASE_DISK)
        return TD_HANG_DISK;
    if (phase == TD_PHASE_DATA)
        return TD_HANG_DATA;
    return phase == TD_PHASE_COMM ? TD_HANG_NETWORK : TD_HANG_COMPUTE;
}
