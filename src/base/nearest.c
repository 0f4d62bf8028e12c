/* nearest.c -- edit distance (optimal string alignment), three rows of the usual table at a time.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST = 63 };

static int lower(char c)
{
    return tolower((unsigned char)c);
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

int td__edit_distance(const char *a, const char *b)
{
    int row[3][MOST + 1]; /* rows i-2, i-1, i, by i modulo 3 */
    int na = (int)strnlen(a, MOST), nb = (int)strnlen(b, MOST);

    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3];
        const int *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            now[j] = min(min(up[j], now[j - 1]) + 1, up[j - 1] + !same);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                now[j] = min(now[j], up2[j - 2] + 1);
        }
    }
    return row[na % 3][nb];
}

void td__nearest_offer(td__nearest *n, const char *name)
{
    int d = td__edit_distance(n->word, name);
    int limit = 1 + (int)strnlen(n->word, MOST) / 3;

    if (d <= limit && (!n->best || d < n->distance)) {
        n->best = name;
        n->distance = d;
    }
}
