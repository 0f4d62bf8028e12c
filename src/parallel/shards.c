/* shards.c -- see shards.h.
 *
 * A bucket may be of any size; what travels at once is a piece: the same range of elements of every
 * rank's shard, padded to one length. So buffers are small whatever the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/shards_impl.h"
#include "parallel/step_plan.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"

enum {
    STAGING = 1 << 20, /* floats of all ranks' pieces together, in memory of the host */
    WINDOW = 1 << 25,  /* on a GPU, where to meet takes as long as to move a MiB */
    SETS = 2,          /* of a window */
    LEAST = 1 << 12    /* floats of a piece at least, with many ranks */
};

static size_t piece_of(const td__ownership *m, size_t room)
{
    size_t most = LEAST, piece = room / (size_t)m->ranks;
    for (int b = 0; b < m->n; b++)
        if (td__shard_widest(m, b) > most)
            most = td__shard_widest(m, b);
    piece = piece > LEAST ? piece : LEAST;
    return td__align_up(piece < most ? piece : most, 16);
}

/* A call for each piece of the bucket, and each slot. */
static void plan_pieces(td__planner *w, const td__ownership *m, int b, td__plan_coll coll,
                        int slots)
{
    size_t piece = piece_of(m, STAGING), widest = td__shard_widest(m, b);
    for (size_t at = 0; at < widest; at += piece)
        for (int i = 0; i < slots; i++)
            td__planner_coll(w, coll,
                             (widest - at < piece ? widest - at : piece) * (size_t)m->ranks *
                                 sizeof(float),
                             1 + b);
}

void td__shards_plan_gather(td__planner *w, const td__ownership *m, int b)
{
    plan_pieces(w, m, b, TD_PLAN_ALL_GATHER, 1);
}

void td__shards_plan_reduce(td__planner *w, const td__ownership *m, int b, int slots)
{
    plan_pieces(w, m, b, TD_PLAN_ALL_TO_ALL, slots);
}

size_t td__shards_nbytes(const td__ownership *m, int slots, bool shared)
{
    size_t ranks = (size_t)m->ranks;
    return sizeof(float) * ranks * piece_of(m, STAGING) * ((shared ? ranks : 1) + (size_t)slots);
}

static td_device *device_of(const td__shards *s)
{
    return td__params_device(s->o.params);
}

td_stream *td__shards_stream(const td__shards *s)
{
    return td__device_stream(device_of(s));
}

/* ---- Making one ------------------------------------------------------------------------------ */

/* The ring begins with rank 0. */
static td__mirror_place neighbours(const td__holding *of, int rank, int ranks)
{
    td__mirror_place p = {.mirror = of[rank].mirror, .mirrored_by = -1};
    for (int r = 0; r < ranks; r++)
        if (of[r].mirror == rank)
            p.mirrored_by = r;
    for (int r = rank; r != 0; r = of[r].mirror)
        p.place++;
    return p;
}

td_status td__mirror_place_of(const int *host_of, int rank, int ranks, td__mirror_place *out)
{
    td__holding *of = td__calloc((size_t)ranks, sizeof *of);
    td_status st = of ? td__holdings_of(host_of, NULL, ranks, of)
                      : TD_FAIL(TD_ENOMEM, "no memory for a ring of %d ranks", ranks);
    if (!st)
        *out = neighbours(of, rank, ranks);
    td__free(of);
    return st;
}

static td_status set_up_mirrors(td__shards *s)
{
    td__mirror_place p;
    TD_TRY(td__mirror_place_of(td__comm_host_of(s->o.comm), s->rank, s->size, &p));
    s->mirror = p.mirror;
    s->mirrored_by = p.mirrored_by;
    s->place = p.place;
    return TD_OK;
}

static size_t inbox_nbytes(const td__shards *s)
{
    return (size_t)s->o.slots * (size_t)s->size * s->staged * sizeof(float);
}

static td_status set_up_kin(td__shards *s)
{
    s->kin = td__calloc((size_t)s->size, sizeof *s->kin);
    if (!s->kin)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", s->size);
    memcpy(s->kin, s->o.kin, (size_t)s->size * sizeof *s->kin);
    return TD_OK;
}

static td_status set_up(td__shards *s)
{
    const td__shards_opts *o = &s->o;
    TD_TRY(o->owners
               ? td__ownership_init_whole(&s->map, o->params, s->size, o->owners, o->bucket_nbytes)
               : td__ownership_init(&s->map, o->params, s->size, o->bucket_nbytes));
    s->piece = s->staged = piece_of(&s->map, STAGING);
    s->inbox = td__alloc_block(inbox_nbytes(s));
    if (!s->inbox)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of shards", inbox_nbytes(s));
    if (o->kin)
        TD_TRY(set_up_kin(s));
    if (s->o.of_params)
        td__params_thin(s->o.params);
    return s->o.mirrors ? set_up_mirrors(s) : TD_OK;
}

td_status td__shards_create(const td__shards_opts *opts, td__shards **out)
{
    *out = NULL;
    td__shards *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for shards");
    s->o = *opts;
    s->o.slots = opts->slots > 1 ? opts->slots : 1;
    s->rank = td_comm_rank(opts->comm);
    s->size = td_comm_size(opts->comm);
    s->mirror = s->mirrored_by = -1;
    s->lanes = opts->owners && opts->owners->lanes > 1 ? opts->owners->lanes : 1;
    if (opts->owners && opts->twin != s->rank)
        s->mirror = opts->twin;
    TD_ASSERT(s->size > 1, "shards on %d ranks", s->size);
    td_status st = set_up(s);
    s->o.owners = NULL; /* they are the caller's */
    s->o.kin = NULL;
    if (st) {
        td__shards_destroy(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

void td__shards_destroy(td__shards *s)
{
    if (!s)
        return;
    td__shards_leave(s);
    td__free_block(s->inbox, inbox_nbytes(s));
    td__ownership_fini(&s->map);
    td__free(s->kin);
    td__free(s);
}

int td__shards_rank(const td__shards *s)
{
    return s->rank;
}

bool td__shards_of_params(const td__shards *s)
{
    return s->o.of_params;
}

const td__ownership *td__shards_ownership(const td__shards *s)
{
    return &s->map;
}

td__holding td__shards_holding(const td__shards *s)
{
    return (td__holding){s->size, s->rank, s->mirror};
}

int td__shards_mirror(const td__shards *s)
{
    return s->mirror;
}

void td__shards_leave(td__shards *s)
{
    if (s->send)
        td_comm_free(s->o.comm, s->send);
    td__peers_close(s->window);
    s->send = NULL;
    s->window = NULL;
    s->o.comm = NULL;
}

/* Shards of whole params and mirrored ones go from one rank to one: they have no window. */
static td_status open_window(td__shards *s)
{
    size_t piece = piece_of(&s->map, WINDOW / (size_t)s->o.slots);
    size_t floats = (size_t)SETS * (size_t)s->o.slots * (size_t)s->size * piece;
    if (td__device_host_reads(device_of(s)) || s->o.mirrors || s->mirror >= 0 || s->kin)
        return TD_OK;
    TD_TRY(td__peers_open(s->o.comm, device_of(s), floats * sizeof(float), "shards", &s->window));
    s->piece = s->window ? piece : s->piece;
    return TD_OK;
}

td_status td__shards_ready(td__shards *s)
{
    void *send;
    if (s->ready)
        return TD_OK;
    TD_TRY(open_window(s));
    TD_TRY(td_comm_alloc(s->o.comm, (size_t)s->size * s->staged * sizeof(float), &send));
    s->send = send;
    s->ready = true;
    return TD_OK;
}

void td__shards_turn(td__shards *s)
{
    s->set = (s->set + 1) % SETS;
}

float *td__shards_slot(const td__shards *s, int rank, int slot)
{
    size_t at = (size_t)(s->set * s->o.slots + slot) * (size_t)s->size * s->piece;
    return (float *)td__peers_at(s->window, rank) + at;
}

td_status td__shards_meet(td__shards *s)
{
    TD_TRY(td__stream_sync(td__shards_stream(s)));
    return td_barrier(s->o.comm, NULL);
}

/* Elements of rank r's shard of bucket b in [at, at + step). */
static size_t count_in(const td__shards *s, int b, int r, size_t at, size_t step)
{
    size_t n = td__shard_count(&s->map, b, r);
    return n <= at ? 0 : n - at < step ? n - at : step;
}

size_t td__shards_in_piece(const td__shards *s, int b, int r, size_t at)
{
    return count_in(s, b, r, at, s->piece);
}

size_t td__shards_piece_count(const td__shards *s, int b, size_t at)
{
    size_t left = td__shard_widest(&s->map, b) - at;
    return left < s->piece ? left : s->piece;
}

void td__shards_note_sent(td__shards *s, size_t count)
{
    s->sent += (uint64_t)(s->size - 1) * count * sizeof(float);
}

/* ---- To all, or to one ----------------------------------------------------------------------- */

/* A bucket that one rank has all of: it tells the others, or `root`. */
static td_status hand_out(td__shards *s, int b, int owner, const float *own, int root, float *out)
{
    size_t all = td__shard_count(&s->map, b, owner), room = (size_t)s->size * s->staged;
    bool mine = s->rank == owner, takes = !mine && (root < 0 || root == s->rank);

    for (size_t at = 0; at < all; at += room) {
        size_t count = all - at < room ? all - at : room;
        if (mine)
            TD_TRY(td__mem_read(device_of(s), s->inbox, own + at, count * sizeof *own));
        if (mine && (root < 0 || root != owner))
            s->sent += (uint64_t)(root < 0 ? s->size - 1 : 1) * count * sizeof *own;
        if (root < 0)
            TD_TRY(td_broadcast(s->o.comm, s->inbox, count, TD_F32, owner, NULL));
        else if (mine && root != owner)
            TD_TRY(td_send(s->o.comm, s->inbox, count, TD_F32, root, NULL));
        else if (takes)
            TD_TRY(td_recv(s->o.comm, s->inbox, count, TD_F32, owner, NULL));
        if (out && (takes || mine))
            TD_TRY(td__mem_write(device_of(s), out + at, s->inbox, count * sizeof *out));
    }
    return TD_OK;
}

/* A piece of bucket b to all, through the window. */
static td_status gather_piece(td__shards *s, int b, size_t at, const float *own, float *out,
                              bool skip_own)
{
    const size_t *cut = td__shards_of(&s->map, b);
    td_stream *on = td__shards_stream(s);
    td__shards_turn(s);
    if (td__shards_in_piece(s, b, s->rank, at)) /* else own may be NULL */
        td__stream_copy(on, td__shards_slot(s, s->rank, 0), own + at,
                        td__shards_in_piece(s, b, s->rank, at) * sizeof *own);
    TD_TRY(td__shards_meet(s));
    for (int r = 0; r < s->size; r++)
        if (r != s->rank || !skip_own)
            td__stream_copy(on, out + (cut[r] - cut[0]) + at, td__shards_slot(s, r, 0),
                            td__shards_in_piece(s, b, r, at) * sizeof *out);
    return td__stream_sync(on);
}

/* own: this rank's shard; out: the whole bucket; skip_own: it is there already. */
static td_status gather(td__shards *s, int b, const float *own, int root, float *out, bool skip_own)
{
    const size_t *cut = td__shards_of(&s->map, b);
    size_t widest = td__shard_widest(&s->map, b);
    int sole = td__ownership_sole(&s->map, b);

    if (sole >= 0)
        return hand_out(s, b, sole, own, root, skip_own && sole == s->rank ? NULL : out);
    TD_TRY(td__shards_ready(s));
    size_t step = s->window && root < 0 ? s->piece : s->staged;
    for (size_t at = 0; at < widest; at += step) {
        size_t count = widest - at < step ? widest - at : step;
        size_t mine = count_in(s, b, s->rank, at, step);
        if (root < 0)
            td__shards_note_sent(s, count);
        if (s->window && root < 0) {
            TD_TRY(gather_piece(s, b, at, own, out, skip_own));
            continue;
        }
        if (mine) /* else own may be NULL */
            TD_TRY(td__mem_read(device_of(s), s->send, own + at, mine * sizeof *own));
        if (root < 0)
            TD_TRY(td_all_gather(s->o.comm, s->send, s->inbox, count, TD_F32, NULL));
        else
            TD_TRY(td_coll_gather(s->o.comm, s->send, s->inbox, count, TD_F32, root, NULL));
        for (int r = 0; out && r < s->size; r++)
            if (r != s->rank || !skip_own)
                TD_TRY(td__mem_write(device_of(s), out + (cut[r] - cut[0]) + at,
                                     s->inbox + (size_t)r * count,
                                     count_in(s, b, r, at, step) * sizeof *out));
    }
    return TD_OK;
}

td_status td__shards_gather(td__shards *s, int b)
{
    size_t all;
    float *block = td_params_block(s->o.params, &all);
    return gather(s, b, block + td__shards_of(&s->map, b)[s->rank], -1, block + s->map.begin[b],
                  true);
}

/* Does this rank keep the shard of rank r? */
static bool keeps(const td__shards *s, int r, bool whole)
{
    bool kin =
        s->kin && s->kin[r] == s->kin[s->rank] && (whole || r % s->lanes == s->rank % s->lanes);
    bool mirrored = s->mirror >= 0 && s->kin && whole && s->kin[r] == s->kin[s->mirror];
    return r == s->rank || r == s->mirror || kin || mirrored;
}

void td__shards_drop(td__shards *s, int b)
{
    const size_t *cut = td__shards_of(&s->map, b);
    bool whole = td__ownership_sole(&s->map, b) >= 0;
    size_t from = cut[0];
    for (int r = 0; r < s->size; r++)
        if (cut[r] < cut[r + 1] && keeps(s, r, whole)) {
            td__params_discard(s->o.params, from, cut[r] - from);
            from = cut[r + 1];
        }
    td__params_discard(s->o.params, from, cut[s->size] - from);
}

td_status td__shards_gather_all(td__shards *s)
{
    for (int b = 0; b < s->map.params; b++)
        TD_TRY(td__shards_gather(s, b));
    return TD_OK;
}

void td__shards_drop_all(td__shards *s)
{
    for (int b = 0; b < s->map.params; b++)
        td__shards_drop(s, b);
}

uint64_t td__shards_sent(const td__shards *s)
{
    return s->sent;
}

td_status td__shards_collect(td__shards *s, int b, const float *own, int root, float *out)
{
    return gather(s, b, own, root, out, false);
}
