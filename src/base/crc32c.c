/* crc32c.c -- CRC-32C, polynomial 1EDC6F41 (82F63B78 with the bits reversed): one table of 16, four
 * bits at a time, and the SSE4.2 instruction where there is one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* The CRC of each 4-bit value. */
static const uint32_t NIBBLE[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t td__crc32c_table(uint32_t before, const void *data, size_t nbytes)
{
    const uint8_t *p = data;
    uint32_t c = ~before;

    for (size_t i = 0; i < nbytes; i++) {
        c ^= p[i];
        c = (c >> 4) ^ NIBBLE[c & 15];
        c = (c >> 4) ^ NIBBLE[c & 15];
    }
    return ~c;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t before, const void *data,
                                                               size_t nbytes)
{
    const uint8_t *p = data;
    uint64_t c = ~before;

    for (; nbytes >= 8; nbytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        c = _mm_crc32_u64(c, word);
    }
    for (; nbytes; nbytes--, p++)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}

uint32_t td__crc32c(uint32_t before, const void *data, size_t nbytes)
{
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_sse42(before, data, nbytes);
    return td__crc32c_table(before, data, nbytes);
}

#else

uint32_t td__crc32c(uint32_t before, const void *data, size_t nbytes)
{
    return td__crc32c_table(before, data, nbytes);
}

#endif
