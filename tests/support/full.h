/* full.h -- is this the longer form of a test (label full, cmake/tests.cmake)? make test-full runs
 * whole matrices and deep searches, `make test` a part that is the same each time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_FULL_H
#define TD_TESTS_SUPPORT_FULL_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool full_test(void)
{
    return getenv("TD_TEST_FULL") != NULL;
}

/* Is this cell of a matrix tested? `sum` adds the cell's indices: one cell of `n` is in the short
 * form, so that each value of each axis is still met, and with each value of another axis. */
static inline bool full_or_sampled(int sum, int n)
{
    return full_test() || sum % n == 0;
}

#endif
