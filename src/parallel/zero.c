/* zero.c -- see zero.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/zero.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/params.h"
#include "base/kernels/blend.h"
#include "parallel/shards_impl.h"

enum { MOST_PARTIALS = 40 };

/* A partial of this rank's shard of a bucket. */
typedef struct entry {
    td__subtree tree;
    int store; /* which of the stores it lies in; -1: absent */
} entry;

typedef struct stack {
    entry at[MOST_PARTIALS];
    int n;
} stack;

struct td__zero {
    td__zero_opts o;
    td__shards *shards;
    const td__ownership *map;
    int rank, size;
    int slots, depth; /* of a rank in one reduce; stores */
    size_t *own_at;   /* by bucket: where its shard lies in a store */
    size_t owned;     /* floats of a store */
    float *store;     /* (depth, owned) of the host, or of the device that has the window */
    td_mem on_device; /* the latter */
    td_stream *on;    /* what adds up there; NULL: the host does */
    stack *stacks;    /* by bucket */
    /* Mirrors. */
    size_t *mirror_at;  /* by bucket: where its shard lies in mirror_sums */
    float *mirror_sums; /* of params alone */
};

/* ---- Sizes ----------------------------------------------------------------------------------- */

int td__zero_slots(int stage, int size, int micro_batches, int accumulate)
{
    int most = 1;
    for (int m = 1; stage == 1 && m <= accumulate; m++)
        for (int r = 0; r < size; r++) {
            int n = td__rank_partials(m * micro_batches, r, size, NULL);
            most = n > most ? n : most;
        }
    return most;
}

/* Stores that stacks need: one where all is added at once; else as many partials as are left after
 * any round of leaves. */
static int depth_of(int stage, int size, int micro_batches, int accumulate)
{
    int most = 1;
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);
    for (int i = 0; stage > 1 && i < micro_batches * accumulate; i++) {
        int in_batch = i % micro_batches;
        s.at[s.n++] = (td__partial){.tree = {i, 0}};
        td__grad_plan(&s, false, &sum);
        if (in_batch % size == size - 1 || in_batch == micro_batches - 1)
            most = s.n > most ? s.n : most;
    }
    return most;
}

size_t td__zero_nbytes(const td__ownership *m, const td__zero_case *c)
{
    size_t owned = 0;
    for (int r = 0; r < m->ranks; r++)
        if (td__ownership_owned(m, r) > owned)
            owned = td__ownership_owned(m, r);
    int slots = td__zero_slots(c->stage, m->ranks, c->micro_batches, c->accumulate);
    size_t depth = (size_t)depth_of(c->stage, m->ranks, c->micro_batches, c->accumulate);
    return sizeof(float) * (depth + (c->mirrors ? 1 : 0)) * owned +
           td__shards_nbytes(m, slots, c->shared);
}

/* ---- Making one ------------------------------------------------------------------------------ */

static size_t mirror_nbytes(const td__zero *z)
{
    return z->mirror_at ? (z->mirror_at[z->map->params] + 1) * sizeof(float) : 0;
}

static td_status set_up_mirror(td__zero *z)
{
    z->mirror_at = td__calloc((size_t)z->map->params + 1, sizeof *z->mirror_at);
    if (!z->mirror_at)
        return TD_FAIL(TD_ENOMEM, "no memory for %d buckets", z->map->params);
    for (int b = 0; b < z->map->params; b++)
        z->mirror_at[b + 1] = z->mirror_at[b] + td__shard_count(z->map, b, z->shards->mirror);
    z->mirror_sums = td__alloc_block(mirror_nbytes(z));
    return z->mirror_sums ? TD_OK
                          : TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of mirrored gradients",
                                    mirror_nbytes(z));
}

static size_t store_nbytes(const td__zero *z)
{
    return (size_t)z->depth * z->owned * sizeof(float);
}

static td_status set_up_store(td__zero *z)
{
    td_params *ps = z->shards->o.params;
    TD_TRY(td__shards_ready(z->shards));
    if (!z->shards->window) {
        z->store = td__alloc_block(store_nbytes(z));
        return TD_OK;
    }
    TD_TRY(td__mem_alloc(td__params_device(ps), TD_MEM_OWN, store_nbytes(z), &z->on_device));
    z->store = z->on_device.at;
    z->on = td__shards_stream(z->shards);
    return TD_OK;
}

static td_status set_up(td__zero *z)
{
    const td__zero_opts *o = &z->o;

    z->depth = depth_of(o->stage, z->size, o->micro_batches, o->accumulate);
    z->owned = td__align_up(td__ownership_owned(z->map, z->rank) + 1, 16);
    z->own_at = td__calloc((size_t)z->map->n + 1, sizeof *z->own_at);
    z->stacks = td__calloc((size_t)z->map->n + 1, sizeof *z->stacks);
    TD_TRY(set_up_store(z));
    if (!z->own_at || !z->stacks || !z->store)
        return TD_FAIL(TD_ENOMEM, "no memory for %d times %zu floats of gradients", z->depth,
                       z->owned);
    for (int b = 0; b < z->map->n; b++)
        z->own_at[b + 1] = z->own_at[b] + td__shard_count(z->map, b, z->rank);
    return z->shards->mirror >= 0 ? set_up_mirror(z) : TD_OK;
}

td_status td__zero_create(const td__zero_opts *opts, td__zero **out)
{
    *out = NULL;
    td__zero *z = td__calloc(1, sizeof *z);
    if (!z)
        return TD_FAIL(TD_ENOMEM, "no memory for a sharded optimizer");
    z->o = *opts;
    z->shards = opts->shards;
    z->map = &z->shards->map;
    z->rank = z->shards->rank;
    z->size = z->shards->size;
    z->slots = td__zero_slots(opts->stage, z->size, opts->micro_batches, opts->accumulate);
    TD_ASSERT(opts->stage >= 1 && opts->stage < TD__ZERO_STAGES && z->slots <= z->shards->o.slots,
              "stage %d, %d slots", opts->stage, z->slots);
    td_status st = set_up(z);
    if (st) {
        td__zero_destroy(z);
        return st;
    }
    *out = z;
    return TD_OK;
}

void td__zero_destroy(td__zero *z)
{
    if (!z)
        return;
    if (!z->on)
        td__free_block(z->store, store_nbytes(z));
    td__mem_free(&z->on_device);
    td__free_block(z->mirror_sums, mirror_nbytes(z));
    td__free(z->mirror_at);
    td__free(z->own_at);
    td__free(z->stacks);
    td__free(z);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

void td__zero_begin(td__zero *z)
{
    for (int b = 0; b < z->map->n; b++)
        z->stacks[b].n = 0;
}

/* The same through the window: all slots in one turn. */
static td_status exchange_on_device(td__zero *z, int b, const td__partial *mine, int n_mine,
                                    int slots, size_t at)
{
    td__shards *s = z->shards;
    const size_t *cut = td__shards_of(z->map, b);
    td__shards_turn(s);
    for (int i = 0; i < n_mine; i++)
        for (int r = 0; mine[i].dense && r < z->size; r++)
            td__stream_scale(z->on, td__shards_slot(s, z->rank, i) + (size_t)r * s->piece,
                             mine[i].dense + cut[r] + at, mine[i].weight,
                             td__shards_in_piece(s, b, r, at));
    td__shards_note_sent(s, (size_t)slots * td__shards_piece_count(s, b, at));
    return td__shards_meet(s);
}

/* This rank's shard of a piece from every slot of all ranks: to where leaf_at() says. */
static td_status exchange(td__zero *z, int b, const td__partial *mine, int n_mine, int slots,
                          size_t at)
{
    td__shards *s = z->shards;
    const size_t *cut = td__shards_of(z->map, b);
    size_t count = td__shards_piece_count(s, b, at);
    td_stream *on = td__shards_stream(s);

    if (z->on)
        return exchange_on_device(z, b, mine, n_mine, slots, at);
    for (int i = 0; i < slots; i++) {
        for (int r = 0; i < n_mine && mine[i].dense && r < z->size; r++)
            if (td__shards_in_piece(s, b, r, at))
                td__grad_publish(on, &mine[i], cut[r] + at, td__shards_in_piece(s, b, r, at),
                                 s->send + (size_t)r * count);
        TD_TRY(td_all_to_all(s->o.comm, s->send, s->inbox + (size_t)i * (size_t)z->size * s->piece,
                             count, TD_F32, NULL));
        td__shards_note_sent(s, count);
    }
    return TD_OK;
}

static float *leaf_at(const td__zero *z, const td__rank_leaf *l, size_t count)
{
    const td__shards *s = z->shards;
    if (z->on)
        return td__shards_slot(s, l->rank, l->slot) + (size_t)z->rank * s->piece;
    return s->inbox + (size_t)l->slot * (size_t)z->size * s->piece + (size_t)l->rank * count;
}

static float *store_at(const td__zero *z, int store, int b, size_t at)
{
    return z->store + (size_t)store * z->owned + z->own_at[b] + at;
}

/* The stack of bucket b as partials of the piece. */
static void open_stack(const td__zero *z, int b, size_t at, td__grad_stack *out)
{
    const stack *s = &z->stacks[b];
    out->n = s->n;
    for (int i = 0; i < s->n; i++)
        out->at[i] =
            (td__partial){.tree = s->at[i].tree,
                          .weight = 1,
                          .dense = s->at[i].store < 0 ? NULL : store_at(z, s->at[i].store, b, at)};
}

/* Which store a partial of the piece lies in; -1: in none. */
static int store_of(const td__zero *z, int b, size_t at, const float *dense)
{
    for (int k = 0; k < z->depth; k++)
        if (dense == store_at(z, k, b, at))
            return k;
    return -1;
}

/* Partials that lie where they arrived move to stores that are free. */
static void close_stack(const td__zero *z, int b, size_t at, size_t n, const td__grad_stack *in,
                        stack *out)
{
    unsigned long long used = 0;
    out->n = in->n;
    TD_ASSERT(in->n <= MOST_PARTIALS, "%d partials", in->n);
    for (int i = 0; i < in->n; i++) {
        int k = in->at[i].dense ? store_of(z, b, at, in->at[i].dense) : -1;
        out->at[i] = (entry){in->at[i].tree, k};
        used |= k < 0 ? 0 : 1ull << k;
    }
    for (int i = 0; i < in->n; i++) {
        if (!in->at[i].dense || out->at[i].store >= 0)
            continue;
        int k = 0;
        while (used & (1ull << k))
            k++;
        TD_ASSERT(k < z->depth, "%d partials of bucket %d, room for %d", in->n, b, z->depth);
        used |= 1ull << k;
        out->at[i].store = k;
        if (z->on)
            td__stream_copy(z->on, store_at(z, k, b, at), in->at[i].dense, n * sizeof(float));
        else
            memcpy(store_at(z, k, b, at), in->at[i].dense, n * sizeof(float));
    }
}

/* On a device they are only put into the stream. */
static void blend(const td__zero *z, const td__grad_sum *sum, size_t n)
{
    if (z->on)
        td__stream_blend(z->on, sum->op, sum->n_ops, 0, n);
    else
        td__grad_blend(NULL, sum, 0, n);
}

static void add_leaves(td__zero *z, int b, size_t at, const td__rank_leaf *leaves, int n_leaves,
                       stack *out)
{
    size_t count = td__shards_piece_count(z->shards, b, at);
    size_t n = td__shards_in_piece(z->shards, b, z->rank, at);
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);

    open_stack(z, b, at, &s);
    for (int i = 0; i < n_leaves; i++) {
        const td__rank_leaf *l = &leaves[i];
        TD_ASSERT(s.n < s.room, "%d partials", s.n);
        s.at[s.n++] = (td__partial){
            .tree = l->tree, .weight = 1, .dense = l->present ? leaf_at(z, l, count) : NULL};
        td__grad_plan(&s, false, &sum);
        blend(z, &sum, n);
    }
    if (z->o.stage == 1) { /* these were all */
        td__grad_plan(&s, true, &sum);
        blend(z, &sum, n);
    }
    close_stack(z, b, at, n, &s, out);
}

td_status td__zero_reduce(td__zero *z, int b, const td__partial *mine, int n_mine,
                          const td__rank_leaf *leaves, int n_leaves)
{
    size_t widest = td__shard_widest(z->map, b);
    stack after = z->stacks[b];
    int slots = 0;

    for (int i = 0; i < n_leaves; i++)
        slots = leaves[i].slot >= slots ? leaves[i].slot + 1 : slots;
    TD_ASSERT(slots <= z->slots && n_mine <= slots, "%d slots, %d of them mine", slots, n_mine);
    for (size_t at = 0; at < widest; at += z->shards->piece) {
        TD_TRY(exchange(z, b, mine, n_mine, slots, at));
        add_leaves(z, b, at, leaves, n_leaves, &after);
    }
    z->stacks[b] = after;
    return z->on ? td__stream_sync(z->on) : TD_OK;
}

const float *td__zero_sum(td__zero *z, int b)
{
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);

    open_stack(z, b, 0, &s);
    td__grad_plan(&s, true, &sum);
    td__grad_blend(z->on, &sum, 0, td__shard_count(z->map, b, z->rank));
    TD_ASSERT(s.n == 1 && s.at[0].dense, "%d partials of bucket %d are left", s.n, b);
    z->stacks[b] = (stack){.at = {{s.at[0].tree, store_of(z, b, 0, s.at[0].dense)}}, .n = 1};
    return s.at[0].dense;
}

/* ---- Mirrors --------------------------------------------------------------------------------- */

/* The sums of buckets [b, end) lie side by side, on all ranks alike: which store a sum is in is a
 * matter of the micro-batch tree. */
static int side_by_side(td__zero *z, int b)
{
    (void)td__zero_sum(z, b);
    int store = z->stacks[b].at[0].store, end = b + 1;
    for (; end < z->map->params; end++) {
        (void)td__zero_sum(z, end);
        if (z->stacks[end].at[0].store != store)
            break;
    }
    return end;
}

static td_status pass_on(td__zero *z, int b, int end)
{
    size_t n = z->own_at[end] - z->own_at[b];
    z->shards->sent += n * sizeof(float);
    return n ? td_send(z->shards->o.comm, td__zero_sum(z, b), n, TD_F32, z->shards->mirrored_by,
                       NULL)
             : TD_OK;
}

static td_status take(td__zero *z, int b, int end)
{
    size_t n = z->mirror_at[end] - z->mirror_at[b];
    return n ? td_recv(z->shards->o.comm, z->mirror_sums + z->mirror_at[b], n, TD_F32,
                       z->shards->mirror, NULL)
             : TD_OK;
}

/* A send may have to wait for its receive, so every other rank of the ring receives first. */
td_status td__zero_mirror_sums(td__zero *z)
{
    for (int b = 0, end; z->shards->mirror >= 0 && b < z->map->params; b = end) {
        end = side_by_side(z, b);
        if (z->shards->place % 2) {
            TD_TRY(take(z, b, end));
            TD_TRY(pass_on(z, b, end));
        } else {
            TD_TRY(pass_on(z, b, end));
            TD_TRY(take(z, b, end));
        }
    }
    return TD_OK;
}

const float *td__zero_mirror_sum(const td__zero *z, int b)
{
    return z->mirror_sums + z->mirror_at[b];
}

td_status td__zero_gather_sum(td__zero *z, int b, float *out)
{
    return td__shards_collect(z->shards, b, td__zero_sum(z, b), -1, out);
}
