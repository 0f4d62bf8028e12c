/* conv_shift.c -- see conv_shift.h: jobs, the expanded image, im2col. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/conv_shift.h"

#include <string.h>

enum { IM2COL_CHANNELS = 8 };

static void finish_job(td__shift_job *job)
{
    const td__shift_axis *r = &job->row;

    job->row_min = r->taps ? r->offset[0] : 0;
    for (int64_t i = 1; i < r->taps; i++)
        job->row_min = r->offset[i] < job->row_min ? r->offset[i] : job->row_min;
    job->phases = 1;
    job->height = r->outputs;
    for (int64_t i = 0; i < r->taps; i++) {
        int64_t rel = r->offset[i] - job->row_min;
        job->phase[i] = rel % r->step;
        job->shift[i] = rel / r->step;
        if (job->phase[i] >= job->phases)
            job->phases = job->phase[i] + 1;
        if (r->outputs + job->shift[i] > job->height)
            job->height = r->outputs + job->shift[i];
    }
}

static td__shift_axis forward_axis(const td__conv *v, int axis)
{
    int64_t taps = axis ? v->kw : v->kh;
    td__shift_axis a = {
        .outputs = axis ? v->ow : v->oh, .out_step = 1, .step = v->stride[axis], .taps = taps};

    for (int64_t i = 0; i < taps; i++) {
        a.offset[i] = i * v->dilation[axis] - v->pad[axis];
        a.tap[i] = i;
    }
    return a;
}

/* Position h = g s + first of dx gets dy at (h + pad - i d) / s from each tap i that divides. */
static td__shift_axis backward_axis(const td__conv *v, int axis, int64_t first)
{
    int64_t s = v->stride[axis], extent = axis ? v->w : v->h, taps = axis ? v->kw : v->kh;
    td__shift_axis a = {.outputs = first < extent ? (extent - first + s - 1) / s : 0,
                        .out_first = first,
                        .out_step = s,
                        .step = 1};

    for (int64_t i = 0; i < taps; i++) {
        int64_t at = first + v->pad[axis] - i * v->dilation[axis];
        if (at % s != 0)
            continue;
        a.offset[a.taps] = at / s;
        a.tap[a.taps++] = i;
    }
    return a;
}

int td__shift_jobs(const td__conv *v, td__conv_pass pass, td__shift_job *jobs)
{
    if (v->kh > TD__SHIFT_MAX_TAPS || v->kw > TD__SHIFT_MAX_TAPS)
        return 0;
    if (pass == TD__CONV_FORWARD) {
        jobs[0] = (td__shift_job){.row = forward_axis(v, 0), .col = forward_axis(v, 1)};
        finish_job(&jobs[0]);
        return 1;
    }
    int n = 0;
    if (v->stride[0] > TD__SHIFT_MAX_JOBS || v->stride[0] * v->stride[1] > TD__SHIFT_MAX_JOBS)
        return 0;
    for (int64_t i = 0; i < v->stride[0]; i++) {
        for (int64_t j = 0; j < v->stride[1]; j++) {
            td__shift_job job = {.row = backward_axis(v, 0, i), .col = backward_axis(v, 1, j)};
            if (job.row.outputs == 0 || job.col.outputs == 0)
                continue;
            finish_job(&job);
            jobs[n++] = job;
        }
    }
    return n;
}

int64_t td__shift_elements(const td__shift_job *job, const td__shift_source *s)
{
    return job->phases * job->col.taps * job->height * s->group * job->col.outputs * s->c;
}

int64_t td__shift_offset(const td__shift_job *job, const td__shift_source *s, int64_t i, int64_t j)
{
    return ((job->phase[i] * job->col.taps + j) * job->height + job->shift[i]) * s->group *
           job->col.outputs * s->c;
}

/* One line of one image: outputs q of tap column offset `off`. */
static void expand_line(const td__shift_axis *col, int64_t off, const td__shift_source *s,
                        uint16_t *to, const uint16_t *line)
{
    int64_t step = col->step, c = s->c;
    int64_t lo = off >= 0 ? 0 : (-off + step - 1) / step;
    int64_t hi = s->w > off ? (s->w - off + step - 1) / step : 0;

    lo = lo < col->outputs ? lo : col->outputs;
    hi = hi < col->outputs ? hi : col->outputs;
    hi = hi > lo ? hi : lo;
    memset(to, 0, (size_t)(lo * c) * sizeof *to);
    if (step == 1) {
        memcpy(to + lo * c, line + (lo + off) * c, (size_t)((hi - lo) * c) * sizeof *to);
    } else {
        for (int64_t q = lo; q < hi; q++)
            memcpy(to + q * c, line + (q * step + off) * c, (size_t)c * sizeof *to);
    }
    memset(to + hi * c, 0, (size_t)((col->outputs - hi) * c) * sizeof *to);
}

void td__shift_expand(const td__shift_job *job, const td__shift_source *s, uint16_t *to,
                      const uint16_t *x)
{
    int64_t line = job->col.outputs * s->c;

    for (int64_t phase = 0; phase < job->phases; phase++) {
        for (int64_t j = 0; j < job->col.taps; j++) {
            for (int64_t r = 0; r < job->height; r++, to += s->group * line) {
                int64_t row = r * job->row.step + phase + job->row_min;
                if (row < 0 || row >= s->h) {
                    memset(to, 0, (size_t)(s->group * line) * sizeof *to);
                    continue;
                }
                for (int64_t n = 0; n < s->group; n++)
                    expand_line(&job->col, job->col.offset[j], s, to + n * line,
                                x + (n * s->h + row) * s->w * s->c);
            }
        }
    }
}

/* im2col copies in pieces of this many elements and may run that much over its target and source;
 * what it spills is overwritten by the next tap row, or lies in the padding behind. */
enum { PIECE = 8 };

/* Padded image: all rows that taps reach, each (w + 2 pad) pixels and some slack. */
static int64_t line_elements(const td__conv *v)
{
    return (v->w + 2 * v->pad[1]) * v->c + PIECE;
}

bool td__shift_is_pointwise(const td__conv *v)
{
    return v->kh == 1 && v->kw == 1 && v->stride[0] == 1 && v->stride[1] == 1 && v->pad[0] == 0 &&
           v->pad[1] == 0;
}

bool td__shift_wants_im2col(const td__conv *v)
{
    return v->c <= IM2COL_CHANNELS && v->dilation[1] == 1;
}

int64_t td__shift_im2col_width(const td__conv *v)
{
    return (v->kh * v->kw * v->c + 31) / 32 * 32;
}

int64_t td__shift_line(const td__conv *v)
{
    return (v->h + 2 * v->pad[0]) * line_elements(v) + PIECE;
}

void td__shift_im2col(const td__conv *v, int64_t group, uint16_t *to, int64_t ld, const uint16_t *x,
                      uint16_t *line)
{
    int64_t row = v->w * v->c, padded = line_elements(v), piece = v->kw * v->c;

    memset(line, 0, (size_t)td__shift_line(v) * sizeof *line);
    for (int64_t n = 0; n < group; n++) {
        for (int64_t h = 0; h < v->h; h++)
            memcpy(line + (h + v->pad[0]) * padded + v->pad[1] * v->c, x + (n * v->h + h) * row,
                   (size_t)row * sizeof *line);
        for (int64_t p = 0; p < v->oh; p++) {
            for (int64_t q = 0; q < v->ow; q++, to += ld) {
                const uint16_t *from = line + p * v->stride[0] * padded + q * v->stride[1] * v->c;
                for (int64_t i = 0; i < v->kh; i++, from += v->dilation[0] * padded)
                    for (int64_t e = 0; e < piece; e += PIECE)
                        memcpy(to + i * piece + e, from + e, PIECE * sizeof *to);
            }
        }
    }
}

int64_t td__shift_group(int64_t batch, int64_t pixels, int64_t rows)
{
    int64_t most = rows / (pixels > 0 ? pixels : 1), best = 1;

    for (int64_t d = 1; d <= most && d <= batch; d++)
        if (batch % d == 0)
            best = d;
    return best;
}
