/* init.c -- the initialisers, with the formulas of torch.nn.init.
 *
 *     fan_in  = dim[1] * receptive field      linear (N, K): K        conv (O, I, H, W): I H W
 *     fan_out = dim[0] * receptive field      linear (N, K): N        conv (O, I, H, W): O H W
 *
 *     xavier_uniform   U(-b, b), b = gain sqrt(6 / (fan_in + fan_out))
 *     xavier_normal    N(0, s),  s = gain sqrt(2 / (fan_in + fan_out))
 *     kaiming_uniform  U(-b, b), b = gain sqrt(3 / fan)
 *     kaiming_normal   N(0, s),  s = gain / sqrt(fan)
 *     trunc_normal     the normal cut at mean +- 2 s, by inverting its distribution function
 *     orthogonal       gain Q, where Q R is the factorisation of a normal (rows, columns) matrix
 *                      with diag R > 0: orthonormal rows if there are fewer of them, else columns
 *
 * Randomness comes from Philox keyed by (seed, hash of the param's name). No run uses micro-batch
 * 0xffffffff, so these streams never meet those of dropout. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/init.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/kernels/random.h"

static const double PI = 3.14159265358979323846;
static const double SQRT2 = 1.41421356237309504880;

/* FNV-1a, 32 bits. */
static uint32_t hash_name(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (uint32_t)(unsigned char)*s) * 16777619u;
    return h;
}

/* Words are drawn in batches that stay in the first-level cache: enough for a few calls of a
 * kernel, a multiple of what it does at once. */
enum { BATCH = 1024 };

typedef struct batch {
    uint32_t words[BATCH];
    size_t n; /* of them wanted */
} batch;

static void draw(batch *b, const td__rng_key *key, size_t at, size_t end)
{
    b->n = end - at < BATCH ? end - at : BATCH;
    TD_ISA_PICK(td__cpu_isa(), td__random_words)
    (b->words, key, (uint32_t)(at / 4), (b->n + 3) / 4);
}

static void fill_constant(float value, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = value;
}

static void fill_uniform(const td__rng_key *key, double lo, double hi, size_t n, float *out)
{
    float scale = (float)(hi - lo), shift = (float)lo;
    batch b;

    for (size_t at = 0; at < n; at += BATCH) {
        draw(&b, key, at, n);
        for (size_t i = 0; i < b.n; i++) /* 24 bits to [0, 1) */
            out[at + i] = (float)(int32_t)(b.words[i] >> 8) * 0x1p-24f * scale + shift;
    }
}

static void fill_normal(const td__rng_key *key, double mean, double std, size_t n, float *out)
{
    float numbers[BATCH];
    batch b;

    for (size_t at = 0; at < n; at += BATCH) {
        draw(&b, key, at, n);
        TD_ISA_PICK(td__cpu_isa(), td__random_normals)
        (numbers, b.words, (b.n + 1) & ~(size_t)1, (float)mean, (float)std);
        memcpy(out + at, numbers, b.n * sizeof *numbers);
    }
}

void td__init_normals(uint64_t seed, const char *name, double std, uint64_t at, size_t n,
                      float *out)
{
    td__rng_key key = {.seed = seed, .stream = hash_name(name), .micro_batch = UINT32_MAX};
    float numbers[BATCH];
    batch b;

    while (n) { /* blocks have four elements */
        size_t skip = (size_t)(at % 4), most = BATCH - skip, k = n < most ? n : most;
        draw(&b, &key, (size_t)(at - skip), (size_t)(at + k));
        TD_ISA_PICK(td__cpu_isa(), td__random_normals)
        (numbers, b.words, (b.n + 1) & ~(size_t)1, 0, (float)std);
        memcpy(out, numbers + skip, k * sizeof *out);
        out += k;
        at += k;
        n -= k;
    }
}

/* Inverse error function: Giles' approximation, then two Newton steps in double. |x| < 1. */
static double erf_inverse(double x)
{
    double w = -log((1.0 - x) * (1.0 + x)), y;

    if (w < 5.0) {
        static const double C[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                   -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                   -0.00417768164,  0.246640727,    1.50140941};
        w -= 2.5;
        y = C[0];
        for (int i = 1; i < TD_LEN(C); i++)
            y = C[i] + y * w;
    } else {
        static const double C[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                   -0.00367342844,  0.00573950773,  -0.0076224613,
                                   0.00943887047,   1.00167406,     2.83297682};
        w = sqrt(w) - 3.0;
        y = C[0];
        for (int i = 1; i < TD_LEN(C); i++)
            y = C[i] + y * w;
    }
    y *= x;
    for (int i = 0; i < 2; i++)
        y -= (erf(y) - x) * 0.5 * sqrt(PI) * exp(y * y);
    return y;
}

static void fill_trunc_normal(const td__rng_key *key, double mean, double std, size_t n, float *out)
{
    double edge = erf(2.0 / SQRT2); /* 2 cdf(2) - 1 */
    batch b;

    for (size_t at = 0; at < n; at += BATCH) {
        draw(&b, key, at, n);
        for (size_t i = 0; i < b.n; i++) {
            double u = ((double)(b.words[i] >> 8) + 0.5) * 0x1p-24; /* (0, 1) */
            double z = SQRT2 * erf_inverse(edge * (2.0 * u - 1.0));
            out[at + i] = (float)(mean + std * z);
        }
    }
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0;

    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* Gram and Schmidt on the m shorter-side vectors of length n >= m, twice over, which is as exact as
 * Householder's method; dividing by the positive norm makes diag R > 0. */
static td_status fill_orthogonal(const td__rng_key *key, double gain, size_t rows, size_t cols,
                                 float *out)
{
    bool wide = rows < cols;
    size_t m = wide ? rows : cols, n = wide ? cols : rows;
    double *q = td__calloc(rows * cols, sizeof *q); /* (m, n): vectors lie in one piece */

    if (!q)
        return TD_FAIL(TD_ENOMEM, "orthogonal: no memory for %zu x %zu numbers", rows, cols);
    fill_normal(key, 0.0, 1.0, rows * cols, out);
    for (size_t v = 0; v < m; v++)
        for (size_t i = 0; i < n; i++)
            q[v * n + i] = (double)out[wide ? v * cols + i : i * cols + v];
    for (size_t v = 0; v < m; v++) {
        double *qv = q + v * n;
        for (int pass = 0; pass < 2; pass++)
            for (size_t u = 0; u < v; u++) {
                double s = dot(q + u * n, qv, n);
                for (size_t i = 0; i < n; i++)
                    qv[i] -= s * q[u * n + i];
            }
        double norm = sqrt(dot(qv, qv, n));
        for (size_t i = 0; i < n; i++)
            qv[i] /= norm;
    }
    for (size_t v = 0; v < m; v++)
        for (size_t i = 0; i < n; i++)
            out[wide ? v * cols + i : i * cols + v] = (float)(gain * q[v * n + i]);
    td__free(q);
    return TD_OK;
}

static bool uses_fans(td_init_kind kind)
{
    return kind == TD_INIT_XAVIER_UNIFORM || kind == TD_INIT_XAVIER_NORMAL ||
           kind == TD_INIT_KAIMING_UNIFORM || kind == TD_INIT_KAIMING_NORMAL ||
           kind == TD_INIT_ORTHOGONAL;
}

static td_status check(const td_init *init, const td_shape *shape, const char *name)
{
    char text[128];

    if ((unsigned)init->kind >= TD_INIT_KIND_COUNT)
        return TD_FAIL(TD_EINVAL, "param '%s': unknown initialiser %d", name, (int)init->kind);
    if (!isfinite(init->a) || !isfinite(init->b))
        return TD_FAIL(TD_EINVAL, "param '%s': initialiser with a = %g, b = %g", name, init->a,
                       init->b);
    if (init->kind == TD_INIT_UNIFORM && init->a > init->b)
        return TD_FAIL(TD_EINVAL, "param '%s': uniform over [%g, %g)", name, init->a, init->b);
    if ((init->kind == TD_INIT_NORMAL || init->kind == TD_INIT_TRUNC_NORMAL) && init->b < 0)
        return TD_FAIL(TD_EINVAL, "param '%s': normal with standard deviation %g", name, init->b);
    if (uses_fans(init->kind) && shape->ndim < 2)
        return TD_FAIL(TD_EINVAL, "param '%s': this initialiser needs at least 2 axes, shape is %s",
                       name, td_shape_text(shape, text, sizeof text));
    if (td_shape_count(shape) < 0)
        return TD_FAIL(TD_EINVAL, "param '%s': bad shape %s", name,
                       td_shape_text(shape, text, sizeof text));
    return TD_OK;
}

td_status td__init_fill(const td_init *init, const td_shape *shape, uint64_t seed, const char *name,
                        float *out)
{
    td__rng_key key = {.seed = seed, .stream = hash_name(name), .micro_batch = UINT32_MAX};

    TD_TRY(check(init, shape, name));
    size_t n = (size_t)td_shape_count(shape);
    if (n == 0)
        return TD_OK;

    double fan_in = 1, fan_out = 1, gain = init->a != 0 ? init->a : 1.0;
    if (uses_fans(init->kind)) {
        double field = (double)n / ((double)shape->dim[0] * (double)shape->dim[1]);
        fan_in = (double)shape->dim[1] * field;
        fan_out = (double)shape->dim[0] * field;
    }
    double fan = init->fan_out ? fan_out : fan_in;
    double kaiming = (init->a != 0 ? init->a : SQRT2) / sqrt(fan);
    double xavier = gain * sqrt(2.0 / (fan_in + fan_out));

    switch (init->kind) {
    case TD_INIT_ZEROS: fill_constant(0.0f, n, out); break;
    case TD_INIT_ONES: fill_constant(1.0f, n, out); break;
    case TD_INIT_CONSTANT: fill_constant((float)init->a, n, out); break;
    case TD_INIT_UNIFORM: fill_uniform(&key, init->a, init->b, n, out); break;
    case TD_INIT_NORMAL: fill_normal(&key, init->a, init->b, n, out); break;
    case TD_INIT_TRUNC_NORMAL: fill_trunc_normal(&key, init->a, init->b, n, out); break;
    case TD_INIT_XAVIER_UNIFORM:
        fill_uniform(&key, -sqrt(3.0) * xavier, sqrt(3.0) * xavier, n, out);
        break;
    case TD_INIT_XAVIER_NORMAL: fill_normal(&key, 0.0, xavier, n, out); break;
    case TD_INIT_KAIMING_UNIFORM:
        fill_uniform(&key, -sqrt(3.0) * kaiming, sqrt(3.0) * kaiming, n, out);
        break;
    case TD_INIT_KAIMING_NORMAL: fill_normal(&key, 0.0, kaiming, n, out); break;
    case TD_INIT_ORTHOGONAL: {
        size_t rows = (size_t)shape->dim[0];
        return fill_orthogonal(&key, gain, rows, n / rows, out);
    }
    case TD_INIT_KIND_COUNT: break;
    }
    return TD_OK;
}
