/* source_ratings.c -- ratings of items by users, for matrix factorization: data without files.
 *
 * user and item are numbers below `vocab` (1000), uniform; y = u . v + noise * normal, where user
 * and item have RANK normal values each, divided by the root of RANK. `noise` is 0.1 by default. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "data/generator.h"

enum { RANK = 4, DEFAULT_COUNT = 50000, DEFAULT_VOCAB = 1000, MOST_VOCAB = 1 << 30 };
#define DEFAULT_NOISE 0.1

typedef struct ratings {
    td__dataset head;
    uint64_t seed;
    uint32_t part;
    int64_t vocab;
    double noise;
} ratings;

static void ratings_destroy(td__dataset *d)
{
    td__free(d);
}

/* Elements of a sample's random stream. */
enum { AT_USER = 0, AT_ITEM = 1, AT_NOISE = 4 };

static double liking(const ratings *s, int32_t user, int32_t item)
{
    const uint32_t stream = UINT32_C(0x5a7e1265);
    td__rng_key u = {.seed = s->seed, .stream = stream, .micro_batch = (uint32_t)user};
    td__rng_key v = {.seed = s->seed, .stream = stream + 1, .micro_batch = (uint32_t)item};
    double sum = 0;
    for (uint64_t k = 0; k < RANK; k++)
        sum += (double)td__rng_normal(&u, k) * (double)td__rng_normal(&v, k);
    return sum / RANK;
}

static td_status ratings_read(td__dataset *head, const int64_t *index, int64_t n,
                              const td__draw *draw, void *const *out)
{
    const ratings *s = (const ratings *)head;
    int32_t *user = out[0], *item = out[1];
    float *y = out[2];
    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        td__rng_key key = td__generator_key(s->seed, s->part, index[i]);
        user[i] = (int32_t)((double)td__rng_uniform(&key, AT_USER) * (double)s->vocab);
        item[i] = (int32_t)((double)td__rng_uniform(&key, AT_ITEM) * (double)s->vocab);
        y[i] = (float)(liking(s, user[i], item[i]) +
                       s->noise * (double)td__rng_normal(&key, AT_NOISE));
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = ratings_destroy, .read = ratings_read};

static td_status ratings_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    int64_t count, vocab = o->vocab ? o->vocab : DEFAULT_VOCAB;
    uint32_t number;

    *out = NULL;
    TD_TRY(td__generator_part("ratings", o, part, DEFAULT_COUNT, &count, &number));
    if (vocab < 1 || vocab > MOST_VOCAB)
        return TD_FAIL(TD_EINVAL, "ratings: vocab is %" PRId64 ", expected 1 to %d", vocab,
                       MOST_VOCAB);
    ratings *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for ratings");
    s->head = (td__dataset){.ops = &OPS,
                            .count = count,
                            .n_fields = 3,
                            .fields = {{.name = "user", .dtype = TD_I32, .classes = vocab},
                                       {.name = "item", .dtype = TD_I32, .classes = vocab},
                                       {.name = "y", .dtype = TD_F32}}};
    s->seed = o->seed;
    s->part = number;
    s->vocab = vocab;
    s->noise = o->noise > 0 ? o->noise : DEFAULT_NOISE;
    *out = &s->head;
    return TD_OK;
}

const td__source_def td__source_ratings = {
    .name = "ratings",
    .help = "generated ratings (y) of items by users (item, user); needs no files",
    .reads = "count vocab noise seed",
    .open = ratings_open,
};
