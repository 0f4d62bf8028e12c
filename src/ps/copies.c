/* copies.c -- servers with copies of each other's shards (parallel.replicas): where the run is
 * travels with every step, and a push is applied when all of them have it.
 *
 *     server 0                           another server
 *     command, place          ->
 *                                        receives the push
 *         squares of gradients of all shards, where they are clipped
 *                             <-         has it
 *     all have it             ->
 *     applies it, tells its worker       applies it; its place is server 0's after the step
 *
 * Nothing can fail on a server between the last word and its update but the server itself. A server
 * that was lost before the last word came may have sent it to others: who waits for it in vain
 * keeps all that the update needs (td__ps_late). If it turns out at the beginning of the next
 * generation that another server has made the update, all make it (td__ps_forward); else none has.
 * So a push that its worker was told of is in the shards of every server that is left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "ps/ps.h"

typedef struct word {
    uint64_t step;
    uint64_t stop; /* 1: this server was asked to stop */
} word;

int td__ps_states(td__sync *s, td__sync_block *out)
{
    td__ps_rule *r = (td__ps_rule *)s;
    if (r->policy->together) /* in order, without gaps */
        return 0;
    out[0] = (td__sync_block){
        .name = "done", .data = r->done, .count = r->steps_of_epoch, .may_be_absent = true};
    return 1;
}

uint64_t td__ps_count_done(td__ps_rule *r)
{
    for (uint64_t i = 0; !r->counted_done && i < r->steps_of_epoch; i++)
        r->n_done += r->done[i] > 0;
    r->counted_done = true;
    return r->n_done;
}

void td__ps_set_done(td__ps_rule *r, uint64_t step)
{
    (void)td__ps_count_done(r);
    r->done[(step - 1) % r->steps_of_epoch] = 1;
    if (++r->n_done < r->steps_of_epoch)
        return;
    memset(r->done, 0, r->steps_of_epoch * sizeof *r->done); /* an epoch is over */
    r->n_done = 0;
}

td_status td__ps_copy_out(td__ps_rule *r)
{
    const td__sync_host *h = &r->base.x.host;
    size_t nbytes;
    if (!r->copies)
        return TD_OK;
    const void *place = h->place(h->user, &nbytes);
    for (int s = 1; s < r->servers; s++)
        TD_TRY(td_send(r->peers, place, nbytes, TD_U8, s, NULL));
    return TD_OK;
}

td_status td__ps_copy_begin(td__ps_rule *r)
{
    const td__sync_host *h = &r->base.x.host;
    if (!r->copies)
        return TD_OK;
    if (!r->place) {
        (void)h->place(h->user, &r->place_nbytes);
        r->place = td__calloc(1, r->place_nbytes);
        if (!r->place)
            return TD_FAIL(TD_ENOMEM, "no memory for the state of server 0");
    }
    TD_TRY(td_recv(r->peers, r->place, r->place_nbytes, TD_U8, 0, NULL));
    h->follows(h->user, r->place);
    return TD_OK;
}

/* ---- The last word --------------------------------------------------------------------------- */

static td_status check_word(const td__ps_rule *r, int s, const word *w)
{
    return w->step == r->late.what.step
               ? TD_OK
               : TD_FAIL(TD_EPROTO, "server %d has step %llu, not %llu", s,
                         (unsigned long long)w->step, (unsigned long long)r->late.what.step);
}

static td_status hear_all(td__ps_rule *r)
{
    for (int s = 1; s < r->servers; s++) {
        word w;
        TD_TRY(td_recv(r->peers, &w, sizeof w, TD_U8, s, NULL));
        TD_TRY(check_word(r, s, &w));
        r->stop = r->stop || w.stop;
    }
    return TD_OK;
}

static td_status exchange(td__ps_rule *r)
{
    const td__sync_host *h = &r->base.x.host;
    word mine = {r->late.what.step, h->stopping(h->user)}, last;
    if (r->server == 0) {
        TD_TRY(hear_all(r));
        r->late.ready = true;
        for (int s = 1; s < r->servers; s++)
            TD_TRY(td_send(r->peers, &mine, sizeof mine, TD_U8, s, NULL));
        return TD_OK;
    }
    r->late.ready = true;
    TD_TRY(td_send(r->peers, &mine, sizeof mine, TD_U8, 0, NULL));
    /* Server 0 may wait for another one meanwhile, which is the one to be named. */
    td_coll_opts longer = {.timeout_ms = 2 * td__comm_timeout_ms(r->base.x.comm)};
    TD_TRY(td_recv(r->peers, &last, sizeof last, TD_U8, 0, &longer));
    return check_word(r, 0, &last);
}

/* The update may be made after the lanes are gone. */
static bool keep(td__ps_rule *r)
{
    td__ps_held held = td__ps_held_of(r, r->server);
    td__ps_late *l = &r->late;
    if (!l->grads)
        return true;
    l->own = td__calloc(td__step_floats(r->base.engine), sizeof *l->own);
    for (int i = 0; l->own && i < held.n; i++)
        memcpy(l->own + held.at[i].begin, l->grads + held.at[i].begin,
               (held.at[i].end - held.at[i].begin) * sizeof *l->own);
    l->grads = l->own;
    return l->own != NULL;
}

/* From here on this server has no more of the run than its shards, if it had. */
static void say_held(td__ps_rule *r)
{
    const td__sync_host *h = &r->base.x.host;
    td__ps_held held = td__ps_held_of(r, r->server);
    if (r->servers > 2)
        h->holds(h->user, held.at, held.n, r->map.at[r->servers - 1].end);
}

td_status td__ps_copy_turn(td__ps_rule *r)
{
    if (!r->copies)
        return TD_OK;
    td__ps_waits(r, "the word of other servers");
    td_status st = r->late.now ? TD_OK : exchange(r);
    td__ps_waits(r, NULL);
    if (st)
        r->late.ready = r->late.ready && keep(r);
    else
        say_held(r);
    return st;
}

void td__ps_copy_done(td__ps_rule *r)
{
    const td__sync_host *h = &r->base.x.host;
    const td__ps_command *c = &r->late.what;
    td__step_result out;
    int rank = c->worker < 0 ? -1 : r->lanes[c->worker].rank;
    r->late.ready = false;
    if (!r->copies || r->server == 0)
        return;
    td__step_done(r->base.engine, &out);
    out.loss = c->loss;
    out.counted_rows = c->samples;
    out.counted = &rank;
    out.n_counted = c->worker >= 0;
    if (!r->policy->together)
        td__ps_set_done(r, c->step);
    h->followed(h->user, c->lr, &out);
}

td_status td__ps_copy_squares(td__ps_rule *r, double *squares, size_t n)
{
    const td_params *ps = r->base.x.step.params;
    td__param_range own = r->map.at[r->server];
    if (r->late.now) {
        memcpy(squares, r->late.squares, n * sizeof *squares);
        return TD_OK;
    }
    for (size_t i = 0; r->copies && i < n; i++) {
        size_t at = td_params_info(ps, (int)i).offset;
        squares[i] = at >= own.begin && at < own.end ? squares[i] : 0;
    }
    TD_TRY(td_allreduce(r->peers, squares, squares, n, TD_F64, TD_REDUCE_SUM, NULL));
    if (!r->copies)
        return TD_OK;
    if (!r->late.squares)
        r->late.squares = td__calloc(n, sizeof *r->late.squares);
    if (!r->late.squares)
        return TD_FAIL(TD_ENOMEM, "no memory for the squares of %zu params", n);
    memcpy(r->late.squares, squares, n * sizeof *squares);
    return TD_OK;
}

void td__ps_copy_fini(td__ps_rule *r)
{
    td__free(r->late.own);
    td__free(r->late.squares);
    td__free(r->place);
}

/* ---- Others may have made the update --------------------------------------------------------- */

bool td__ps_prepared(const td__sync *s)
{
    return ((const td__ps_rule *)s)->late.ready;
}

td_status td__ps_forward(td__sync *s)
{
    td__ps_rule *r = (td__ps_rule *)s;
    const td__ps_command what = r->late.what;
    r->late.now = true;
    TD_TRY(td__ps_apply(r, &what));
    if (!r->policy->together)
        td__ps_set_done(r, what.step);
    return TD_OK;
}
