/* cut_product.c -- tandem/product.h: a program of one product in pieces (tensor.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tandem/product.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/graph_impl.h"
#include "graph/tensor.h"
#include "tandem/ops.h"

struct td_product {
    int64_t m, n, k;
    int pieces, first, own; /* of this rank: [first, first + own) */
    td_program *program;
    td_params *params; /* none; runners want some */
    td_runner *runner;
};

static int64_t begin_of(const td_product *p, int piece)
{
    return p->k * piece / p->pieces;
}

/* Names of inputs: "a0", "b0" of the first piece here. */
static const char *name_of(char buf[16], char which, int piece)
{
    snprintf(buf, 16, "%c%d", which, piece);
    return buf;
}

static td_node *build(const td_product *p, td_graph *g, int ranks)
{
    td_node *partial[TD__MOST_PIECES];
    td_attr_pieces a;
    char name[16];
    memset(&a, 0, sizeof a);
    a.groups = 1;
    a.pieces = p->pieces;
    a.first = p->first;
    a.n = p->own;
    a.ranks = ranks;
    for (int i = 0; i < p->own; i++) {
        int64_t k = begin_of(p, p->first + i + 1) - begin_of(p, p->first + i);
        td_node *x = td_input(g, name_of(name, 'a', i), TD_F32, TD_SHAPE(p->m, k));
        td_node *y = td_input(g, name_of(name, 'b', i), TD_F32, TD_SHAPE(k, p->n));
        partial[i] = td_matmul(g, x, y, false, false);
    }
    return td__node(g, TD_OP_PIECES_SUM, &a, partial, p->own);
}

static td_status make(td_product *p, td_comm *comm, const char *backend)
{
    td_graph *g;
    TD_TRY(td_graph_create(&g));
    td_node *c = build(p, g, comm ? td_comm_size(comm) : 1);
    td_program_opts o = {
        .backend = backend, .evaluate = true, .outputs = (td_node *[]){c}, .n_outputs = 1};
    td_status st = td_graph_status(g) ? TD_FAIL(td_graph_status(g), "%s", td_graph_error(g))
                                      : td_program_create(g, NULL, &o, &p->program);
    td_graph_destroy(g);
    TD_TRY(st);
    TD_TRY(td_params_create(p->program, 0, &p->params));
    TD_TRY(td_runner_create(p->program, p->params, &p->runner));
    td__runner_set_comm(p->runner, comm);
    return TD_OK;
}

td_status td_product_create(td_comm *comm, int64_t m, int64_t n, int64_t k,
                            const td_product_opts *opts, td_product **out)
{
    static const td_product_opts DEFAULTS = {0};
    const td_product_opts *o = opts ? opts : &DEFAULTS;
    int ranks = comm ? td_comm_size(comm) : 1, pieces = o->pieces ? o->pieces : ranks;
    *out = NULL;
    if (pieces < 1 || pieces > TD__MOST_PIECES || pieces % ranks)
        return TD_FAIL(TD_EINVAL,
                       "td_product_create: %d pieces on %d ranks: they must be a multiple of the "
                       "ranks, and at most %d",
                       pieces, ranks, TD__MOST_PIECES);
    if (m < 1 || n < 1 || k < pieces)
        return TD_FAIL(TD_EINVAL,
                       "td_product_create: (%lld, %lld) times (%lld, %lld) in %d pieces: sizes "
                       "must be at least 1, and those that are cut at least the pieces",
                       (long long)m, (long long)k, (long long)k, (long long)n, pieces);
    td_product *p = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "td_product_create: no memory");
    *p = (td_product){.m = m, .n = n, .k = k, .pieces = pieces, .own = pieces / ranks};
    p->first = p->own * (comm ? td_comm_rank(comm) : 0);
    td_status st = make(p, comm, o->backend);
    if (st) {
        td_product_destroy(p);
        return st;
    }
    *out = p;
    return TD_OK;
}

void td_product_destroy(td_product *p)
{
    if (!p)
        return;
    td_runner_destroy(p->runner);
    td_params_destroy(p->params);
    td_program_destroy(p->program);
    td__free(p);
}

void td_product_columns(const td_product *p, int64_t *first, int64_t *count)
{
    *first = begin_of(p, p->first);
    *count = begin_of(p, p->first + p->own) - *first;
}

/* Rows of `width` elements, ld apart, to an input. */
static void fill(td_product *p, char which, int piece, const float *from, int64_t rows,
                 int64_t width, int64_t ld)
{
    char name[16];
    float *to = td_runner_input(p->runner, name_of(name, which, piece), NULL);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * width, from + r * ld, (size_t)width * sizeof *to);
}

td_status td_product_run(td_product *p, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float *c)
{
    int64_t first, count;
    size_t nbytes;
    td_product_columns(p, &first, &count);
    if (lda < count || ldb < p->n)
        return TD_FAIL(TD_EINVAL,
                       "td_product_run: rows of a are %lld elements apart and have %lld, those of "
                       "b %lld and %lld",
                       (long long)lda, (long long)count, (long long)ldb, (long long)p->n);
    for (int i = 0; i < p->own; i++) {
        int64_t begin = begin_of(p, p->first + i) - first;
        int64_t k = begin_of(p, p->first + i + 1) - first - begin;
        fill(p, 'a', i, a + begin, p->m, k, lda);
        fill(p, 'b', i, b + begin * ldb, k, p->n, ldb);
    }
    TD_TRY(td_runner_run(p->runner, (td_run_key){.step = 1}));
    const void *sum = td_runner_output(p->runner, 0, &nbytes);
    memcpy(c, sum, nbytes);
    return TD_OK;
}
