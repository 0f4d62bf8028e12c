/* gemm_impl.h -- what the driver (gemm.c) and the inner kernels of the matrix product agree on.
 *
 * A kernel computes one block of C, at most `rows` by one panel, over one pass of k: a few segments
 * (slices of the A_i) of `units` units each. It reads A from the driver's copy or from where A is:
 * rows are a_row bytes apart. Vector kernels keep a pointer to every third row and reach the two
 * after it by an index, so that 14 rows take 5 registers. It writes whole panels (tiles: whole
 * tiles); the driver gives it a buffer where C has no room. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_GEMM_IMPL_H
#define TD_BACKEND_CPU_GEMM_IMPL_H

#include <stdbool.h>
#include <stdint.h>

/* Most units that one pass sums, and the row stride of the copied A: 33 cache lines, odd, so that
 * the rows of a block spread over all sets of the cache. */
enum { TD__GEMM_KC_MAX = 512, TD__GEMM_A_STRIDE = (TD__GEMM_KC_MAX + 16) * 4 };
enum { TD__GEMM_MAX_SEGS = 32 }; /* per pass */
enum { TD__GEMM_THIRDS = 5 };    /* vectors: pointers to the rows of a block */

typedef struct td__gemm_block {
    int rows;  /* vectors: 1 .. the kernel's most; tiles: 1 .. 32, whole tiles are done */
    bool half; /* only the first half of the panel's columns is wanted */
    int segs;
    int64_t units; /* per segment */
    const char *a; /* segment s starts at a + a_off[s] bytes */
    const int64_t *a_off;
    int64_t a_row;   /* bytes from row to row */
    int64_t a_ahead; /* vectors: bytes from a row to the one to prefetch meanwhile; 0: none */
    int64_t a_step;  /* bytes from one unit (tiles: block of 16 units) to the next */
    int64_t a_half;  /* tiles: bytes from rows 0..15 to rows 16..31 */
    const char *b;   /* the panel of segment s starts at b + s * b_seg bytes */
    int64_t b_seg;
    int64_t b_row; /* f32 vectors: elements from row to row of B; else packed panels */
    float *c;
    int64_t ldc; /* elements */
    bool accumulate;
} td__gemm_block;

typedef void td__gemm_block_fn(const td__gemm_block *g);

td__gemm_block_fn td__gemm_block_avx512bf16, td__gemm_block_amx, td__gemm_block_tile_emul;

#endif
