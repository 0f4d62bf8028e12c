/* human.c -- sizes, counts and times as people write them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { DIGITS_MOST = 4 };

/* The first unit of which the largest value has fewer than `most`, or the last one. */
static td__unit pick(double largest, const td__unit *units, int n)
{
    int i = 0;

    while (i + 1 < n && fabs(largest) >= units[i].most * units[i].size)
        i++;
    td__unit u = units[i];
    double v = fabs(largest) / u.size;
    u.digits = u.whole && v == floor(v) ? 0 : v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    return u;
}

td__unit td__unit_bytes(double largest)
{
    static const td__unit UNITS[] = {
        {1, 999.5, " B", true, 0},      {1e3, 999.5, " kB", false, 0},
        {1e6, 999.5, " MB", false, 0},  {1e9, 999.5, " GB", false, 0},
        {1e12, 999.5, " TB", false, 0}, {1e15, 999.5, " PB", false, 0}};
    return pick(largest, UNITS, TD_LEN(UNITS));
}

td__unit td__unit_si(double largest)
{
    static const td__unit UNITS[] = {{1, 999.5, "", true, 0},       {1e3, 999.5, " k", false, 0},
                                     {1e6, 999.5, " M", false, 0},  {1e9, 999.5, " G", false, 0},
                                     {1e12, 999.5, " T", false, 0}, {1e15, 999.5, " P", false, 0}};
    return pick(largest, UNITS, TD_LEN(UNITS));
}

td__unit td__unit_seconds(double largest)
{
    static const td__unit UNITS[] = {{1e-6, 999.5, " us", true, 0},
                                     {1e-3, 999.5, " ms", false, 0},
                                     {1, 599.5, " s", false, 0},
                                     {60, 599.5, " min", false, 0},
                                     {3600, 1, " h", false, 0}};
    return pick(largest, UNITS, TD_LEN(UNITS));
}

char *td__unit_text(td__unit u, double v, char buf[TD__HUMAN])
{
    static const double TENS[DIGITS_MOST + 1] = {1, 10, 100, 1e3, 1e4};
    double x = v / u.size;
    int digits = u.digits;

    if (x == 0 || (u.whole && x == floor(x)))
        digits = 0;
    else
        while (digits < DIGITS_MOST && fabs(x) * TENS[digits] < 9.5) /* two that say something */
            digits++;
    if (!isfinite(v))
        snprintf(buf, TD__HUMAN, "?");
    else if (x != 0 && fabs(x) * TENS[DIGITS_MOST] < 0.5)
        snprintf(buf, TD__HUMAN, "<%.*f%s", DIGITS_MOST, 1 / TENS[DIGITS_MOST], u.name);
    else
        snprintf(buf, TD__HUMAN, "%.*f%s", digits, x, u.name);
    return buf;
}

char *td__human_bytes(double nbytes, char buf[TD__HUMAN])
{
    return td__unit_text(td__unit_bytes(nbytes), nbytes, buf);
}

char *td__human_si(double v, char buf[TD__HUMAN])
{
    return td__unit_text(td__unit_si(v), v, buf);
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
