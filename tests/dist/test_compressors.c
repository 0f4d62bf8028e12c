/* Compressors: every rank gets the same bits, of any bucket on any number of ranks; what is not
 * sent stays in the residual, and in the end all of it arrives; NaN, infinities and denormals;
 * bytes on the wire. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "parallel/compress/compressor.h"
#include "support/check.h"
#include "support/optim_model.h"
#include "support/ranks.h"
#include "tandem/ops.h"

/* The model's block has matrices, a vector and a scalar; after it 7 statistics. */
enum { GRADS = 37 * 11 + 5 + 3 * 17 * 101 + 1, STATS = 7, BLOCK = GRADS + STATS, MOST_BUCKETS = 9 };

typedef struct plan {
    const td__compressor_ops *ops;
    td__compressor_opts o;
    td__bucket bucket[MOST_BUCKETS];
    td_params *params;
    int steps;
    const char *strange; /* what some gradients of step 2 are: "nan", "inf", "tiny"; NULL: none */
    double tolerance;    /* of the mean of all steps, by the norm */
} plan;

/* Cuts: in one, at params, anywhere. Statistics are always a bucket of their own. */
static const size_t CUTS[][MOST_BUCKETS] = {
    {GRADS, BLOCK},
    {407, 412, GRADS, BLOCK},
    {1, 2, 400, 409, 1000, 2500, GRADS - 1, GRADS, BLOCK},
};

static void cut(plan *p, const size_t *ends)
{
    size_t at = 0;
    p->o.n_buckets = 0;
    for (int i = 0; at < BLOCK; at = ends[i++])
        p->bucket[p->o.n_buckets++] =
            (td__bucket){.begin = at, .count = ends[i] - at, .exact = at >= GRADS};
}

/* About normal: four uniform numbers from one hash. */
static float noise(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = (a * 0x9e3779b1u) ^ (b * 0x85ebca77u) ^ (c * 0xc2b2ae3du);
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h = (h ^ h >> 12) * 0x297a2d39u;
    h ^= h >> 15;
    int sum = (int)(h & 0xff) + (int)(h >> 8 & 0xff) + (int)(h >> 16 & 0xff) + (int)(h >> 24);
    return ((float)sum - 510.0f) / 148.0f;
}

/* Gradients of a rank: a part that is always the same, and noise; smaller after the vector. */
static float gradient(int rank, int step, size_t i)
{
    return (i > 412 ? 0.01f : 1.0f) * (noise((uint32_t)i, (uint32_t)rank, 0) +
                                       0.3f * noise((uint32_t)i, (uint32_t)rank, (uint32_t)step));
}

static void fill(const plan *p, int rank, int step, float *data)
{
    for (size_t i = 0; i < BLOCK; i++) {
        data[i] = gradient(rank, step, i);
        if (p->strange && step == 2 && rank == 0 && i % 97 == 3)
            data[i] = p->strange[0] == 'n' ? NAN : p->strange[0] == 'i' ? -INFINITY : 1e-41f;
        if (p->strange && p->strange[0] == 't' && step < 4)
            data[i] *= 1e-38f;
    }
}

static void body(ranks_ctx *r)
{
    plan *p = r->arg;
    td__compressor_opts o = p->o;
    td__compressor *red = NULL;
    float *data = malloc(BLOCK * sizeof *data), *first = malloc(BLOCK * sizeof *data);
    double *sum = calloc(BLOCK, sizeof *sum), *want = calloc(BLOCK, sizeof *want);
    RANK_CHECK(r, data && first && sum && want, "no memory for %d numbers", BLOCK);
    o.comm = r->comm;
    o.params = p->params;
    o.buckets = p->bucket;
    o.seed = 5;
    RANK_OK(r, p->ops->create(&o, &red));
    for (int step = 1; step <= p->steps; step++) {
        fill(p, r->rank, step, data);
        if (p->ops->step)
            RANK_OK(r, p->ops->step(red, (uint64_t)step, data));
        for (int k = 0; k < o.n_buckets; k++)
            RANK_OK(r, p->ops->reduce(red, k, data + p->bucket[k].begin));
        memcpy(first, data, BLOCK * sizeof *data);
        RANK_OK(r, td_broadcast(r->comm, first, BLOCK, TD_F32, 0, NULL));
        for (size_t i = 0; i < BLOCK; i++) {
            RANK_CHECK(r,
                       memcmp(&first[i], &data[i], sizeof *data) == 0 ||
                           (isnan(first[i]) && isnan(data[i])),
                       "%s step %d: element %zu is %a, on rank 0 %a", p->ops->name, step, i,
                       (double)data[i], (double)first[i]);
            bool poisoned = p->strange && p->strange[0] != 't' && step == 2;
            RANK_CHECK(r, poisoned || isfinite(data[i]), "%s step %d: element %zu is %g",
                       p->ops->name, step, i, (double)data[i]);
            sum[i] += (double)data[i];
        }
        fill(p, r->rank, step, data);
        RANK_OK(r, td_allreduce(r->comm, data, data, BLOCK, TD_F32, TD_REDUCE_SUM, NULL));
        for (size_t i = 0; i < BLOCK; i++)
            want[i] += (double)data[i] / (i < GRADS ? 1 - o.momentum : 1);
    }
    double wrong = 0, norm = 0, stats = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        double weight = i > 412 ? 100 : 1; /* small gradients count as much as large ones */
        wrong += weight * weight * (sum[i] - want[i]) * (sum[i] - want[i]);
        norm += weight * weight * want[i] * want[i];
        stats += i >= GRADS ? fabs(sum[i] - want[i]) : 0;
    }
    if (p->tolerance > 0)
        RANK_CHECK(r, sqrt(wrong / norm) <= p->tolerance, "%s: the mean of %d steps is %g off",
                   p->ops->name, p->steps, sqrt(wrong / norm));
    RANK_CHECK(r, p->strange || stats == 0, "%s: statistics are %g off", p->ops->name, stats);
    RANK_CHECK(r, red->plain_nbytes >= red->sent_nbytes || r->size == 1 || o.n_buckets > 2,
               "%s: %llu bytes for %llu", p->ops->name, (unsigned long long)red->sent_nbytes,
               (unsigned long long)red->plain_nbytes);
    p->ops->destroy(red);
    free(data);
    free(first);
    free(sum);
    free(want);
}

static plan plan_of(const char *name, td_params *params)
{
    plan p = {.ops = td__compressor_find(name), .params = params, .o = {.ratio = 0.02}, .steps = 3};
    CHECK(p.ops, "there is no compressor %s", name);
    return p;
}

TEST(ranks_get_the_same_bits_of_any_bucket)
{
    static const int sizes[] = {1, 2, 3, 4, 7};
    optim_model m = optim_model_create();
    for (int i = 0; td__compressor_list(i); i++)
        for (int c = 0; c < TD_LEN(CUTS); c++)
            for (int s = 0; s < TD_LEN(sizes); s++) {
                plan p = plan_of(td__compressor_list(i), m.params);
                cut(&p, CUTS[c]);
                ranks_run(sizes[s], NULL, body, &p);
            }
    optim_model_destroy(&m);
}

TEST(all_that_is_owed_arrives)
{
    static const struct {
        const char *name;
        int steps;
        double tolerance, momentum; /* of the mean: a few steps' gradients are owed at the end */
    } cases[] = {{"allreduce", 2, 1e-6, 0}, {"bf16", 2, 4e-3, 0},    {"f16", 2, 5e-4, 0},
                 {"topk", 300, 0.1, 0},     {"onebit", 300, 0.1, 0}, {"onebit", 300, 0.1, 0.5},
                 {"powersgd", 300, 0.01, 0}};
    optim_model m = optim_model_create();
    for (int i = 0; i < TD_LEN(cases); i++)
        for (int n = 1; n <= 4; n += 3) {
            plan p = plan_of(cases[i].name, m.params);
            p.steps = cases[i].steps;
            p.tolerance = cases[i].tolerance;
            p.o.momentum = cases[i].momentum;
            cut(&p, CUTS[1]);
            ranks_run(n, NULL, body, &p);
        }
    optim_model_destroy(&m);
}

/* They are seen in that step, and forgotten after it. */
TEST(strange_numbers_pass)
{
    static const char *const strange[] = {"nan", "inf", "tiny"};
    optim_model m = optim_model_create();
    for (int i = 0; td__compressor_list(i); i++)
        for (int s = 0; s < TD_LEN(strange); s++) {
            plan p = plan_of(td__compressor_list(i), m.params);
            p.steps = 6;
            p.strange = strange[s];
            p.o.momentum = p.ops->takes_momentum ? 0.5 : 0;
            cut(&p, CUTS[1]);
            ranks_run(3, NULL, body, &p);
        }
    optim_model_destroy(&m);
}

/* ---- Deep gradient compression, step by step ------------------------------------------------- */

enum { N = 50, K = 5, DGC_STEPS = 30 };

typedef struct dgc {
    double momentum, clip;
    bool nesterov;
} dgc;

/* What is expected of a rank, in plain loops; sent: what it sends, dense. */
static void dgc_step(const dgc *d, int size, const float *g, float *u, float *v, float *sent)
{
    double norm = 0;
    for (int i = 0; i < N; i++)
        norm += (double)g[i] * (double)g[i];
    norm = sqrt(norm);
    double most = d->clip / sqrt(size);
    float scale = d->clip > 0 && norm > most ? (float)(most / norm) : 1.0f;
    float m = (float)d->momentum;
    for (int i = 0; i < N; i++) {
        float s = scale * g[i];
        u[i] = d->nesterov ? m * (u[i] + s) : m * u[i] + s;
        v[i] += d->nesterov ? u[i] + s : u[i];
        sent[i] = 0;
    }
    for (int k = 0; k < K; k++) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (sent[i] == 0 && (best < 0 || fabsf(v[i]) > fabsf(v[best])))
                best = i;
        sent[best] = v[best];
    }
    for (int i = 0; i < N; i++)
        if (sent[i] != 0) {
            uint32_t bits;
            memcpy(&bits, &sent[i], sizeof bits);
            bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u; /* to bf16 */
            memcpy(&sent[i], &bits, sizeof bits);
            v[i] -= sent[i];
            u[i] = 0;
        }
}

static void dgc_body(ranks_ctx *r)
{
    const dgc *d = r->arg;
    td__bucket all = {.count = N};
    td__compressor *red;
    td__compressor_opts o = {.comm = r->comm,
                             .buckets = &all,
                             .n_buckets = 1,
                             .ratio = (double)K / N,
                             .momentum = d->momentum,
                             .nesterov = d->nesterov,
                             .clip_norm = d->clip};
    float u[N] = {0}, v[N] = {0}, sent[N], lists[8 * N];
    RANK_OK(r, td__compressor_topk.create(&o, &red));
    for (int step = 1; step <= DGC_STEPS; step++) {
        float g[N];
        for (size_t i = 0; i < N; i++)
            g[i] = gradient(r->rank, step, i);
        dgc_step(d, r->size, g, u, v, sent);
        RANK_OK(r, td_all_gather(r->comm, sent, lists, N, TD_F32, NULL));
        RANK_OK(r, td__compressor_topk.step(red, (uint64_t)step, g));
        RANK_OK(r, td__compressor_topk.reduce(red, 0, g));
        for (int i = 0; i < N; i++) {
            float want = 0;
            for (int q = 0; q < r->size; q++)
                want += lists[q * N + i];
            RANK_CHECK(r, g[i] == want, "step %d, element %d: %g, not %g", step, i, (double)g[i],
                       (double)want);
        }
    }
    td__compressor_topk.destroy(red);
}

TEST(topk_is_deep_gradient_compression)
{
    static const dgc cases[] = {
        {0, 0, false}, {0.9, 0, false}, {0.9, 0, true}, {0.9, 2.5, true}, {0, 1, false}};
    for (int i = 0; i < TD_LEN(cases); i++)
        for (int n = 1; n <= 4; n++)
            ranks_run(n, NULL, dgc_body, (void *)&cases[i]);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

enum { LARGE = 1000000, SIDE = 1000 };

typedef struct bytes_case {
    const char *name;
    double min_ranks, most; /* of the ratio on 4 ranks */
    td_params *params;
} bytes_case;

/* One matrix. */
static optim_model matrix_model(void)
{
    optim_model m = {0};
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_shape s = TD_SHAPE(SIDE, SIDE);
    td_node *w = td_param(g, "w", s, (td_init){.kind = TD_INIT_NORMAL, .b = 1});
    td_node *y = td_mul(g, w, td_input(g, "x", TD_F32, s));
    CHECK_OK(td_program_create(g, td_sum(g, y, NULL, 0, false),
                               &(td_program_opts){.backend = "ref"}, &m.program));
    CHECK_OK(td_params_create(m.program, 5, &m.params));
    td_graph_destroy(g);
    return m;
}

static void bytes_body(ranks_ctx *r)
{
    const bytes_case *c = r->arg;
    const td__compressor_ops *ops = td__compressor_find(c->name);
    td__bucket all = {.count = LARGE};
    td__compressor *red;
    td__compressor_opts o = {.comm = r->comm, .params = c->params, .buckets = &all, .n_buckets = 1};
    float *data = malloc(LARGE * sizeof *data);
    RANK_CHECK(r, data, "no memory for %d numbers", LARGE);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (float)(i * 2654435761u % 1000003) - 500001.0f;
    RANK_OK(r, ops->create(&o, &red));
    if (ops->step)
        RANK_OK(r, ops->step(red, 1, data));
    RANK_OK(r, ops->reduce(red, 0, data));
    double ratio = (double)red->plain_nbytes / (double)red->sent_nbytes;
    ops->destroy(red);
    free(data);
    RANK_CHECK(r, ratio >= c->min_ranks && ratio <= c->most, "%s: %.1f times fewer bytes", c->name,
               ratio);
}

TEST(bytes_are_as_published)
{
    bytes_case cases[] = {{"allreduce", 1, 1, NULL},    {"bf16", 1.99, 2, NULL},
                          {"f16", 1.99, 2, NULL},       {"topk", 500, 700, NULL},
                          {"powersgd", 249, 251, NULL}, {"onebit", 30, 32, NULL}};
    optim_model m = matrix_model();
    for (int i = 0; i < TD_LEN(cases); i++) {
        cases[i].params = m.params;
        ranks_run(4, NULL, bytes_body, &cases[i]);
    }
    optim_model_destroy(&m);
}

/* The share of a warm-up begins with 25 % and falls by the same factor in every step. */
static void warm_up_body(ranks_ctx *r)
{
    td__bucket all = {.count = LARGE / 10};
    td__compressor *red;
    td__compressor_opts o = {
        .comm = r->comm, .buckets = &all, .n_buckets = 1, .ratio = 0.001, .warmup_steps = 4};
    float *data = calloc(all.count, sizeof *data);
    uint64_t sent[7] = {0}, before = 0;
    RANK_CHECK(r, data, "no memory for %zu numbers", all.count);
    RANK_OK(r, td__compressor_topk.create(&o, &red));
    for (uint64_t step = 1; step <= 6; step++) {
        RANK_OK(r, td__compressor_topk.step(red, step, data));
        RANK_OK(r, td__compressor_topk.reduce(red, 0, data));
        sent[step] = red->sent_nbytes - before;
        before = red->sent_nbytes;
    }
    td__compressor_topk.destroy(red);
    free(data);
    RANK_CHECK(r, sent[5] == sent[6] && sent[6] < 400, "%llu bytes at the end",
               (unsigned long long)sent[6]);
    RANK_CHECK(r, sent[1] > 50000 && sent[1] > 3 * sent[2] && sent[2] > 3 * sent[3], "%llu, %llu",
               (unsigned long long)sent[1], (unsigned long long)sent[2]);
}

TEST(the_share_of_topk_falls_during_the_warm_up)
{
    ranks_run(2, NULL, warm_up_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_the_same_bits_of_any_bucket),
        cmocka_unit_test(all_that_is_owed_arrives),
        cmocka_unit_test(strange_numbers_pass),
        cmocka_unit_test(topk_is_deep_gradient_compression),
        cmocka_unit_test(bytes_are_as_published),
        cmocka_unit_test(the_share_of_topk_falls_during_the_warm_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
