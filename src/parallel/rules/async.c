/* async.c -- see async.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/async.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "coll/hang.h"
#include "graph/params.h"

/* ORDER: what a rank has recorded, to rank 0; a replay, from it. */
enum { ARRIVED = 1, HALTED, ORDER };

td_status td__async_check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w,
                          bool (*fits)(const td__sync_config *c, const td__async_part *p))
{
    TD_TRY(td__sync_local_check(c, j, w));
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "train.sync: %s cannot run on elastic ranks: asynchronous ranks do not stop "
                       "together when the world size changes; start fixed ranks (-n N)",
                       c->rule);
    return w->starts && !w->rank ? td__async_order_check(c, w->ranks, fits) : TD_OK;
}

uint64_t td__async_exchanges(const td__sync_config *c, const td__async_part *p)
{
    uint64_t tau = (uint64_t)td__sync_option(c, "tau");
    return p->to / tau - p->from / tau + (p->to > p->from && p->to % tau != 0);
}

void td__async_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    out->own_params = out->own_data = true;
    out->apart = w->ranks > 1;
}

td_status td__async_create(td__sync *s, const td__async_ops *ops)
{
    td__async *a = (td__async *)s;
    a->ops = ops;
    TD_TRY(td__sync_local_create(s, &ops->local));
    size_t n = (size_t)a->base.ranks;
    a->rank = s->x.comm ? td_comm_rank(s->x.comm) : 0;
    a->arrivals = td__calloc(n, sizeof *a->arrivals);
    a->halts = td__calloc(n, sizeof *a->halts);
    a->halted_at = td__calloc(n, sizeof *a->halted_at);
    if (!a->arrivals || !a->halts || !a->halted_at)
        return TD_FAIL(TD_ENOMEM, "no memory for what %zu ranks tell", n);
    a->order.path = s->x.config->replay;
    return n > 1 && !a->rank ? td__async_order_read(&a->order, &s->x, s->ops->name, (int)n) : TD_OK;
}

void td__async_destroy(td__sync *s)
{
    td__async *a = (td__async *)s;
    td__post_abort(a->post, "the run was left");
    td__free(a->arrivals);
    td__free(a->halts);
    td__free(a->halted_at);
    td__async_order_fini(&a->order);
    td__sync_local_destroy(s);
}

void td__async_abandon(td__sync *s, const char *why)
{
    td__async *a = (td__async *)s;
    td__post_abort(a->post, why);
    a->post = NULL;
}

bool td__async_away(const td__async *a, int rank)
{
    return a->arrivals[rank] > a->meetings;
}

bool td__async_hurries(const td__async *a)
{
    for (int r = 0; r < a->base.ranks; r++)
        if (a->halts[r] > a->rounds)
            return true;
    return false;
}

td_status td__async_wait(td__async *a, bool (*ready)(void *user), void *user, const char *what)
{
    td__comm_says(a->base.base.x.comm, TD_PHASE_COMM, a->base.step, what);
    return td__post_wait(a->post, ready, user, what);
}

void td__async_age(td__async *a, double age)
{
    a->age_sum += age;
    a->ages++;
    a->age_most = age > a->age_most ? age : a->age_most;
}

int td__async_notes(td__sync *s, td__step_note *out)
{
    td__async *a = (td__async *)s;
    if (a->post)
        td__post_lock(a->post);
    int ages = a->ages;
    out[0] = (td__step_note){"age", ages ? a->age_sum / ages : 0};
    out[1] = (td__step_note){"age_max", a->age_most};
    a->age_sum = a->age_most = 0;
    a->ages = 0;
    if (a->post)
        td__post_unlock(a->post);
    return ages ? 2 : 0;
}

td_status td__async_take_centre(td__async *a)
{
    td_params *params = a->base.base.x.step.params;
    TD_TRY(td__mem_write(td__params_device(params), td_params_block(params, NULL), a->base.centre,
                         a->base.count * sizeof *a->base.centre));
    td_params_touch(params);
    return TD_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static td_status tell_all(td__async *a, uint32_t kind, uint64_t number)
{
    for (int r = 0; r < a->base.ranks; r++)
        if (r != a->rank)
            TD_TRY(td__post_send(
                a->post, r, &(td__post_head){.kind = kind, .step = a->base.step, .number = number},
                NULL));
    return TD_OK;
}

static td_status hear_order(td__async *a, int from, td__post_bytes *b)
{
    if (!b || td__post_bytes_size(b) % sizeof(int32_t) || (a->rank && from))
        return TD_FAIL(TD_EPROTO, "an order of messages of %zu bytes from rank %d",
                       b ? td__post_bytes_size(b) : 0, from);
    return a->rank ? td__async_order_give(&a->order, b) : td__async_order_came(&a->order, from, b);
}

/* A rank is away or halts. With the post's lock. */
static td_status changed(td__async *a)
{
    if (td__async_hurries(a))
        td__async_order_leave(&a->order);
    return a->ops->changed ? a->ops->changed(a) : TD_OK;
}

static td_status hear(void *user, int from, const td__post_head *h, td__post_bytes *b)
{
    td__async *a = user;
    if (h->kind >= TD__ASYNC_OWN)
        return a->ops->told(a, from, h, b);
    if (h->kind == ORDER)
        return hear_order(a, from, b);
    if (h->kind == ARRIVED) {
        a->arrivals[from] = h->number;
    } else {
        a->halts[from] = h->number;
        a->halted_at[from] = h->step;
    }
    return changed(a);
}

/* ---- The order of messages ------------------------------------------------------------------- */

/* To rank 0, which tells it. */
static td_status send_order(td__async *a, td__post_bytes *b)
{
    if (a->rank)
        return td__post_send(a->post, 0, &(td__post_head){.kind = ORDER}, b);
    td__post_lock(a->post);
    td_status st = td__async_order_came(&a->order, 0, b);
    td__post_unlock(a->post);
    return st;
}

/* met: ranks have met after this step. */
static td_status hand_in_order(td__async *a, bool met)
{
    td__post_bytes *b = NULL;
    td_status st = TD_OK;
    if (!a->post || (met && a->again))
        return TD_OK;
    td__post_lock(a->post);
    if (met)
        st = td__async_order_met(&a->order, a->base.step);
    if (!st && met)
        st = td__async_order_pass(&a->order, a->base.step);
    bool full = met || td__async_order_full(&a->order);
    if (!st && full)
        b = td__async_order_take(&a->order);
    td__post_unlock(a->post);
    if (!st && full)
        st = b ? send_order(a, b) : TD_FAIL(TD_ENOMEM, "no memory for the order of messages");
    td__post_bytes_release(b);
    return st;
}

bool td__async_told(td__sync *s, td__order_event *out)
{
    td__async *a = (td__async *)s;
    if (a->post)
        td__post_lock(a->post);
    bool more = td__async_order_told(&a->order, out);
    if (a->post)
        td__post_unlock(a->post);
    out->rule = s->ops->name;
    return more;
}

static bool is_given(void *user)
{
    return ((td__async *)user)->order.follows;
}

/* Rank 0 has read the replay, if there is one: each rank gets its part. */
static td_status share_replay(td__async *a)
{
    int32_t there = a->order.sets != NULL;
    td_status st = TD_OK;
    TD_TRY(td_broadcast(a->base.base.x.comm, &there, 1, TD_I32, 0, NULL));
    if (!there)
        return TD_OK;
    td__post_lock(a->post);
    for (int r = 0; !st && !a->rank && r < a->base.ranks; r++) {
        td__post_bytes *b = td__async_order_of(&a->order, r);
        st = !b  ? TD_FAIL(TD_ENOMEM, "no memory for the order of messages of rank %d", r)
             : r ? td__post_send(a->post, r, &(td__post_head){.kind = ORDER}, b)
                 : td__async_order_give(&a->order, b);
        td__post_bytes_release(b);
    }
    td__backup_sets_destroy(a->order.sets);
    a->order.sets = NULL;
    if (!st)
        st = td__async_wait(a, is_given, a, "the replay, from rank 0");
    td__post_unlock(a->post);
    return st;
}

/* ---- Halts ----------------------------------------------------------------------------------- */

static bool someone_halts(const td__async *a)
{
    for (int r = 0; r < a->base.ranks; r++)
        if (r != a->rank && a->halts[r] > a->halted)
            return true;
    return false;
}

/* All have halted too, or arrived. */
static bool have_answered(void *user)
{
    td__async *a = user;
    for (int r = 0; r < a->base.ranks; r++)
        if (r != a->rank && a->halts[r] < a->halted && !td__async_away(a, r))
            return false;
    return true;
}

/* After a step that was not ended together: does a rank request something? */
static td_status halt(td__async *a, bool requests)
{
    bool arrived = false;
    if (a->muted || a->target)
        return TD_OK;
    td__post_lock(a->post);
    bool halts = requests || someone_halts(a);
    td_status st = TD_OK;
    if (halts) {
        a->halts[a->rank] = ++a->halted;
        st = changed(a);
    }
    td__post_unlock(a->post);
    if (!halts || st)
        return st;
    TD_TRY(tell_all(a, HALTED, a->halted));
    td__post_lock(a->post);
    st = td__async_wait(a, have_answered, a, "other ranks to halt");
    a->target = a->base.step;
    for (int r = 0; r < a->base.ranks; r++) {
        arrived = arrived || (r != a->rank && td__async_away(a, r));
        if (r != a->rank && a->halted_at[r] > a->target)
            a->target = a->halted_at[r];
    }
    td__post_unlock(a->post);
    if (arrived) {
        a->muted = true;
        a->target = 0;
    }
    return st;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

td_status td__async_begin(td__sync *s, const td__sync_place *at)
{
    td__async *a = (td__async *)s;
    td_status st = TD_OK;
    if (a->post) { /* what the trainer has changed between steps is there for messages */
        td__post_lock(a->post);
        st = td__async_order_begins(&a->order, at->step, a->together);
        td__post_unlock(a->post);
    }
    return st ? st : td__sync_local_begin(s, at);
}

/* Losses and requests: of all ranks where they are together, else zero and this rank's own. */
static td_status tell_numbers(td__async *a, bool *all)
{
    td__sync *s = &a->base.base;
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);
    bool requests = false;
    *all = true;
    if (!a->post)
        return TD_OK;
    for (int i = 0; i < TD_REQUESTS; i++)
        requests = requests || numbers[i] > 0;
    if (!a->together && a->base.step != a->target)
        TD_TRY(halt(a, requests));
    *all = a->together || a->base.step == a->target;
    if (*all) {
        TD_TRY(td__sync_sum_numbers(s));
        a->together = false;
        a->target = 0;
        td__post_lock(a->post);
        a->rounds = a->halted;
        td__post_unlock(a->post);
        return TD_OK;
    }
    memset(numbers, 0, TD_REQUESTS * sizeof *numbers);
    return TD_OK;
}

td_status td__async_step(td__sync *s, double lr, td__step_result *out)
{
    td__async *a = (td__async *)s;
    int64_t rows = td__step_own_rows(s->engine);
    td__grad_share own;
    td__step_result mine = {.loss = 0};
    bool all;

    TD_TRY(td__step_own_share(s->engine, &own));
    if (a->ops->share)
        TD_TRY(a->ops->share(a, &own));
    TD_TRY(tell_numbers(a, &all));
    if (rows)
        TD_TRY(td__step_apply(s->engine, NULL, 0, lr, &mine));
    if (a->ops->applied)
        TD_TRY(a->ops->applied(a, lr));
    td__step_done(s->engine, out);
    TD_TRY(hand_in_order(a, false));
    if (all)
        return TD_OK;
    out->loss = mine.loss; /* of a rank without rows: 0 */
    out->seconds = NULL;
    return TD_OK;
}

td_status td__async_gather(td__sync *s)
{
    td__async *a = (td__async *)s;
    if (a->base.step % (uint64_t)td__sync_value(s, "tau"))
        return TD_OK;
    TD_TRY(a->ops->exchange(a));
    a->base.merged = a->base.step;
    return TD_OK;
}

/* ---- Meetings -------------------------------------------------------------------------------- */

static bool have_arrived(void *user)
{
    td__async *a = user;
    for (int r = 0; r < a->base.ranks; r++)
        if (r != a->rank && !td__async_away(a, r))
            return false;
    return true;
}

/* Messages of a rank come in order: its arrival is the last of before the meeting. */
static td_status arrive(td__async *a)
{
    if (!a->post)
        return TD_OK;
    TD_TRY(tell_all(a, ARRIVED, a->meetings + 1));
    td__post_lock(a->post);
    a->arrivals[a->rank] = a->meetings + 1;
    td_status st = changed(a);
    if (!st)
        st = td__async_wait(a, have_arrived, a, "other ranks to arrive");
    a->meetings++;
    memset(a->halts, 0, (size_t)a->base.ranks * sizeof *a->halts);
    a->rounds = 0;
    td__post_unlock(a->post);
    a->halted = a->target = 0;
    a->muted = false;
    a->together = true;
    return st;
}

td_status td__async_meet(td__sync *s, td__sync_meet why)
{
    td__async *a = (td__async *)s;
    if (why == TD_MEET_BEGIN) {
        TD_TRY(td__sync_local_meet(s, why));
        a->together = true;
        if (!s->x.comm || a->post || a->base.ranks == 1)
            return TD_OK;
        TD_TRY(td__post_open(s->x.comm, hear, a, &a->post));
        return share_replay(a);
    }
    a->again = a->met == a->base.step;
    a->met = a->base.step;
    if (a->post && !a->again) {
        td__post_lock(a->post);
        td_status st = td__async_order_meets(&a->order, a->base.step);
        td__post_unlock(a->post);
        TD_TRY(st);
    }
    if (a->ops->exchange && a->base.merged != a->base.step)
        TD_TRY(a->ops->exchange(a));
    a->base.merged = a->base.step;
    TD_TRY(arrive(a));
    TD_TRY(a->ops->come(a));
    TD_TRY(hand_in_order(a, true));
    TD_TRY(td__local_share_optimizer(&a->base));
    if (why != TD_MEET_END || !a->post)
        return TD_OK;
    td__post *post = a->post;
    a->post = NULL;
    return td__post_close(post);
}
