/* human.c -- sizes, counts and times as people write them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Three digits with a prefix of the row. */
static char *scaled(double v, const char *const *prefix, int n, char *buf)
{
    int i = 0;
    while (i + 1 < n && fabs(v) >= 999.5) {
        v /= 1000;
        i++;
    }
    int digits = i == 0 && v == floor(v) ? 0 : fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0;
    snprintf(buf, TD__HUMAN, "%.*f%s", digits, v, prefix[i]);
    return buf;
}

char *td__human_bytes(double nbytes, char buf[TD__HUMAN])
{
    static const char *const PREFIX[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return scaled(nbytes, PREFIX, 6, buf);
}

char *td__human_si(double v, char buf[TD__HUMAN])
{
    static const char *const PREFIX[] = {"", " k", " M", " G", " T", " P"};
    return scaled(v, PREFIX, 6, buf);
}

char *td__human_count(int64_t n, char buf[TD__HUMAN])
{
    char plain[TD__HUMAN];
    int len = snprintf(plain, sizeof plain, "%" PRId64, n), at = 0;

    for (int i = 0; i < len; i++) {
        if (i && plain[i - 1] != '-' && (len - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = plain[i];
    }
    buf[at] = 0;
    return buf;
}

char *td__human_seconds(double s, char buf[TD__HUMAN])
{
    if (!(s >= 0) || s > 1e15)
        snprintf(buf, TD__HUMAN, "?");
    else if (s < 0.9995e-3)
        snprintf(buf, TD__HUMAN, "%.0f us", s * 1e6);
    else if (s < 0.9995)
        snprintf(buf, TD__HUMAN, s < 0.00995 ? "%.1f ms" : "%.0f ms", s * 1e3);
    else if (s < 59.95)
        snprintf(buf, TD__HUMAN, "%.1f s", s);
    else if (s < 3599.5)
        snprintf(buf, TD__HUMAN, "%d min %02d s", (int)(s + 0.5) / 60, (int)(s + 0.5) % 60);
    else
        snprintf(buf, TD__HUMAN, "%" PRId64 " h %02d min", (int64_t)(s + 30) / 3600,
                 (int)((int64_t)(s + 30) / 60 % 60));
    return buf;
}

char *td__human_metric(const char *name, double v, char buf[TD__HUMAN])
{
    if (isfinite(v) && v >= 0 && v <= 1 &&
        (strstr(name, "accuracy") || strncmp(name, "top", 3) == 0))
        snprintf(buf, TD__HUMAN, "%.2f %%", 100 * v);
    else
        snprintf(buf, TD__HUMAN, "%.4g", v);
    return buf;
}
