/* grad_tree.c -- see grad_tree.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/grad_tree.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/kernels/blend.h"
#include "graph/params.h"
#include "graph/runner.h"

struct td__grad_block {
    td__grad_block *next; /* in the free list */
    td_mem mem, lists;    /* of the dense part; of the rest, the host's */
    float *dense;
    td__grad_rows sparse[TD__MAX_SPARSE];
};

typedef struct sparse_param {
    int param;
    int64_t width, capacity;
} sparse_param;

struct td__grad_pool {
    size_t dense, nbytes;     /* floats of the dense part; bytes of the lists */
    td_device *device, *host; /* retained */
    sparse_param sparse[TD__MAX_SPARSE];
    int n_sparse;
    td__isa isa;
    int total;            /* blocks made */
    pthread_mutex_t lock; /* of `free` */
    td__grad_block *free;
};

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Rows of a step are at most those of all its micro-batches, and at most those of the table. */
static td_status find_sparse(td__grad_pool *g, const td_program *p, const td_params *ps,
                             int micro_batches)
{
    for (int i = 0; i < td__program_sparse_count(p); i++) {
        td__sparse_shape shape = td__program_sparse(p, i);
        if (g->n_sparse == TD__MAX_SPARSE)
            return TD_FAIL(TD_ENOTSUP, "more than %d params with row-sparse gradients",
                           TD__MAX_SPARSE);
        sparse_param *s = &g->sparse[g->n_sparse++];
        s->param = td_params_find(ps, shape.name);
        TD_ASSERT(s->param >= 0, "no param %s", shape.name);
        int64_t rows, table = td_params_info(ps, s->param).shape.dim[0];
        s->width = shape.width;
        if (!td__i64_mul(shape.rows, micro_batches, &rows) || rows > table)
            rows = table;
        s->capacity = rows;
    }
    return TD_OK;
}

static void add_up_nbytes(td__grad_pool *g)
{
    g->nbytes = 0;
    for (int k = 0; k < g->n_sparse; k++)
        g->nbytes +=
            td__align_up((size_t)g->sparse[k].capacity * sizeof(int32_t), TD_ALIGN) +
            td__align_up((size_t)(g->sparse[k].capacity * g->sparse[k].width) * sizeof(float),
                         TD_ALIGN);
}

td_status td__grad_pool_create(const td_program *p, const td_params *ps, int micro_batches,
                               td__grad_pool **out)
{
    *out = NULL;
    td__grad_pool *g = td__calloc(1, sizeof *g);
    if (!g)
        return TD_FAIL(TD_ENOMEM, "no memory for gradient blocks");
    g->isa = td__cpu_isa();
    g->dense = td__params_dense(ps) + td__params_total(ps) - td_params_trainable(ps);
    pthread_mutex_init(&g->lock, NULL);
    g->device = td__device_retain(td__params_device(ps));
    td_status st = td__device_open("host", &g->host);
    if (!st)
        st = find_sparse(g, p, ps, micro_batches);
    add_up_nbytes(g);
    if (st) {
        td__grad_pool_destroy(g);
        return st;
    }
    *out = g;
    return TD_OK;
}

td_status td__grad_pool_like(const td__grad_pool *g, td__grad_pool **out)
{
    td__grad_pool *like = *out = td__calloc(1, sizeof *like);
    if (!like)
        return TD_FAIL(TD_ENOMEM, "no memory for gradient blocks");
    like->isa = g->isa;
    like->device = td__device_retain(g->device);
    like->host = td__device_retain(g->host);
    memcpy(like->sparse, g->sparse, sizeof like->sparse);
    like->n_sparse = g->n_sparse;
    pthread_mutex_init(&like->lock, NULL);
    add_up_nbytes(like);
    return TD_OK;
}

static void drop_block(td__grad_block *b)
{
    td__mem_free(&b->mem);
    td__mem_free(&b->lists);
    td__free(b);
}

void td__grad_pool_destroy(td__grad_pool *g)
{
    if (!g)
        return;
    for (td__grad_block *b = g->free, *next; b; b = next) {
        next = b->next;
        drop_block(b);
    }
    td__device_release(g->device);
    td__device_release(g->host);
    pthread_mutex_destroy(&g->lock);
    td__free(g);
}

static td_status fill_block(const td__grad_pool *g, td__grad_block *b)
{
    TD_TRY(td__mem_alloc(g->device, TD_MEM_OWN, g->dense * sizeof(float), &b->mem));
    b->dense = b->mem.at;
    if (!g->n_sparse)
        return TD_OK;
    TD_TRY(td__mem_alloc(g->host, TD_MEM_OWN, g->nbytes, &b->lists));
    char *at = b->lists.at;
    for (int k = 0; k < g->n_sparse; k++) {
        const sparse_param *s = &g->sparse[k];
        b->sparse[k].rows = (int32_t *)(void *)at;
        at += td__align_up((size_t)s->capacity * sizeof(int32_t), TD_ALIGN);
        b->sparse[k].values = (float *)(void *)at;
        at += td__align_up((size_t)(s->capacity * s->width) * sizeof(float), TD_ALIGN);
    }
    return TD_OK;
}

static td_status make_block(td__grad_pool *g, td__grad_block **out)
{
    td__grad_block *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for a block of gradients");
    td_status st = fill_block(g, b);
    if (st) {
        drop_block(b);
        return TD_FAIL(st, "no memory for %zu bytes of gradients: use fewer compute threads",
                       g->dense * sizeof(float) + g->nbytes);
    }
    *out = b;
    return TD_OK;
}

static void give(td__grad_pool *g, td__grad_block *b)
{
    pthread_mutex_lock(&g->lock);
    b->next = g->free;
    g->free = b;
    pthread_mutex_unlock(&g->lock);
}

static td_status take(td__grad_pool *g, td__grad_block **out)
{
    pthread_mutex_lock(&g->lock);
    td__grad_block *b = g->free;
    if (b)
        g->free = b->next;
    pthread_mutex_unlock(&g->lock);
    *out = b;
    return b ? TD_OK : make_block(g, out);
}

td_status td__grad_pool_reserve(td__grad_pool *g, int blocks)
{
    for (; g->total < blocks; g->total++) {
        td__grad_block *b;
        TD_TRY(make_block(g, &b));
        give(g, b);
    }
    return TD_OK;
}

size_t td__grad_dense(const td__grad_pool *g)
{
    return g->dense;
}

int td__grad_sparse_count(const td__grad_pool *g)
{
    return g->n_sparse;
}

int64_t td__grad_sparse_width(const td__grad_pool *g, int k)
{
    return g->sparse[k].width;
}

td_status td__grad_hold(td__grad_pool *g, td__partial *p)
{
    TD_TRY(take(g, &p->block));
    p->dense = p->block->dense;
    return TD_OK;
}

void td__grad_set_rows(const td__grad_pool *g, td__partial *p, int k, int64_t n,
                       const int32_t *rows, const float *values)
{
    td__grad_rows *to = &p->block->sparse[k];
    TD_ASSERT(n <= g->sparse[k].capacity, "%lld rows", (long long)n);
    to->n = n;
    memcpy(to->rows, rows, (size_t)n * sizeof *rows);
    memcpy(to->values, values, (size_t)(n * g->sparse[k].width) * sizeof *values);
}

void td__grad_no_rows(td__partial *p, int k)
{
    p->block->sparse[k].n = 0;
}

void td__grad_scale_rows(const td__grad_pool *g, td__partial *p, float by)
{
    for (int k = 0; k < g->n_sparse; k++) {
        td__grad_rows *r = &p->block->sparse[k];
        TD_ISA_PICK(g->isa, td__scaled_copy)
        (r->values, r->values, by, (size_t)(r->n * g->sparse[k].width));
    }
}

td_sparse_grad td__grad_sparse(const td__grad_pool *g, const td__partial *p, int k)
{
    const td__grad_rows *r = &p->block->sparse[k];
    return (td_sparse_grad){.param = g->sparse[k].param,
                            .n_rows = r->n,
                            .width = g->sparse[k].width,
                            .rows = r->rows,
                            .values = r->values};
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* to += from: rows of both are added, others taken over. Filled from the end, so that no row of
 * `to` is overwritten before it has been moved. */
static void merge_rows(td__grad_rows *to, const td__grad_rows *from, size_t width)
{
    int64_t i = 0, j = 0, n = 0;
    while (i < to->n && j < from->n) {
        int32_t a = to->rows[i], b = from->rows[j];
        i += a <= b;
        j += b <= a;
        n++;
    }
    n += (to->n - i) + (from->n - j);
    i = to->n - 1;
    j = from->n - 1;
    for (int64_t k = n - 1; j >= 0; k--) {
        float *v = to->values + (size_t)k * width;
        const float *mine = to->values + (size_t)i * width;
        const float *theirs = from->values + (size_t)j * width;
        if (i < 0 || to->rows[i] < from->rows[j]) {
            memcpy(v, theirs, width * sizeof *v);
            to->rows[k] = from->rows[j--];
        } else if (to->rows[i] > from->rows[j]) {
            memmove(v, mine, width * sizeof *v);
            to->rows[k] = to->rows[i--];
        } else {
            for (size_t c = 0; c < width; c++)
                v[c] = mine[c] + theirs[c];
            to->rows[k] = to->rows[i--];
            j--;
        }
    }
    to->n = n;
}

static void merge_sparse(const td__grad_pool *g, td__grad_block *to, const td__grad_block *from)
{
    for (int k = 0; k < g->n_sparse; k++)
        merge_rows(&to->sparse[k], &from->sparse[k], (size_t)g->sparse[k].width);
}

void td__grad_merge_rows(const td__grad_pool *g, td__partial *to, const td__partial *from)
{
    merge_sparse(g, to->block, from->block);
}

/* Is b the right sibling of a? */
static bool siblings(const td__subtree *a, const td__subtree *b)
{
    int64_t size = (int64_t)1 << a->level;
    return a->level == b->level && a->begin % (2 * size) == 0 && a->begin + size == b->begin;
}

/* The partial of two neighbours, whose sum will lie where a's or, if a is absent, b's does. */
static td__partial joined(const td__partial *a, const td__partial *b)
{
    td__partial p = a->dense ? *a : *b;
    p.tree.begin = a->tree.begin;
    p.tree.level = (a->tree.level > b->tree.level ? a->tree.level : b->tree.level) + 1;
    if (a->dense && b->dense)
        p.weight = 1;
    return p;
}

static void add_op(td__grad_sum *sum, const td__partial *a, const td__partial *b)
{
    if (!a->dense || !b->dense)
        return;
    TD_ASSERT(sum->n_ops < sum->room, "%d sums", sum->n_ops);
    sum->op[sum->n_ops] = (td__blend_op){a->dense, b->dense, a->weight, b->weight};
    sum->dst_block[sum->n_ops] = a->block;
    sum->src_block[sum->n_ops++] = b->block;
}

void td__grad_plan(td__grad_stack *s, bool all, td__grad_sum *sum)
{
    td__partial *at = s->at;
    int n = 0; /* of the result, which takes the place of what it was made from */

    sum->n_ops = 0;
    for (int i = 0; i < s->n; i++) {
        td__partial p = at[i];
        while (n && siblings(&at[n - 1].tree, &p.tree)) {
            add_op(sum, &at[n - 1], &p);
            p = joined(&at[--n], &p);
        }
        at[n++] = p;
    }
    for (; all && n > 1; n--) { /* missing right halves: the rest is passed up */
        add_op(sum, &at[n - 2], &at[n - 1]);
        at[n - 2] = joined(&at[n - 2], &at[n - 1]);
    }
    s->n = n;
}

td_stream *td__grad_stream(const td__grad_pool *g)
{
    return td__device_stream(g->device);
}

void td__grad_blend(td_stream *on, const td__grad_sum *sum, size_t begin, size_t count)
{
    td__grad_blend_ops(on, sum->op, sum->n_ops, begin, count);
}

void td__grad_blend_ops(td_stream *on, const td__blend_op *ops, int n_ops, size_t begin,
                        size_t count)
{
    if (!n_ops)
        return;
    unsigned mode = td__cpu_fp_flush(); /* as the kernels that made the gradients */
    if (on) {
        td__stream_blend(on, ops, n_ops, begin, count);
        td__stream_drain(on);
    } else {
        td__host_blend(ops, n_ops, begin, count);
    }
    td__cpu_fp_restore(mode);
}

void td__grad_blended(td_stream *on, const td__blend_op *op, size_t begin, size_t count, float *to)
{
    unsigned mode = td__cpu_fp_flush(); /* as there */
    td__stream_blended(on, op, begin, count, to);
    td__stream_drain(on);
    td__cpu_fp_restore(mode);
}

void td__grad_publish(td_stream *on, const td__partial *p, size_t begin, size_t count, float *to)
{
    unsigned mode = td__cpu_fp_flush(); /* as there */
    if (p->weight == 1)
        td__stream_copy(on, to, p->dense + begin, count * sizeof *to);
    else
        td__stream_scale(on, to, p->dense + begin, p->weight, count);
    td__stream_drain(on);
    td__cpu_fp_restore(mode);
}

void td__grad_drop(td__grad_pool *g, td__grad_sum *sum)
{
    for (int i = 0; i < sum->n_ops; i++)
        if (sum->src_block[i])
            give(g, sum->src_block[i]);
    sum->n_ops = 0;
}

void td__grad_finish(td__grad_pool *g, td__grad_sum *sum)
{
    for (int i = 0; g->n_sparse && i < sum->n_ops; i++)
        merge_sparse(g, sum->dst_block[i], sum->src_block[i]);
    td__grad_drop(g, sum);
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

int td__grad_blocks_needed(const td__grad_pool *g, int begin, int end, int borrowed)
{
    td__partial at[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(at);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    int most = 0, alone = end - borrowed > begin ? end - borrowed : begin;
    for (int i = begin; i < alone; i++) {
        bool at_once = i > begin && i % 2 == 1 && !g->n_sparse; /* joins its left sibling */
        s.at[s.n++] = (td__partial){.tree = {i, 0}};
        most = !at_once && s.n > most ? s.n : most;
        td__grad_plan(&s, false, &sum);
    }
    int held = end - alone - (alone < end && !g->n_sparse); /* one stays in the runner's own */
    return s.n + held > most ? s.n + held : most;
}

static void copy_sparse(const td__grad_pool *g, td__grad_block *b, td_runner *r, float weight)
{
    void (*copy)(float *, const float *, float, size_t) = TD_ISA_PICK(g->isa, td__scaled_copy);
    for (int k = 0; k < g->n_sparse; k++)
        b->sparse[k].n = 0; /* a piece of a model may not have all of them */
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad from = td_runner_sparse_grad(r, i);
        int k = 0;
        while (k < g->n_sparse && g->sparse[k].param != from.param)
            k++;
        TD_ASSERT(k < g->n_sparse && from.n_rows <= g->sparse[k].capacity, "%lld rows of param %d",
                  (long long)from.n_rows, from.param);
        td__grad_rows *to = &b->sparse[k];
        to->n = from.n_rows;
        memcpy(to->rows, from.rows, (size_t)from.n_rows * sizeof *to->rows);
        copy(to->values, from.values, weight, (size_t)(from.n_rows * from.width));
    }
}

static td__partial leaf_of(const td__grad_pool *g, int micro_batch, td_runner *r, float weight,
                           td__grad_block *block)
{
    td__partial p = {.tree = {micro_batch, 0}, .weight = weight, .block = block};
    if (r) {
        size_t count;
        p.dense = td_runner_grads(r, &count);
        TD_ASSERT(count == g->dense, "%zu gradients, not %zu", count, g->dense);
    }
    return p;
}

td_status td__grad_bind(td__grad_pool *g, const td__grad_stack *s, int micro_batch, td_runner *r,
                        float weight, td__partial *leaf)
{
    const td__partial *left = s->n ? &s->at[s->n - 1] : NULL;
    *leaf = (td__partial){.tree = {micro_batch, 0}, .weight = weight};
    if (!r)
        return TD_OK;
    bool joins = left && left->block && siblings(&left->tree, &leaf->tree);
    if (!joins || g->n_sparse)
        TD_TRY(take(g, &leaf->block));
    td__runner_set_grads(r, joins || !leaf->block ? NULL : leaf->block->dense);
    *leaf = leaf_of(g, micro_batch, r, weight, leaf->block);
    return TD_OK;
}

void td__grad_push(td__grad_pool *g, td__grad_stack *s, const td__partial *leaf, td_runner *r)
{
    TD_ASSERT(s->n < s->room, "%d partials", s->n);
    if (r) {
        td__grad_borrowed(g, leaf->block, r, leaf->weight);
        td__runner_set_grads(r, NULL);
    }
    s->at[s->n++] = *leaf;
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    td__grad_plan(s, false, &sum);
    for (int i = 0; i < s->n_limit; i++)
        td__grad_blend(td__grad_stream(g), &sum, s->limit[i].begin,
                       s->limit[i].end - s->limit[i].begin);
    if (!s->limit)
        td__grad_blend(td__grad_stream(g), &sum, 0, g->dense);
    td__grad_finish(g, &sum);
}

void td__grad_unbind(td__grad_pool *g, td__partial *leaf)
{
    if (leaf->block)
        give(g, leaf->block);
    leaf->block = NULL;
}

td_status td__grad_lend(td__grad_pool *g, td__grad_stack *s, int micro_batch, td_runner *r,
                        float weight, bool held)
{
    td__grad_block *block = NULL;
    TD_ASSERT(s->n < s->room, "%d partials", s->n);
    if (r && (g->n_sparse || held))
        TD_TRY(take(g, &block));
    if (r)
        td__runner_set_grads(r, held ? block->dense : NULL);
    s->at[s->n++] =
        leaf_of(g, micro_batch, r, weight, block); /* what it would join is left to the end */
    return TD_OK;
}

void td__grad_borrowed(const td__grad_pool *g, td__grad_block *b, td_runner *r, float weight)
{
    unsigned mode = td__cpu_fp_flush();
    if (b && g->n_sparse)
        copy_sparse(g, b, r, weight);
    td__cpu_fp_restore(mode);
}

void td__grad_clear(td__grad_pool *g, td__grad_stack *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i].block)
            give(g, s->at[i].block);
    s->n = 0;
}
