/* test_placement.c -- what the leader of the agents wants, case by case: a state, what agents
 * report, and the next state that must come of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "launch/placement.h"
#include "support/check.h"

enum { SECOND = 1000000000 };

/* A small language for processes: agent, and one letter per process in the order of their numbers:
 *     s starting, w waiting, b busy, o out of the generation and waiting, f the same after a
 *     failure, e after one for which it will end, l busy but wants to go, t busy but stopped, d
 *     done, p done before this generation, x gone */
typedef struct host {
    uint32_t slots;
    const char *procs;
    uint32_t crashes;
    bool hopeless, dead, silent;
} host;

typedef struct fixture {
    td__place p;
    td__ms_state s;
    td__place_report report[3];
    td__ms_content next;
    uint64_t voters;
} fixture;

static void setup(fixture *f, const host *hosts, int n, uint64_t generation, const char *members)
{
    *f = (fixture){
        .p = {.min = 1, .most_crashes = 5, .gather_ns = 10 * (uint64_t)SECOND, .store = "store"}};
    td__ms_content *c = &f->s.content;
    c->generation = generation;
    c->wanted = 4;
    for (; *members; members += 2) /* "01" is process 1 of agent 0 */
        c->member[c->n_members++] = td__ms_proc(members[0] - '0', (uint32_t)(members[1] - '0'));
    for (int a = 0; a < n; a++) {
        td__place_report *r = &f->report[a];
        *r = (td__place_report){.number = 1,
                                .slots = hosts[a].slots,
                                .crashes = hosts[a].crashes,
                                .hopeless = hosts[a].hopeless,
                                .status = 7,
                                .cause = "the last",
                                .host = "h"};
        f->s.voters |= (uint64_t)1 << a;
        f->p.alive |= hosts[a].dead || hosts[a].silent ? 0 : (uint64_t)1 << a;
        f->p.dead |= hosts[a].dead ? (uint64_t)1 << a : 0;
        f->p.report[a] = r;
        for (uint32_t i = 0; hosts[a].procs[i]; i++) {
            char k = hosts[a].procs[i];
            if (k == 'x')
                continue;
            td__proc_state st = k == 's'   ? TD_PROC_STARTING
                                : k == 'b' ? TD_PROC_BUSY
                                : k == 'l' ? TD_PROC_BUSY
                                : k == 't' ? TD_PROC_BUSY
                                : k == 'd' ? TD_PROC_DONE
                                : k == 'p' ? TD_PROC_DONE
                                           : TD_PROC_WAITING;
            r->proc[r->n_procs++] =
                (td__place_proc){.proc = td__ms_proc(a, i + 1),
                                 .state = (uint8_t)st,
                                 .leaving = k == 'l',
                                 .failed = k == 'f'   ? TD_FAILED_SOME
                                           : k == 'e' ? TD_FAILED_ENDS
                                                      : TD_FAILED_NOT,
                                 .stopped = k == 't',
                                 .out = strchr("ofed", k) ? generation : generation - 1};
        }
    }
    f->s.before = f->s.known = f->s.voters;
}

static bool next(fixture *f, uint64_t now)
{
    return td__place_next(&f->p, &f->s, now, &f->voters, &f->next);
}

/* Take over targets, as a first state does, so that later changes are the case's own. */
static void settle(fixture *f)
{
    td__ms_state was = f->s;
    if (next(f, 1)) {
        memcpy(f->s.content.target, f->next.target, sizeof f->next.target);
        f->s.content.order = f->next.order;
    }
    f->s.content.generation = was.content.generation;
}

static void check_members(const td__ms_content *c, const char *members)
{
    uint32_t n = 0;
    for (; *members; members += 2, n++) {
        assert_true(n < c->n_members);
        assert_int_equal(c->member[n], td__ms_proc(members[0] - '0', (uint32_t)(members[1] - '0')));
    }
    assert_int_equal(c->n_members, n);
}

typedef struct row {
    const char *name;
    host hosts[2];
    int n;
    uint64_t generation;
    const char *members;
    uint32_t wanted, min, spares;
    uint64_t now; /* seconds */
    /* What comes of it; generation 0: no change but for `ending`. */
    uint64_t to;
    const char *now_members;
    bool ending, over;
    const char *why; /* part of it, or of the cause */
} row;

/* clang-format off */
#define H(n, p) {.slots = (n), .procs = (p)}
static const row ROWS[] = {
    {"rank 0 is lost when the run is finished", {H(3, "xdd")}, 1, 5, "010203", 3, 1, 0, 1, 0,
     "010203", false, true, ""},
    {"another is lost then: all is there", {H(3, "dxd")}, 1, 5, "010203", 3, 1, 0, 1, 0, "010203",
     false, true, ""},
    {"waits for all", {H(4, "wwws")}, 1, 0, "", 4, 1, 0, 1, 0, "", false, false, NULL},
    {"all are here", {H(4, "wwww")}, 1, 0, "", 4, 1, 0, 1, 1, "01020304", false, false, "first"},
    {"goes with fewer after a while", {H(4, "wws")}, 1, 0, "", 4, 2, 0, 11, 1, "0102", false, false,
     NULL},
    {"not with too few", {H(4, "wss")}, 1, 0, "", 4, 2, 0, 11, 0, "", false, false, NULL},
    {"a death", {H(4, "bxbb")}, 1, 3, "01020304", 4, 1, 0, 1, 4, "010304", false, false, "rank 1"},
    {"a death, and a spare", {H(4, "bxbbw")}, 1, 3, "01020304", 4, 1, 1, 1, 4, "01030405", false,
     false, "rank 1"},
    {"too few are left", {H(4, "bxs")}, 1, 3, "0102", 2, 2, 0, 1, 0, "0102", false, false, NULL},
    {"a new one waits", {H(4, "bbbw")}, 1, 3, "010203", 4, 1, 0, 1, 0, "010203", true, false, NULL},
    {"all are out", {H(4, "ooow")}, 1, 3, "010203", 4, 1, 0, 1, 4, "01020304", false, false,
     "1 joined"},
    {"not all are out", {H(4, "obow")}, 1, 3, "010203", 4, 1, 0, 1, 0, "010203", true, false, NULL},
    {"one wants to go", {H(4, "blb")}, 1, 3, "010203", 3, 1, 0, 1, 0, "010203", true, false, NULL},
    {"fewer are wanted", {H(4, "bbb")}, 1, 3, "010203", 2, 1, 0, 1, 0, "010203", true, false, NULL},
    {"fewer, all out", {H(4, "ooo")}, 1, 3, "010203", 2, 1, 0, 1, 4, "0102", false, false,
     "1 left"},
    {"an agent died", {H(2, "bb"), {.slots = 2, .procs = "bb", .dead = true}}, 2, 3, "01021112", 4,
     1, 0, 1, 4, "0102", false, false, "its agent died"},
    {"an agent is silent", {{.slots = 2, .procs = "bb", .silent = true}, H(2, "bb")}, 2, 3,
     "01021112", 4, 1, 0, 1, 4, "1112", false, false, "does not answer"},
    {"no room is left", {H(2, "bb"), {.slots = 2, .procs = "bb", .dead = true}}, 2, 3, "01021112",
     4, 3, 0, 1, 0, "01021112", false, true, "have 2 slots; host"},
    {"crash loop", {{.slots = 4, .procs = "ss", .crashes = 6}}, 1, 0, "", 2, 1, 0, 1, 0, "", false,
     true, "6 failures without a step forward; the last: the last"},
    {"hopeless", {{.slots = 4, .procs = "s", .hopeless = true}}, 1, 0, "", 2, 1, 0, 1, 0, "", false,
     true, "the last"},
    {"the end of one is waited for", {H(4, "efx")}, 1, 3, "010203", 3, 1, 0, 1, 0, "010203", false,
     false, NULL},
    {"one is done: nobody joins", {H(4, "dbw")}, 1, 3, "0102", 3, 1, 0, 1, 0, "0102", false, false,
     NULL},
    {"all are done", {H(4, "dd")}, 1, 3, "0102", 2, 1, 0, 1, 0, "0102", false, true, ""},
    {"one is done, one died", {H(4, "dxb")}, 1, 3, "010203", 3, 3, 0, 1, 4, "03", false, false,
     NULL},
    {"one had been done before", {H(4, "bp")}, 1, 3, "0102", 2, 2, 0, 1, 4, "01", false, false,
     "rank 1 had done its work before"},
    {"one is stopped", {H(4, "bbtb")}, 1, 3, "01020304", 4, 1, 0, 1, 4, "010204", false, false,
     "rank 2 on host h is stopped"},
    {"a stopped one cannot be spared", {H(4, "bbtb")}, 1, 3, "01020304", 4, 4, 0, 1, 0, "01020304",
     false, false, NULL},
    {"rank 0 is waited for", {H(4, "tbbb")}, 1, 3, "01020304", 4, 1, 0, 1, 0, "01020304", false,
     false, NULL},
    {"one is stopped, one died", {H(4, "btxb")}, 1, 3, "01020304", 4, 1, 0, 1, 4, "0104", false,
     false, "rank 2"},
    {"a stopped one is back", {H(4, "bbwb")}, 1, 4, "010204", 4, 1, 0, 1, 0, "010204", true, false,
     NULL},
    {"the rest are going: one stays", {H(4, "lx")}, 1, 3, "0102", 2, 1, 0, 1, 4, "01", false, false,
     NULL},
};
/* clang-format on */

static void the_next_state_follows(void **unused)
{
    (void)unused;
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const row *r = &ROWS[i];
        print_message("%s\n", r->name);
        setup(f, r->hosts, r->n, r->generation, r->members);
        f->s.content.wanted = r->wanted;
        f->p.min = r->min;
        f->p.spares = r->spares;
        settle(f);
        f->p.grow_ns = f->p.failed_ns = 0;
        if (!next(f, r->now * SECOND))
            f->next = f->s.content;
        assert_int_equal(f->next.generation, r->to ? r->to : r->generation);
        check_members(&f->next, r->now_members);
        assert_int_equal(f->next.ending, r->ending);
        assert_int_equal(f->next.over, r->over);
        if (r->why)
            assert_non_null(strstr(r->over ? f->next.cause : f->next.why, r->why));
        if (r->to)
            assert_string_equal(f->next.store, "store");
    }
    free(f);
}

/* Members that are all alive, yet could not go on together, try again later and later. */
static void trying_again_slows_down(void **unused)
{
    (void)unused;
    fixture *f = calloc(1, sizeof *f);
    const host one[] = {H(4, "fo")};
    uint64_t now = SECOND, last = 0;
    assert_non_null(f);
    setup(f, one, 1, 3, "0102");
    f->s.content.wanted = 2;
    settle(f);
    f->p.failed_ns = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t begin = now;
        assert_false(next(f, now));
        assert_true(f->p.look_at > now && f->p.look_at != UINT64_MAX);
        now = f->p.look_at;
        assert_true(next(f, now));
        assert_int_equal(f->next.generation, 4);
        assert_true(now - begin > last);
        last = now - begin;
    }
    free(f);
}

/* Places go to the first hosts with room; what runs stays where it is. */
static void processes_are_spread(void **unused)
{
    (void)unused;
    fixture *f = calloc(1, sizeof *f);
    const host two[] = {H(2, ""), H(3, "")};
    assert_non_null(f);
    setup(f, two, 2, 0, "");
    assert_true(next(f, 1));
    assert_int_equal(f->next.target[0], 2);
    assert_int_equal(f->next.target[1], 2);
    f->s.content = f->next;
    f->report[1].order = 9, f->report[1].wanted = 3; /* the operator's word, from any agent */
    assert_true(next(f, 1));
    assert_int_equal(f->next.wanted, 3);
    assert_int_equal(f->next.target[0], 2);
    assert_int_equal(f->next.target[1], 1);
    f->s.content = f->next;
    f->report[0].slots = 0; /* the host is to be left */
    assert_true(next(f, 1));
    assert_int_equal(f->next.target[0], 0);
    assert_int_equal(f->next.target[1], 3);
    f->s.content = f->next;
    assert_false(next(f, 1));
    f->p.spares = 2;
    assert_true(next(f, 1));
    assert_int_equal(f->next.target[1],
                     4); /* of two spares the other belongs to a host without room */
    free(f);
}

/* One process on each of two hosts was asked to go, and is gone: both places are, each on its
 * host, whoever of the agents is heard first. */
TEST(places_that_are_given_up_on_two_hosts_are_both_gone)
{
    for (int at_once = 0; at_once < 2; at_once++) {
        fixture f;
        setup(&f, (const host[]){H(2, "bx"), H(2, "bx")}, 2, 5, "0111");
        f.s.content.target[0] = f.s.content.target[1] = 2;
        f.report[0].given_up = 1;
        f.report[1].given_up = (uint32_t)at_once;
        CHECK(next(&f, 1), "no change");
        f.s.content = f.next;
        f.report[1].given_up = 1;
        CHECK(next(&f, 1) == !at_once, "a place is counted twice, or not at all");
        CHECK_EQ_INT(f.next.wanted, 2);
        CHECK_EQ_INT(f.next.target[0], 1);
        CHECK_EQ_INT(f.next.target[1], 1);
        CHECK(!f.next.ending, "somebody else is to go");
        check_members(&f.next, "0111");
        f.report[0].order = 1, f.report[0].wanted = 4; /* the operator wants them back */
        f.s.content = f.next;
        CHECK(next(&f, 1), "no change");
        CHECK_EQ_INT(f.next.wanted, 4);
    }
}

/* It dies before it has left: the others stay, also the last of them. */
TEST(one_that_was_asked_to_go_and_dies_takes_nobody_along)
{
    fixture f;
    setup(&f, (const host[]){H(2, "bb"), H(2, "xb")}, 2, 5, "01021112");
    f.s.content.target[0] = f.s.content.target[1] = 2;
    f.report[1].given_up = 1;
    CHECK(next(&f, 1), "no change");
    CHECK_EQ_INT(f.next.wanted, 3);
    check_members(&f.next, "010212");
}

/* More are wanted than there is room for: it is a place that goes, not a wish. Below the least
 * number of ranks none goes. */
TEST(places_that_are_given_up_are_those_that_there_are)
{
    fixture f;
    setup(&f, (const host[]){H(3, "bbx")}, 1, 5, "0102");
    f.s.content.wanted = 8;
    f.s.content.target[0] = 3;
    f.report[0].given_up = 1;
    CHECK(next(&f, 1), "no change");
    CHECK_EQ_INT(f.next.target[0], 2);
    f.p.min = 2;
    f.s.content = f.next;
    f.report[0].given_up = 2;
    CHECK(next(&f, 1), "no change");
    CHECK_EQ_INT(f.next.wanted, 2);
    CHECK_EQ_INT(f.next.target[0], 2);
}

static void reports_are_checked(void **unused)
{
    (void)unused;
    td__place_report *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->n_procs = 2;
    size_t n = td__place_report_nbytes(r);
    assert_true(td__place_report_good(r, n));
    assert_false(td__place_report_good(r, n - 1));
    assert_false(td__place_report_good(r, n + 16));
    assert_false(td__place_report_good(r, 100));
    memset(r->host, 'x', sizeof r->host);
    assert_false(td__place_report_good(r, n));
    r->host[0] = 0;
    r->n_procs = TD_PLACE_PROCS + 1;
    assert_false(td__place_report_good(r, td__place_report_nbytes(r)));
    free(r);
}

/* Programs that want nothing of one another end by themselves, on a fast host before a slow one has
 * said what it can run. */
TEST(programs_of_every_host_run_before_the_job_is_over)
{
    fixture f;
    setup(&f, (const host[]){{1, "d", 0, false, false, false}, {1, "", 0, false, false, false}}, 2,
          0, "");
    f.p.report[1] = NULL;
    CHECK(next(&f, 1) && !f.next.over, "over without the second host");
    f.s.content = f.next;
    f.p.report[1] = &f.report[1];
    CHECK(next(&f, 2) && !f.next.over, "over before the second host has run anything");
    CHECK_EQ_INT(f.next.target[1], 1);
    setup(&f, (const host[]){{1, "d", 0, false, false, false}, {1, "d", 0, false, false, false}}, 2,
          0, "");
    CHECK(next(&f, 3) && f.next.over && !f.next.status, "not over");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_every_host_run_before_the_job_is_over),
        cmocka_unit_test(the_next_state_follows),
        cmocka_unit_test(trying_again_slows_down),
        cmocka_unit_test(processes_are_spread),
        cmocka_unit_test(places_that_are_given_up_on_two_hosts_are_both_gone),
        cmocka_unit_test(one_that_was_asked_to_go_and_dies_takes_nobody_along),
        cmocka_unit_test(places_that_are_given_up_are_those_that_there_are),
        cmocka_unit_test(reports_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
