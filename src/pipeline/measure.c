/* measure.c -- see measure.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/measure.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "ops/phase.h"

enum { SHOWN_NS = 2000 }; /* shorter waits are not worth a place in a trace */

typedef struct timed {
    double begin, end; /* seconds from the batch's beginning */
} timed;

struct td__measure {
    int chunks, stage;
    td__span_log *spans;
    double *took; /* (2, 3 chunks) seconds by chunk and phase; how often */
    double busy, wall;
    timed *ops; /* (room) of the last batch */
    int room;
    /* The batch under way. */
    const td__plan_list *list;
    uint32_t step;
    uint64_t began_ns, batches;
    uint64_t lane_ns[TD_LANES]; /* when the lane's last message ended */
    /* The report's. */
    double *idle, *peak;
    td__pipeline_span *span;
};

td_status td__measure_create(int chunks, int stage, td__span_log *spans, td__measure **out)
{
    td__measure *m = *out = td__calloc(1, sizeof *m);
    if (m) {
        *m = (td__measure){.chunks = chunks, .stage = stage, .spans = spans};
        m->took = td__calloc(6 * (size_t)chunks, sizeof *m->took);
    }
    return m && m->took ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the times of a pipeline");
}

void td__measure_destroy(td__measure *m)
{
    if (!m)
        return;
    td__free(m->took);
    td__free(m->ops);
    td__free(m->idle);
    td__free(m->peak);
    td__free(m->span);
    td__free(m);
}

/* ---- A batch --------------------------------------------------------------------------------- */

td_status td__measure_begin(td__measure *m, const td__plan_list *list, uint32_t step)
{
    if (list->n > m->room) {
        td__free(m->ops);
        m->ops = td__calloc((size_t)list->n, sizeof *m->ops);
        m->room = m->ops ? list->n : 0;
        if (!m->ops)
            return TD_FAIL(TD_ENOMEM, "no memory for the times of %d operations", list->n);
    }
    memset(m->ops, 0, (size_t)list->n * sizeof *m->ops);
    if (m->batches++ == 1) {
        memset(m->took, 0, 6 * (size_t)m->chunks * sizeof *m->took);
        m->busy = m->wall = 0;
    }
    m->list = list;
    m->step = step;
    m->began_ns = td__clock_ns();
    for (int l = 0; l < TD_LANES; l++)
        m->lane_ns[l] = m->began_ns;
    return TD_OK;
}

void td__measure_end(td__measure *m)
{
    m->wall += 1e-9 * (double)(td__clock_ns() - m->began_ns);
}

static void add_span(td__measure *m, td__span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                     const td__plan_op *o, int number)
{
    td__span_log_add(m->spans, &(td__span){.begin_ns = begin_ns,
                                           .end_ns = end_ns,
                                           .step = m->step,
                                           .kind = (uint16_t)kind,
                                           .lane = (uint16_t)(o ? o->chunk : 0),
                                           .id = number,
                                           .stage = (uint32_t)m->stage,
                                           .kib = o ? (uint32_t)(o->nbytes >> 10) : 0});
}

/* The messages of a lane come one after the other. */
static void note_message(td__measure *m, const td__plan_op *o, int number, uint64_t begin_ns,
                         uint64_t end_ns)
{
    bool up = o->lane == TD_LANE_SEND_UP || o->lane == TD_LANE_RECV_UP;
    uint64_t from = begin_ns > m->lane_ns[o->lane] ? begin_ns : m->lane_ns[o->lane];
    m->lane_ns[o->lane] = end_ns > from ? end_ns : from;
    add_span(m,
             o->kind == TD_PLAN_SEND ? (up ? TD_SPAN_SEND_UP : TD_SPAN_SEND_DOWN)
             : up                    ? TD_SPAN_RECV_UP
                                     : TD_SPAN_RECV_DOWN,
             from, m->lane_ns[o->lane], o, number);
}

void td__measure_op(td__measure *m, int op, int number, uint64_t begin_ns, uint64_t end_ns)
{
    static const td__span_kind KINDS[TD_RUN_PHASE_COUNT] = {TD_SPAN_FORWARD, TD_SPAN_BACKWARD,
                                                            TD_SPAN_WEIGHT};
    const td__plan_op *o = &m->list->ops[op];
    m->ops[op] =
        (timed){1e-9 * (double)(begin_ns - m->began_ns), 1e-9 * (double)(end_ns - m->began_ns)};
    if (o->kind != TD_PLAN_RUN) {
        if (m->spans)
            note_message(m, o, number, begin_ns, end_ns);
        return;
    }
    double took = 1e-9 * (double)(end_ns - begin_ns);
    size_t at = 3 * (size_t)o->chunk + o->phase;
    m->took[at] += took;
    m->took[3 * (size_t)m->chunks + at] += 1;
    m->busy += took;
    if (m->spans)
        add_span(m, KINDS[o->phase], begin_ns, end_ns, o, number);
}

void td__measure_ahead(td__measure *m, int op, uint64_t begin_ns, uint64_t end_ns)
{
    const td__plan_op *o = &m->list->ops[op];
    double took = 1e-9 * (double)(end_ns - begin_ns);
    m->took[3 * (size_t)o->chunk + o->phase] += took;
    m->busy += took;
}

void td__measure_idle(td__measure *m, uint64_t begin_ns, uint64_t end_ns)
{
    if (m->spans && end_ns - begin_ns > SHOWN_NS)
        add_span(m, TD_SPAN_BUBBLE, begin_ns, end_ns, NULL, 0);
}

/* ---- The report ------------------------------------------------------------------------------ */

static td_status idle_share(td__plan *plan, double *out)
{
    td__plan_times times;
    TD_TRY(td__plan_time(plan, &(td__plan_link){0}, &times));
    *out = td__plan_bubble(&times);
    td__plan_times_fini(&times);
    return TD_OK;
}

/* all: seconds by chunk and phase, and how often; NULL: all alike. */
static void give_times(td__plan *plan, int chunks, const double *all)
{
    for (int r = 0; r < plan->mesh.size[TD_AXIS_PIPELINE]; r++)
        for (int i = 0; i < plan->roles[r].n; i++) {
            td__plan_op *o = &plan->roles[r].ops[i];
            size_t at = 3 * (size_t)o->chunk + o->phase;
            double times = all ? all[3 * (size_t)chunks + at] : 1;
            if (o->kind == TD_PLAN_RUN)
                o->seconds = times > 0 ? (all ? all[at] : 1e-3) / times : 0;
        }
}

/* The last batch's runs, stage by stage. */
static void list_spans(td__measure *m, const td__plan *plan, const double *times,
                       td__pipeline_report *out)
{
    for (int r = 0, k = 0; r < plan->mesh.size[TD_AXIS_PIPELINE]; r++)
        for (int i = 0; i < plan->roles[r].n; i++, k++) {
            const td__plan_op *o = &plan->roles[r].ops[i];
            if (o->kind == TD_PLAN_RUN && times[2 * k + 1] > 0) /* of a whole window, or of less */
                m->span[out->n_spans++] = (td__pipeline_span){.stage = r,
                                                              .chunk = o->chunk,
                                                              .micro_batch = (int)o->micro_batch,
                                                              .phase = o->phase,
                                                              .begin = times[2 * k],
                                                              .end = times[2 * k + 1]};
        }
    out->span = m->span;
}

/* Vectors of which each rank has its own part, and 0 elsewhere: seconds by chunk and phase, and how
 * often; by stage: busy, of all, bytes; times of the last batch's operations. */
enum { BY_STAGE = 3 };

static td_status sum_up(td_comm *comm, double *v, size_t n)
{
    return td_allreduce(comm, v, v, n, TD_F64, TD_REDUCE_SUM, NULL);
}

static void fill_in(const td__measure *m, const td__plan *plan, int n_times, double *v)
{
    int stages = plan->mesh.size[TD_AXIS_PIPELINE], first = 0;
    size_t chunks = 6 * (size_t)m->chunks;
    memcpy(v, m->took, chunks * sizeof *v);
    v[chunks + (size_t)m->stage] = m->busy;
    v[chunks + (size_t)(stages + m->stage)] = m->wall;
    v[chunks + (size_t)(2 * stages + m->stage)] = (double)td__memory_read().peak;
    for (int r = 0; r < m->stage; r++)
        first += plan->roles[r].n;
    double *times = v + chunks + BY_STAGE * (size_t)stages + 2 * (size_t)first;
    for (int i = 0; n_times && m->list == &plan->roles[m->stage] && i < m->list->n && i < m->room;
         i++) {
        times[2 * i] = m->ops[i].begin;
        times[2 * i + 1] = m->ops[i].end;
    }
}

static td_status read_out(td__measure *m, td__plan *plan, int n_times, const double *v,
                          td__pipeline_report *out)
{
    int stages = plan->mesh.size[TD_AXIS_PIPELINE];
    const double *busy = v + 6 * (size_t)m->chunks, *wall = busy + stages, *peak = wall + stages;
    double all = 0, longest = 0;
    for (int s = 0; s < stages; s++) {
        all += busy[s];
        longest = wall[s] > longest ? wall[s] : longest;
    }
    for (int s = 0; s < stages && longest > 0; s++)
        m->idle[s] = 1 - busy[s] / longest;
    memcpy(m->peak, peak, (size_t)stages * sizeof *peak);
    out->idle = m->idle;
    out->peak = m->peak;
    out->measured = longest > 0 ? 1 - all / (longest * stages) : 0;
    if (n_times)
        list_spans(m, plan, peak + stages, out);
    give_times(plan, m->chunks, NULL);
    TD_TRY(idle_share(plan, &out->even));
    give_times(plan, m->chunks, v);
    return idle_share(plan, &out->expected);
}

td_status td__measure_report(td__measure *m, td_comm *comm, td__plan *plan,
                             td__pipeline_report *out)
{
    int stages = plan->mesh.size[TD_AXIS_PIPELINE], ops = 0;
    for (int r = 0; r < stages; r++)
        ops += plan->roles[r].n;
    int n_times = ops <= 2 * TD__PIPELINE_SPANS ? 2 * ops : 0;
    size_t n = 6 * (size_t)m->chunks + BY_STAGE * (size_t)stages + (size_t)n_times;
    td__free(m->idle);
    td__free(m->peak);
    td__free(m->span);
    double *v = td__calloc(n, sizeof *v);
    m->idle = td__calloc((size_t)stages, sizeof *m->idle);
    m->peak = td__calloc((size_t)stages, sizeof *m->peak);
    m->span = td__calloc((size_t)ops + 1, sizeof *m->span);
    td_status st = v && m->idle && m->peak && m->span
                       ? TD_OK
                       : TD_FAIL(TD_ENOMEM, "no memory for a pipeline's report");
    if (!st) {
        fill_in(m, plan, n_times, v);
        st = sum_up(comm, v, n);
    }
    if (!st)
        st = read_out(m, plan, n_times, v, out);
    td__free(v);
    return st;
}
