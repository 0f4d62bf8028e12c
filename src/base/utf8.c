/* utf8.c -- see utf8.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes that the first one asks for; 0: it begins no character. */
static size_t asked(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

/* Bytes of the character that begins here, at most `nbytes`; 0: none does. */
static size_t char_nbytes(const char *s, size_t nbytes)
{
    const unsigned char *b = (const unsigned char *)s;
    size_t n = nbytes ? asked(b[0]) : 0;

    if (n == 0 || n > nbytes)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] >= 0xa0)))
        return 0;
    if (n == 4 && ((b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] >= 0x90)))
        return 0;
    return n;
}

bool td__utf8_valid(const char *s, size_t nbytes)
{
    for (size_t at = 0, n; at < nbytes; at += n) {
        n = char_nbytes(s + at, nbytes - at);
        if (!n)
            return false;
    }
    return true;
}

void td__utf8_clean(char *s)
{
    size_t nbytes = strlen(s);

    for (size_t at = 0, n; at < nbytes; at += n) {
        n = char_nbytes(s + at, nbytes - at);
        if (n)
            continue;
        size_t left = nbytes - at, more = asked((unsigned char)s[at]);
        if (more > left) { /* cut, unless something else follows */
            size_t k = 1;
            while (k < left && ((unsigned char)s[at + k] & 0xc0) == 0x80)
                k++;
            if (k == left) {
                s[at] = '\0';
                return;
            }
        }
        s[at] = '?';
        n = 1;
    }
}
