/* shard_tree.c -- see shard_tree.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/shard_tree.h"

enum { ROWS = 16, FEW = 4, MANY = 64 };

int td__shards_default(int64_t batch)
{
    int shards = 1;
    while (shards < MANY && shards * 2 <= batch &&
           (shards < FEW || (int64_t)shards * 2 * ROWS <= batch))
        shards *= 2;
    return shards;
}

/* Greedy: the largest aligned sub-tree that starts at `begin` and does not go past `end`. One that
 * is cut off at V reaches to V, so that it may be larger than what is left of the range. */
int td__shard_subtrees(int shards, int begin, int end, td__subtree out[64])
{
    int n = 0;
    while (begin < end) {
        int level = 0;
        for (;;) {
            int64_t size = (int64_t)2 << level, stop = begin + size;
            if (begin % size != 0 || (stop < shards ? stop : shards) > end ||
                (int64_t)begin + size / 2 >= shards)
                break;
            level++;
        }
        out[n++] = (td__subtree){begin, level};
        begin = (int64_t)begin + ((int64_t)1 << level) < shards ? begin + (1 << level) : shards;
    }
    return n;
}
