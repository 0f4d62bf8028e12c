/* source_clicks.c -- clicks on advertisements, in the shape of Criteo's data set: 13 numbers, 26
 * categories, was it clicked? Data without files.
 *
 * x is (13); ids is (26): category c has ids [c V/26, (c+1) V/26) of a vocabulary of V, of which
 * the first ones are seen most: place (V/26) u^3, u uniform. y is 1 with the chance 1 / (1 +
 * exp(-z)),
 *
 *     z = -1 + 0.3 sum_j b_j x_j + 0.4 sum_c a(id_c) + 0.6 sum_{c < 4} s(id_c) s(id_c+1)
 *
 * with normal a and b and signs s: the first two sums are for linear models, the third one for
 * models that know pairs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/generator.h"

enum { NUMBERS = 13, CATEGORIES = 26, PAIRS = 4, DEFAULT_COUNT = 50000 };
enum { DEFAULT_VOCAB = 26000, LEAST_VOCAB = CATEGORIES, MOST_VOCAB = 1 << 30 };

typedef struct clicks {
    td__dataset head;
    uint64_t seed;
    uint32_t part;
    int64_t each; /* ids of a category */
} clicks;

static void clicks_destroy(td__dataset *d)
{
    td__free(d);
}

/* Elements of a sample's random stream. */
enum { AT_CLICK = 0, AT_ID = 4, AT_NUMBER = 64 };

/* What is true of an id, or of a number, in all samples. */
static double trait(const clicks *s, uint32_t kind, int64_t which)
{
    td__rng_key key = {
        .seed = s->seed, .stream = UINT32_C(0x3c11c4ad) + kind, .micro_batch = (uint32_t)which};
    return (double)td__rng_normal(&key, 0);
}

static int32_t id_of(const clicks *s, const td__rng_key *key, int c)
{
    double u = (double)td__rng_uniform(key, AT_ID + (uint64_t)c);
    return (int32_t)(c * s->each + (int64_t)(u * u * u * (double)s->each));
}

static double sign(double x)
{
    return x < 0 ? -1 : 1;
}

static td_status clicks_read(td__dataset *head, const int64_t *index, int64_t n,
                             const td__draw *draw, void *const *out)
{
    const clicks *s = (const clicks *)head;
    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        td__rng_key key = td__generator_key(s->seed, s->part, index[i]);
        float *x = (float *)out[0] + i * NUMBERS;
        int32_t *ids = (int32_t *)out[1] + i * CATEGORIES;
        double z = -1, before = 0;
        for (int j = 0; j < NUMBERS; j++) {
            x[j] = td__rng_normal(&key, AT_NUMBER + (uint64_t)j);
            z += 0.3 * trait(s, 1, j) * (double)x[j];
        }
        for (int c = 0; c < CATEGORIES; c++) {
            ids[c] = id_of(s, &key, c);
            double a = trait(s, 0, ids[c]);
            z += 0.4 * a;
            if (c > 0 && c <= PAIRS)
                z += 0.6 * before * sign(a);
            before = sign(a);
        }
        double u = (double)td__rng_uniform(&key, AT_CLICK);
        ((int32_t *)out[2])[i] = u < 1 / (1 + exp(-z));
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = clicks_destroy, .read = clicks_read};

static td_status clicks_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    int64_t count, vocab = o->vocab ? o->vocab : DEFAULT_VOCAB;
    uint32_t number;

    *out = NULL;
    TD_TRY(td__generator_part("clicks", o, part, DEFAULT_COUNT, &count, &number));
    if (vocab < LEAST_VOCAB || vocab > MOST_VOCAB)
        return TD_FAIL(TD_EINVAL, "clicks: vocab is %" PRId64 ", expected %d to %d", vocab,
                       LEAST_VOCAB, MOST_VOCAB);
    clicks *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for clicks");
    s->head = (td__dataset){
        .ops = &OPS,
        .count = count,
        .n_fields = 3,
        .fields = {
            {.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(NUMBERS)},
            {.name = "ids", .dtype = TD_I32, .shape = TD_SHAPE(CATEGORIES), .classes = vocab},
            {.name = "y", .dtype = TD_I32, .classes = 2}}};
    s->seed = o->seed;
    s->part = number;
    s->each = vocab / CATEGORIES;
    *out = &s->head;
    return TD_OK;
}

const td__source_def td__source_clicks = {
    .name = "clicks",
    .help = "generated clicks in Criteo's shape: 13 numbers (x), 26 categories (ids); needs no "
            "files",
    .reads = "count vocab seed",
    .open = clicks_open,
};
