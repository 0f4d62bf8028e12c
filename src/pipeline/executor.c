/* executor.c -- see executor.h.
 *
 * The operations of the compute lane are run in order by the calling thread. Before each, messages
 * that can be posted are, in the order of their lanes; a communicator carries out what was posted
 * on a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "graph/phases.h"
#include "graph/runner.h"
#include "pipeline/executor_impl.h"

/* Values with the same ends that are made in the same phase are one message. */
static int most_values(const td__cut *cut)
{
    int most = 1;
    for (int i = 0; i < cut->n_edges; i++) {
        int n = 0;
        for (int k = 0; k < cut->n_edges; k++)
            n += cut->edges[k].from == cut->edges[i].from && cut->edges[k].to == cut->edges[i].to &&
                 cut->edges[k].made == cut->edges[i].made;
        most = n > most ? n : most;
    }
    return most;
}

td_status td__executor_create(const td__executor_opts *o, td__executor **out)
{
    td__executor *x = *out = td__calloc(1, sizeof *x);
    if (!x)
        return TD_FAIL(TD_ENOMEM, "no memory for the executor of a pipeline");
    x->o = *o;
    x->most = most_values(o->cut);
    return TD_OK;
}

void td__executor_destroy(td__executor *x)
{
    if (!x)
        return;
    td__free(x->ops);
    td__free(x->works);
    td__free(x->leaves);
    td__free(x->given);
    td__free(x);
}

/* ---- Micro-batches --------------------------------------------------------------------------- */

int td__executor_batch_of(const td__executor *x, uint32_t m)
{
    return (int)m / x->l.each;
}

static const td__executor_given *given_of(const td__executor *x, uint32_t m)
{
    return &x->given[td__executor_batch_of(x, m)];
}

/* Of a micro-batch of the list in its batch. */
static int place_of(const td__executor *x, uint32_t m)
{
    return given_of(x, m)->b.begin + (int)m % x->l.each;
}

static int64_t first_row(const td__executor *x, uint32_t m)
{
    const td__executor_given *g = given_of(x, m);
    return td__micro_batch_begin(g->rows, g->b.micro_batches, place_of(x, m));
}

int64_t td__executor_rows(const td__executor *x, uint32_t m)
{
    const td__executor_given *g = given_of(x, m);
    return td__micro_batch_begin(g->rows, g->b.micro_batches, place_of(x, m) + 1) - first_row(x, m);
}

/* While its batch is the step's. */
static double share_of(const td__executor *x, uint32_t m)
{
    const td__executor_batch *b = &given_of(x, m)->b;
    return td__step_share(b->engine, b->number, first_row(x, m), td__executor_rows(x, m));
}

/* Of a micro-batch in its step. */
int td__executor_number(const td__executor *x, uint32_t m)
{
    const td__executor_batch *b = &given_of(x, m)->b;
    return b->number * b->micro_batches + place_of(x, m);
}

td__chunks *td__executor_chunks(const td__executor *x, uint32_t m)
{
    const td__executor_given *g = given_of(x, m);
    return g->b.chunks ? g->b.chunks : x->o.chunks;
}

td_status td__executor_runner(td__executor *x, int chunk, uint32_t m, td_runner **out)
{
    int slots = given_of(x, m)->b.slots;
    slots = slots ? slots : x->l.slots[chunk];
    TD_TRY(td__chunks_runner(td__executor_chunks(x, m), td__executor_rows(x, m), chunk,
                             (int)m % slots, out));
    td__runner_keep_edges(*out, x->l.direct);
    return TD_OK;
}

static td__partial *leaf_of(td__executor *x, int chunk, uint32_t m)
{
    return &x->leaves[chunk * x->l.each * x->l.batches + (int)m];
}

static bool is_last(const td__cut *cut, int chunk)
{
    return chunk == cut->n_pieces - 1;
}

/* Inputs, random numbers' key and a block for the gradients. */
static td_status begin_forward(td__executor *x, int chunk, uint32_t m, td_runner *r)
{
    const td__executor_batch *b = &given_of(x, m)->b;
    td__partial *leaf = leaf_of(x, chunk, m);
    *leaf = (td__partial){.tree = {td__executor_number(x, m), 0}, .weight = (float)share_of(x, m)};
    TD_TRY(td__grad_hold(x->o.blocks, leaf));
    td__runner_set_grads(r, leaf->dense);
    return td__micro_batch_feed(x->o.set, r, b->batch, first_row(x, m) - b->batch->here.begin,
                                td__executor_rows(x, m));
}

/* What chunks of this same rank have made for this one; what came from others is there. */
static td_status take_inputs(td__executor *x, const td__cut *cut, int chunk, td_run_phase phase,
                             uint32_t m, td_runner *r)
{
    const td__piece *piece = &cut->pieces[chunk];
    for (int i = 0; i < piece->n_in; i++) {
        const td__edge *e = &cut->edges[piece->in[i]];
        td_runner *maker;
        if (e->needed != phase)
            continue;
        if (td__chunks_own(x->o.chunks, e->from)) {
            TD_TRY(td__executor_runner(x, e->from, m, &maker));
            TD_TRY(td__runner_pass_edge(maker, piece->in[i], r, e->name));
        }
        if (phase != TD_RUN_FORWARD)
            td__runner_input_set(r, e->name);
    }
    return TD_OK;
}

static td_status run_phase(td__executor *x, const td__plan_op *o)
{
    td_run_phase phase = (td_run_phase)o->phase;
    uint32_t m = o->micro_batch;
    const td__executor_given *g = given_of(x, m);
    const td__cut *cut;
    td_runner *r;
    if (!td__executor_rows(
            x, m)) { /* an empty micro-batch has no gradients: its place in the tree is empty */
        td__partial none = {.tree = {td__executor_number(x, m), 0}};
        if (phase == TD_RUN_WEIGHT)
            td__grad_push(x->o.blocks, &x->o.stacks[o->chunk], &none, NULL);
        return TD_OK;
    }
    TD_TRY(td__chunks_cut(td__executor_chunks(x, m), td__executor_rows(x, m), &cut));
    TD_TRY(td__executor_runner(x, o->chunk, m, &r));
    if (phase == TD_RUN_FORWARD)
        TD_TRY(begin_forward(x, o->chunk, m, r));
    TD_TRY(take_inputs(x, cut, o->chunk, phase, m, r));
    TD_TRY(td__runner_run_phase(r, phase,
                                (td_run_key){.seed = td__micro_batch_options(x->o.set)->seed,
                                             .step = g->step,
                                             .micro_batch = (uint32_t)td__executor_number(x, m)}));
    if (phase == TD_RUN_FORWARD && is_last(cut, o->chunk))
        g->b.losses[place_of(x, m)] = share_of(x, m) * (double)td_runner_loss(r);
    if (phase == TD_RUN_WEIGHT) {
        td__grad_push(x->o.blocks, &x->o.stacks[o->chunk], leaf_of(x, o->chunk, m), r);
        leaf_of(x, o->chunk, m)->block = NULL;
    }
    return TD_OK;
}

/* ---- A list ---------------------------------------------------------------------------------- */

static td_status make_room(td__executor *x, int n, int leaves)
{
    if (n > x->room) {
        td__free(x->ops);
        td__free(x->works);
        x->ops = td__calloc((size_t)n, sizeof *x->ops);
        x->works = td__calloc((size_t)n * (size_t)x->most, sizeof *x->works);
        x->room = x->ops && x->works ? n : 0;
    }
    if (leaves > x->n_leaves) {
        td__free(x->leaves);
        x->leaves = td__calloc((size_t)leaves, sizeof *x->leaves);
        x->n_leaves = x->leaves ? leaves : 0;
    }
    if (x->l.batches > x->given_room) {
        td__free(x->given);
        x->given = td__calloc((size_t)x->l.batches, sizeof *x->given);
        x->given_room = x->given ? x->l.batches : 0;
    }
    return n > x->room || leaves > x->n_leaves || x->l.batches > x->given_room
               ? TD_FAIL(TD_ENOMEM, "no memory for a list of %d operations", n)
               : TD_OK;
}

td_status td__executor_open(td__executor *x, const td__executor_list *l)
{
    x->l = *l;
    x->list = &l->plan->roles[x->o.channels->stage];
    x->at = x->fed = 0;
    x->closing = false;
    int n = x->list->n, leaves = l->plan->n_chunks * l->each * l->batches;
    TD_TRY(make_room(x, n, leaves));
    for (int i = 0; i < n; i++) {
        bool other = td__executor_is_other(&x->list->ops[i]);
        x->ops[i] = (td__executor_op){
            .at = x->works + (size_t)i * (size_t)x->most, .posted = other, .done = other};
    }
    for (int i = 0; i < leaves; i++)
        x->leaves[i] = (td__partial){.weight = 0};
    for (int lane = 0; lane < TD_LANES; lane++)
        x->next[lane] = x->finished[lane] = 0;
    return td__measure_begin(x->o.measure, x->list, l->step);
}

/* Packs the weights of a stage that waits for its first values anyway. */
static td_status prepare_ahead(td__executor *x, int i)
{
    const td__plan_op *o = &x->list->ops[i];
    td_runner *r;
    bool waits = false;
    for (int k = 0; k < TD__PLAN_AFTER; k++)
        waits = waits || (o->after[k] != TD__PLAN_NONE && !x->ops[o->after[k]].done);
    if (!waits || o->phase != TD_RUN_FORWARD || o->micro_batch || !td__executor_rows(x, 0))
        return TD_OK;
    TD_TRY(td__executor_runner(x, o->chunk, 0, &r));
    uint64_t begin = td__clock_ns();
    td__runner_prepare_ahead(r);
    td__measure_ahead(x->o.measure, i, begin, td__clock_ns());
    return TD_OK;
}

static td_status run_op(td__executor *x, int i)
{
    const td__plan_op *o = &x->list->ops[i];
    if (o->kind == TD_PLAN_UPDATE)
        return x->o.update ? x->o.update(x->o.user, td__executor_batch_of(x, o->micro_batch))
                           : TD_OK;
    TD_TRY(td__executor_post(x));
    td__executor_look(x);
    TD_TRY(prepare_ahead(x, i));
    TD_TRY(td__executor_wait(x, o));
    uint64_t begin = td__clock_ns();
    TD_TRY(run_phase(x, o));
    td__measure_op(x->o.measure, i, td__executor_number(x, o->micro_batch), begin, td__clock_ns());
    return TD_OK;
}

/* Until the next batch is needed; forward_only: until the last forward of the last one given. */
static td_status run_list(td__executor *x, bool forward_only)
{
    for (bool last = false; x->at < x->list->n && !last; x->at++) {
        const td__plan_op *o = &x->list->ops[x->at];
        if (o->kind != TD_PLAN_RUN && o->kind != TD_PLAN_UPDATE)
            continue;
        if (!td__executor_was_given(x, o)) {
            if (!x->closing)
                break;
            continue;
        }
        TD_TRY(run_op(x, x->at));
        x->ops[x->at].done = true;
        last = forward_only && o->kind == TD_PLAN_RUN && o->phase == TD_RUN_FORWARD &&
               (int)o->micro_batch + 1 == x->fed * x->l.each;
    }
    return td__executor_post(x);
}

/* What is under way ends. After a failure nobody may wait for messages of this rank. */
static td_status end_list(td__executor *x, td_status st)
{
    if (st)
        td__channels_abort((td__channels *)x->o.channels, td_last_error());
    uint64_t begin = td__clock_ns();
    for (int i = 0; i < x->list->n && !(st && x->l.direct); i++)
        if (x->ops[i].posted && !x->ops[i].done) {
            td_status ended = td__executor_finish(x, i);
            st = st ? st : ended;
        }
    td__measure_end(x->o.measure);
    for (int i = 0; i < x->n_leaves; i++)
        td__grad_unbind(x->o.blocks, &x->leaves[i]);
    x->wait += 1e-9 * (double)(td__clock_ns() - begin);
    x->at = x->list->n;
    return st;
}

static void give(td__executor *x, const td__executor_batch *b)
{
    TD_ASSERT(x->fed < x->l.batches && b->end - b->begin == x->l.each, "batch %d of %d", x->fed,
              x->l.batches);
    x->given[x->fed++] =
        (td__executor_given){.b = *b, .rows = b->batch->rows, .step = td__step_number(b->engine)};
}

td_status td__executor_feed(td__executor *x, const td__executor_batch *b)
{
    give(x, b);
    td_status st = run_list(x, true);
    return st ? end_list(x, st) : TD_OK;
}

td_status td__executor_go_on(td__executor *x)
{
    td_status st = run_list(x, false);
    return st ? end_list(x, st) : TD_OK;
}

td_status td__executor_close(td__executor *x)
{
    x->closing = true;
    return end_list(x, run_list(x, false));
}

td_status td__executor_run(td__executor *x, const td__executor_list *l, const td__executor_batch *b)
{
    TD_TRY(td__executor_open(x, l));
    give(x, b);
    return td__executor_close(x);
}

void td__executor_spent(td__executor *x, double *wait, uint64_t *sent)
{
    *wait = x->wait;
    *sent = x->sent;
    x->wait = 0;
    x->sent = 0;
}
