/* actions.c -- what the kernels of this backend are made of; see cuda.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

_Static_assert(sizeof(td__io_key) == sizeof(td_run_ctx), "kernels read the run's key");
_Static_assert((int)TD__IO_IN >= (int)TD_MAX_IN && (int)TD__IO_DIMS >= (int)TD_MAX_DIMS,
               "a call fits");
_Static_assert((int)TD__IO_F32 == (int)TD_F32 && (int)TD__IO_BF16 == (int)TD_BF16 &&
                   (int)TD__IO_F16 == (int)TD_F16 && (int)TD__IO_F64 == (int)TD_F64 &&
                   (int)TD__IO_I32 == (int)TD_I32 && (int)TD__IO_I64 == (int)TD_I64 &&
                   (int)TD__IO_U8 == (int)TD_U8 && (int)TD__IO_BOOL == (int)TD_BOOL,
               "types have the same numbers in kernels");

/* The state of a kernel: actions of its run and of its preparation. */
typedef struct actions {
    td__cuda_action *first[2], **end[2]; /* [1]: preparation */
    int adding;
} actions;

static void run_list(const td_kernel_call *c, int which)
{
    const actions *l = c->kernel->state;
    for (const td__cuda_action *a = l->first[which]; a; a = a->next)
        a->run(a, c);
}

static void run(const td_kernel_call *c)
{
    run_list(c, 0);
}

static void prepare(const td_kernel_call *c)
{
    run_list(c, 1);
}

static void fini(void *state)
{
    actions *l = state;
    for (int i = 0; i < 2; i++)
        for (td__cuda_action *a = l->first[i], *next; a; a = next) {
            next = a->next;
            if (a->fini)
                a->fini(a);
            td__free(a);
        }
    td__free(l);
}

/* The list of k; NULL: no memory. */
static actions *list_of(td_kernel *k)
{
    if (!k->state) {
        actions *l = td__calloc(1, sizeof *l);
        if (!l)
            return NULL;
        l->end[0] = &l->first[0];
        l->end[1] = &l->first[1];
        k->state = l;
        k->run = run;
        k->fini = fini;
    }
    return k->state;
}

td_status td__cuda_begin(td_kernel *k)
{
    return list_of(k) ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a kernel of %s", k->node->name);
}

td_status td__cuda_begin_again(td_kernel *k)
{
    fini(k->state);
    *k = (td_kernel){.node = k->node};
    return td__cuda_begin(k);
}

void td__cuda_push(td_kernel *k, td__cuda_action *a)
{
    actions *l = k->state;
    *l->end[l->adding] = a;
    l->end[l->adding] = &a->next;
}

void td__cuda_preparing(td_kernel *k, bool on)
{
    ((actions *)k->state)->adding = on;
    if (on)
        k->prepare = prepare;
}

void *td__cuda_address(const td_kernel_call *c, td__cuda_at at)
{
    char *base = NULL;
    switch (at.space) {
    case TD__AT_NONE: return NULL;
    case TD__AT_IN: base = (char *)(uintptr_t)c->in[at.index]; break;
    case TD__AT_OUT: base = c->out[at.index]; break;
    case TD__AT_SCRATCH: base = c->scratch; break;
    case TD__AT_PACKED: base = c->packed; break;
    }
    return base + at.offset;
}

/* ---- Launches -------------------------------------------------------------------------------- */

enum {
    FULL_NAME = 96,
    ARGS = 3072,             /* the driver takes 4096 bytes */
    EVERY_SHARED = 48 << 10, /* more shared memory must be asked for */
};

typedef struct launch {
    td__cuda_action action;
    CUfunction fn;
    char name[FULL_NAME];
    td__cuda_grid grid;
    bool bound;
    td__cuda_bind bind;
    size_t nbytes;
    _Alignas(16) unsigned char args[];
} launch;

static void run_launch(const td__cuda_action *action, const td_kernel_call *c)
{
    const launch *l = (const launch *)action;
    const td_node *n = c->kernel->node;
    _Alignas(16) unsigned char args[ARGS];
    td__io *io = (td__io *)args;
    memcpy(args, l->args, l->nbytes);
    if (l->bound) {
        for (int i = 0; i < TD_LEN(l->bind.in); i++)
            io->in[i] = td__cuda_address(c, l->bind.in[i]);
        for (int i = 0; i < TD_LEN(l->bind.out); i++)
            io->out[i] = td__cuda_address(c, l->bind.out[i]);
    } else {
        for (int i = 0; i < n->n_in; i++)
            io->in[i] = c->in[i];
        for (int i = 0; i < n->n_out; i++)
            io->out[i] = c->out[i];
    }
    io->scratch = c->scratch;
    io->key = (const td__io_key *)c->ctx;
    CUresult r = td__cuda_start(c->stream, l->fn, l->grid, args);
    char text[160];
    if (r != CUDA_SUCCESS)
        td__kernel_check(c, TD_FAIL(r == CUDA_ERROR_OUT_OF_MEMORY ? TD_ENOMEM : TD_EIO,
                                    "device cuda: kernel %s, %u x %u x %u blocks of %u threads: %s",
                                    l->name, l->grid.x, l->grid.y ? l->grid.y : 1,
                                    l->grid.z ? l->grid.z : 1, l->grid.threads,
                                    td__cuda_text(r, text, sizeof text)));
}

td_status td__cuda_add_bound(td__cuda *b, td_kernel *k, const char *name, td_dtype dtype,
                             td__cuda_grid grid, const void *args, size_t nbytes,
                             const td__cuda_bind *bind)
{
    char full[FULL_NAME];
    TD_ASSERT(bind || k->node->n_out <= TD__IO_OUT, "%s: %d outputs", name, k->node->n_out);
    TD_ASSERT(nbytes <= ARGS, "%s has %zu bytes of arguments", name, nbytes);
    snprintf(full, sizeof full, "%s%s", name,
             dtype == TD_F32    ? "_f32"
             : dtype == TD_BF16 ? "_bf16"
                                : "");
    launch *l = td__calloc(1, sizeof *l + nbytes);
    if (!l || !list_of(k)) {
        td__free(l);
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", k->node->name);
    }
    td_status st = td__cuda_find(b->base.device, full, &l->fn);
    if (!st && grid.shared > EVERY_SHARED &&
        td__cu.cuFuncSetAttribute(l->fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  (int)grid.shared))
        st = TD_FAIL(TD_ENOTSUP, "%s: no block has %u bytes of shared memory", full, grid.shared);
    if (st) {
        td__free(l);
        return st;
    }
    l->action.run = run_launch;
    memcpy(l->name, full, sizeof full);
    l->grid = grid;
    l->nbytes = nbytes;
    memcpy(l->args, args, nbytes);
    if (bind) {
        l->bound = true;
        l->bind = *bind;
    }
    td__cuda_push(k, &l->action);
    if (!k->impl)
        k->impl = "cuda";
    return TD_OK;
}

td_status td__cuda_add(td__cuda *b, td_kernel *k, const char *name, td_dtype dtype,
                       td__cuda_grid grid, const void *args, size_t nbytes)
{
    return td__cuda_add_bound(b, k, name, dtype, grid, args, nbytes, NULL);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef struct fill {
    td__cuda_action action;
    td__cuda_at to, from; /* from nowhere: zeros */
    size_t nbytes;
} fill;

static void run_fill(const td__cuda_action *action, const td_kernel_call *c)
{
    const fill *f = (const fill *)action;
    void *to = td__cuda_address(c, f->to), *from = td__cuda_address(c, f->from);
    if (to == from) /* an output in its input's place */
        return;
    if (from)
        td__stream_copy(c->stream, to, from, f->nbytes);
    else
        td__cuda_zero(c->stream, to, f->nbytes);
}

td_status td__cuda_add_copy(td_kernel *k, td__cuda_at to, td__cuda_at from, size_t nbytes)
{
    fill *f = td__calloc(1, sizeof *f);
    if (!f || !list_of(k)) {
        td__free(f);
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", k->node->name);
    }
    *f = (fill){.action = {.run = run_fill}, .to = to, .from = from, .nbytes = nbytes};
    td__cuda_push(k, &f->action);
    return TD_OK;
}

td_status td__cuda_add_zero(td_kernel *k, td__cuda_at at, size_t nbytes)
{
    return td__cuda_add_copy(k, at, (td__cuda_at){0}, nbytes);
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

td__cuda_grid td__cuda_grid_for(const td__cuda *b, int64_t n)
{
    int64_t most = (int64_t)td__cuda_kind_of(b->base.device)->processors * 64;
    int64_t need = (n + TD__CUDA_THREADS - 1) / TD__CUDA_THREADS;
    return (td__cuda_grid){.x = (unsigned)(need < most ? need : most), .threads = TD__CUDA_THREADS};
}

td__cuda_grid td__cuda_grid_each(int64_t n)
{
    return (td__cuda_grid){.x = (unsigned)n, .threads = TD__CUDA_THREADS};
}

int64_t td__cuda_extent(const td_shape *s, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= s->dim[i];
    return n;
}

void td__cuda_image_of(const td_desc *d, td__image *out)
{
    const int64_t *dim = d->shape.dim;
    for (int i = 0; i < 4; i++)
        out->dim[i] = dim[i];
    if (d->layout == TD_LAYOUT_NHWC) {
        out->step[1] = 1;
        out->step[3] = dim[1];
        out->step[2] = dim[3] * dim[1];
    } else {
        out->step[3] = 1;
        out->step[2] = dim[3];
        out->step[1] = dim[2] * dim[3];
    }
    out->step[0] = dim[1] * dim[2] * dim[3];
}
