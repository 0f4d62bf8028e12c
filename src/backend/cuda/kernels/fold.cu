/* fold.cu -- images and filters of convolutions of stride 2, two by two pixels as one (fold.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/fold.h"
#include "backend/cuda/kernels/number.cuh"

/* x (n, h, w, c) bf16 -> (n, h2, w2, c2) bf16; a thread makes a lot */
TD_KERNEL(conv_fold, td__fold_args)
{
    enum { N = lot<bf16>::N };
    const bf16 *x = (const bf16 *)a.io.in[0];
    int lots = (int)(a.c2 / N), c = (int)a.c;
    for (long long e = td__thread(); e < a.n * a.h2 * a.w2 * lots; e += td__threads()) {
        int first = (int)(e % lots) * N;
        long long pixel = e / lots, j = pixel / a.w2 % a.h2, i = pixel % a.w2;
        const bf16 *image = x + pixel / (a.w2 * a.h2) * a.h * a.w * a.c;
        lot<bf16> v = {};
#pragma unroll
        for (int m = 0; m < N; m++) {
            int q = (first + m) / c;
            long long row = 2 * j + q / 2 - a.pad[0], column = 2 * i + q % 2 - a.pad[1];
            if (q < 4 && row >= 0 && row < a.h && column >= 0 && column < a.w)
                v.at[m] = image[(row * a.w + column) * c + (first + m) % c];
        }
        store_lot((bf16 *)a.io.out[0] + e * N, v);
    }
}

/* w (o, c, k0, k1) f32 -> (o, folded0, folded1, c2) bf16 */
TD_KERNEL(conv_fold_filter, td__fold_args)
{
    const float *w = (const float *)a.io.in[0];
    for (long long e = td__thread(); e < a.o * a.folded[0] * a.folded[1] * a.c2;
         e += td__threads()) {
        long long m = e % a.c2, s = e / a.c2 % a.folded[1], r = e / a.c2 / a.folded[1];
        long long o = r / a.folded[0], q = m / a.c;
        long long i = 2 * (r % a.folded[0]) + q / 2 - a.shift[0], j = 2 * s + q % 2 - a.shift[1];
        bool there = q < 4 && i >= 0 && i < a.k[0] && j >= 0 && j < a.k[1];
        put((bf16 *)a.io.out[0] + e,
            there ? w[((o * a.c + m % a.c) * a.k[0] + i) * a.k[1] + j] : 0);
    }
}

/* (o, folded0, folded1, c2) bf16 -> (o, c, k0, k1) f32 */
TD_KERNEL(conv_unfold_filter, td__fold_args)
{
    const bf16 *w = (const bf16 *)a.io.in[0];
    for (long long e = td__thread(); e < a.o * a.c * a.k[0] * a.k[1]; e += td__threads()) {
        long long j = e % a.k[1] + a.shift[1], i = e / a.k[1] % a.k[0] + a.shift[0];
        long long c = e / (a.k[1] * a.k[0]) % a.c, o = e / (a.k[1] * a.k[0] * a.c);
        long long at = ((o * a.folded[0] + i / 2) * a.folded[1] + j / 2) * a.c2;
        ((float *)a.io.out[0])[e] = get(w[at + (i % 2 * 2 + j % 2) * a.c + c]);
    }
}
