/* runner_meet.c -- what a program of several tensor ranks exchanges (tensor.h), after the kernels
 * that make this rank's part of it: sums are added up over ranks in their tree, all of them or this
 * rank's rows, and joined values get the pieces of the others. Ranks run the same steps in the same
 * order; the comm's deadline ends every wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/runner_impl.h"
#include "graph/tensor.h"

bool td__runner_meets(const td_node *n)
{
    return (n->op == TD_OP_PIECES_SUM || n->op == TD_OP_PIECES_JOIN) &&
           ((const td_attr_pieces *)n->attr)->ranks > 1;
}

uint64_t td__program_meets(const td_program *p, td_run_phase phase)
{
    uint64_t nbytes = 0;
    for (int i = 0; i < p->n_steps; i++)
        if (td__runner_meets(p->steps[i].node) && p->steps[i].node->phase == phase)
            nbytes += td__desc_bytes(&p->steps[i].node->out[0]);
    return nbytes;
}

void td__runner_set_comm(td_runner *r, td_comm *comm)
{
    r->comm = comm;
}

/* The pieces of a rank as one, and back. */
static void move(const td_attr_pieces *a, int rank, char *whole, char *packed, size_t e, bool pack)
{
    td__tensor_piece first = td__piece_of(a, &a->whole, rank * a->n);
    td__tensor_piece last = td__piece_of(a, &a->whole, rank * a->n + a->n - 1);
    size_t row = (size_t)((last.begin + last.count - first.begin) * first.inner) * e;
    for (int64_t o = 0; o < first.outer * first.groups && row; o++, packed += row) {
        char *at = whole + (size_t)((o * first.group + first.begin) * first.inner) * e;
        memcpy(pack ? packed : at, pack ? at : packed, row);
    }
}

/* Bytes of the largest part that a rank has. */
static size_t part_nbytes(const td_attr_pieces *a, size_t e)
{
    size_t most = 0;
    for (int r = 0; r < a->ranks; r++) {
        td__tensor_piece first = td__piece_of(a, &a->whole, r * a->n);
        td__tensor_piece last = td__piece_of(a, &a->whole, r * a->n + a->n - 1);
        size_t n = (size_t)(first.outer * first.groups * first.inner *
                            (last.begin + last.count - first.begin)) *
                   e;
        most = n > most ? n : most;
    }
    return most;
}

/* Do the parts of ranks, all as large, lie one behind the other? */
static bool in_blocks(const td_attr_pieces *a)
{
    td__tensor_piece p = td__piece_of(a, &a->whole, 0);
    return p.outer * p.groups == 1 && a->whole.dim[a->axis] / a->groups % a->pieces == 0;
}

static td_status stage(td__staging *s, size_t nbytes)
{
    if (nbytes <= s->nbytes)
        return TD_OK;
    td__free(s->at);
    s->at = td__calloc(1, nbytes);
    s->nbytes = s->at ? nbytes : 0;
    return s->at ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory to exchange %zu bytes", nbytes);
}

td_status td__pieces_gather(td_comm *comm, const td_attr_pieces *how, void *whole, size_t e,
                            td__staging *staging)
{
    size_t nbytes = part_nbytes(how, e);
    int rank = td_comm_rank(comm);
    if (in_blocks(how)) {
        char *mine = (char *)whole + nbytes * (size_t)rank;
        return td_all_gather(comm, mine, whole, nbytes, TD_U8, NULL);
    }
    TD_TRY(stage(staging, nbytes * (size_t)how->ranks));
    char *all = staging->at, *mine = all + nbytes * (size_t)rank;
    move(how, rank, whole, mine, e, true);
    TD_TRY(td_all_gather(comm, mine, all, nbytes, TD_U8, NULL));
    for (int k = 0; k < how->ranks; k++)
        if (k != rank)
            move(how, k, whole, all + nbytes * (size_t)k, e, false);
    return TD_OK;
}

/* This rank's rows of the sum of all ranks' `at`, in the same tree as an all-reduce. */
static td_status scatter(td_runner *r, const td_attr_pieces *a, void *at, td_dtype dtype)
{
    int rank = td_comm_rank(r->comm);
    size_t e = td_dtype_size(dtype), block = part_nbytes(a, e);
    bool in_order = in_blocks(a);
    TD_TRY(stage(&r->staging, block * (in_order ? 1 : (size_t)a->ranks + 1)));
    char *mine = r->staging.at, *all = in_order ? at : mine + block;
    for (int k = 0; k < a->ranks && !in_order; k++)
        move(a, k, at, all + block * (size_t)k, e, true);
    TD_TRY(td_reduce_scatter(r->comm, all, mine, block / e, dtype, TD_REDUCE_SUM, NULL));
    move(a, rank, at, mine, e, false);
    return TD_OK;
}

static td_status exchange(td_runner *r, const td_node *n, void *at)
{
    const td_attr_pieces *a = n->attr;
    if (!r->comm)
        return TD_FAIL(TD_EINVAL, "'%s' needs the pieces of %d ranks", n->name, a->ranks);
    if (a->ranks != td_comm_size(r->comm) || a->first / a->n != td_comm_rank(r->comm))
        return TD_FAIL(TD_EINVAL, "a program for rank %d of %d run by rank %d of %d",
                       a->first / a->n, a->ranks, td_comm_rank(r->comm), td_comm_size(r->comm));
    if (n->op == TD_OP_PIECES_JOIN)
        return td__pieces_gather(r->comm, a, at, td_dtype_size(n->out[0].dtype), &r->staging);
    if (a->scatter)
        return scatter(r, a, at, n->out[0].dtype);
    return td_allreduce(r->comm, at, at, (size_t)td__desc_count(&n->out[0]), n->out[0].dtype,
                        TD_REDUCE_SUM, NULL);
}

static td_status meet(td_runner *r, const td_node *n)
{
    td__mapping map;
    size_t nbytes = td__desc_bytes(&n->out[0]);
    if (!nbytes)
        return TD_OK;
    TD_TRY(td__stream_sync(r->stream));
    TD_TRY(
        td__mem_map(r->p->backend->device, td__runner_address(r, n, 0), nbytes, TD_MAP_BOTH, &map));
    td_status st = exchange(r, n, map.at);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

void td__runner_meet(td_runner *r, int step)
{
    r->failed = meet(r, r->p->steps[step].node);
    if (r->failed)
        snprintf(r->why, sizeof r->why, "%s", td_last_error());
}
