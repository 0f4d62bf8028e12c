/* control.h -- control characters in text that came from a file or a peer: on a terminal they would
 * move the cursor, change its title or hide what was printed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CONTROL_H
#define TD_BASE_CONTROL_H

#include <stddef.h>

/* The bytes of the control character at s: none, 1 in ASCII, 2 in UTF-8 (U+0080 to U+009F). */
static inline size_t td__control_bytes(const char *s)
{
    unsigned char a = (unsigned char)s[0], b = a ? (unsigned char)s[1] : 0;
    if (a == 0xc2 && b >= 0x80 && b <= 0x9f)
        return 2;
    return (a && a < 0x20) || a == 0x7f ? 1 : 0;
}

#endif
