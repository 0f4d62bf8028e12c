/* top_k.h -- the k numbers of largest magnitude: finding them, and writing down where they are.
 *
 * Finding   The bits of a magnitude, read as an integer, are in the order of magnitudes. One
 *           histogram over their upper bits says in which bin the k-th lies; what is in that bin
 *           or above is collected; the rest of the bits are told apart among the collected alone.
 *           So it is two passes over the numbers, exact, without sorting. NaN is above infinity;
 *           of equal magnitudes the first count.
 * Writing   Rising indices i(0) < i(1) < ... as the gaps d(j) = i(j) - i(j-1) - 1 in Rice's code:
 *           d >> m zeros, a one, the lower m bits of d. The gaps of k out of n add up to n - k at
 *           most, so k (m + 1) + ((n - k) >> m) bits always suffice, and with the best m that is
 *           half a bit from what any code needs: 12 bits each for one in a thousand. That length
 *           is known to all ranks beforehand, so messages need neither header nor negotiation. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_TOP_K_H
#define TD_PARALLEL_TOP_K_H

#include "base/cpu.h"
#include "tandem/status.h"

/* index[0..k): where they are, rising. index has room for n, 1 <= k <= n < 2^32. */
void td__top_k(td__isa isa, const float *x, size_t n, size_t k, uint32_t *index);

/* Bytes of k indices out of n. */
size_t td__gaps_nbytes(size_t n, size_t k);
void td__gaps_write(uint8_t *wire, const uint32_t *index, size_t n, size_t k);
/* TD_EPROTO if that is no list of k indices below n. */
TD_NODISCARD td_status td__gaps_read(const uint8_t *wire, uint32_t *index, size_t n, size_t k);

#endif
