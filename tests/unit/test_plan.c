/* The communication plan: meshes; the checker against brute force over all orders of execution, on
 * random plans with one operation swapped, dropped or doubled; orders of public deadlock reports;
 * the virtual clock. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "ops/phase.h"
#include "plan/plan.h"
#include "support/check.h"

static unsigned draw(uint64_t seed, uint64_t *n, unsigned below)
{
    td__rng_key key = {.seed = seed};
    return td__rng_u32(&key, (*n)++) % below;
}

/* ---- Meshes ---------------------------------------------------------------------------------- */

TEST(meshes)
{
    td__rank_mesh m;
    char text[TD__RANK_MESH_TEXT];
    CHECK_OK(td__rank_mesh_parse("data=2,pipeline=3", &m));
    CHECK_OK(td__rank_mesh_complete(&m, 12));
    CHECK_EQ_INT(m.size[TD_AXIS_TENSOR], 2);
    CHECK(!strcmp(td__rank_mesh_text(&m, text), "data=2,pipeline=3,tensor=2"), "%s",
          td__rank_mesh_text(&m, text));
    for (int r = 0; r < 12; r++) {
        int t = td__rank_mesh_coordinate(&m, r, TD_AXIS_TENSOR);
        int d = td__rank_mesh_coordinate(&m, r, TD_AXIS_DATA);
        int p = td__rank_mesh_coordinate(&m, r, TD_AXIS_PIPELINE);
        CHECK_EQ_INT((p * 2 + d) * 2 + t, r);
        CHECK_EQ_INT(td__rank_mesh_peer(&m, r, TD_AXIS_PIPELINE, 1), p < 2 ? r + 4 : -1);
        CHECK_EQ_INT(td__rank_mesh_peer(&m, r, TD_AXIS_DATA, -1), d ? r - 2 : -1);
    }
    static const char *const BAD[] = {"",        "data",        "data=0",        "data=2,",
                                      "rows=2",  "data=2x",     "data=1,data=2", "=2",
                                      "data=-1", "data=9999999"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK_STATUS(td__rank_mesh_parse(BAD[i], &m), TD_EINVAL);
    CHECK_OK(td__rank_mesh_parse("pipeline=3", &m));
    CHECK_STATUS(td__rank_mesh_complete(&m, 8), TD_EINVAL);
    CHECK(strstr(td_last_error(), "-n 9"), "%s", td_last_error());
    m = (td__rank_mesh){{2, 2, 1}};
    CHECK_STATUS(td__rank_mesh_complete(&m, 8), TD_EINVAL);
    m = (td__rank_mesh){{0, 2, 0}};
    CHECK_OK(td__rank_mesh_complete(&m, 8));
    CHECK(m.size[TD_AXIS_DATA] == 4 && m.size[TD_AXIS_TENSOR] == 1, "%s",
          td__rank_mesh_text(&m, text));
}

/* ---- Brute force ----------------------------------------------------------------------------- */

enum { MOST_ROLES = 4, MOST_OPS = 6 };

static const td__plan_op *head(const td__plan *p, const uint32_t *done, int role, int lane,
                               int *index)
{
    for (int i = 0; i < p->roles[role].n; i++)
        if (p->roles[role].ops[i].lane == lane && !(done[role] >> i & 1)) {
            *index = i;
            return &p->roles[role].ops[i];
        }
    return NULL;
}

static bool free_to_run(const td__plan_op *o, uint32_t done)
{
    for (int k = 0; k < TD__PLAN_AFTER; k++)
        if (o->after[k] != TD__PLAN_NONE && !(done >> o->after[k] & 1))
            return false;
    return true;
}

static bool same_call(const td__plan_op *a, const td__plan_op *b)
{
    return a->coll == b->coll && a->nbytes == b->nbytes;
}

static bool same_message(const td__plan_op *a, const td__plan_op *b)
{
    return a->chunk == b->other && a->other == b->chunk && a->phase == b->phase &&
           a->micro_batch == b->micro_batch && a->nbytes == b->nbytes;
}

/* Can every order of execution be brought to the end? All orders are tried. */
static bool comes_to_an_end(const td__plan *p, uint32_t *done)
{
    int roles = p->mesh.size[TD_AXIS_PIPELINE], index, other, moves = 0, left = 0;
    for (int r = 0; r < roles; r++)
        for (int l = 0; l < TD_LANES; l++) {
            const td__plan_op *o = head(p, done, r, l, &index), *q;
            left += o != NULL;
            if (!o || !free_to_run(o, done[r]))
                continue;
            uint32_t was[MOST_ROLES];
            memcpy(was, done, sizeof was);
            if (o->kind == TD_PLAN_RUN) {
                done[r] |= 1u << index;
            } else if (o->kind == TD_PLAN_SEND) {
                int to = r + o->peer;
                if (to < 0 || to >= roles)
                    continue;
                q = head(p, done, to, l + 1, &other); /* lanes of receives follow those of sends */
                if (!q || q->kind != TD_PLAN_RECV || to + q->peer != r || !free_to_run(q, done[to]))
                    continue;
                if (!same_message(o, q))
                    return false;
                done[r] |= 1u << index;
                done[to] |= 1u << other;
            } else if (o->kind == TD_PLAN_COLL && r == 0) {
                bool all = true, same = true;
                for (int k = 0; k < roles && all; k++) {
                    q = head(p, done, k, l, &other);
                    all = q && free_to_run(q, done[k]);
                    same = same && all && same_call(o, q);
                    if (all)
                        was[k] = done[k] | 1u << other;
                }
                if (!all)
                    continue;
                if (!same)
                    return false;
                uint32_t before[MOST_ROLES];
                memcpy(before, done, sizeof before);
                memcpy(done, was, sizeof was);
                memcpy(was, before, sizeof was);
            } else {
                continue;
            }
            moves++;
            bool ok = comes_to_an_end(p, done);
            memcpy(done, was, sizeof was);
            if (!ok)
                return false;
        }
    return moves || !left;
}

/* ---- Random plans ---------------------------------------------------------------------------- */

static void add_pair(td__plan *p, uint64_t seed, uint64_t *n, int roles, uint32_t k)
{
    int a = (int)draw(seed, n, (unsigned)roles), b = (int)draw(seed, n, (unsigned)roles - 1);
    b += b >= a;
    bool up = draw(seed, n, 2);
    td__plan_op s = td__plan_blank(TD_PLAN_SEND, up ? TD_LANE_SEND_UP : TD_LANE_SEND_DOWN);
    td__plan_op r = td__plan_blank(TD_PLAN_RECV, up ? TD_LANE_RECV_UP : TD_LANE_RECV_DOWN);
    s.peer = (int16_t)(b - a);
    r.peer = (int16_t)(a - b);
    s.chunk = r.other = (uint16_t)a;
    s.other = r.chunk = (uint16_t)b;
    s.micro_batch = r.micro_batch = k;
    s.nbytes = r.nbytes = 8;
    /* The receive or a run of before is waited for, as a real plan would. */
    if (p->roles[a].n && draw(seed, n, 2))
        s.after[0] = (int)draw(seed, n, (unsigned)p->roles[a].n);
    if (p->roles[b].n && draw(seed, n, 2))
        r.after[0] = (int)draw(seed, n, (unsigned)p->roles[b].n);
    if (p->roles[a].n < MOST_OPS && p->roles[b].n < MOST_OPS) {
        CHECK_OK(td__plan_add(p, a, &s, NULL));
        CHECK_OK(td__plan_add(p, b, &r, NULL));
    }
}

static void add_coll(td__plan *p, int roles)
{
    td__plan_op o = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    for (int r = 0; r < roles; r++)
        if (p->roles[r].n >= MOST_OPS)
            return;
    o.nbytes = 16;
    for (int r = 0; r < roles; r++) {
        o.after[0] = p->roles[r].n ? p->roles[r].n - 1 : TD__PLAN_NONE;
        CHECK_OK(td__plan_add(p, r, &o, NULL));
    }
}

/* One operation swapped with the next, dropped, doubled, waiting for a later one, or nothing. */
static void harm(td__plan *p, uint64_t seed, uint64_t *n, int roles)
{
    int r = (int)draw(seed, n, (unsigned)roles);
    td__plan_list *l = &p->roles[r];
    if (l->n < 2)
        return;
    int i = (int)draw(seed, n, (unsigned)l->n - 1);
    td__plan_op o = l->ops[i];
    switch (draw(seed, n, 5)) {
    case 0:
        l->ops[i] = l->ops[i + 1];
        l->ops[i + 1] = o;
        break;
    case 1: /* in its place stands a run, so that the numbers of others stay */
        l->ops[i] = td__plan_blank(TD_PLAN_RUN, TD_LANE_COMPUTE);
        break;
    case 2: CHECK_OK(td__plan_add(p, r, &o, NULL)); break;
    case 3: l->ops[i].after[1] = i + 1; break;
    default: break;
    }
}

TEST(the_checker_agrees_with_brute_force)
{
    int good = 0, bad = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        uint64_t n = 0;
        int roles = 2 + (int)draw(seed, &n, MOST_ROLES - 1);
        td__plan *p;
        td__rank_mesh m = {{1, roles, 1}};
        CHECK_OK(td__plan_create(&m, TD_AXIS_PIPELINE, roles, &p));
        for (uint32_t k = 0; k < 6; k++)
            if (draw(seed, &n, 6))
                add_pair(p, seed, &n, roles, k);
            else
                add_coll(p, roles);
        harm(p, seed, &n, roles);
        uint32_t done[MOST_ROLES] = {0};
        bool ends = comes_to_an_end(p, done);
        td_status st = td__plan_check(p);
        CHECK(ends == !st, "seed %llu: brute force says %d, the checker %s (%s)",
              (unsigned long long)seed, ends, td_status_name(st), st ? td_last_error() : "");
        CHECK(!st || st == TD_EDEADLOCK || st == TD_EMISMATCH, "%s", td_status_name(st));
        good += !st;
        bad += st != TD_OK;
        td__plan_destroy(p);
    }
    CHECK(good > 400 && bad > 400, "%d good, %d bad: the cases are one-sided", good, bad);
}

/* ---- Orders that others have hung in --------------------------------------------------------- */

static td__plan *two_ranks(void)
{
    td__plan *p;
    CHECK_OK(td__plan_create(&(td__rank_mesh){{1, 2, 1}}, TD_AXIS_PIPELINE, 2, &p));
    CHECK_OK(td__plan_name_chunk(p, 0, "layers 0 to 3"));
    CHECK_OK(td__plan_name_chunk(p, 1, "layers 4 to 7"));
    return p;
}

static td__plan_op message(td__plan_kind kind, td__plan_lane lane, int from, int to, int phase)
{
    td__plan_op o = td__plan_blank(kind, lane);
    bool sends = kind == TD_PLAN_SEND;
    o.chunk = (uint16_t)(sends ? from : to);
    o.other = (uint16_t)(sends ? to : from);
    o.peer = (int16_t)(o.other - o.chunk);
    o.phase = (uint8_t)phase;
    o.nbytes = 4096;
    return o;
}

/* Both ranks send before they receive, and each send waits for its receive
 * (pytorch/pytorch#172668). */
TEST(crossed_sends_are_refused)
{
    td__plan *p = two_ranks();
    td__plan_op o;
    int at;
    o = message(TD_PLAN_SEND, TD_LANE_SEND_UP, 0, 1, TD_RUN_FORWARD);
    CHECK_OK(td__plan_add(p, 0, &o, &at));
    o = message(TD_PLAN_RECV, TD_LANE_RECV_DOWN, 1, 0, TD_RUN_BACKWARD);
    o.after[0] = at;
    CHECK_OK(td__plan_add(p, 0, &o, NULL));
    o = message(TD_PLAN_SEND, TD_LANE_SEND_DOWN, 1, 0, TD_RUN_BACKWARD);
    CHECK_OK(td__plan_add(p, 1, &o, &at));
    o = message(TD_PLAN_RECV, TD_LANE_RECV_UP, 0, 1, TD_RUN_FORWARD);
    o.after[0] = at;
    CHECK_OK(td__plan_add(p, 1, &o, NULL));
    CHECK_STATUS(td__plan_check(p), TD_EDEADLOCK);
    CHECK(strstr(td_last_error(), "rank 0: ") && strstr(td_last_error(), "rank 1: ") &&
              strstr(td_last_error(), "layers 0 to 3") && strstr(td_last_error(), "layers 4 to 7"),
          "%s", td_last_error());
    td__plan_destroy(p);
}

/* One rank is in a collective, the other waits for a message that the first sends after it
 * (Megatron-LM#5100). */
TEST(a_collective_before_a_message_is_refused)
{
    td__plan *p = two_ranks();
    td__plan_op o = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    int at;
    CHECK_OK(td__plan_add(p, 0, &o, &at));
    td__plan_op s = message(TD_PLAN_SEND, TD_LANE_SEND_UP, 0, 1, TD_RUN_FORWARD);
    s.after[0] = at;
    CHECK_OK(td__plan_add(p, 0, &s, NULL));
    s = message(TD_PLAN_RECV, TD_LANE_RECV_UP, 0, 1, TD_RUN_FORWARD);
    CHECK_OK(td__plan_add(p, 1, &s, &at));
    o.after[0] = at;
    CHECK_OK(td__plan_add(p, 1, &o, NULL));
    CHECK_STATUS(td__plan_check(p), TD_EDEADLOCK);
    CHECK(strstr(td_last_error(), "allreduce") && strstr(td_last_error(), "rank 1: "), "%s",
          td_last_error());
    td__plan_destroy(p);
}

/* Both sides are named: what has no counterpart, and where the other list ends; roles that are
 * several ranks with the ranks of the world. */
TEST(what_meets_none_is_named_with_its_place)
{
    td__plan *p;
    td__plan_op o;
    CHECK_OK(td__plan_create(&(td__rank_mesh){{2, 2, 1}}, TD_AXIS_PIPELINE, 2, &p));
    CHECK_OK(td__plan_name_chunk(p, 1, "layers 4 to 7"));
    o = message(TD_PLAN_SEND, TD_LANE_SEND_UP, 0, 1, TD_RUN_FORWARD);
    CHECK_OK(td__plan_add(p, 0, &o, NULL));
    CHECK_STATUS(td__plan_check(p), TD_EDEADLOCK);
    CHECK(strstr(td_last_error(), "stage 0 (ranks 0 to 1): send forward values of micro-batch 0 to "
                                  "stage 1, chunk 0: stage 1 (ranks 2 to 3) never receives it, nor "
                                  "anything before it"),
          "%s", td_last_error());
    o = message(TD_PLAN_RECV, TD_LANE_RECV_UP, 0, 1, TD_RUN_FORWARD);
    CHECK_OK(td__plan_add(p, 1, &o, NULL));
    CHECK_OK(td__plan_check(p));
    o = message(TD_PLAN_SEND, TD_LANE_SEND_UP, 0, 1, TD_RUN_FORWARD);
    o.micro_batch = 1;
    CHECK_OK(td__plan_add(p, 0, &o, NULL));
    CHECK_STATUS(td__plan_check(p), TD_EDEADLOCK);
    CHECK(strstr(td_last_error(), "of micro-batch 1 to stage 1") &&
              strstr(td_last_error(),
                     "never receives it; the last there is stage 1 (ranks 2 to 3): "
                     "receive forward values of micro-batch 0 from stage 0, chunk "
                     "1 (layers 4 to 7)"),
          "%s", td_last_error());
    td__plan_destroy(p);

    char text[TD__PLAN_ROLE];
    CHECK_OK(td__plan_create(&(td__rank_mesh){{2, 2, 2}}, TD_AXIS_DATA, 2, &p));
    CHECK(!strcmp(td__plan_role_text(p, 1, text), "replica 1 (ranks 2, ..., 7)"), "%s", text);
    for (int calls = 0; calls < 2; calls++) {
        o = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
        o.axis = TD_AXIS_DATA;
        o.coll = calls ? TD_PLAN_BARRIER : TD_PLAN_ALLREDUCE;
        CHECK_OK(td__plan_add(p, 0, &o, NULL));
        if (!calls)
            CHECK_OK(td__plan_add(p, 1, &o, NULL));
    }
    CHECK_STATUS(td__plan_check(p), TD_EDEADLOCK);
    CHECK(strstr(td_last_error(), "barrier along data") &&
              strstr(td_last_error(), "never calls it; the last there is replica 1 ") &&
              strstr(td_last_error(), ": allreduce"),
          "%s", td_last_error());
    td__plan_destroy(p);
}

/* ---- The clock, the digest, the texts -------------------------------------------------------- */

TEST(clock_digest_and_texts)
{
    td__plan *p = two_ranks(), *q = two_ranks();
    td__plan_times t;
    char a[65], b[65];
    int at;
    td__plan_op run = td__plan_blank(TD_PLAN_RUN, TD_LANE_COMPUTE);
    run.seconds = 2;
    CHECK_OK(td__plan_add(p, 0, &run, &at));
    td__plan_op s = message(TD_PLAN_SEND, TD_LANE_SEND_UP, 0, 1, TD_RUN_FORWARD);
    s.after[0] = at;
    CHECK_OK(td__plan_add(p, 0, &s, NULL));
    s = message(TD_PLAN_RECV, TD_LANE_RECV_UP, 0, 1, TD_RUN_FORWARD);
    CHECK_OK(td__plan_add(p, 1, &s, &at));
    run.after[0] = at;
    run.chunk = 1;
    CHECK_OK(td__plan_add(p, 1, &run, NULL));
    CHECK_OK(td__plan_time(p, &(td__plan_link){.latency = 0.5, .bandwidth = 4096}, &t));
    CHECK(fabs(t.total - (2 + 1.5 + 2)) < 1e-12, "%g", t.total);
    CHECK(fabs(t.begin[1][1] - (3.5)) < 1e-12, "%g", t.begin[1][1]);
    CHECK(fabs(td__plan_bubble(&t) - (1 - 4 / 11.0)) < 1e-12, "%g", td__plan_bubble(&t));
    td__text text = {0}, trace = {0};
    td__plan_print(p, &t, &text);
    td__plan_trace(p, &t, &trace);
    CHECK(strstr(text.data, "send forward values of micro-batch 0 to rank 1"), "%s", text.data);
    CHECK(strstr(trace.data, "\"dur\":2000000.000"), "%s", trace.data);
    td__text_fini(&text);
    td__text_fini(&trace);
    td__plan_times_fini(&t);
    CHECK_OK(td__plan_digest(p, a));
    CHECK_OK(td__plan_digest(q, b));
    CHECK(strcmp(a, b), "plans of different operations have the digest %s", a);
    p->roles[0].ops[0].seconds = 5;
    CHECK_OK(td__plan_digest(p, b));
    CHECK(!strcmp(a, b), "%s", a);
    td__plan_destroy(p);
    td__plan_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes),
        cmocka_unit_test(the_checker_agrees_with_brute_force),
        cmocka_unit_test(crossed_sends_are_refused),
        cmocka_unit_test(a_collective_before_a_message_is_refused),
        cmocka_unit_test(what_meets_none_is_named_with_its_place),
        cmocka_unit_test(clock_digest_and_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
