/* micro_batch_tree.c -- see micro_batch_tree.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/micro_batch_tree.h"

enum { ROWS = 16, FEW = 4, MANY = 64 };

int td__micro_batches_default(int64_t batch)
{
    int micro_batches = 1;
    while (micro_batches < MANY && micro_batches * 2 <= batch &&
           (micro_batches < FEW || (int64_t)micro_batches * 2 * ROWS <= batch))
        micro_batches *= 2;
    return micro_batches;
}

/* Greedy: the largest aligned sub-tree that starts at `begin` and does not go past `end`. One that
 * is cut off at V reaches to V, so that it may be larger than what is left of the range. */
int td__micro_batch_subtrees(int micro_batches, int begin, int end, td__subtree out[64])
{
    int n = 0;
    while (begin < end) {
        int level = 0;
        for (;;) {
            int64_t size = (int64_t)2 << level, stop = begin + size;
            if (begin % size != 0 || (stop < micro_batches ? stop : micro_batches) > end ||
                (int64_t)begin + size / 2 >= micro_batches)
                break;
            level++;
        }
        out[n++] = (td__subtree){begin, level};
        begin = (int64_t)begin + ((int64_t)1 << level) < micro_batches ? begin + (1 << level)
                                                                       : micro_batches;
    }
    return n;
}
