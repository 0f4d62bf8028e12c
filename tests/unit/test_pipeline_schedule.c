/* Pipeline schedules: every one of them, for any number of stages and micro-batches, runs each
 * phase of each micro-batch once and in an order that comes to its end, keeps phases in the order
 * of micro-batches, and has the bubble and the memory that its paper says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "plan/pipeline_plan.h"
#include "support/check.h"

enum { MOST_CHUNKS = 32 };

/* Between chunks. Neighbours exchange activations and their gradients; */
typedef enum values {
    PLAIN,
    SKIPS, /* one value skips a chunk, and one that is made forward is needed backward only; */
    TIED,  /* the first and the last have weights in common, which the first updates */
    VALUES
} values;

static int edges_of(int chunks, values kind, td__chunk_edge *out)
{
    int n = 0;
    for (int c = 0; c + 1 < chunks; c++) {
        out[n++] = (td__chunk_edge){c, c + 1, TD_RUN_FORWARD, TD_RUN_FORWARD, 4096};
        out[n++] = (td__chunk_edge){c + 1, c, TD_RUN_BACKWARD, TD_RUN_BACKWARD, 4096};
        if (kind == SKIPS && c + 2 < chunks) {
            out[n++] = (td__chunk_edge){c, c + 2, TD_RUN_FORWARD, TD_RUN_BACKWARD, 128};
            out[n++] = (td__chunk_edge){c + 2, c, TD_RUN_BACKWARD, TD_RUN_WEIGHT, 128};
        }
    }
    if (kind == TIED && chunks > 1)
        out[n++] = (td__chunk_edge){chunks - 1, 0, TD_RUN_WEIGHT, TD_RUN_WEIGHT, 512};
    return n;
}

static td__pipeline_opts opts_of(const td__schedule_def *d, int stages, int each, int batches,
                                 const td__chunk_edge *edges, int n_edges, const double *cost)
{
    return (td__pipeline_opts){
        .mesh = {{1, stages, 1}},
        .schedule = d,
        .at = {.stages = stages, .chunks = stages * each, .micro_batches = batches, .cost = cost},
        .edges = edges,
        .n_edges = n_edges};
}

static void check_order(const td__schedule *s, const td__schedule_def *d)
{
    int next[MOST_CHUNKS][3] = {{0}};
    for (int i = 0; i < s->of.stages; i++)
        for (int k = 0; k < s->n[i]; k++) {
            const td__schedule_run *r = &s->runs[i][k];
            CHECK_EQ_INT(td__schedule_stage(d, s->of.stages, r->chunk), i);
            CHECK_EQ_INT(r->micro_batch, next[r->chunk][r->phase]++);
            CHECK(!r->phase || (int)r->micro_batch < next[r->chunk][r->phase - 1],
                  "%s: a phase before the one that it follows", d->name);
        }
    for (int c = 0; c < s->of.chunks; c++)
        for (int p = 0; p < 3; p++)
            CHECK_EQ_INT(next[c][p], s->of.micro_batches);
}

TEST(every_schedule_comes_to_its_end)
{
    const td__schedule_def *d;
    int refused = 0;
    for (int i = 0; (d = td__schedule_at(i)); i++)
        for (int stages = 1; stages <= 6; stages++)
            for (int batches = 1; batches <= 17; batches++)
                for (int each = d->per_stage ? d->per_stage : 2;
                     each <= (d->per_stage ? d->per_stage : 3); each++)
                    for (int kind = 0; kind < VALUES; kind++) {
                        td__chunk_edge edges[4 * MOST_CHUNKS];
                        td__schedule *s;
                        td__plan *p;
                        int n = edges_of(stages * each, (values)kind, edges);
                        td__pipeline_opts o = opts_of(d, stages, each, batches, edges, n, NULL);
                        o.norm = kind == SKIPS;
                        CHECK_OK(td__schedule_create(d, &o.at, &s));
                        check_order(s, d);
                        CHECK_OK(td__pipeline_plan(&o, &p, NULL));
                        CHECK_OK(td__plan_check(p));
                        td__plan_destroy(p);
                        o.direct = true;
                        CHECK_OK(td__pipeline_plan(&o, &p, NULL));
                        td_status st = td__plan_check(p);
                        refused += st != TD_OK;
                        CHECK(!st || (st == TD_EDEADLOCK && each > 1),
                              "%s, %d stages, %d micro-batches, direct: %s", d->name, stages,
                              batches, td_last_error());
                        td__plan_destroy(p);
                        td__schedule_destroy(s);
                    }
    CHECK(refused > 50, "only %d plans of direct messages wait for themselves", refused);
}

/* Seconds of a step if messages take no time. forward, backward, weight: of a stage. */
static double step_with(values kind, const char *name, int stages, int each, int batches, double f,
                        double b, double w, double *bubble)
{
    const td__schedule_def *d;
    td__chunk_edge edges[4 * MOST_CHUNKS];
    double cost[3 * MOST_CHUNKS];
    td__plan *p;
    td__plan_times t;
    for (int c = 0; c < stages * each; c++) {
        cost[3 * c] = f / each;
        cost[3 * c + 1] = b / each;
        cost[3 * c + 2] = w / each;
    }
    CHECK_OK(td__schedule_find(name, &d));
    int n = edges_of(stages * each, kind, edges);
    td__pipeline_opts o = opts_of(d, stages, each, batches, edges, n, cost);
    CHECK_OK(td__pipeline_plan(&o, &p, NULL));
    CHECK_OK(td__plan_time(p, &(td__plan_link){0}, &t));
    double total = t.total;
    *bubble = td__plan_bubble(&t);
    td__plan_times_fini(&t);
    td__plan_destroy(p);
    return total;
}

static double step_of(const char *name, int stages, int each, int batches, double f, double b,
                      double w, double *bubble)
{
    return step_with(PLAIN, name, stages, each, batches, f, b, w, bubble);
}

/* With F, B, W seconds of a stage and m micro-batches: GPipe and 1F1B take m (F + B + W) +
 * (stages - 1)(F + B), as no stage waits for the W of another; interleaved fills in a chunk's time;
 * ZB-H1 idles (stages - 1)(F + B - W). */
TEST(bubbles_are_those_of_the_papers)
{
    double bubble;
    for (int p = 2; p <= 6; p++)
        for (int m = 2 * p; m <= 24; m += p) {
            double t = step_of("1f1b", p, 1, m, 1, 2, 0, &bubble);
            CHECK(fabs(t - (m + p - 1) * 3.0) < 1e-9, "1f1b p=%d m=%d: %g", p, m, t);
            CHECK(fabs(bubble - (p - 1.0) / (m + p - 1)) < 1e-9, "bubble %g", bubble);
            t = step_of("gpipe", p, 1, m, 1, 2, 0, &bubble);
            CHECK(fabs(t - (m + p - 1) * 3.0) < 1e-9, "gpipe p=%d m=%d: %g", p, m, t);
            t = step_of("interleaved", p, 2, m, 1, 2, 0, &bubble);
            CHECK(fabs(t - (m * 3.0 + (p - 1) * 3.0 / 2)) < 1e-9, "interleaved p=%d m=%d: %g", p, m,
                  t);
            for (int gpipe = 0; gpipe < 2; gpipe++) { /* gradients of params apart */
                const char *name = gpipe ? "gpipe" : "1f1b";
                t = step_of(name, p, 1, m, 1, 2, 1.5, &bubble);
                CHECK(fabs(t - (m * 4.5 + (p - 1) * 3.0)) < 1e-9, "%s p=%d m=%d: %g", name, p, m,
                      t);
            }
            t = step_of("interleaved", p, 2, m, 1, 2, 1.5, &bubble);
            CHECK(t - (m * 4.5 + (p - 1) * (3.0 + 1.5) / 2) < 1e-9, "interleaved p=%d m=%d: %g", p,
                  m, t);
            t = step_of("zb-h1", p, 1, m, 1, 1, 1, &bubble);
            CHECK(t - (m * 3.0 + (p - 1) * (1 + 1 - 1)) < 1e-9, "zb-h1 p=%d m=%d: %g", p, m, t);
            (void)step_of("zb-v", p, 2, m, 1, 1, 1, &bubble);
            CHECK(bubble < (p - 1.0) / 3 / (m + (p - 1.0) / 3) + 1e-9, "zb-v p=%d m=%d: %g", p, m,
                  bubble);
            t = step_of("dualpipe-v", p, 2, m, 1, 1, 1, &bubble);
            double plain = step_of("1f1b", p, 1, m, 1, 1, 1, &bubble);
            CHECK(t < plain, "dualpipe-v p=%d m=%d: %g, 1f1b %g", p, m, t, plain);
        }
}

/* The first stage adds the last one's gradients of the weights that they have in common, and is
 * never held up by more than the pipeline's own bubble; in a V both are on one stage. */
TEST(tied_weights_do_not_hold_up_a_pipeline)
{
    double bubble;
    for (int p = 2; p <= 6; p++)
        for (int m = 2 * p; m <= 24; m += p) {
            double t = step_with(TIED, "zb-h1", p, 1, m, 1, 1, 1, &bubble);
            CHECK(t - (m * 3.0 + (p - 1) * 2) < 1e-9, "zb-h1 p=%d m=%d: %g", p, m, t);
            t = step_with(TIED, "1f1b", p, 1, m, 1, 1, 1, &bubble);
            CHECK(fabs(t - (m * 3.0 + (p - 1) * 2)) < 1e-9, "1f1b p=%d m=%d: %g", p, m, t);
            t = step_with(TIED, "zb-v", p, 2, m, 1, 1, 1, &bubble);
            CHECK(fabs(t - step_of("zb-v", p, 2, m, 1, 1, 1, &bubble)) < 1e-9, "zb-v p=%d m=%d: %g",
                  p, m, t);
        }
}

/* Chunks as models have them: the first has no gradients of activations to make, the last a loss
 * and a larger product; phases do not take the same. */
static void uneven_costs(int chunks, uint64_t seed, double *cost)
{
    td__rng_key key = {.seed = seed};
    for (int c = 0; c < chunks; c++)
        for (int phase = 0; phase < 3; phase++)
            cost[3 * c + phase] =
                (phase == 0   ? 0.92
                 : phase == 1 ? 0.97
                              : 0.86) *
                (1 + 0.4 * ((double)td__rng_uniform(&key, (uint64_t)(3 * c + phase)) - 0.5));
    cost[1] = 0;
    cost[3 * (chunks - 1)] *= 1.3;
}

/* Of a step whose runs take what they cost: planned by these costs, or as if all were alike. */
static double bubble_with(const td__schedule_def *d, int stages, int each, int batches,
                          const double *cost, bool known, double *total)
{
    td__chunk_edge edges[4 * MOST_CHUNKS];
    td__plan *p;
    td__plan_times t;
    int n = edges_of(stages * each, PLAIN, edges);
    td__pipeline_opts o = opts_of(d, stages, each, batches, edges, n, known ? cost : NULL);
    CHECK_OK(td__pipeline_plan(&o, &p, NULL));
    for (int r = 0; r < stages; r++)
        for (int i = 0; i < p->roles[r].n; i++) {
            td__plan_op *op = &p->roles[r].ops[i];
            if (op->kind == TD_PLAN_RUN)
                op->seconds = cost[3 * op->chunk + op->phase];
        }
    CHECK_OK(td__plan_time(p, &(td__plan_link){0}, &t));
    double bubble = td__plan_bubble(&t);
    *total = t.total;
    td__plan_times_fini(&t);
    td__plan_destroy(p);
    return bubble;
}

/* By its costs, whatever values go between chunks: all of it comes to its end, in order. */
static void check_uneven(const td__schedule_def *d, int stages, int batches, const double *cost)
{
    for (int kind = 0; kind < VALUES; kind++) {
        td__chunk_edge edges[4 * MOST_CHUNKS];
        td__schedule *s;
        td__plan *p;
        int n = edges_of(2 * stages, (values)kind, edges);
        td__pipeline_opts o = opts_of(d, stages, 2, batches, edges, n, cost);
        CHECK_OK(td__schedule_create(d, &o.at, &s));
        check_order(s, d);
        CHECK_OK(td__pipeline_plan(&o, &p, NULL));
        CHECK_OK(td__plan_check(p));
        td__plan_destroy(p);
        td__schedule_destroy(s);
    }
}

/* Never longer than one that is made as if all phases took the same; where several orders are
 * possible, much of what those wait is saved. */
TEST(costs_make_schedules_shorter)
{
    static const struct {
        const char *name;
        double least; /* points of idle time that are saved, from 2 p micro-batches on */
    } CASES[] = {{"zb-v", 3.5}, {"interleaved", 1}, {"dualpipe-v", 0}};
    for (int k = 0; k < 3; k++) {
        const td__schedule_def *d;
        double saved = 0;
        int n = 0;
        CHECK_OK(td__schedule_find(CASES[k].name, &d));
        for (int p = 2; p <= 6; p++)
            for (int m = 1; m <= 16; m++)
                for (uint64_t seed = 1; seed <= 4; seed++) {
                    double cost[3 * MOST_CHUNKS], alike, known;
                    uneven_costs(2 * p, seed, cost);
                    double idle = bubble_with(d, p, 2, m, cost, false, &alike);
                    double less = idle - bubble_with(d, p, 2, m, cost, true, &known);
                    CHECK(known <= alike * (1 + 1e-9), "%s p=%d m=%d: %g instead of %g", d->name, p,
                          m, known, alike);
                    saved += m >= 2 * p ? less : 0;
                    n += m >= 2 * p;
                    check_uneven(d, p, m, cost);
                }
        CHECK(100 * saved / n >= CASES[k].least, "%s: %.2f points are saved", d->name,
              100 * saved / n);
    }
}

/* The norm of all stages, and where replicas update some params each, of these. */
TEST(updates_wait_for_the_norm)
{
    td__chunk_edge edges[4 * MOST_CHUNKS];
    const td__schedule_def *d;
    CHECK_OK(td__schedule_find("1f1b", &d));
    int n = edges_of(2, PLAIN, edges);
    for (int shared = 0; shared < 2; shared++) {
        td__plan *p;
        int sums[TD_AXES] = {0}, last = TD__PLAN_NONE;
        td__pipeline_opts o = opts_of(d, 2, 1, 4, edges, n, NULL);
        o.mesh.size[TD_AXIS_DATA] = 2;
        o.norm = 48;
        o.norm_shared = shared;
        CHECK_OK(td__pipeline_plan(&o, &p, NULL));
        CHECK_OK(td__plan_check(p));
        for (int i = 0; i < p->roles[1].n; i++) {
            const td__plan_op *op = &p->roles[1].ops[i];
            if (op->kind == TD_PLAN_COLL && op->nbytes == 48) {
                sums[op->axis]++;
                last = i;
            }
            if (op->kind == TD_PLAN_UPDATE)
                CHECK_EQ_INT(op->after[0], last);
        }
        CHECK_EQ_INT(sums[TD_AXIS_PIPELINE], 1);
        CHECK_EQ_INT(sums[TD_AXIS_DATA], shared);
        td__plan_destroy(p);
    }
}

TEST(memory_is_that_of_the_papers)
{
    static const struct {
        const char *name;
        int each, of_stage; /* micro-batches of the stage's chunks under way: at most, 8 stages */
    } CASES[] = {
        {"gpipe", 1, 32}, {"1f1b", 1, 8}, {"zb-h1", 1, 8}, {"zb-v", 2, 16}, {"dualpipe-v", 2, 18}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const td__schedule_def *d;
        td__schedule *s;
        CHECK_OK(td__schedule_find(CASES[i].name, &d));
        td__schedule_case c = {.stages = 8, .chunks = 8 * CASES[i].each, .micro_batches = 32};
        CHECK_OK(td__schedule_create(d, &c, &s));
        for (int stage = 0; stage < 8; stage++) {
            int now = 0, most = 0;
            for (int k = 0; k < s->n[stage]; k++) {
                now += s->runs[stage][k].phase == TD_RUN_FORWARD;
                most = now > most ? now : most;
                now -= s->runs[stage][k].phase == TD_RUN_WEIGHT;
            }
            CHECK(most <= CASES[i].of_stage, "%s: stage %d has %d under way", d->name, stage, most);
            if (!strcmp(d->name, "1f1b"))
                CHECK_EQ_INT(td__schedule_in_flight(s, stage), 8 - stage);
        }
        td__schedule_destroy(s);
    }
}

/* Batches that follow each other without a gap: the pipeline is filled and emptied once, a stage
 * keeps the batches, or micro-batches, that its recurrence allows, and the updates are among the
 * runs: after all gradients of their batch. */
static void check_flow(const td__schedule_def *d, int stages, int each, int batches)
{
    td__chunk_edge edges[4 * MOST_CHUNKS];
    double cost[3 * MOST_CHUNKS];
    int n = edges_of(stages, PLAIN, edges), slots[MOST_CHUNKS], delay = d->delay(stages);
    td__schedule *s;
    td__plan *p;
    td__plan_times t;
    for (int c = 0; c < stages; c++) {
        cost[3 * c] = 1;
        cost[3 * c + 1] = 2;
        cost[3 * c + 2] = 1.5;
    }
    td__pipeline_opts o = opts_of(d, stages, 1, batches * each, edges, n, cost);
    o.at.batch = each;
    o.mesh.size[TD_AXIS_DATA] = 2;
    CHECK_OK(td__schedule_create(d, &o.at, &s));
    check_order(s, d);
    for (int i = 0; i < stages; i++) {
        int ahead = stages - i;
        int most =
            strcmp(d->name, "pipedream") ? (ahead < each + 1 ? ahead : each + 1) : ahead * each;
        CHECK(td__schedule_in_flight(s, i) <= most, "%s: stage %d has %d under way", d->name, i,
              td__schedule_in_flight(s, i));
    }
    CHECK_OK(td__pipeline_plan(&o, &p, slots));
    CHECK_OK(td__plan_check(p));
    for (int r = 0; r < stages; r++) {
        int ran[3] = {0}, updates = 0;
        for (int i = 0; i < p->roles[r].n; i++) {
            const td__plan_op *op = &p->roles[r].ops[i];
            if (op->kind == TD_PLAN_UPDATE) {
                CHECK_EQ_INT(ran[TD_RUN_WEIGHT], ++updates * each);
                CHECK_EQ_INT(op->micro_batch, updates * each - 1);
            }
            if (op->kind != TD_PLAN_RUN)
                continue;
            /* The weights that the batch is run with have been made. */
            CHECK(op->phase != TD_RUN_FORWARD || (int)op->micro_batch / each - delay <= updates,
                  "%s: batch %u begins after %d updates", d->name, op->micro_batch / (unsigned)each,
                  updates);
            ran[op->phase]++;
        }
        CHECK_EQ_INT(updates, batches);
    }
    CHECK_OK(td__plan_time(p, &(td__plan_link){0}, &t));
    if (each == 1 ? delay == stages - 1 : each >= stages && strcmp(d->name, "pipedream") != 0)
        CHECK(fabs(t.total - (batches * each * 4.5 + (stages - 1) * 3.0)) < 1e-9, "%s: %g seconds",
              d->name, t.total);
    td__plan_times_fini(&t);
    td__plan_destroy(p);
    td__schedule_destroy(s);
}

/* What stages tell each other in each batch: params that others read, of which there are some with
 * every kind of values here, and one sum of what all ranks say. The plan comes to its end, also
 * where a value goes past a stage that is slower than others. */
static void check_told(const td__schedule_def *d, int stages, int each, values kind, uint64_t seed)
{
    enum { BATCHES = 9 };
    td__chunk_edge edges[4 * MOST_CHUNKS], handed[MOST_CHUNKS];
    double cost[3 * MOST_CHUNKS];
    int n = edges_of(stages, kind, edges), n_handed = 0;
    td__plan *p;
    uneven_costs(stages, seed, cost);
    for (int c = 1; c < stages; c++) /* the first is read by all, the last by the one before it */
        handed[n_handed++] = (td__chunk_edge){.from = 0, .to = c, .nbytes = 64};
    if (stages > 1)
        handed[n_handed++] = (td__chunk_edge){.from = stages - 1, .to = stages - 2, .nbytes = 32};
    td__pipeline_opts o = opts_of(d, stages, 1, BATCHES * each, edges, n, cost);
    o.at.batch = each;
    o.mesh.size[TD_AXIS_DATA] = 2;
    o.handed = handed;
    o.n_handed = n_handed;
    o.numbers = 40;
    CHECK_OK(td__pipeline_plan(&o, &p, NULL));
    td_status st = td__plan_check(p);
    CHECK(!st, "%s, %d stages, %d micro-batches, values %d: %s", d->name, stages, each, (int)kind,
          td_last_error());
    for (int r = 0; r < stages; r++) {
        int said = 0, hands = 0, batch = 0, from[2] = {0}; /* by lane of values that go forward */
        for (int i = 0; i < p->roles[r].n; i++) {
            const td__plan_op *op = &p->roles[r].ops[i];
            bool up = op->lane == TD_LANE_SEND_UP || op->lane == TD_LANE_RECV_UP;
            int of = (int)op->micro_batch / each;
            said += op->kind == TD_PLAN_COLL && op->phase == TD__PLAN_NUMBERS;
            if (up) {
                CHECK(of >= from[op->lane == TD_LANE_SEND_UP], "%s: batch %d after a later one",
                      d->name, of);
                from[op->lane == TD_LANE_SEND_UP] = of;
            }
            if (op->phase != TD__PLAN_PARAMS)
                continue;
            hands++;
            CHECK_EQ_INT(op->micro_batch % (unsigned)each, 0);
            CHECK(of >= batch, "%s: params of batch %d after those of %d", d->name, of, batch);
            batch = of;
        }
        CHECK_EQ_INT(said, stages > 1 ? BATCHES : 0);
        CHECK_EQ_INT(hands,
                     stages == 1 ? 0 : BATCHES * ((r == 0 ? stages - 1 : 1) + (r >= stages - 2)));
    }
    td__plan_destroy(p);
}

TEST(what_is_told_in_each_batch_is_planned)
{
    const td__schedule_def *d;
    for (int i = 0; (d = td__schedule_at(i)); i++)
        for (int stages = 1; d->delay && stages <= 5; stages++)
            for (int each = 1; each <= 4; each++)
                for (int kind = 0; kind < VALUES; kind++)
                    for (uint64_t seed = 1; seed <= 2; seed++)
                        check_told(d, stages, each, (values)kind, seed);
}

TEST(pipelines_that_flow_are_filled_once)
{
    const td__schedule_def *d;
    int n = 0;
    for (int i = 0; (d = td__schedule_at(i)); i++)
        for (int stages = 1; d->delay && stages <= 5; stages++)
            for (int each = 1; each <= 7; each++, n++)
                check_flow(d, stages, each, 9);
    CHECK(n >= 70, "%d cases", n);
}

TEST(what_does_not_fit_is_refused)
{
    const td__schedule_def *d;
    td__schedule *s;
    CHECK_STATUS(td__schedule_find("2f2b", &d), TD_EINVAL);
    CHECK(strstr(td_last_error(), "1f1b"), "%s", td_last_error());
    CHECK_OK(td__schedule_find("zb-v", &d));
    CHECK_STATUS(td__schedule_create(
                     d, &(td__schedule_case){.stages = 4, .chunks = 4, .micro_batches = 8}, &s),
                 TD_EINVAL);
    CHECK_OK(td__schedule_find("interleaved", &d));
    CHECK_STATUS(td__schedule_create(
                     d, &(td__schedule_case){.stages = 4, .chunks = 4, .micro_batches = 8}, &s),
                 TD_EINVAL);
    CHECK_STATUS(td__schedule_create(
                     d, &(td__schedule_case){.stages = 4, .chunks = 6, .micro_batches = 8}, &s),
                 TD_EINVAL);
    CHECK_STATUS(td__schedule_create(
                     d, &(td__schedule_case){.stages = 4, .chunks = 8, .micro_batches = 0}, &s),
                 TD_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_comes_to_its_end),
        cmocka_unit_test(bubbles_are_those_of_the_papers),
        cmocka_unit_test(tied_weights_do_not_hold_up_a_pipeline),
        cmocka_unit_test(costs_make_schedules_shorter),
        cmocka_unit_test(updates_wait_for_the_norm),
        cmocka_unit_test(memory_is_that_of_the_papers),
        cmocka_unit_test(pipelines_that_flow_are_filled_once),
        cmocka_unit_test(what_is_told_in_each_batch_is_planned),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
