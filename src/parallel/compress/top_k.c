/* top_k.c -- see top_k.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/compress/top_k.h"

#include <string.h>

#include "base/fail.h"
#include "parallel/kernels/compress.h"

/* 31 bits of a magnitude: the exponent and 3 bits, then 10, then 10. Tables side by side, so that
 * equal neighbours do not wait for each other's count. */
enum { UPPER = 20, BINS = 2048, MIDDLE = 10, FINE = 1024, TABLES = 4 };

static inline uint32_t magnitude(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

/* The highest bin such that it and those above hold at least k; *above: those above it. */
static uint32_t bin_of(const uint32_t *bin, uint32_t bins, size_t k, size_t *above)
{
    size_t sum = 0;
    uint32_t b = bins - 1;
    for (; b > 0 && sum + bin[b] < k; b--)
        sum += bin[b];
    *above = sum;
    return b;
}

static uint32_t upper_bin(const float *x, size_t n, size_t k, size_t *above)
{
    uint32_t bin[TABLES][BINS] = {{0}};
    size_t i = 0;
    for (; i + TABLES <= n; i += TABLES)
        for (size_t t = 0; t < TABLES; t++)
            bin[t][magnitude(x[i + t]) >> UPPER]++;
    for (; i < n; i++)
        bin[0][magnitude(x[i]) >> UPPER]++;
    for (int t = 1; t < TABLES; t++)
        for (int b = 0; b < BINS; b++)
            bin[0][b] += bin[t][b];
    return bin_of(bin[0], BINS, k, above);
}

/* Of those listed whose bits above `shift + MIDDLE` are `prefix`: the next MIDDLE bits of the k-th,
 * after the prefix. */
static uint32_t next_bits(const float *x, const uint32_t *index, size_t n, uint32_t prefix,
                          int shift, size_t k, size_t *above)
{
    uint32_t bin[FINE] = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t u = magnitude(x[index[i]]) >> shift;
        if (u >> MIDDLE == prefix)
            bin[u % FINE]++;
    }
    return prefix << MIDDLE | bin_of(bin, FINE, k, above);
}

void td__top_k(td__isa isa, const float *x, size_t n, size_t k, uint32_t *index)
{
    size_t above, more, most;
    uint32_t least = upper_bin(x, n, k, &above);
    size_t found = TD_ISA_PICK(isa, td__collect)(index, x, least << UPPER, n);
    least = next_bits(x, index, found, least, MIDDLE, k - above, &more);
    least = next_bits(x, index, found, least, 0, k - above - more, &most);
    size_t ties = k - above - more - most, kept = 0; /* of magnitude `least` itself */
    for (size_t i = 0; i < found; i++) {
        uint32_t at = index[i], u = magnitude(x[at]);
        bool tie = u == least && ties > 0;
        ties -= tie;
        index[kept] = at;
        kept += u > least || tie;
        if (kept == k)
            break;
    }
    TD_ASSERT(kept == k, "%zu of %zu largest numbers", kept, k);
}

/* ---- Indices --------------------------------------------------------------------------------- */

static size_t gaps_bits(size_t n, size_t k, int m)
{
    return k * ((size_t)m + 1) + ((n - k) >> m);
}

static int best_m(size_t n, size_t k)
{
    int best = 0;
    for (int m = 1; m < 32; m++)
        if (gaps_bits(n, k, m) < gaps_bits(n, k, best))
            best = m;
    return best;
}

size_t td__gaps_nbytes(size_t n, size_t k)
{
    return (gaps_bits(n, k, best_m(n, k)) + 7) / 8;
}

void td__gaps_write(uint8_t *wire, const uint32_t *index, size_t n, size_t k)
{
    int m = best_m(n, k);
    size_t bit = 0;
    uint64_t next = 0;
    memset(wire, 0, td__gaps_nbytes(n, k));
    for (size_t j = 0; j < k; j++) {
        uint64_t gap = index[j] - next;
        next = (uint64_t)index[j] + 1;
        bit += gap >> m;
        uint64_t code = 1 | (gap & ((UINT64_C(1) << m) - 1)) << 1;
        for (int left = m + 1; left > 0;) {
            int room = 8 - (int)(bit % 8), take = left < room ? left : room;
            wire[bit / 8] |= (uint8_t)((code << (bit % 8)) & 0xff);
            code >>= take;
            bit += (size_t)take;
            left -= take;
        }
    }
}

/* Up to 57 bits from bit `bit` on; zeros after the end. */
static inline uint64_t peek(const uint8_t *wire, size_t nbytes, size_t bit)
{
    uint64_t u = 0;
    size_t at = bit / 8, have = nbytes - at < 8 ? nbytes - at : 8;
    memcpy(&u, wire + at, have); /* little-endian, as everything on the wire */
    return u >> (bit % 8);
}

td_status td__gaps_read(const uint8_t *wire, uint32_t *index, size_t n, size_t k)
{
    int m = best_m(n, k);
    size_t nbytes = td__gaps_nbytes(n, k), bit = 0;
    uint64_t next = 0;
    for (size_t j = 0; j < k; j++) {
        uint64_t zeros = 0, u = 0;
        while (bit < 8 * nbytes && !(u = peek(wire, nbytes, bit) & ((UINT64_C(1) << 56) - 1))) {
            zeros += 56;
            bit += 56;
        }
        if (bit >= 8 * nbytes)
            return TD_FAIL(TD_EPROTO, "a list of %zu places ends after %zu", k, j);
        int skip = __builtin_ctzll(u);
        zeros += (uint64_t)skip;
        bit += (size_t)skip + 1;
        uint64_t low = m && bit < 8 * nbytes ? peek(wire, nbytes, bit) : 0;
        bit += (size_t)m;
        next += zeros << m | (low & ((UINT64_C(1) << m) - 1));
        if (next >= n || bit > 8 * nbytes)
            return TD_FAIL(TD_EPROTO, "place %zu of %zu in a list is %llu, beyond %zu", j, k,
                           (unsigned long long)next, n);
        index[j] = (uint32_t)next++;
    }
    return TD_OK;
}
