/* runner_create.c -- making a runner.
 *
 * Everything is bound here: every pointer of every call is final, so that a run allocates nothing,
 * looks nothing up and decides nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"
#include "graph/runner.h"
#include "graph/runner_impl.h"

static td_status match_params(td_runner *r)
{
    const td_program *p = r->p;
    r->info_of = td__calloc((size_t)p->n_slots + 1, sizeof *r->info_of);
    if (!r->info_of)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory");
    for (int i = 0; i < p->n_slots; i++) {
        const td_node *leaf = p->slots[i].leaf;
        int k = td_params_find(r->ps, leaf->name);
        if (k < 0)
            return TD_FAIL(TD_EINVAL, "td_runner_create: the params hold no '%s'", leaf->name);
        const td_param_info *info = &r->ps->info[k];
        char have[128], want[128];
        if (!td_shape_equal(&info->shape, &leaf->out[0].shape))
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: '%s' is %s in the params and %s in the "
                           "program",
                           leaf->name, td_shape_text(&info->shape, have, sizeof have),
                           td_shape_text(&leaf->out[0].shape, want, sizeof want));
        if (info->is_state != p->slots[i].is_state)
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: '%s' is a %s in the params and a %s in the "
                           "program",
                           leaf->name, info->is_state ? "state" : "param",
                           p->slots[i].is_state ? "state" : "param");
        if (!p->evaluate && !p->slots[i].is_state && info->sparse != p->slots[i].sparse)
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: the gradient of '%s' is row-sparse in one "
                           "of params and program, and dense in the other",
                           leaf->name);
        r->info_of[i] = k;
    }
    return TD_OK;
}

/* What to allocate for a space of the runner's own. An empty one has an address all the same, so
 * that kernels never see NULL, but there are no gradients in evaluation, or they are lent. */
static size_t held_bytes(const td_runner *r, int space)
{
    if (space == TD_SPACE_PARAM || (space == TD_SPACE_GRAD && (r->p->evaluate || r->lender)) ||
        (space == TD_SPACE_INPUT && r->inputs_at))
        return 0;
    return r->space_bytes[space] ? r->space_bytes[space] : TD_ALIGN;
}

/* Copies for the host, where it needs them. */
static td_status allocate_copies(td_runner *r)
{
    const td_graph *g = r->p->g;
    td_device *d = r->p->backend->device;
    size_t nbytes = 0;
    if (td__runner_host_reads(r))
        return TD_OK;
    r->result_at = td__calloc((size_t)g->n_roots + 1, sizeof *r->result_at);
    if (!r->result_at)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory for %d results", g->n_roots);
    for (int i = 0; i < g->n_roots; i++) {
        r->result_at[i] = nbytes;
        for (int k = 0; k < td__root_results(&g->roots[i]); k++)
            nbytes += td__align_up(td__desc_bytes(&g->roots[i].node->out[k]), TD_ALIGN);
    }
    TD_TRY(td__mem_alloc(d, TD_MEM_PINNED, nbytes, &r->results));
    return td__mem_alloc(d, TD_MEM_PINNED, r->space_bytes[TD_SPACE_INPUT], &r->inputs);
}

static td_status allocate(td_runner *r)
{
    const td_program *p = r->p;
    td_device *d = p->backend->device;
    const char *waits = td__env_get(TD_ENV_CUDA_WAIT);
    r->waits = waits && strcmp(waits, "1") == 0;
    for (int s = 0; s < TD_SPACE_COUNT; s++)
        r->space_bytes[s] = p->space_bytes[s];
    r->space_bytes[TD_SPACE_PARAM] = 0; /* theirs is the params' block */
    if (!p->evaluate)
        r->space_bytes[TD_SPACE_GRAD] =
            (r->ps->dense + r->ps->total - r->ps->trainable) * sizeof(float);
    for (int s = 0; s < TD_SPACE_COUNT; s++)
        if (held_bytes(r, s)) {
            TD_TRY(td__mem_alloc(d, TD_MEM_OWN, held_bytes(r, s), &r->mem[s]));
            r->space[s] = r->mem[s].at;
        }
    if (r->inputs_at)
        r->space[TD_SPACE_INPUT] = r->inputs_at;
    TD_TRY(td__mem_alloc(d, TD_MEM_OWN, sizeof(td_run_ctx), &r->key));
    if (p->scratch && !r->lender)
        TD_TRY(td__mem_alloc(d, TD_MEM_OWN, p->scratch, &r->scratch_mem));
    if (p->packed && !r->lender)
        TD_TRY(td__mem_alloc(d, TD_MEM_OWN, p->packed, &r->packed_mem));
    r->scratch = r->lender ? r->lender->scratch : r->scratch_mem.at;
    r->packed = r->lender ? r->lender->packed : r->packed_mem.at;
    if (r->lender) {
        r->space[TD_SPACE_GRAD] = r->lender->own_grads;
        r->stream = r->lender->stream;
    } else {
        TD_TRY(td__stream_create(d, &r->stream));
    }
    if (p->beside && r->lender) {
        r->branch = r->lender->branch;
    } else if (p->beside) {
        TD_TRY(td__stream_create(d, &r->branch));
        if (p->beside_scratch)
            TD_TRY(td__mem_alloc(d, TD_MEM_OWN, p->beside_scratch, &r->branch_mem));
    }
    TD_TRY(allocate_copies(r));
    size_t n_pointers = 0;
    for (int i = 0; i < p->n_steps; i++)
        n_pointers += (size_t)(p->steps[i].node->n_in + p->steps[i].node->n_out);
    r->n_pointers = n_pointers;
    r->own_grads = r->space[TD_SPACE_GRAD];
    r->steps = td__calloc((size_t)p->n_steps + 1, sizeof *r->steps);
    r->pointers = td__calloc(n_pointers + 1, sizeof *r->pointers);
    if (!r->steps || !r->pointers)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory for %d steps", p->n_steps);
    return TD_OK;
}

void *td__runner_address(const td_runner *r, const td_node *n, int k)
{
    const td__location *location = td__location_of(r->p, n, k);
    if (location->space == TD_SPACE_PARAM)
        return (char *)(r->ps->block + r->ps->info[r->info_of[location->slot]].offset) +
               location->offset;
    if (location->space == TD_SPACE_GRAD) {
        const td_param_info *info = &r->ps->info[r->info_of[location->slot]];
        float *grads = r->space[TD_SPACE_GRAD];
        return info->is_state ? grads + r->ps->dense + (info->offset - r->ps->trainable)
                              : grads + info->offset;
    }
    return (char *)r->space[location->space] + location->offset;
}

static void *scratch_of(const td_runner *r, const td__step *step)
{
    if (step->scratch_in_block)
        return (char *)r->space[TD_SPACE_ACTIVATION] + step->scratch_offset;
    if (!td__beside(r->p, step->node))
        return r->scratch;
    return r->lender ? r->lender->branch_mem.at : r->branch_mem.at;
}

static void bind(td_runner *r)
{
    void **at = r->pointers;
    for (int i = 0; i < r->p->n_steps; i++) {
        const td__step *step = &r->p->steps[i];
        td_kernel_call *c = &r->steps[i].call;
        c->in = (const void *const *)at;
        for (int k = 0; k < step->node->n_in; k++)
            *at++ = td__runner_address(r, step->node->in[k], 0);
        c->out = at;
        for (int k = 0; k < step->node->n_out; k++)
            *at++ = td__runner_address(r, step->node, k);
        c->scratch = scratch_of(r, step);
        c->packed = r->packed ? (char *)r->packed + step->packed_offset : NULL;
        c->kernel = &step->kernel;
        c->ctx = r->key.at;
        c->stream = r->stream;
    }
}

/* By param: the last step that writes its gradient; -1: none does. */
static void last_writers(const td_runner *r, int *step_of)
{
    for (int i = 0; i < r->ps->count; i++)
        step_of[i] = -1;
    for (int i = 0; i < r->p->n_steps; i++)
        for (int k = 0; k < r->p->steps[i].node->n_out; k++) {
            const td__location *location = td__location_of(r->p, r->p->steps[i].node, k);
            if (location->space == TD_SPACE_GRAD)
                step_of[r->info_of[location->slot]] = i;
        }
}

/* A prefix of the block is final when all params in it are. Params are laid out in the order in
 * which that happens, so there are about as many marks as params. Statistics come with the end. */
static td_status find_marks(td_runner *r)
{
    const td_params *ps = r->ps;
    size_t total = r->space_bytes[TD_SPACE_GRAD] / sizeof(float);
    int last = r->p->n_steps - 1, step = 0;
    if (r->p->evaluate)
        return TD_OK;
    int *step_of = td__calloc((size_t)ps->count + 1, sizeof *step_of);
    r->marks = td__calloc((size_t)ps->count + 1, sizeof *r->marks);
    if (!step_of || !r->marks) {
        td__free(step_of);
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory for %d params", ps->count);
    }
    last_writers(r, step_of);
    for (int i = 0; i < ps->count && !ps->info[i].is_state && !ps->info[i].sparse; i++) {
        step = step_of[i] > step ? step_of[i] : step;
        if (!r->n_marks || r->marks[r->n_marks - 1].step < step)
            r->marks[r->n_marks++].step = step;
        r->marks[r->n_marks - 1].count =
            ps->info[i].offset + td__align_up(ps->info[i].count, TD_ALIGN_FLOATS);
    }
    if (!r->n_marks || r->marks[r->n_marks - 1].count < total) {
        if (!r->n_marks || r->marks[r->n_marks - 1].step < last)
            r->marks[r->n_marks++].step = last;
        r->marks[r->n_marks - 1].count = total;
    }
    td__free(step_of);
    return TD_OK;
}

static td_status fill_constants(td_runner *r)
{
    for (int i = 0; i < r->p->g->n_nodes; i++) {
        const td_node *n = r->p->g->nodes[i];
        const td_attr_leaf *leaf = n->attr;
        if (n->op == TD_OP_CONSTANT && leaf->data)
            TD_TRY(td__mem_write(r->p->backend->device, td__runner_address(r, n, 0), leaf->data,
                                 leaf->nbytes));
    }
    return TD_OK;
}

static td_status make(td_runner *r)
{
    TD_TRY(match_params(r));
    TD_TRY(allocate(r));
    bind(r);
    TD_TRY(find_marks(r));
    return fill_constants(r);
}

td_status td__runner_create_with(const td_program *p, td_params *ps, td_runner *lender,
                                 void *inputs, td_runner **out)
{
    *out = NULL;
    td_runner *r = td__calloc(1, sizeof *r);
    if (!r)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory");
    r->p = p;
    r->ps = ps;
    r->lender = lender;
    r->inputs_at = inputs;
    td_status st = make(r);
    if (st) {
        td_runner_destroy(r);
        return st;
    }
    *out = r;
    return TD_OK;
}

td_status td_runner_create(const td_program *p, td_params *ps, td_runner **out)
{
    return td__runner_create_with(p, ps, NULL, NULL, out);
}

td_status td__runner_create_sibling(td_runner *first, td_runner **out)
{
    return td__runner_create_with(first->p, first->ps, first, NULL, out);
}

void td_runner_destroy(td_runner *r)
{
    if (!r)
        return;
    td__runner_drop_tapes(r);
    td__timer_destroy(r->timer);
    td__timer_destroy(r->marks_of);
    if (!r->lender) {
        td__stream_destroy(r->stream);
        td__stream_destroy(r->branch);
    }
    td__mem_free(&r->branch_mem);
    for (int i = 0; i < TD_SPACE_COUNT; i++)
        td__mem_free(&r->mem[i]);
    td__mem_free(&r->scratch_mem);
    td__mem_free(&r->packed_mem);
    td__mem_free(&r->key);
    td__mem_free(&r->inputs);
    td__mem_free(&r->pieces);
    td__mem_free(&r->results);
    td__free(r->staging.at);
    td__free(r->result_at);
    td__free(r->info_of);
    td__free(r->steps);
    td__free(r->pointers);
    td__free(r->marks);
    td__free(r);
}
