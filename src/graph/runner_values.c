/* runner_values.c -- what goes into a run and what comes out of it: inputs, loss, outputs,
 * gradients, statistics of states. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "graph/cut.h"
#include "graph/phases.h"
#include "graph/runner.h"
#include "graph/runner_impl.h"

/* ---- Inputs ---------------------------------------------------------------------------------- */

static const td_node *input_of(const td_program *p, const char *name)
{
    for (int i = 0; i < p->g->n_nodes; i++)
        if (p->g->nodes[i]->op == TD_OP_INPUT && strcmp(p->g->nodes[i]->name, name) == 0)
            return p->g->nodes[i];
    return NULL;
}

static const td_node *find_input(const td_runner *r, const char *name)
{
    return input_of(r->p, name);
}

size_t td__program_inputs(const td_program *p)
{
    return p->space_bytes[TD_SPACE_INPUT];
}

size_t td__program_input_at(const td_program *p, const char *name)
{
    const td_node *n = input_of(p, name);
    TD_ASSERT(n, "no input '%s'", name);
    return td__location_of(p, n, 0)->offset;
}

bool td__runner_reads(const td_runner *r, const char *name, size_t *nbytes)
{
    const td_node *n = find_input(r, name);
    if (n && nbytes)
        *nbytes = td__desc_bytes(&n->out[0]);
    return n;
}

void *td_runner_input(td_runner *r, const char *name, size_t *nbytes)
{
    if (!td__runner_reads(r, name, nbytes))
        return NULL;
    r->inputs_by_hand = true;
    return td__runner_input_address(r, find_input(r, name));
}

/* Which of the inputs n is; the last for all that there is no bit for. */
static int input_bit(const td_runner *r, const td_node *n)
{
    int bit = 0;
    for (int i = 0; i < n->id && bit < TD__INPUT_BITS; i++)
        bit += r->p->g->nodes[i]->op == TD_OP_INPUT;
    return bit;
}

td_status td_runner_set_input(td_runner *r, const char *name, const void *data, size_t nbytes)
{
    const td_node *n = find_input(r, name);
    if (!n)
        return TD_FAIL(TD_EINVAL, "td_runner_set_input: the program has no input '%s'", name);
    char text[160];
    if (nbytes != td__desc_bytes(&n->out[0]))
        return TD_FAIL(TD_EINVAL, "td_runner_set_input: '%s' is %s: %zu bytes, but %zu were given",
                       name, td__desc_text(&n->out[0], text, sizeof text),
                       td__desc_bytes(&n->out[0]), nbytes);
    if (nbytes) /* empty tensors may have no memory at all */
        memcpy(td__runner_input_address(r, n), data, nbytes);
    r->inputs_set |= 1ull << input_bit(r, n);
    r->inputs_placed &= ~r->inputs_set;
    return TD_OK;
}

/* The list of copies of an input's rows. */
static td_status pieces_of(td_runner *r, int bit, size_t rows, td__copy_piece **out)
{
    int n = 0;
    for (int i = 0; i < r->p->g->n_nodes; i++)
        n += r->p->g->nodes[i]->op == TD_OP_INPUT;
    if (!r->pieces.at) {
        TD_TRY(td__mem_alloc(r->p->backend->device, TD_MEM_PINNED, (size_t)n * rows * sizeof **out,
                             &r->pieces));
        r->piece_rows = rows;
    }
    TD_ASSERT(rows == r->piece_rows, "%zu rows of an input, %zu of others", rows, r->piece_rows);
    *out = (td__copy_piece *)r->pieces.at + (size_t)bit * rows;
    return TD_OK;
}

td_status td__runner_set_blocks(td_runner *r, const char *name, const td__block_rows *b)
{
    const td_node *n = find_input(r, name);
    TD_ASSERT(n && b->count && td__desc_bytes(&n->out[0]) % b->count == 0 &&
                  b->first + b->count <= b->set->n,
              "%zu rows of input '%s'", b->count, name);
    size_t each = td__desc_bytes(&n->out[0]) / b->count;
    int bit = input_bit(r, n);
    char *to = td__runner_address(r, n, 0), *staged = td__runner_input_address(r, n);
    bool direct = td__runner_host_reads(r);
    td__copy_piece *list = NULL;
    if (bit >= TD__INPUT_BITS)
        return TD_FAIL(TD_ENOTSUP, "data.blocks: not with more than %d inputs", TD__INPUT_BITS);
    if (!direct)
        TD_TRY(pieces_of(r, bit, b->count, &list));
    for (size_t i = 0; i < b->count; i++) {
        const char *at = b->set->held[b->first + i].at;
        const char *from = at ? at + b->offset : (const char *)b->rows + i * each;
        if (direct || !at)
            memcpy(staged + i * each, from, each);
        if (!direct)
            list[i] = (td__copy_piece){to + i * each, at ? from : staged + i * each, each};
    }
    if (!direct) {
        if (b->set->copies)
            td__event_wait(r->stream, &b->set->copied);
        td__stream_copies(r->stream, list, b->count);
        r->inputs_placed |= 1ull << bit;
        r->inputs_set &= ~(1ull << bit);
    }
    return TD_OK;
}

void *td__runner_input_address(const td_runner *r, const td_node *n)
{
    if (td__runner_host_reads(r))
        return td__runner_address(r, n, 0);
    return (char *)r->inputs.at + td__location_of(r->p, n, 0)->offset;
}

static void send_input(td_runner *r, const td_node *n)
{
    td__stream_copy(r->stream, td__runner_address(r, n, 0), td__runner_input_address(r, n),
                    td__desc_bytes(&n->out[0]));
}

/* But for those that are there. */
static void send_all(td_runner *r)
{
    if (!r->inputs_placed)
        td__stream_copy(r->stream, r->space[TD_SPACE_INPUT], r->inputs.at,
                        r->space_bytes[TD_SPACE_INPUT]);
    for (int i = 0; r->inputs_placed && i < r->p->g->n_nodes; i++) {
        const td_node *n = r->p->g->nodes[i];
        if (n->op == TD_OP_INPUT && !(r->inputs_placed >> input_bit(r, n) & 1u))
            send_input(r, n);
    }
}

/* Inputs that were set since the last run; all where somebody has their address. */
static void send_inputs(td_runner *r)
{
    bool all = r->inputs_by_hand || !r->inputs_sent || r->inputs_set >> TD__INPUT_BITS;
    if (all && !r->edges_stay)
        send_all(r);
    else
        for (int i = 0, bit = 0; i < r->p->g->n_nodes && r->inputs_set >> bit; i++)
            if (r->p->g->nodes[i]->op == TD_OP_INPUT && r->inputs_set >> bit++ & 1u)
                send_input(r, r->p->g->nodes[i]);
    r->inputs_set = r->inputs_placed = 0;
    r->inputs_sent = true;
}

/* On the host all of this is where the kernels look for it already, but for the key. */
void td__runner_send(td_runner *r)
{
    td__stream_copy(r->stream, r->key.at, &r->ctx, sizeof r->ctx);
    if (!td__runner_host_reads(r))
        send_inputs(r);
}

void td__runner_input_set(td_runner *r, const char *name)
{
    const td_node *n = find_input(r, name);
    if (n && !td__runner_host_reads(r) && !r->edges_stay)
        send_input(r, n);
}

bool td__program_keeps_edges(const td_program *p)
{
    int n = 0;
    for (int i = 0; i < p->g->n_nodes; i++)
        n += p->g->nodes[i]->op == TD_OP_INPUT;
    return n <= TD__INPUT_BITS;
}

void td__runner_keep_edges(td_runner *r, bool keep)
{
    TD_ASSERT(!keep || (r->inputs_at && td__program_keeps_edges(r->p)),
              "edges of a runner without memory for them");
    r->edges_stay = keep && !td__runner_host_reads(r);
}

td_status td__runner_pass_edge(const td_runner *maker, int edge, td_runner *reader,
                               const char *name)
{
    size_t nbytes;
    const void *value = td__runner_edge(maker, edge, &nbytes);
    if (!reader->edges_stay)
        return td_runner_set_input(reader, name, value, nbytes);
    td__stream_copy(reader->stream, td__runner_address(reader, find_input(reader, name), 0), value,
                    nbytes);
    return TD_OK;
}

void td__runner_fetch(td_runner *r, int phase)
{
    const td_graph *g = r->p->g;
    for (int i = 0; !td__runner_host_reads(r) && i < g->n_roots; i++) {
        const td__root *root = &g->roots[i];
        if ((phase != TD__ALL_PHASES && phase != (int)root->node->phase) ||
            (root->kind == TD_ROOT_EDGE && r->edges_stay))
            continue;
        for (int k = 0; k < td__root_results(root); k++)
            td__stream_copy(r->stream, (void *)(uintptr_t)td__runner_result(r, root, k),
                            td__runner_address(r, root->node, k),
                            td__desc_bytes(&root->node->out[k]));
    }
}

/* ---- Results --------------------------------------------------------------------------------- */

const td__root *td__runner_root(const td_runner *r, td__root_kind kind, int index)
{
    const td_graph *g = r->p->g;
    for (int i = 0; i < g->n_roots; i++)
        if (g->roots[i].kind == kind && g->roots[i].index == index)
            return &g->roots[i];
    return NULL;
}

const void *td__runner_result(const td_runner *r, const td__root *root, int k)
{
    if (td__runner_host_reads(r))
        return td__runner_address(r, root->node, k);
    const char *at = (const char *)r->results.at + r->result_at[root - r->p->g->roots];
    return k ? at + td__align_up(td__desc_bytes(&root->node->out[0]), TD_ALIGN) : at;
}

float td_runner_loss(const td_runner *r)
{
    const td__root *root = td__runner_root(r, TD_ROOT_LOSS, 0);
    if (!root)
        return 0;
    const void *at = td__runner_result(r, root, 0);
    switch (root->node->out[0].dtype) {
    case TD_F64: return (float)*(const double *)at;
    case TD_BF16: return td__bf16_to_f32(*(const td_bf16 *)at);
    case TD_F16: return td__f16_to_f32(*(const td_f16 *)at);
    default: return *(const float *)at;
    }
}

static const void *root_value(const td_runner *r, td__root_kind kind, int i, size_t *nbytes)
{
    const td__root *root = td__runner_root(r, kind, i);
    if (!root)
        return NULL;
    if (nbytes)
        *nbytes = td__desc_bytes(&root->node->out[0]);
    return td__runner_result(r, root, 0);
}

const void *td_runner_output(const td_runner *r, int i, size_t *nbytes)
{
    return root_value(r, TD_ROOT_OUTPUT, i, nbytes);
}

const void *td_runner_grad_input(const td_runner *r, int i, size_t *nbytes)
{
    return root_value(r, TD_ROOT_INPUT_GRAD, i, nbytes);
}

const void *td__runner_edge(const td_runner *r, int edge, size_t *nbytes)
{
    const td__root *root = td__runner_root(r, TD_ROOT_EDGE, edge);
    const void *value = root_value(r, TD_ROOT_EDGE, edge, nbytes);
    return root && r->edges_stay ? td__runner_address(r, root->node, 0) : value;
}

float *td_runner_grads(td_runner *r, size_t *count)
{
    if (count)
        *count = r->space_bytes[TD_SPACE_GRAD] / sizeof(float);
    return r->space[TD_SPACE_GRAD];
}

void td__runner_set_grads(td_runner *r, float *block)
{
    char *from = r->space[TD_SPACE_GRAD], *to = block ? (char *)block : r->own_grads;
    if (from == to)
        return;
    for (size_t i = 0; i < r->n_pointers; i++) {
        char *at = r->pointers[i];
        if (at >= from && at < from + r->space_bytes[TD_SPACE_GRAD])
            r->pointers[i] = to + (at - from);
    }
    r->space[TD_SPACE_GRAD] = to;
}

void td_runner_update_states(td_runner *r)
{
    td__params_fold(r->ps, r->p, r->info_of, r->space[TD_SPACE_GRAD]);
}

static const td__root *sparse_root(const td_runner *r, int i)
{
    const td_graph *g = r->p->g;
    for (int k = 0; k < g->n_roots; k++)
        if (g->roots[k].kind == TD_ROOT_SPARSE_GRAD && i-- == 0)
            return &g->roots[k];
    return NULL;
}

int td_runner_sparse_count(const td_runner *r)
{
    int n = 0;
    while (sparse_root(r, n))
        n++;
    return n;
}

td_sparse_grad td_runner_sparse_grad(const td_runner *r, int i)
{
    const td__root *root = sparse_root(r, i);
    TD_ASSERT(root, "sparse gradient %d", i);
    const td_shape *shape = &root->node->out[0].shape; /* (n, D) */
    td_sparse_grad s = {.param = td_params_find(r->ps, root->leaf->name),
                        .width = shape->dim[1],
                        .values = td__runner_result(r, root, 0),
                        .rows = td__runner_result(r, root, 1)};
    while (s.n_rows < shape->dim[0] && s.rows[s.n_rows] >= 0)
        s.n_rows++;
    return s;
}

td_params *td_runner_params(td_runner *r)
{
    return r->ps;
}
