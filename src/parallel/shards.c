/* shards.c -- see shards.h.
 *
 * A bucket may be of any size; what travels at once is a piece: the same range of elements of every
 * rank's shard, padded to one length. So buffers are small whatever the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/shards_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"

enum {
    STAGING = 1 << 20, /* floats of all ranks' pieces together */
    LEAST = 1 << 12    /* floats of a piece at least, with many ranks */
};

static size_t piece_of(const td__ownership *m)
{
    size_t most = LEAST, piece = STAGING / (size_t)m->ranks;
    for (int b = 0; b < m->n; b++)
        if (td__shard_widest(m, b) > most)
            most = td__shard_widest(m, b);
    piece = piece > LEAST ? piece : LEAST;
    return td__align_up(piece < most ? piece : most, 16);
}

size_t td__shards_nbytes(const td__ownership *m, int slots, bool shared)
{
    size_t ranks = (size_t)m->ranks;
    return sizeof(float) * ranks * piece_of(m) * ((shared ? ranks : 1) + (size_t)slots);
}

/* ---- Making one ------------------------------------------------------------------------------ */

/* The ring begins with rank 0. */
static void find_neighbours(td__shards *s, const td__holding *of)
{
    s->mirror = of[s->rank].mirror;
    for (int r = 0; r < s->size; r++)
        if (of[r].mirror == s->rank)
            s->mirrored_by = r;
    for (int r = s->rank; r != 0; r = of[r].mirror)
        s->place++;
}

static td_status set_up_mirrors(td__shards *s)
{
    td__holding *of = td__calloc((size_t)s->size, sizeof *of);
    td_status st = of ? td__holdings_of(td__comm_host_of(s->o.comm), NULL, s->size, of)
                      : TD_FAIL(TD_ENOMEM, "no memory for a ring of %d ranks", s->size);
    if (!st)
        find_neighbours(s, of);
    td__free(of);
    return st;
}

static size_t inbox_nbytes(const td__shards *s)
{
    return (size_t)s->o.slots * (size_t)s->size * s->piece * sizeof(float);
}

static td_status set_up_kin(td__shards *s)
{
    s->kin = td__calloc((size_t)s->size, sizeof *s->kin);
    if (!s->kin)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", s->size);
    for (int r = 0; r < s->size; r++)
        s->kin[r] = s->o.kin[r] == s->o.kin[s->rank];
    return TD_OK;
}

static td_status set_up(td__shards *s)
{
    const td__shards_opts *o = &s->o;
    TD_TRY(o->owner
               ? td__ownership_init_whole(&s->map, o->params, s->size, o->owner, o->bucket_nbytes)
               : td__ownership_init(&s->map, o->params, s->size, o->bucket_nbytes));
    s->piece = piece_of(&s->map);
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
    if (opts->owner && opts->twin != s->rank)
        s->mirror = opts->twin;
    TD_ASSERT(s->size > 1, "shards on %d ranks", s->size);
    td_status st = set_up(s);
    s->o.owner = s->o.kin = NULL; /* they are the caller's */
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
    if (s->send)
        td_comm_free(s->o.comm, s->send);
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
    s->send = NULL;
    s->o.comm = NULL;
}

td_status td__shards_have_send(td__shards *s)
{
    void *send;
    if (s->send)
        return TD_OK;
    TD_TRY(td_comm_alloc(s->o.comm, (size_t)s->size * s->piece * sizeof(float), &send));
    s->send = send;
    return TD_OK;
}

size_t td__shards_in_piece(const td__shards *s, int b, int r, size_t at)
{
    size_t n = td__shard_count(&s->map, b, r);
    return n <= at ? 0 : n - at < s->piece ? n - at : s->piece;
}

size_t td__shards_piece_count(const td__shards *s, int b, size_t at)
{
    size_t left = td__shard_widest(&s->map, b) - at;
    return left < s->piece ? left : s->piece;
}

static td_device *device_of(const td__shards *s)
{
    return td__params_device(s->o.params);
}

void td__shards_note_sent(td__shards *s, size_t count)
{
    s->sent += (uint64_t)(s->size - 1) * count * sizeof(float);
}

/* ---- To all, or to one ----------------------------------------------------------------------- */

/* A bucket that one rank has all of: it tells the others, or `root`. */
static td_status hand_out(td__shards *s, int b, int owner, const float *own, int root, float *out)
{
    size_t all = td__shard_count(&s->map, b, owner), room = (size_t)s->size * s->piece;
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

/* own: this rank's shard; out: the whole bucket; skip_own: it is there already. */
static td_status gather(td__shards *s, int b, const float *own, int root, float *out, bool skip_own)
{
    const size_t *cut = td__shards_of(&s->map, b);
    size_t widest = td__shard_widest(&s->map, b);
    int sole = td__ownership_sole(&s->map, b);

    if (sole >= 0)
        return hand_out(s, b, sole, own, root, skip_own && sole == s->rank ? NULL : out);
    TD_TRY(td__shards_have_send(s));
    for (size_t at = 0; at < widest; at += s->piece) {
        size_t count = td__shards_piece_count(s, b, at);
        if (td__shards_in_piece(s, b, s->rank, at)) /* else own may be NULL */
            TD_TRY(td__mem_read(device_of(s), s->send, own + at,
                                td__shards_in_piece(s, b, s->rank, at) * sizeof *own));
        if (root < 0)
            td__shards_note_sent(s, count);
        if (root < 0)
            TD_TRY(td_all_gather(s->o.comm, s->send, s->inbox, count, TD_F32, NULL));
        else
            TD_TRY(td_coll_gather(s->o.comm, s->send, s->inbox, count, TD_F32, root, NULL));
        for (int r = 0; out && r < s->size; r++)
            if (r != s->rank || !skip_own)
                TD_TRY(td__mem_write(device_of(s), out + (cut[r] - cut[0]) + at,
                                     s->inbox + (size_t)r * count,
                                     td__shards_in_piece(s, b, r, at) * sizeof *out));
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

void td__shards_drop(td__shards *s, int b)
{
    const size_t *cut = td__shards_of(&s->map, b);
    int sole = td__ownership_sole(&s->map, b);
    if (s->kin && sole >= 0 && s->kin[sole])
        return;
    int low = s->mirror >= 0 && s->mirror < s->rank ? s->mirror : s->rank;
    int high = s->mirror > s->rank ? s->mirror : s->rank;
    td__params_discard(s->o.params, cut[0], cut[low] - cut[0]);
    if (low < high)
        td__params_discard(s->o.params, cut[low + 1], cut[high] - cut[low + 1]);
    td__params_discard(s->o.params, cut[high + 1], cut[s->size] - cut[high + 1]);
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
