/* sync_hogwild.c -- Hogwild (Niu, Recht, Re and Wright, 2011): threads of one process take
 * micro-batches as they come, read the params as they are at that moment, and update them at once,
 * without a lock and without waiting for each other. Where updates touch few rows, collisions are
 * rare, and the threads are as fast as if each trained a model of its own.
 *
 * Shared params are only read and written with relaxed atomic operations, one float each. A thread
 * copies what its micro-batch reads (of a table with row-sparse gradients the rows that its ids
 * name; of other params all of them) to a block of its own, which the kernels then use, and puts
 * the update into the shared one:
 *
 *     store    p <- p - lr g, loaded and stored: of two threads at the same element one may be lost
 *     add      by compare-and-swap: none is lost */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "base/atomic_float.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/in_place.h"

typedef struct hogwild {
    td__in_place base;
    bool add;
    float *shared;   /* the params of the trainer */
    atomic_int next; /* micro-batch of the batch */
} hogwild;

static const td__key OPTIONS[] = {
    TD_KEY_ROW("update", INT,
               "What threads do at the same number: store: the last one wins, and an update may "
               "be lost; add: none is lost, and each costs a little more.",
               .hi = 1, .words = "store=0 add=1", .def = "store"),
    TD_KEYS_END};

static void read_range(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = td__float_load(from + i);
}

static void update_range(const hogwild *h, float *to, const float *g, size_t n)
{
    float lr = h->base.lr;
    for (size_t i = 0; i < n; i++) {
        if (g[i] == 0)
            continue;
        if (h->add)
            td__float_add(to + i, -(lr * g[i]));
        else
            td__float_store(to + i, td__float_load(to + i) - lr * g[i]);
    }
}

/* What micro-batch k reads, to the thread's own params. */
static void pull(const hogwild *h, int thread, int k)
{
    const td__in_place *p = &h->base;
    td_params *own = p->params[thread];
    float *to = td_params_block(own, NULL);
    int64_t begin, rows = td__in_place_rows(p, k, &begin);
    read_range(to, h->shared, td__params_dense(own));
    for (int i = 0; i < p->n_tables; i++) {
        const td__row_table *t = &p->table[i];
        for (int64_t r = begin; r < begin + rows; r++)
            for (int64_t j = 0; j < t->per_sample; j++) {
                int64_t id = td__in_place_id(t, p->batch, r, j);
                size_t at = t->offset + (size_t)(id * t->width);
                if (id >= 0)
                    read_range(to + at, h->shared + at, (size_t)t->width);
            }
    }
    td_params_touch(own);
}

static void push(const hogwild *h, td_runner *r)
{
    const td__in_place *p = &h->base;
    update_range(h, h->shared, td_runner_grads(r, NULL), td__params_dense(p->base.x.step.params));
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad g = td_runner_sparse_grad(r, i);
        size_t offset = td_params_info(p->base.x.step.params, g.param).offset;
        for (int64_t k = 0; k < g.n_rows; k++)
            update_range(h, h->shared + offset + (size_t)(g.rows[k] * g.width),
                         g.values + k * g.width, (size_t)g.width);
    }
}

static td_status run(void *user, int thread)
{
    hogwild *h = user;
    td__in_place *p = &h->base;
    int64_t begin;
    for (;;) {
        int k = atomic_fetch_add_explicit(&h->next, 1, memory_order_relaxed);
        td_runner *r;
        if (k >= p->base.x.step.micro_batches)
            return TD_OK;
        if (!td__in_place_rows(p, k, &begin))
            continue;
        pull(h, thread, k);
        TD_TRY(td__in_place_run(p, thread, k, &r));
        push(h, r);
    }
}

static td_status run_batch(void *user, const td__batch *batch, int number, double *losses)
{
    hogwild *h = user;
    TD_TRY(td__in_place_batch(&h->base, batch, number, losses));
    atomic_store(&h->next, 0);
    h->shared = td_params_block(h->base.base.x.step.params, NULL);
    return td__pool_run(h->base.base.x.step.pool, run, h);
}

static td_status batch(td__sync *s, const td__batch *b)
{
    return td__step_batch_by(s->engine, b, run_batch, s);
}

static td_status create(td__sync *s)
{
    hogwild *h = (hogwild *)s;
    h->add = td__sync_value(s, "update") > 0;
    return td__in_place_create(&h->base, true);
}

static void destroy(td__sync *s)
{
    td__in_place_destroy((td__in_place *)s);
}

/* Blocks of the threads' own. */
static size_t exchange(const td__sync_sizes *z)
{
    return z->params;
}

const td__sync_ops td__sync_hogwild = {
    .name = "hogwild",
    .help = "threads of one process update shared params at once, without locks",
    .promise = "none with several threads; with one, the bits of SGD on micro-batches in turn",
    .unplanned = "its threads exchange nothing but params in the memory of one process",
    .options = OPTIONS,
    .size = sizeof(hogwild),
    .one_process = true,
    .reads_batches = true,
    .check = td__in_place_check,
    .check_params = td__in_place_check_params,
    .traits = td__in_place_traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = td__in_place_begin,
    .batch = batch,
    .step = td__in_place_step,
};
