/* copies.c -- servers that keep all shards (parallel.replicas): where the run is travels with every
 * step, and a push is applied when all of them have it.
 *
 *     server 0                           another server
 *     command, place          ->
 *                                        receives the push
 *                             <-         has it
 *     applies it, tells its worker       applies it; its place is server 0's after the step
 *
 * Nothing can fail on a server between its word and its update but the server itself. So a push
 * that its worker was told of is in the state of every server that is left; one that it was not
 * told of may be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "ps/ps.h"

typedef struct word {
    uint64_t step;
    uint64_t stop; /* 1: this server was asked to stop */
} word;

td__param_range td__ps_held(const td__ps_rule *r, int s)
{
    return r->copies ? (td__param_range){0, td__step_floats(r->base.engine)} : r->map.at[s];
}

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

td_status td__ps_copy_out(td__ps_rule *r, const td__ps_command *c)
{
    const td__sync_host *h = &r->base.x.host;
    size_t nbytes;
    if (!r->copies)
        return TD_OK;
    const void *place = h->place(h->user, &nbytes);
    for (int s = 1; s < r->servers; s++)
        TD_TRY(td_send(r->peers, place, nbytes, TD_U8, s, NULL));
    for (int s = 1; s < r->servers; s++) {
        word w;
        TD_TRY(td_recv(r->peers, &w, sizeof w, TD_U8, s, NULL));
        if (w.step != c->step)
            return TD_FAIL(TD_EPROTO, "server %d has step %llu, not %llu", s,
                           (unsigned long long)w.step, (unsigned long long)c->step);
        r->stop = r->stop || w.stop;
    }
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

td_status td__ps_copy_has(td__ps_rule *r, const td__ps_command *c)
{
    const td__sync_host *h = &r->base.x.host;
    word w = {c->step, h->stopping(h->user)};
    return r->copies ? td_send(r->peers, &w, sizeof w, TD_U8, 0, NULL) : TD_OK;
}

void td__ps_copy_done(td__ps_rule *r, const td__ps_command *c)
{
    const td__sync_host *h = &r->base.x.host;
    td__step_result out;
    int rank = c->worker < 0 ? -1 : r->lanes[c->worker].rank;
    if (!r->copies)
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
