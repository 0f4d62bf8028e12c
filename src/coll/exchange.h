/* exchange.h -- what algorithms are written with: transfers that carry the call's tag, waiting that
 * obeys the call's deadline and knows who was late, and cutting arrays in slices and segments.
 *
 * Words     slice: the part of an array that one rank owns; segment: the unit of pipelining. All
 *           ranks cut alike, so both ends of a transfer know its size; empty transfers are not
 *           sent at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_EXCHANGE_H
#define TD_COLL_EXCHANGE_H

#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "coll/algo.h"

/* Start a transfer on mesh m; peers are numbered as in m. */
TD_NODISCARD td_status td__coll_send(td__coll_ctx *x, td__mesh *m, td__xfer *t, int peer,
                                     const void *data, size_t nbytes);
TD_NODISCARD td_status td__coll_recv(td__coll_ctx *x, td__mesh *m, td__xfer *t, int peer,
                                     void *data, size_t nbytes);
/* Wait for t[0..n). */
TD_NODISCARD td_status td__coll_wait(td__coll_ctx *x, td__mesh *m, td__xfer *t, int n);

/* Elements [begin, begin + count) of an array. */
typedef struct td__span {
    size_t begin, count;
} td__span;

/* Slice i of n: sizes differ by one element at most, the longer ones come first. */
static inline td__span td__slice(size_t count, int n, int i)
{
    size_t base = count / (size_t)n, rest = count % (size_t)n, k = (size_t)i;
    return (td__span){base * k + (k < rest ? k : rest), base + (k < rest)};
}

/* Segment k of a span, `each` elements but for the last; empty past the end. */
static inline td__span td__segment(td__span s, size_t each, size_t k)
{
    size_t at = each * k < s.count ? each * k : s.count;
    return (td__span){s.begin + at, s.count - at < each ? s.count - at : each};
}

static inline size_t td__segments(size_t count, size_t each)
{
    return count / each + (count % each != 0);
}

/* Elements in a segment: what the call asks for, else `dflt` bytes; at least one. */
static inline size_t td__segment_count(const td__coll_call *c, size_t dflt)
{
    size_t nbytes = c->segment ? c->segment : dflt, each = nbytes / td_dtype_size(c->dtype);
    return each ? each : 1;
}

/* Address of element `at`. */
static inline void *td__at(const td__coll_call *c, const void *p, size_t at)
{
    return (char *)(uintptr_t)p + at * td_dtype_size(c->dtype);
}

static inline size_t td__nbytes(const td__coll_call *c, size_t count)
{
    return count * td_dtype_size(c->dtype);
}

/* Copy unless it is already there. */
static inline void td__coll_copy(void *out, const void *in, size_t nbytes)
{
    if (out != in && nbytes)
        memcpy(out, in, nbytes);
}

/* ceil(log2 n), and is it a power of two. */
static inline int td__log2_up(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}
static inline bool td__is_power(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Seconds of `rounds` in each of which a rank sends `fan` messages one after the other: the first
 * costs a latency, the others only the work of starting them. */
static inline double td__rounds_cost(const td__coll_ctx *x, double rounds, double fan)
{
    return rounds * x->mesh->alpha * (1 + 0.2 * (fan > 1 ? fan - 1 : 0));
}

/* For rows that serve every call. */
bool td__algo_always(const td__coll_ctx *x, const td__coll_call *c);

#endif
