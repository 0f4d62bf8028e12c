/* leader.c -- server 0: deals out work, puts pushes in order, has the other servers follow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "coll/hang.h"
#include "ps/server_order.h"
#include "ps/order.h"
#include "ps/ps.h"
#include "ps/team.h"

#define STOOD_STILL_NS UINT64_C(1000000000) /* without a look */
enum {
    LOOK_MS = 50,       /* while it waits for workers, so often for other servers */
    ORDER_MS = 200,     /* and for the operator's word about servers */
    OVERDUE_TIMES = 20, /* as long as batches take in the mean, */
    OVERDUE_S = 5,      /* and so long at least: a batch is given out again */
};

static td__deadline deadline(const td__ps_rule *r)
{
    return td__deadline_in_ms(td__comm_timeout_ms(r->base.x.comm));
}

static td_status command(td__ps_rule *r, const td__ps_command *c)
{
    for (int s = 1; s < r->servers; s++)
        TD_TRY(td_send(r->peers, c, sizeof *c, TD_U8, s, NULL));
    return TD_OK;
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static td_status give(td__ps_rule *r, int worker, const td__ps_order *order)
{
    td__ps_lane *l = &r->lanes[worker];
    td__param_range own = r->map.at[0];
    td__ps_verb verb = order->params ? TD__PS_PUBLISH : TD__PS_ACK;
    if (order->params || order->acks)
        TD_TRY(command(r, &(td__ps_command){.verb = (int32_t)verb, .worker = worker}));
    if (order->params)
        TD_TRY(td__ps_publish(r, worker));
    TD_TRY(td__ps_tell(l, order, sizeof *order));
    if (order->params)
        TD_TRY(td__ps_hand_range(l, l->pull + own.begin, own));
    return TD_OK;
}

/* A failure may look like a worker's that is one of another server, which ends the run. */
static td_status servers_there(const td__ps_rule *r)
{
    return r->peers ? td__comm_cause(r->peers) : TD_OK;
}

/* It is gone: somebody else gets what it was to do. */
static void lose(td__ps_rule *r, int worker)
{
    td__ps_seat *seat = &r->seats[worker];
    TD_LOG(WARN, TRAIN, "%s: step %llu continues with %d of %d workers", td_last_error(),
           (unsigned long long)r->begun, r->workers - r->n_lost - 1, r->workers);
    td__ps_tables_lose(r->tables, r->lanes[worker].rank, "the worker was lost");
    r->change = r->base.x.elastic;
    td__ps_lose_owed(r, worker);
    if (seat->busy && !seat->overdue)
        r->again[r->n_again++] = seat->step;
    seat->busy = seat->overdue = false;
    seat->lost = true;
    r->n_lost++;
}

static td_status give_work(td__ps_rule *r, int worker, td__ps_order order)
{
    td__ps_seat *seat = &r->seats[worker];
    int every = r->policy->fetch_every ? r->policy->fetch_every(r) : 1;
    order.lr = seat->lr = r->lr;
    order.afresh = seat->afresh;
    order.pushes = r->owed_until != 0;
    order.params = seat->afresh || seat->clock % (uint64_t)every == 0;
    order.acks = !order.params && (seat->pushed || r->tables); /* rows are applied in any case */
    if (order.params)
        seat->version = r->version;
    seat->step = order.step;
    seat->afresh = false;
    seat->busy = true;
    seat->since_ns = td__clock_ns();
    td_status st = give(r, worker, &order);
    if (st == TD_EPEER && !r->policy->together) {
        TD_TRY(servers_there(r));
        lose(r, worker);
        return TD_OK;
    }
    if (!st)
        td__ps_inbox_expect(r->inbox, worker);
    return st;
}

/* Every idle worker that may begin gets the next batch. */
static td_status deal(td__ps_rule *r)
{
    td__ps_order order;
    int w;
    while ((w = td__ps_deal_next(r, &order)) >= 0)
        TD_TRY(give_work(r, w, order));
    return TD_OK;
}

/* So many steps of the run are done: which batches of the epoch? Those that are marked; or the
 * first ones, if it was saved before there were marks. */
static void find_place(td__ps_rule *r, uint64_t steps)
{
    uint64_t in_epoch = steps % r->steps_of_epoch;
    bool marked = td__ps_count_done(r) == in_epoch;
    for (uint64_t i = 0; !marked && i < r->steps_of_epoch; i++)
        r->done[i] = i < in_epoch;
    r->n_done = in_epoch;
    r->dealt = steps - in_epoch;
}

/* ---- Clients --------------------------------------------------------------------------------- */

/* A td__ps_outputs_opts': the other shards come here. */
static td_status bring_params(void *user)
{
    td__ps_rule *r = user;
    TD_TRY(command(r, &(td__ps_command){.verb = TD__PS_SHOW}));
    return td__ps_fetch(r, false);
}

static td_status outputs(void *user, int64_t rows, const void *samples, size_t nbytes, void **out,
                         size_t *row_nbytes)
{
    td__ps_rule *r = user;
    const td__sync_host *h = &r->base.x.host;
    return h->outputs(h->user, rows, samples, nbytes, out, row_nbytes);
}

/* Where checkpoints are written, clients find the run; the folder is there by the first step. Rows
 * of tables are with other servers. */
static td_status admit_clients(td__ps_rule *r)
{
    const char *folder = r->base.x.checkpoint_dir, *address = r->base.x.config->clients;
    td__ps_outputs_opts o = {folder, address, r, bring_params, outputs};
    if (!folder || r->tables || !r->base.x.host.outputs)
        return TD_OK;
    td_status st = td__ps_outputs_create(&o, &r->outputs);
    if (st && address && !r->base.x.elastic) /* it was asked for */
        return TD_FAIL(TD_EINVAL, "parallel.clients: %s", td_last_error());
    if (st) /* another server may lead, on another host */
        TD_LOG(WARN, TRAIN, "no client can ask this run for outputs: %s", td_last_error());
    return TD_OK;
}

static td_status serve_clients(td__ps_rule *r)
{
    return td__ps_outputs_serve(r->outputs, r->begun - 1);
}

/* Another number of servers is another generation. */
static void look_for_order(td__ps_rule *r)
{
    const td__sync_ctx *x = &r->base.x;
    if (!x->elastic || !x->checkpoint_dir || !td__deadline_passed(r->look_again))
        return;
    int n = td__server_order_read(x->checkpoint_dir);
    r->look_again = td__deadline_in_ms(ORDER_MS);
    r->change = r->change || (n && n != r->ordered);
    r->ordered = n ? n : r->ordered;
}

td_status td__ps_begin(td__sync *s, const td__sync_place *at)
{
    td__ps_rule *r = (td__ps_rule *)s;
    if (r->server != 0)
        return td__ps_team_begin(r, at);
    if (!r->begun && !r->policy->together)
        find_place(r, at->step - 1);
    if (!r->begun)
        TD_TRY(admit_clients(r));
    r->begun = at->step;
    look_for_order(r);
    TD_TRY(serve_clients(r));
    r->lr = at->lr;
    if (!r->tables_read && at->step > 1)
        TD_TRY(td__ps_tables_load(r->tables, at->step - 1));
    r->tables_read = true;
    if (!r->policy->together)
        return deal(r);
    for (int w = 0; w < r->workers; w++)
        TD_TRY(give_work(r, w,
                         (td__ps_order){.step = at->step, .epoch = at->epoch, .batch = at->batch}));
    return TD_OK;
}

/* ---- Pushes ---------------------------------------------------------------------------------- */

static void settle(td__ps_rule *r, int worker, const td__ps_push *p)
{
    enum { NEWEST = 8 }; /* one of so many */
    td__ps_seat *seat = &r->seats[worker];
    double took = 1e-9 * (double)(td__ps_inbox_came_ns(r->inbox, worker) - seat->since_ns);
    uint64_t slowest = td__ps_slowest(r);
    if (!seat->overdue)
        r->batch_seconds += r->batch_seconds > 0 ? (took - r->batch_seconds) / NEWEST : took;
    seat->clock++;
    if (seat->overdue && slowest != UINT64_MAX && slowest > seat->clock)
        seat->clock = slowest; /* the others have not waited, and do not now */
    seat->afresh = seat->overdue;
    seat->busy = seat->overdue = false;
    seat->pushed = p->grads;
    seat->times = p->times;
    r->stop = r->stop || p->stop;
    td__ps_inbox_taken(r->inbox, worker);
}

/* How long a batch may take before its worker counts as overdue, in seconds. */
static double overdue_s(double batch_seconds)
{
    double most = OVERDUE_TIMES * batch_seconds;
    return most > OVERDUE_S ? most : OVERDUE_S;
}

/* How long another server waits for a push that has come here: its worker may be late with it as
 * with a batch. All else waits for that server meanwhile. */
static void limit(const td__ps_rule *r, td__ps_command *c)
{
    if (c->worker < 0 || r->copies)
        return;
    uint64_t came_ns = td__ps_inbox_came_ns(r->inbox, c->worker);
    double took = 1e-9 * (double)(came_ns - r->seats[c->worker].since_ns);
    uint64_t most = td__comm_timeout_ms(r->base.x.comm);
    double ms = 1000 * overdue_s(r->batch_seconds > 0 ? r->batch_seconds : took);
    c->within_ms = ms < (double)most ? (uint64_t)ms : most;
}

static td_status update(td__ps_rule *r, td__ps_command *c)
{
    td__step_engine *e = r->base.engine;
    limit(r, c);
    c->verb = TD__PS_APPLY;
    c->batches = td__step_batches(e);
    c->rows = td__step_rows(e);
    c->last_rows = td__step_last_rows(e);
    TD_TRY(command(r, c));
    TD_TRY(td__ps_copy_out(r));
    TD_TRY(td__ps_apply(r, c));
    td__ps_copy_done(r);
    r->version++;
    return TD_OK;
}

/* A step without a push of dense gradients: the other servers count it too. */
static td_status pass(td__ps_rule *r, td__ps_command *c)
{
    c->verb = TD__PS_NOTE;
    c->batches = 1;
    if (!r->copies && !r->tables)
        return TD_OK;
    TD_TRY(command(r, c));
    TD_TRY(td__ps_copy_out(r));
    TD_TRY(td__ps_apply(r, c));
    td__ps_copy_done(r);
    return TD_OK;
}

/* Idle workers do what others are too late with; not where pushes are those of a replay. A worker
 * that adds up the gradients of several batches loses those that it has not pushed. */
static td_status give_again(td__ps_rule *r)
{
    double most = overdue_s(r->batch_seconds);
    int idle = 0;
    for (int w = 0; w < r->workers; w++)
        idle += !r->seats[w].busy && !r->seats[w].lost;
    if (r->policy->together || r->replay || r->batch_seconds <= 0 || !idle)
        return TD_OK;
    for (int w = 0; w < r->workers; w++) {
        td__ps_seat *s = &r->seats[w];
        double late = 1e-9 * (double)(td__clock_ns() - s->since_ns);
        if (!s->busy || s->overdue || late < most)
            continue;
        TD_LOG(
            WARN, TRAIN,
            "rank %d has had step %llu for %.1f s: it is given to another worker, and rank %d is "
            "left out until it has caught up",
            r->lanes[w].rank, (unsigned long long)s->step, late, r->lanes[w].rank);
        s->overdue = true;
        r->again[r->n_again++] = s->step;
    }
    return r->n_again ? deal(r) : TD_OK;
}

static td_status look_for_push(td__ps_rule *r, int only, td__deadline until, int *worker,
                               td__ps_push *p, const double **numbers)
{
    for (;;) {
        uint64_t now = td__clock_ns();
        td__deadline look = td__deadline_in_ms(LOOK_MS);
        td_status st =
            td__ps_inbox_next(r->inbox, only, look < until ? look : until, worker, p, numbers);
        if (st == TD_ETIMEDOUT && td__clock_ns() - now > STOOD_STILL_NS)
            until = deadline(r); /* this process was stopped, and is late itself */
        if (st != TD_ETIMEDOUT || td__deadline_passed(until))
            return st;
        TD_TRY(servers_there(r));
        TD_TRY(serve_clients(r));
        /* Answers may have taken long: who has pushed meanwhile is not late. */
        st = td__ps_inbox_next(r->inbox, only, td__deadline_in_ms(0), worker, p, numbers);
        if (st != TD_ETIMEDOUT)
            return st;
        if (only < 0)
            TD_TRY(give_again(r));
    }
}

/* The next push, or the first of these that fails: a worker, another server. */
static td_status await_push(td__ps_rule *r, int only, td__deadline until, int *worker,
                            td__ps_push *p, const double **numbers)
{
    bool vigil = r->peers && !r->base.x.elastic;
    td__comm_says(r->base.x.comm, TD_PHASE_COMM, r->begun, "pushes of workers");
    if (vigil)
        td__comm_await(r->peers, true);
    td__ps_waits(r, "pushes of workers");
    td_status st = look_for_push(r, only, until, worker, p, numbers);
    r->timed_out = st == TD_ETIMEDOUT;
    td__ps_waits(r, NULL);
    if (vigil)
        td__comm_await(r->peers, false);
    td__comm_says(r->base.x.comm, TD_PHASE_COMPUTE, r->begun, "pushes");
    return st;
}

/* A push that is not used. */
static td_status leave(td__ps_rule *r, int worker, const td__ps_push *p)
{
    td__ps_command c = {.verb = TD__PS_DROP, .worker = worker, .step = p->step};
    limit(r, &c);
    if (p->grads)
        TD_TRY(command(r, &c));
    if (r->seats[worker].overdue)
        td__ps_lose_owed(r, worker);
    settle(r, worker, p);
    return TD_OK;
}

/* Everybody's part of the step. */
static td_status step_together(td__ps_rule *r, double lr)
{
    size_t n;
    double *numbers = td__step_numbers(r->base.engine, &n);
    numbers[TD_REQUESTS] = 0; /* of worker 0, where this rank has said what it took */
    uint64_t begin_ns = td__clock_ns();
    for (int w = 0; w < r->workers; w++) {
        const double *more;
        td__ps_push p;
        int worker;
        TD_TRY(await_push(r, w, deadline(r), &worker, &p, &more));
        if ((size_t)p.n_numbers != n || p.step != r->begun)
            return TD_FAIL(TD_EPROTO, "rank %d pushes %d numbers of step %llu", r->lanes[w].rank,
                           p.n_numbers, (unsigned long long)p.step);
        for (size_t i = 0; i < n; i++)
            numbers[i] += more[i];
        r->pushed[w] = p;
    }
    td__step_times_of(r->base.engine)->wait = 1e-9 * (double)(td__clock_ns() - begin_ns);
    td__step_span(r->base.engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
    td__step_result now; /* its loss is known before the update */
    td__step_done(r->base.engine, &now);
    TD_TRY(update(r, &(td__ps_command){.worker = -1,
                                       .step = r->begun,
                                       .samples = td__step_rows(r->base.engine),
                                       .lr = lr,
                                       .loss = now.loss}));
    for (int w = 0; w < r->workers; w++)
        settle(r, w, &r->pushed[w]);
    return TD_OK;
}

/* Whose push the replay has in this step; -1: there is no replay. */
static td_status find_only(td__ps_rule *r, int *only)
{
    *only = -1;
    if (!r->replay)
        return TD_OK;
    TD_TRY(td__backup_sets_get(r->replay, r->begun, r->only));
    for (int w = 0; w < r->workers; w++)
        if (r->only[r->lanes[w].rank])
            *only = w;
    if (*only < 0 || !td__ps_inbox_busy(r->inbox, *only))
        return TD_FAIL(TD_EINVAL,
                       "%s: step %llu applies a push that no active worker has sent: the record is "
                       "of a run with another rule or other numbers of workers and servers",
                       r->base.x.config->replay, (unsigned long long)r->begun);
    return TD_OK;
}

/* The next push; workers that are lost are left out. */
static td_status next_push(td__ps_rule *r, int only, int *worker, td__ps_push *p)
{
    const double *numbers;
    for (;;) {
        if (r->n_lost == r->workers)
            return TD_FAIL(TD_EPEER, "all %d workers are lost", r->workers);
        td_status st = await_push(r, only, deadline(r), worker, p, &numbers);
        if (!st && r->seats[*worker].overdue) {
            TD_TRY(leave(r, *worker, p));
            TD_LOG(WARN, TRAIN, "rank %d has caught up", r->lanes[*worker].rank);
            TD_TRY(deal(r));
            continue;
        }
        if (st != TD_EPEER || *worker < 0)
            return st;
        TD_TRY(servers_there(r));
        lose(r, *worker);
        if (*worker == only || r->n_lost == r->workers)
            return TD_FAIL(TD_EPEER, "%s", td_last_error());
        TD_TRY(deal(r));
    }
}

static td_status step_alone(td__ps_rule *r, int *worker, td__ps_push *p)
{
    int only;
    TD_TRY(find_only(r, &only));
    uint64_t begin_ns = td__clock_ns();
    TD_TRY(next_push(r, only, worker, p));
    td__step_times_of(r->base.engine)->wait = 1e-9 * (double)(td__clock_ns() - begin_ns);
    td__step_span(r->base.engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
    td__ps_command c = {.worker = *worker, .step = p->step, .samples = p->rows, .loss = p->loss};
    if (p->grads) {
        uint64_t staleness = r->version - r->seats[*worker].version;
        double rate = r->policy->rate ? r->policy->rate(r, staleness) : 1;
        /* The rate of the order, not of now: with one worker they are the same. */
        c.lr = r->seats[*worker].lr * rate;
        r->stale_sum += staleness;
        r->stale_most = staleness > r->stale_most ? staleness : r->stale_most;
        r->noted_most = staleness > r->noted_most ? staleness : r->noted_most;
        r->pushes++;
        TD_TRY(update(r, &c));
    } else {
        TD_TRY(pass(r, &c));
    }
    td__ps_set_done(r, p->step);
    r->seats[*worker].owed = p->grads ? 0 : r->seats[*worker].owed + 1;
    settle(r, *worker, p);
    return TD_OK;
}

td_status td__ps_batch(td__sync *s, const td__batch *batch)
{
    td__ps_rule *r = (td__ps_rule *)s;
    if (r->server >= 0)
        return td__step_batch_by(s->engine, batch, td__ps_no_batch, NULL);
    return r->team ? td__ps_team_batch(r, batch) : td__step_batch(s->engine, batch);
}

td_status td__ps_step(td__sync *s, double lr, td__step_result *out)
{
    td__ps_rule *r = (td__ps_rule *)s;
    td__ps_push p = {0};
    int worker = -1;
    TD_TRY(r->policy->together ? step_together(r, lr) : step_alone(r, &worker, &p));
    td__step_done(s->engine, out);
    out->seconds = NULL;
    out->requests[TD_REQUEST_STOP] = r->stop || s->x.host.stopping(s->x.host.user);
    out->requests[TD_REQUEST_CHANGE] += r->change;
    td__ps_put_off(r, out);
    if (worker >= 0) {
        r->counted[0] = r->lanes[worker].rank;
        out->counted = r->counted;
        out->n_counted = 1;
        out->counted_rows = p.rows;
        out->loss = p.loss;
    }
    return TD_OK;
}

/* ---- Meetings -------------------------------------------------------------------------------- */

/* Until when a push is waited for that is not used: who is overdue by then counts as lost. Elastic
 * ranks have agents that look after those who stand still. */
static td__deadline patience(const td__ps_rule *r, int worker)
{
    const td__ps_seat *s = &r->seats[worker];
    double late = 1e-9 * (double)(td__clock_ns() - s->since_ns),
           left = overdue_s(r->batch_seconds) - late;
    if (r->policy->together || r->base.x.elastic)
        return deadline(r);
    td__deadline until = td__deadline_in_ms(left > 0 ? (uint32_t)(1000 * left) : 0);
    return until < deadline(r) ? until : deadline(r);
}

/* What is still under way is not used. */
static td_status drain(td__ps_rule *r)
{
    for (int w = 0; w < r->workers; w++) {
        const double *numbers;
        td__ps_push p;
        int worker;
        if (!r->seats[w].busy)
            continue;
        td_status st = await_push(r, w, patience(r, w), &worker, &p, &numbers);
        if (st == TD_ETIMEDOUT && !r->policy->together && !r->base.x.elastic) {
            lose(r, w);
            continue;
        }
        if (st == TD_EPEER && worker >= 0 && !r->policy->together) {
            TD_TRY(servers_there(r));
            lose(r, worker);
            w = worker == w ? w : w - 1; /* it may have been another */
            continue;
        }
        TD_TRY(st);
        TD_TRY(leave(r, w, &p));
    }
    return TD_OK;
}

/* Workers that have gone while they had nothing to do. */
static void lose_idle(td__ps_rule *r)
{
    for (int w = 0; !r->policy->together && w < r->workers; w++)
        if (!r->seats[w].lost && td__comm_cause(r->lanes[w].link) == TD_EPEER)
            lose(r, w);
}

/* The generation is over, not the run. */
static td_status tell_resize(td__ps_rule *r)
{
    for (int w = 0; w < r->workers; w++) {
        td_status st =
            r->seats[w].lost ? TD_OK : give(r, w, &(td__ps_order){.end = TD__PS_RESIZED});
        if (st != TD_EPEER || r->policy->together)
            TD_TRY(st);
    }
    return command(r, &(td__ps_command){.verb = TD__PS_END, .end = TD__PS_RESIZED});
}

static td_status tell_end(td__ps_rule *r)
{
    td__sync *s = &r->base;
    lose_idle(r);
    if (s->x.elastic && r->n_lost > 0) /* the ranks of the next generation meet */
        return TD_FAIL(TD_EPEER, "%d of %d workers are lost at the end", r->n_lost, r->workers);
    s->alone = r->n_lost > 0;
    for (int w = 0; w < r->workers; w++) {
        td__ps_order end = {.end = s->alone ? TD__PS_ALONE : TD__PS_ENDS};
        td_status st = r->seats[w].lost ? TD_OK : give(r, w, &end);
        if (st && s->x.elastic)
            return st;
        if (st == TD_EPEER && !r->policy->together) { /* who was to meet, finds that it cannot */
            lose(r, w);
            s->alone = true;
        } else if (st && !s->alone) { /* else it has ended in another way */
            return st;
        }
    }
    return command(
        r, &(td__ps_command){.verb = TD__PS_END, .end = s->alone ? TD__PS_ALONE : TD__PS_ENDS});
}

td_status td__ps_meet(td__sync *s, td__sync_meet why)
{
    td__ps_rule *r = (td__ps_rule *)s;
    if (why == TD_MEET_BEGIN || r->server != 0)
        return TD_OK;
    if (why == TD_MEET_END || why == TD_MEET_RESIZE)
        TD_TRY(drain(r));
    TD_TRY(command(r, &(td__ps_command){.verb = TD__PS_FETCH}));
    TD_TRY(td__ps_fetch(r, true)); /* the others have applied all pushes then, of rows too */
    TD_TRY(td__ps_tables_save(r->tables, r->begun));
    if (why != TD_MEET_RESIZE && why != TD_MEET_END)
        return TD_OK;
    td__ps_tell_owed(r);
    TD_TRY(why == TD_MEET_RESIZE ? tell_resize(r) : tell_end(r));
    if (why == TD_MEET_END && !s->alone)
        TD_TRY(td__ps_end_all(r));
    r->parted = true;
    return TD_OK;
}

void td__ps_note(td__sync *s, td__rank_stats *stats)
{
    td__ps_rule *r = (td__ps_rule *)s;
    for (int w = 0; w < r->workers; w++)
        td__rank_stats_put(stats, r->lanes[w].rank, &r->seats[w].times);
}
