/* conv_shift.h -- convolutions as sums of matrix products over shifted views of the image, on the
 * batch-reduce product of gemm.h; bf16, NHWC.
 *
 *   out[p, q] = sum over taps (i, j) of  src[p step + r_i, q step + c_j] B_ij
 *
 * Forward is one such sum with step = stride; the gradient to the data is one for each phase of the
 * output modulo the stride, with step 1 (a "job" each). The source of a group of images is copied
 * ("expanded") once per tap column j, rows cut in phases modulo the step, in the order
 *
 *   expanded[phase][j][row][image][q][channel]
 *
 * so that the factor of tap (i, j) is a dense matrix that starts some whole rows further down, and
 * the sum over all pixels of the group is one product without a wasted row. Columns outside the
 * image are zeros. The copy moves each pixel once per tap column: 3 moves against 9 x O products.
 *
 * With few channels (first layers) a tap would be too short a sum: there the taps are laid side by
 * side ("im2col"), pixels in natural order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_CONV_SHIFT_H
#define TD_BACKEND_CPU_CONV_SHIFT_H

#include "backend/cpu/conv.h"

enum { TD__SHIFT_MAX_TAPS = 16, TD__SHIFT_MAX_JOBS = 16 };

typedef struct td__shift_axis {
    int64_t outputs;             /* size of the job's grid along this axis */
    int64_t out_first, out_step; /* grid position g is output out_first + g out_step */
    int64_t step;                /* source position: g step + offset */
    int64_t taps;
    int64_t offset[TD__SHIFT_MAX_TAPS];
    int64_t tap[TD__SHIFT_MAX_TAPS]; /* index of the tap in the weight */
} td__shift_axis;

typedef struct td__shift_job {
    td__shift_axis row, col;
    int64_t row_min;        /* smallest row offset */
    int64_t phases, height; /* of the expanded image: phases, rows in each */
    int64_t phase[TD__SHIFT_MAX_TAPS], shift[TD__SHIFT_MAX_TAPS]; /* of each tap row */
} td__shift_job;

/* The jobs of a pass: one for FORWARD, up to TD__SHIFT_MAX_JOBS for BACK_DATA; 0 if there would be
 * too many, or too many taps. */
int td__shift_jobs(const td__conv *v, td__conv_pass pass, td__shift_job *jobs);

/* The source image and how many go into one product. */
typedef struct td__shift_source {
    int64_t h, w, c;
    int64_t group;
} td__shift_source;

/* Elements of the expanded group; the offset of tap (i, j) in it. */
int64_t td__shift_elements(const td__shift_job *job, const td__shift_source *s);
int64_t td__shift_offset(const td__shift_job *job, const td__shift_source *s, int64_t i, int64_t j);

/* Expand images x[0 .. group). */
void td__shift_expand(const td__shift_job *job, const td__shift_source *s, uint16_t *to,
                      const uint16_t *x);

/* Is the image its own expansion: 1x1, stride 1, no padding? */
bool td__shift_is_pointwise(const td__conv *v);

/* Are the channels few enough for im2col, and the columns not dilated? The ld to use: kh kw c
 * rounded up to what the product reads at once. */
bool td__shift_wants_im2col(const td__conv *v);
int64_t td__shift_im2col_width(const td__conv *v);
/* im2col: rows of ld >= kh kw c elements, one per pixel of y, of images x[0 .. group); columns are
 * (i, j, channel). `line` is scratch of td__shift_line elements. Columns must not be dilated. */
int64_t td__shift_line(const td__conv *v);
void td__shift_im2col(const td__conv *v, int64_t group, uint16_t *to, int64_t ld, const uint16_t *x,
                      uint16_t *line);

/* The largest divisor of the batch that gives about `rows` pixels, of `pixels` each. */
int64_t td__shift_group(int64_t batch, int64_t pixels, int64_t rows);

#endif
