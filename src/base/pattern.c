/* pattern.c -- see pattern.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pattern.h"

#include <fnmatch.h>
#include <stdio.h>

bool td__pattern_matches(const char *pattern, const char *name)
{
    char inside[512];

    if (!fnmatch(pattern, name, FNM_NOESCAPE))
        return true;
    int n = snprintf(inside, sizeof inside, "%s.*", pattern);
    return n > 0 && n < (int)sizeof inside && !fnmatch(inside, name, FNM_NOESCAPE);
}

int td__patterns_find(const char *const *patterns, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (td__pattern_matches(patterns[i], name))
            return i;
    return -1;
}
