/* zero.c -- see zero.h.
 *
 * A bucket may be of any size; what travels at once is a piece: the same range of elements of every
 * rank's shard, padded to one length. So buffers are small whatever the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/zero.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/params.h"
#include "base/kernels/blend.h"
#include "coll/comm.h"

enum {
    STAGING = 1 << 20, /* floats of all ranks' pieces together */
    LEAST = 1 << 12,   /* floats of a piece at least, with many ranks */
    MOST_PARTIALS = 40
};

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
    td__ownership map;
    int rank, size;
    size_t piece;        /* floats */
    int slots, depth;    /* of a rank in one reduce; stores */
    float *send, *inbox; /* (size, piece) registered; (slots, size, piece) */
    size_t *own_at;      /* by bucket: where its shard lies in a store */
    size_t owned;        /* floats of a store */
    float *store;        /* (depth, owned) */
    stack *stacks;       /* by bucket */
    uint64_t sent;       /* bytes, so far */
    /* Mirrors. */
    int mirror, mirrored_by; /* -1: nobody */
    int place;               /* in the ring */
    size_t *mirror_at;       /* by bucket: where its shard lies in mirror_sums */
    float *mirror_sums;      /* of params alone */
};

/* ---- Sizes ----------------------------------------------------------------------------------- */

static size_t piece_of(const td__ownership *m)
{
    size_t most = LEAST, piece = STAGING / (size_t)m->ranks;
    for (int b = 0; b < m->n; b++)
        if (td__shard_widest(m, b) > most)
            most = td__shard_widest(m, b);
    piece = piece > LEAST ? piece : LEAST;
    return td__align_up(piece < most ? piece : most, 16);
}

/* Slots that a rank brings to one reduce: at stage 1 all its partials, else one leaf. */
static int slots_of(int stage, int size, int micro_batches, int accumulate)
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
    size_t owned = 0, piece = piece_of(m), size = (size_t)m->ranks;
    for (int r = 0; r < m->ranks; r++)
        if (td__ownership_owned(m, r) > owned)
            owned = td__ownership_owned(m, r);
    size_t slots = (size_t)slots_of(c->stage, m->ranks, c->micro_batches, c->accumulate);
    size_t depth = (size_t)depth_of(c->stage, m->ranks, c->micro_batches, c->accumulate);
    return sizeof(float) * ((depth + (c->mirrors ? 1 : 0)) * owned +
                            size * piece * ((c->shared ? size : 1) + slots));
}

/* ---- Making one ------------------------------------------------------------------------------ */

static size_t mirror_nbytes(const td__zero *z)
{
    return z->mirror_at ? (z->mirror_at[z->map.params] + 1) * sizeof(float) : 0;
}

/* The ring begins with rank 0. */
static void find_neighbours(td__zero *z, const td__holding *of)
{
    z->mirror = of[z->rank].mirror;
    for (int r = 0; r < z->size; r++)
        if (of[r].mirror == z->rank)
            z->mirrored_by = r;
    for (int r = z->rank; r != 0; r = of[r].mirror)
        z->place++;
}

static td_status set_up_mirror(td__zero *z)
{
    td__holding *of = td__calloc((size_t)z->size, sizeof *of);
    z->mirror_at = td__calloc((size_t)z->map.params + 1, sizeof *z->mirror_at);
    td_status st = of && z->mirror_at
                       ? td__holdings_of(td__comm_host_of(z->o.comm), NULL, z->size, of)
                       : TD_FAIL(TD_ENOMEM, "no memory for a ring of %d ranks", z->size);
    if (!st)
        find_neighbours(z, of);
    td__free(of);
    TD_TRY(st);
    for (int b = 0; b < z->map.params; b++)
        z->mirror_at[b + 1] = z->mirror_at[b] + td__shard_count(&z->map, b, z->mirror);
    z->mirror_sums = td__alloc_block(mirror_nbytes(z));
    return z->mirror_sums ? TD_OK
                          : TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of mirrored gradients",
                                    mirror_nbytes(z));
}

static td_status set_up(td__zero *z)
{
    const td__zero_opts *o = &z->o;
    size_t size = (size_t)z->size;

    TD_TRY(td__ownership_init(&z->map, o->params, z->size, o->bucket_nbytes));
    z->piece = piece_of(&z->map);
    z->slots = slots_of(o->stage, z->size, o->micro_batches, o->accumulate);
    z->depth = depth_of(o->stage, z->size, o->micro_batches, o->accumulate);
    z->owned = td__align_up(td__ownership_owned(&z->map, z->rank) + 1, 16);
    z->own_at = td__calloc((size_t)z->map.n + 1, sizeof *z->own_at);
    z->stacks = td__calloc((size_t)z->map.n + 1, sizeof *z->stacks);
    z->store = td__alloc_block((size_t)z->depth * z->owned * sizeof(float));
    z->inbox = td__alloc_block((size_t)z->slots * size * z->piece * sizeof(float));
    if (!z->own_at || !z->stacks || !z->store || !z->inbox)
        return TD_FAIL(TD_ENOMEM, "no memory for %d times %zu floats of gradients", z->depth,
                       z->owned);
    for (int b = 0; b < z->map.n; b++)
        z->own_at[b + 1] = z->own_at[b] + td__shard_count(&z->map, b, z->rank);
    if (o->stage == 3)
        td__params_thin(o->params);
    return o->mirrors ? set_up_mirror(z) : TD_OK;
}

td_status td__zero_create(const td__zero_opts *opts, td__zero **out)
{
    *out = NULL;
    td__zero *z = td__calloc(1, sizeof *z);
    if (!z)
        return TD_FAIL(TD_ENOMEM, "no memory for a sharded optimizer");
    z->o = *opts;
    z->rank = td_comm_rank(opts->comm);
    z->size = td_comm_size(opts->comm);
    z->mirror = z->mirrored_by = -1;
    TD_ASSERT(z->size > 1 && opts->stage >= 1 && opts->stage < TD__ZERO_STAGES,
              "stage %d with %d ranks", opts->stage, z->size);
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
    if (z->send)
        td_comm_free(z->o.comm, z->send);
    td__free_block(z->store, (size_t)z->depth * z->owned * sizeof(float));
    td__free_block(z->inbox, (size_t)z->slots * (size_t)z->size * z->piece * sizeof(float));
    td__free_block(z->mirror_sums, mirror_nbytes(z));
    td__free(z->mirror_at);
    td__free(z->own_at);
    td__free(z->stacks);
    td__ownership_fini(&z->map);
    td__free(z);
}

int td__zero_stage(const td__zero *z)
{
    return z->o.stage;
}

int td__zero_rank(const td__zero *z)
{
    return z->rank;
}

const td__ownership *td__zero_ownership(const td__zero *z)
{
    return &z->map;
}

td__holding td__zero_holding(const td__zero *z)
{
    return (td__holding){z->size, z->rank, z->mirror};
}

int td__zero_mirror(const td__zero *z)
{
    return z->mirror;
}

void td__zero_leave(td__zero *z)
{
    if (z->send)
        td_comm_free(z->o.comm, z->send);
    z->send = NULL;
    z->o.comm = NULL;
}

/* Registered when it is first needed, so that making a td__zero is local. */
static td_status have_send(td__zero *z)
{
    void *send;
    if (z->send)
        return TD_OK;
    TD_TRY(td_comm_alloc(z->o.comm, (size_t)z->size * z->piece * sizeof(float), &send));
    z->send = send;
    return TD_OK;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

void td__zero_begin(td__zero *z)
{
    for (int b = 0; b < z->map.n; b++)
        z->stacks[b].n = 0;
}

/* Elements of rank r's shard of bucket b in the piece that begins at `at`. */
static size_t in_piece(const td__zero *z, int b, int r, size_t at)
{
    size_t n = td__shard_count(&z->map, b, r);
    return n <= at ? 0 : n - at < z->piece ? n - at : z->piece;
}

/* Elements that every rank sends of the piece, and of the last one no more than needed. */
static size_t piece_count(const td__zero *z, int b, size_t at)
{
    size_t left = td__shard_widest(&z->map, b) - at;
    return left < z->piece ? left : z->piece;
}

static td_device *device_of(const td__zero *z)
{
    return td__params_device(z->o.params);
}

/* This rank sends `count` floats to each of the others. */
static void note_sent(td__zero *z, size_t count)
{
    z->sent += (uint64_t)(z->size - 1) * count * sizeof(float);
}

static td_status exchange(td__zero *z, int b, const td__partial *mine, int n_mine, int slots,
                          size_t at)
{
    const size_t *cut = td__shards_of(&z->map, b);
    size_t count = piece_count(z, b, at);

    TD_TRY(have_send(z));
    for (int i = 0; i < slots; i++) {
        for (int r = 0; i < n_mine && mine[i].dense && r < z->size; r++)
            if (in_piece(z, b, r, at))
                td__grad_publish(td__device_stream(device_of(z)), &mine[i], cut[r] + at,
                                 in_piece(z, b, r, at), z->send + (size_t)r * count);
        TD_TRY(td_all_to_all(z->o.comm, z->send, z->inbox + (size_t)i * (size_t)z->size * z->piece,
                             count, TD_F32, NULL));
        note_sent(z, count);
    }
    return TD_OK;
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

/* Partials that lie in the inbox move to stores that are free. */
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
        memcpy(store_at(z, k, b, at), in->at[i].dense, n * sizeof(float));
    }
}

static void add_leaves(td__zero *z, int b, size_t at, const td__rank_leaf *leaves, int n_leaves,
                       stack *out)
{
    size_t count = piece_count(z, b, at), n = in_piece(z, b, z->rank, at);
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);

    open_stack(z, b, at, &s);
    for (int i = 0; i < n_leaves; i++) {
        const td__rank_leaf *l = &leaves[i];
        float *from =
            z->inbox + (size_t)l->slot * (size_t)z->size * z->piece + (size_t)l->rank * count;
        TD_ASSERT(s.n < s.room, "%d partials", s.n);
        s.at[s.n++] =
            (td__partial){.tree = l->tree, .weight = 1, .dense = l->present ? from : NULL};
        td__grad_plan(&s, false, &sum);
        td__grad_blend(NULL, &sum, 0, n);
    }
    if (z->o.stage == 1) { /* these were all */
        td__grad_plan(&s, true, &sum);
        td__grad_blend(NULL, &sum, 0, n);
    }
    close_stack(z, b, at, n, &s, out);
}

td_status td__zero_reduce(td__zero *z, int b, const td__partial *mine, int n_mine,
                          const td__rank_leaf *leaves, int n_leaves)
{
    size_t widest = td__shard_widest(&z->map, b);
    stack after = z->stacks[b];
    int slots = 0;

    for (int i = 0; i < n_leaves; i++)
        slots = leaves[i].slot >= slots ? leaves[i].slot + 1 : slots;
    TD_ASSERT(slots <= z->slots && n_mine <= slots, "%d slots, %d of them mine", slots, n_mine);
    for (size_t at = 0; at < widest; at += z->piece) {
        TD_TRY(exchange(z, b, mine, n_mine, slots, at));
        add_leaves(z, b, at, leaves, n_leaves, &after);
    }
    z->stacks[b] = after;
    return TD_OK;
}

const float *td__zero_sum(td__zero *z, int b)
{
    td__partial partials[TD__GRAD_RANGE];
    TD__GRAD_JOINS(TD__GRAD_RANGE) joins;
    td__grad_stack s = TD__GRAD_STACK_IN(partials);
    td__grad_sum sum = TD__GRAD_SUM_IN(joins);

    open_stack(z, b, 0, &s);
    td__grad_plan(&s, true, &sum);
    td__grad_blend(NULL, &sum, 0, td__shard_count(&z->map, b, z->rank));
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
    for (; end < z->map.params; end++) {
        (void)td__zero_sum(z, end);
        if (z->stacks[end].at[0].store != store)
            break;
    }
    return end;
}

static td_status pass_on(td__zero *z, int b, int end)
{
    size_t n = z->own_at[end] - z->own_at[b];
    z->sent += n * sizeof(float);
    return n ? td_send(z->o.comm, td__zero_sum(z, b), n, TD_F32, z->mirrored_by, NULL) : TD_OK;
}

static td_status take(td__zero *z, int b, int end)
{
    size_t n = z->mirror_at[end] - z->mirror_at[b];
    return n ? td_recv(z->o.comm, z->mirror_sums + z->mirror_at[b], n, TD_F32, z->mirror, NULL)
             : TD_OK;
}

/* A send may have to wait for its receive, so every other rank of the ring receives first. */
td_status td__zero_mirror_sums(td__zero *z)
{
    for (int b = 0, end; z->mirror >= 0 && b < z->map.params; b = end) {
        end = side_by_side(z, b);
        if (z->place % 2) {
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

/* ---- Shards to all, or to one ---------------------------------------------------------------- */

/* own: this rank's shard; out: the whole bucket; skip_own: it is there already. */
static td_status gather(td__zero *z, int b, const float *own, int root, float *out, bool skip_own)
{
    const size_t *cut = td__shards_of(&z->map, b);
    size_t widest = td__shard_widest(&z->map, b);

    TD_TRY(have_send(z));
    for (size_t at = 0; at < widest; at += z->piece) {
        size_t count = piece_count(z, b, at);
        if (in_piece(z, b, z->rank, at)) /* else own may be NULL */
            TD_TRY(td__mem_read(device_of(z), z->send, own + at,
                                in_piece(z, b, z->rank, at) * sizeof *own));
        if (root < 0)
            note_sent(z, count);
        if (root < 0)
            TD_TRY(td_all_gather(z->o.comm, z->send, z->inbox, count, TD_F32, NULL));
        else
            TD_TRY(td_coll_gather(z->o.comm, z->send, z->inbox, count, TD_F32, root, NULL));
        for (int r = 0; out && r < z->size; r++)
            if (r != z->rank || !skip_own)
                TD_TRY(td__mem_write(device_of(z), out + (cut[r] - cut[0]) + at,
                                     z->inbox + (size_t)r * count,
                                     in_piece(z, b, r, at) * sizeof *out));
    }
    return TD_OK;
}

td_status td__zero_gather_sum(td__zero *z, int b, float *out)
{
    return gather(z, b, td__zero_sum(z, b), -1, out, false);
}

td_status td__zero_gather(td__zero *z, int b)
{
    size_t all;
    float *block = td_params_block(z->o.params, &all);
    return gather(z, b, block + td__shards_of(&z->map, b)[z->rank], -1, block + z->map.begin[b],
                  true);
}

void td__zero_drop(td__zero *z, int b)
{
    const size_t *cut = td__shards_of(&z->map, b);
    int low = z->mirror >= 0 && z->mirror < z->rank ? z->mirror : z->rank;
    int high = z->mirror > z->rank ? z->mirror : z->rank;
    td__params_discard(z->o.params, cut[0], cut[low] - cut[0]);
    if (low < high)
        td__params_discard(z->o.params, cut[low + 1], cut[high] - cut[low + 1]);
    td__params_discard(z->o.params, cut[high + 1], cut[z->size] - cut[high + 1]);
}

td_status td__zero_gather_all(td__zero *z)
{
    for (int b = 0; b < z->map.params; b++)
        TD_TRY(td__zero_gather(z, b));
    return TD_OK;
}

void td__zero_drop_all(td__zero *z)
{
    for (int b = 0; b < z->map.params; b++)
        td__zero_drop(z, b);
}

uint64_t td__zero_sent(const td__zero *z)
{
    return z->sent;
}

td_status td__zero_collect(td__zero *z, int b, const float *own, int root, float *out)
{
    return gather(z, b, own, root, out, false);
}
