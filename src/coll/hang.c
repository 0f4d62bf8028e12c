/* hang.c -- see hang.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hang.h"

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

enum { STAT = 512, EXITING = 4 }; /* PF_EXITING of the kernel */

/* What /proc/PID/stat says behind the name, which may hold anything: "S 1 ..."; "": nothing. */
static const char *stat_of(int pid, char text[STAT])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, STAT - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')');
    return p && p[1] ? p + 2 : "";
}

char td__process_state(int pid)
{
    char text[STAT];
    return *stat_of(pid, text);
}

bool td__process_ends(int pid)
{
    char text[STAT], state;
    unsigned flags;
    int n = sscanf(stat_of(pid, text), "%c %*d %*d %*d %*d %*d %u", &state, &flags);
    return n < 2 || state == 'Z' || state == 'X' || (flags & EXITING);
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
