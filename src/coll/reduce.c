/* reduce.c -- reductions of arrays in the tree over ranks, in one pass over memory.
 *
 * The tree: 0+1, 2+3, ..., then pairs of pairs; a missing right half is passed up as it is. For 2,
 * 3, 4 and 8 parts there are kernels. Other numbers go by blocks that stay in the first-level
 * cache: groups of 8 parts, each a sub-tree of its own, are stacked and added as a binary counter
 * carries, which is the same tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "coll/kernels/reduce.h"

enum { BLOCK_BYTES = 2048, GROUP = 8, DEPTH = 16 };

static void kernel(void *out, const void *const *part, int n, size_t count, td_dtype dtype,
                   td_reduce_op op)
{
    TD_ISA_PICK(td__cpu_isa(), td__reduce_k)(out, part, n, count, dtype, op);
}

void td__reduce(void *out, const void *a, const void *b, size_t count, td_dtype dtype,
                td_reduce_op op)
{
    kernel(out, (const void *const[]){a, b}, 2, count, dtype, op);
}

/* The sub-tree of n <= GROUP parts: in buf, or where it is if it is one part. */
static const void *group(void *buf, const void *const *part, int n, size_t count, td_dtype dtype,
                         td_reduce_op op)
{
    if (n == 1)
        return part[0];
    if (n == 2 || n == 3 || n == 4 || n == GROUP) {
        kernel(buf, part, n, count, dtype, op);
        return buf;
    }
    _Alignas(64) char rest[BLOCK_BYTES];
    kernel(buf, part, 4, count, dtype, op);
    const void *right = group(rest, part + 4, n - 4, count, dtype, op);
    td__reduce(buf, buf, right, count, dtype, op);
    return buf;
}

/* One block: `count` elements from byte `at` of out and of the parts. */
static void tree_block(void *out, const void *const *part, int n, size_t at, size_t count,
                       td_dtype dtype, td_reduce_op op)
{
    _Alignas(64) char buf[DEPTH][BLOCK_BYTES];
    const void *stack[DEPTH];
    int depth = 0;

    for (int g = 0; g * GROUP < n; g++) {
        const void *in[GROUP];
        int k = n - g * GROUP < GROUP ? n - g * GROUP : GROUP;
        for (int i = 0; i < k; i++)
            in[i] = (const char *)part[g * GROUP + i] + at;
        stack[depth] = group(buf[depth], in, k, count, dtype, op);
        depth++;
        for (int bits = g + 1; bits % 2 == 0 && depth > 1; bits /= 2) {
            depth--;
            td__reduce(buf[depth - 1], stack[depth - 1], stack[depth], count, dtype, op);
            stack[depth - 1] = buf[depth - 1];
        }
    }
    while (depth > 1) {
        depth--;
        td__reduce(buf[depth - 1], stack[depth - 1], stack[depth], count, dtype, op);
        stack[depth - 1] = buf[depth - 1];
    }
    memcpy((char *)out + at, stack[0], count * td_dtype_size(dtype));
}

void td__reduce_tree(void *out, const void *const *part, int n, size_t count, td_dtype dtype,
                     td_reduce_op op)
{
    size_t nbytes = td_dtype_size(dtype), step = BLOCK_BYTES / nbytes;

    if (n == 1) {
        if (out != part[0] && count)
            memcpy(out, part[0], count * nbytes);
        return;
    }
    if (n == 2 || n == 3 || n == 4 || n == GROUP) {
        kernel(out, part, n, count, dtype, op);
        return;
    }
    TD_ASSERT(n >= 1 && n <= GROUP << (DEPTH - 1), "%d parts", n);
    for (size_t at = 0; at < count; at += step)
        tree_block(out, part, n, at * nbytes, count - at < step ? count - at : step, dtype, op);
}

void td__reduce_finish(void *out, size_t count, td_dtype dtype, td_reduce_op op, int size)
{
    if (op == TD_REDUCE_AVG && size > 1)
        TD_ISA_PICK(td__cpu_isa(), td__divide_k)(out, count, dtype, size);
}

double td__reduce_measure(void)
{
    enum { COUNT = 8192, ROUNDS = 8 };
    float *x = td__calloc(2 * COUNT, sizeof *x);
    uint64_t best = UINT64_MAX;

    for (int i = 0; x && i < ROUNDS; i++) {
        uint64_t t = td__clock_ns();
        td__reduce(x, x, x + COUNT, COUNT, TD_F32, TD_REDUCE_SUM);
        t = td__clock_ns() - t;
        best = t < best ? t : best;
    }
    td__free(x);
    return x && best ? 1e-9 * (double)best / (COUNT * sizeof(float)) : 1e-10;
}
