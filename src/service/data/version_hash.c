/* version_hash.c -- see version_hash.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/version_hash.h"

#include <string.h>

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static unsigned byte_of(const int *commits, int n, int i)
{
    unsigned byte = 0;

    for (int k = 0; k < n; k++)
        if (commits[k] / 8 == i)
            byte |= 1u << commits[k] % 8;
    return byte;
}

void td__version_hash(const int *commits, int n, td__text *out)
{
    int last = 0; /* byte; there are none after the last bit */

    for (int k = 0; k < n; k++)
        last = commits[k] / 8 > last ? commits[k] / 8 : last;
    td__text_add(out, "hash");
    for (int i = 0; n && i <= last; i += 3) {
        unsigned v = byte_of(commits, n, i) << 16 | byte_of(commits, n, i + 1) << 8 |
                     byte_of(commits, n, i + 2);
        char four[4] = {DIGITS[v >> 18], DIGITS[v >> 12 & 63],
                        i + 1 <= last ? DIGITS[v >> 6 & 63] : '=',
                        i + 2 <= last ? DIGITS[v & 63] : '='};

        td__text_append(out, four, 4);
    }
}

bool td__version_has(const char *hash, int commit)
{
    size_t n = strlen(hash);
    size_t bit =
        (size_t)(commit / 8) * 8 + (size_t)(7 - commit % 8); /* from the first digit's top */
    const char *digit = 4 + bit / 6 < n ? strchr(DIGITS, hash[4 + bit / 6]) : NULL;

    return digit && (unsigned)(digit - DIGITS) >> (5 - bit % 6) & 1;
}
