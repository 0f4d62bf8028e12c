/* plan_pieces.c -- products in pieces: fan, sum, cut, join, and the ids and losses of tables that
 * are cut (ops/op_pieces_sum.c and so on). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/copy.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/pieces.h"
#include "backend/cpu/kernels/softmax.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/op_check.h"
#include "ops/op_pieces.h"

/* ---- Fan and sum ----------------------------------------------------------------------------- */

static void run_fan(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    size_t nbytes = td__desc_bytes(&n->out[0]);
    for (int i = 0; i < n->n_out; i++)
        if (nbytes && c->out[i] != c->in[0]) /* the first may lie there */
            memcpy(c->out[i], c->in[0], nbytes);
}

td_status td__cpu_plan_pieces_fan(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    (void)cpu, (void)is_param, (void)n;
    k->run = run_fan;
    k->impl = "copy";
    return TD_OK;
}

typedef struct sum_state {
    td__pieces_sum_fn *run;
} sum_state;

static void run_sum(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const sum_state *s = c->kernel->state;
    s->run(c->out[0], c->in, n->n_in, td__in_desc(n, 0)->dtype, td__desc_count(&n->out[0]));
}

td_status td__cpu_plan_pieces_sum(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    (void)is_param;
    if (!td__is_narrow(td__in_desc(n, 0)->dtype))
        return TD_ENOTSUP;
    sum_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->run = TD_ISA_PICK(cpu->isa, td__pieces_sum);
    k->run = run_sum;
    k->impl = "tree";
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}

/* ---- Cut and join ---------------------------------------------------------------------------- */

typedef struct moves {
    bool clears; /* the whole has elements that no piece here has */
    int n;
    td__copy copy[]; /* by piece */
} moves;

static void run_cut(const td_kernel_call *c)
{
    const moves *m = c->kernel->state;
    for (int i = 0; i < m->n; i++)
        td__copy_run(&m->copy[i], c->out[i], c->in[0]);
}

static void run_join(const td_kernel_call *c)
{
    const moves *m = c->kernel->state;
    if (m->clears)
        memset(c->out[0], 0, td__desc_bytes(&c->kernel->node->out[0]));
    for (int i = 0; i < m->n; i++)
        td__copy_run(&m->copy[i], c->out[0], c->in[i]);
}

/* Between the whole and a piece of it, `to` the piece unless joining. */
static td__copy move_of(const td__tensor_piece *p, size_t size, bool join)
{
    td__copy c = {.ndim = 4, .size = size, .dim = {p->outer, p->groups, p->count, p->inner}};
    int64_t *whole = join ? c.to : c.from, *piece = join ? c.from : c.to;
    whole[3] = piece[3] = 1;
    whole[2] = piece[2] = p->inner;
    whole[1] = p->group * p->inner;
    piece[1] = p->count * p->inner;
    whole[0] = p->groups * whole[1];
    piece[0] = p->groups * piece[1];
    *(join ? &c.to_first : &c.from_first) = p->begin * p->inner;
    td__copy_simplify(&c);
    return c;
}

td_status td__cpu_plan_pieces_cut(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    const td_attr_pieces *a = n->attr;
    bool join = n->op == TD_OP_PIECES_JOIN;
    (void)cpu, (void)is_param;
    moves *m = td__calloc(1, sizeof *m + (size_t)a->n * sizeof m->copy[0]);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    const td_shape *whole = join ? &a->whole : &td__in_desc(n, 0)->shape;
    m->n = a->n;
    m->clears = join && a->n < a->pieces && a->ranks == 1 && !a->packed;
    for (int i = 0; i < a->n; i++) {
        td__tensor_piece p = td__piece_of(a, whole, a->first + i);
        m->copy[i] = move_of(&p, td_dtype_size(n->out[0].dtype), join);
    }
    k->run = join ? run_join : run_cut;
    k->impl = "copy";
    k->state = m;
    k->fini = td__free;
    return TD_OK;
}

/* ---- Cross entropy --------------------------------------------------------------------------- */

typedef struct xent_state {
    td__xent shape;
    int64_t first; /* class of the first logit */
    td__xent_fn *run;
    td__xent_piece_back_fn *back;
} xent_state;

static int64_t target_at(const xent_state *s, const void *target, int64_t r)
{
    int64_t t = s->shape.target_dtype == TD_I32 ? ((const int32_t *)target)[r]
                                                : ((const int64_t *)target)[r];
    return t - s->first;
}

/* The kernel of the whole gives lse; its loss, of targets that may not be here, is not used. */
static void run_piece(const td_kernel_call *c)
{
    const xent_state *s = c->kernel->state;
    const float *x = c->in[0];
    float loss, *lse = c->out[0], *hit = lse + s->shape.rows, *sum = hit + s->shape.rows;
    s->run(&s->shape, &loss, lse, c->in[0], c->in[1]);
    for (int64_t r = 0; r < s->shape.rows; r++) {
        int64_t t = target_at(s, c->in[1], r);
        bool here = t >= 0 && t < s->shape.width;
        double all = 0;
        for (int64_t i = 0; s->shape.smoothing > 0 && i < s->shape.width; i++)
            all += (double)x[r * s->shape.width + i];
        hit[r] = here ? x[r * s->shape.width + t] : 0;
        sum[r] = (float)all;
    }
}

static void run_piece_back(const td_kernel_call *c)
{
    const xent_state *s = c->kernel->state;
    const float *stats = c->in[2], *d = c->in[3];
    float *dx = c->out[0];
    int64_t rows = s->shape.rows, n = s->shape.width;
    s->back(dx, c->in[0], stats, d, s->shape.smoothing > 0 ? d + 2 * rows : NULL, rows, n);
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = target_at(s, c->in[1], r);
        if (t >= 0 && t < n)
            dx[r * n + t] += d[rows + r];
    }
}

td_status td__cpu_plan_xent_piece(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k)
{
    const td_attr_xent_piece *a = n->attr;
    const td_desc *x = td__in_desc(n, 0);
    bool back = n->op == TD_OP_XENT_PIECE_BACK;
    (void)is_param;
    if (x->dtype != TD_F32)
        return TD_ENOTSUP;
    xent_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->shape = (td__xent){.dtype = x->dtype,
                          .target_dtype = td__in_desc(n, 1)->dtype,
                          .rows = td__row_count(&x->shape),
                          .width = td__last_dim(&x->shape),
                          .smoothing = a->loss.smoothing};
    s->first = a->first;
    s->run = TD_ISA_PICK(cpu->isa, td__xent);
    s->back = TD_ISA_PICK(cpu->isa, td__xent_piece_back);
    k->run = back ? run_piece_back : run_piece;
    k->impl = "one pass";
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
