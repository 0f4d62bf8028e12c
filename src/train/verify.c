/* verify.c -- see verify.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/verify.h"

#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "graph/params.h"
#include "base/log.h"
#include "base/rng.h"
#include "graph/runner.h"
#include "parallel/rank_tree.h"

enum { MOST = TD__STEP_WORDS / 2, FLIP = 12345 }; /* of a step: words hold two hashes of each */

typedef struct pick {
    int batch, micro_batch, owner, checker;
    uint32_t mine, check; /* hashes that this rank took; as owner, as checker */
} pick;

struct td__verify {
    td__verify_opts o;
    td__step_watch watch;
    td__loader *loader;
    int rank, size;
    /* The step under way. */
    uint32_t step;
    uint64_t epoch;
    int64_t first;
    int batches, n;
    pick picks[MOST];
    int reading;     /* the micro-batch whose rows the loader reads next; -1: any number of rows */
    uint32_t hash;   /* of the last micro-batch run here */
    int doubt;       /* pick; -1: none */
    bool outvoted;   /* this rank computed wrongly */
    uint32_t two[2]; /* its owner's hash, its checker's */
};

/* ---- Hashes ---------------------------------------------------------------------------------- */

static td_status hash_of(td_runner *r, uint32_t *out)
{
    size_t count;
    td__mapping map;
    float loss = td_runner_loss(r);
    const float *grads = td_runner_grads(r, &count);
    uint32_t h = td__crc32c(0, &loss, sizeof loss);
    TD_TRY(td__mem_map(td__params_device(td_runner_params(r)), grads, count * sizeof *grads,
                       TD_MAP_READ, &map));
    h = td__crc32c(h, map.at, map.nbytes);
    td__mem_map_drop(&map);
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad g = td_runner_sparse_grad(r, i);
        h = td__crc32c(h, g.rows, (size_t)g.n_rows * sizeof *g.rows);
        h = td__crc32c(h, g.values, (size_t)(g.n_rows * g.width) * sizeof *g.values);
    }
    *out = h ? h : 1; /* 0 is what ranks that took none have */
    return TD_OK;
}

static pick *find(td__verify *v, int batch, int micro_batch)
{
    for (int i = 0; i < v->n; i++)
        if (v->picks[i].batch == batch && v->picks[i].micro_batch == micro_batch)
            return &v->picks[i];
    return NULL;
}

/* ---- What the engine asks -------------------------------------------------------------------- */

static bool watched(void *user, int batch, int micro_batch)
{
    return find(user, batch, micro_batch) != NULL;
}

/* A micro-batch of this rank's own has been run; any thread, each with its own micro-batches. */
static td_status ran(void *user, int batch, const td__micro_batch *s)
{
    td__verify *v = user;
    pick *p = find(v, batch, s->index);
    size_t count;

    if (!s->runner)
        return TD_OK;
    if (td__faults_flip(v->o.faults)) {
        td__mapping bit;
        const float *grads = td_runner_grads(s->runner, &count);
        TD_TRY(td__mem_map(td__params_device(td_runner_params(s->runner)), grads + FLIP % count,
                           sizeof *grads, TD_MAP_BOTH, &bit));
        *(uint32_t *)bit.at ^= 1u << 20;
        TD_TRY(td__mem_unmap(&bit));
    }
    return p ? hash_of(s->runner, &p->mine) : TD_OK;
}

static void say(void *user, double *words)
{
    const td__verify *v = user;
    for (int i = 0; i < v->n; i++) {
        const pick *p = &v->picks[i];
        words[2 * i] = p->owner == v->rank ? p->mine : 0;
        words[2 * i + 1] = p->checker == v->rank ? p->check : 0;
    }
}

static td_status check(void *user, const double *words)
{
    td__verify *v = user;
    for (int i = 0; i < v->n; i++)
        if ((uint32_t)words[2 * i] != (uint32_t)words[2 * i + 1])
            v->doubt = i;
    if (v->doubt < 0)
        return TD_OK;
    v->two[0] = (uint32_t)words[2 * v->doubt];
    v->two[1] = (uint32_t)words[2 * v->doubt + 1];
    const pick *p = &v->picks[v->doubt];
    return TD_FAIL(TD_EPROTO,
                   "step %u: ranks %d and %d computed different gradients for micro-batch %d",
                   v->step, p->owner, p->checker, p->micro_batch);
}

/* ---- Running a micro-batch once more
 * --------------------------------------------------------------- */

/* A td__loader_rows. */
static td__row_range rows_of(const void *user, int64_t index, int64_t rows)
{
    const td__verify *v = user;
    int n = v->o.micro_batches;
    (void)index;
    if (v->reading < 0)
        return (td__row_range){0, (rows + n - 1) / n};
    return (td__row_range){td__micro_batch_begin(rows, n, v->reading),
                           td__micro_batch_begin(rows, n, v->reading + 1)};
}

static td_status note(void *user, const td__micro_batch *s)
{
    td__verify *v = user;
    v->hash = 0;
    return s->runner ? hash_of(s->runner, &v->hash) : TD_OK;
}

static td_status own_grads(void *user, const td__micro_batch *s)
{
    (void)user;
    if (s->runner)
        td__runner_set_grads(s->runner, NULL);
    return TD_OK;
}

static td_status run(td__verify *v, const pick *p)
{
    const td__batch *b;
    v->hash = 0;
    v->reading = p->micro_batch;
    td__loader_seek(v->loader, v->epoch, v->first + p->batch);
    TD_TRY(td__loader_next(v->loader, &b));
    return td__micro_batches_run(
        v->o.set, b, (td__micro_batch_cut){v->o.micro_batches, p->micro_batch, p->micro_batch + 1},
        v->step, (uint32_t)(p->batch * v->o.micro_batches),
        (td__micro_batch_calls){.before = own_grads, .after = note, .user = v});
}

/* ---- A step ---------------------------------------------------------------------------------- */

static int owner_of(const td__verify *v, int number)
{
    td__work_partition repartition = {v->size, v->o.bounds};
    int r = 0;
    while (td__work_micro_batches(repartition, v->batches * v->o.micro_batches, r).end <= number)
        r++;
    return r;
}

static void draw(td__verify *v)
{
    td__rng_key key = {.seed = v->o.seed, .stream = 0x7665, .step = v->step};
    v->n = 0;
    for (int k = 0; k < v->batches * v->o.micro_batches && v->n < MOST; k++) {
        key.micro_batch = (uint32_t)k;
        if ((double)td__rng_uniform(&key, 0) >= v->o.share)
            continue;
        int owner = owner_of(v, k), other = (int)(td__rng_uniform(&key, 1) * (float)(v->size - 1));
        other = other < v->size - 1 ? other : v->size - 2;
        v->picks[v->n++] = (pick){.batch = k / v->o.micro_batches,
                                  .micro_batch = k % v->o.micro_batches,
                                  .owner = owner,
                                  .checker = (owner + 1 + other) % v->size};
    }
}

td_status td__verify_begin(td__verify *v, uint32_t step, uint64_t epoch, int64_t first, int batches)
{
    v->step = step;
    v->epoch = epoch;
    v->first = first;
    v->batches = batches;
    v->doubt = -1;
    v->outvoted = false;
    draw(v);
    for (int i = 0; i < v->n; i++) {
        pick *p = &v->picks[i];
        if (p->checker != v->rank)
            continue;
        TD_TRY(run(v, p));
        p->check = v->hash;
    }
    return TD_OK;
}

bool td__verify_doubt(const td__verify *v)
{
    return v && v->doubt >= 0;
}

bool td__verify_outvoted(const td__verify *v)
{
    return v && v->outvoted;
}

/* The hash that most have. *sure: more than any other. */
static uint32_t elect(const uint32_t *votes, int n, bool *sure)
{
    uint32_t best = 0;
    int most = 0;
    for (int i = 0; i < n; i++) {
        int count = 0;
        for (int k = 0; k < n; k++)
            count += votes[k] == votes[i];
        if (count > most) {
            most = count;
            best = votes[i];
            *sure = true;
        } else if (count == most && votes[i] != best) {
            *sure = false;
        }
    }
    return best;
}

td_status td__verify_vote(td__verify *v)
{
    const pick *p = &v->picks[v->doubt];
    bool sure = false;
    uint32_t *votes = td__calloc((size_t)v->size + 2, sizeof *votes);
    if (!votes)
        return TD_FAIL(TD_ENOMEM, "no memory for %d votes", v->size);
    td_status st = run(v, p);
    if (!st)
        st = td_all_gather(v->o.comm, &v->hash, votes, sizeof v->hash, TD_U8, NULL);
    votes[v->size] = v->two[0];
    votes[v->size + 1] = v->two[1];
    uint32_t right = elect(votes, v->size + 2, &sure);
    td__free(votes);
    if (st)
        return st;
    /* All ranks learn the verdict before the comm ends; the result of this call does not matter. */
    if (td_barrier(v->o.comm, NULL))
        TD_LOG(DEBUG, TRAIN, "after a vote: %s", td_last_error());
    int wrong = v->two[0] != right ? p->owner : p->checker;
    if (!sure || (v->two[0] != right && v->two[1] != right))
        return TD_FAIL(
            TD_EPROTO,
            "step %u: ranks %d and %d computed different gradients for micro-batch %d, and "
            "repeating it on all ranks gives no majority",
            v->step, p->owner, p->checker, p->micro_batch);
    v->outvoted = wrong == v->rank;
    return TD_FAIL(
        v->outvoted ? TD_EIO : TD_EPEER,
        "rank %d computed the gradients of micro-batch %d of step %u wrongly: check the hardware "
        "of its host",
        wrong, p->micro_batch, v->step);
}

/* ---- Making one ------------------------------------------------------------------------------ */

td_status td__verify_create(const td__verify_opts *o, td__verify **out)
{
    *out = NULL;
    td__verify *v = td__calloc(1, sizeof *v);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory to verify micro-batches");
    v->o = *o;
    v->rank = td_comm_rank(o->comm);
    v->size = td_comm_size(o->comm);
    v->doubt = v->reading = -1;
    v->watch =
        (td__step_watch){.user = v, .watched = watched, .ran = ran, .say = say, .check = check};
    td__loader_opts l = *o->loader;
    l.prefetch = -1;
    l.rows = rows_of;
    l.rows_user = v;
    td_status st = td__loader_create(o->data, &l, &v->loader);
    if (st) {
        td__verify_destroy(v);
        return st;
    }
    *out = v;
    return TD_OK;
}

void td__verify_destroy(td__verify *v)
{
    if (!v)
        return;
    td__loader_destroy(v->loader);
    td__free(v);
}

const td__step_watch *td__verify_watch(td__verify *v)
{
    return &v->watch;
}
