/* distribute_scatter.c -- a rank gets the rows that it works on, when it works on them: nobody but
 * rank 0 holds more than a few batches, and what a step needs travels once, to the rank that needs
 * it. Who needs what follows from the order of the epoch and changes with every step, so rows are
 * asked for by number (desks.h), and come packed field by field, a piece for every `block` bytes of
 * rows, so that buffers stay small. The prefetching threads of a loader (loader.h) ask batches
 * ahead, so training does not wait for the way there and back; rank 0 reads, maps and draws: all of
 * it is keyed by sample, epoch and seed, never by who does it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/distribute/desks.h"
#include "parallel/distribute/distribute.h"

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

static td_status answer(void *user, td__desk *k, const td__question *q, const int64_t *numbers)
{
    td__serving *v = user;
    td__dataset *d =
        q->part >= 0 && q->part < TD_PART_COUNT ? td__data_part(v->data, (td__part)q->part) : NULL;

    if (!d)
        return TD_FAIL(TD_EPROTO, "a rank asks for part %d", q->part);
    int64_t most = td__serving_rows(v, d);
    for (int64_t begin = 0; begin < q->n; begin += most) {
        int64_t n = q->n - begin < most ? q->n - begin : most;
        td_status st = td__rows_read(k, d, numbers + begin, n, q->draws ? &q->draw : NULL);
        TD_TRY(td__desk_give(k, st, td__rows_nbytes(d, n)));
        if (st)
            return TD_OK; /* the other side says what is wrong */
    }
    return TD_OK;
}

/* ---- The others ------------------------------------------------------------------------------ */

typedef struct remote {
    td__dataset head;
    td__serving *v;
    td__part part;
    td__arena *names; /* of classes */
} remote;

static void remote_destroy(td__dataset *d)
{
    remote *m = (remote *)d;

    td__arena_destroy(m->names);
    td__free(m);
}

static td_status take_rows(const remote *m, int64_t begin, int64_t n, void *const *out)
{
    const td__dataset *d = &m->head;
    void *at[TD__MAX_FIELDS], *piece;

    TD_TRY(td__desk_take(m->v->desks, td__rows_nbytes(d, n), &piece));
    td__rows_at(d, n, piece, at);
    for (int f = 0; f < d->n_fields; f++) {
        size_t nbytes = td__field_nbytes(&d->fields[f]);
        memcpy((char *)out[f] + (size_t)begin * nbytes, at[f], (size_t)n * nbytes);
    }
    return TD_OK;
}

static td_status remote_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    remote *m = (remote *)d;
    td__question q = {.part = (int32_t)m->part, .draws = draw != NULL, .n = n};
    int64_t most = td__serving_rows(m->v, d);

    if (draw)
        q.draw = *draw;
    if (!n)
        return TD_OK;
    td__desk_hold(m->v->desks);
    td_status st = td__desk_ask(m->v->desks, &q, index);
    for (int64_t begin = 0; begin < n && !st; begin += most)
        st = take_rows(m, begin, n - begin < most ? n - begin : most, out);
    td__desk_let_go(m->v->desks);
    return st;
}

static const td__dataset_ops REMOTE = {.destroy = remote_destroy, .read = remote_read};

static td_status make_remote(td__serving *v, td__part part, const td__dataset *head,
                             td__arena *names, td__dataset **out)
{
    remote *m = td__calloc(1, sizeof *m);
    if (!m) {
        td__arena_destroy(names);
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    }
    *m = (remote){.head = *head, .v = v, .part = part, .names = names};
    m->head.ops = &REMOTE;
    *out = &m->head;
    return TD_OK;
}

const td__distribute_def td__distribute_scatter = {
    .name = "scatter",
    .help =
        "each rank gets the rows of its micro-batches from rank 0, batches ahead; little memory",
    .answer = answer,
    .remote = make_remote,
};
