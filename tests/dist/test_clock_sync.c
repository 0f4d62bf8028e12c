/* test_clock_sync.c -- clocks of several ranks: offsets and drifts that are known, found again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "coll/clock_sync.h"
#include "support/check.h"
#include "support/ranks.h"

/* A clock that is `offset` ahead of the true time at 0 and runs faster by `drift`. */
typedef struct wrong_clock {
    double offset_ns, drift;
    uint64_t zero_ns;
} wrong_clock;

static uint64_t read_at(const wrong_clock *w, double true_ns)
{
    return (uint64_t)(int64_t)(true_ns + w->offset_ns + w->drift * true_ns);
}

/* Delays of a network, by a small generator of our own: 20 us and now and then much more. */
static double delay_ns(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    double u = (double)(*state >> 8) / (double)(1u << 24);
    return 20e3 + (u > 0.7 ? 1e6 * (u - 0.7) : 1e3 * u);
}

static td__clock_sample measure(const wrong_clock *own, const wrong_clock *first, double at,
                                uint32_t *state)
{
    td__ping pings[16];
    for (int i = 0; i < TD_LEN(pings); i++) {
        double there = at + delay_ns(state), back = there + delay_ns(state);
        pings[i] = (td__ping){.sent_ns = read_at(own, at),
                              .there_ns = read_at(first, there),
                              .got_ns = read_at(own, back)};
        at = back;
    }
    return td__clock_best(pings, TD_LEN(pings));
}

static const struct {
    double offset_s, drift, run_s;
} CASES[] = {
    {0, 0, 10},          {5, 0, 10},       {-5, 0, 10},       {1e5, 30e-6, 60},
    {-1e5, -30e-6, 600}, {0, 200e-6, 600}, {1e7, -200e-6, 1}, {3, 10e-6, 86400},
};

TEST(offset_and_drift)
{
    uint32_t state = 7;
    for (int i = 0; i < TD_LEN(CASES); i++) {
        /* Rank 0's machine has been up for long. */
        wrong_clock first = {.offset_ns = 2e16};
        wrong_clock own = {.offset_ns = 2e16 + 1e9 * CASES[i].offset_s, .drift = CASES[i].drift};
        double end = 1e9 * CASES[i].run_s;
        td__clock_map m = {.start = measure(&own, &first, 0, &state),
                           .end = measure(&own, &first, end, &state)};
        double error = fmax(m.start.error_ns, m.end.error_ns);
        CHECK(error < 30e3, "case %d: a round trip of %g us was not chosen", i, 2e-3 * error);
        for (int k = 0; k <= 10; k++) {
            double t = end * k / 10;
            double off = td__clock_to_first(&m, read_at(&own, t)) - (double)read_at(&first, t);
            CHECK(fabs(off) <= error + 100, "case %d, %g s: %g ns off, %g allowed", i, 1e-9 * t,
                  off, error);
        }
    }
}

static uint64_t read_wrong(void *user)
{
    const wrong_clock *w = user;
    return read_at(w, (double)(td__clock_ns() - w->zero_ns));
}

/* Over real messages: each rank is a second ahead of the one before it. */
static void body(ranks_ctx *r)
{
    const uint64_t *zero = r->arg;
    wrong_clock own = {1e9 + 1e9 * r->rank, 0, *zero};
    td__clock_sample s;

    RANK_OK(r, td__clock_measure(r->comm, read_wrong, &own, &s));
    double want = -1e9 * r->rank;
    RANK_CHECK(r, fabs(s.offset_ns - want) <= s.error_ns + 1, "offset %g, not %g within %g",
               s.offset_ns, want, s.error_ns);
    RANK_CHECK(r, r->rank == 0 || s.error_ns > 0, "no ping was exchanged");
    RANK_OK(r, td__clock_measure(r->comm, NULL, NULL, &s));
    RANK_CHECK(r, s.offset_ns == 0 && s.error_ns == 0, "ranks of one host share a clock");
}

TEST(over_messages)
{
    uint64_t zero = td__clock_ns();
    ranks_run(1, NULL, body, &zero);
    ranks_run(3, NULL, body, &zero);
    ranks_run(4, &(ranks_opts){.transport = "tcp"}, body, &zero);
}

static void across_hosts(ranks_ctx *r)
{
    td__clock_sample s;
    RANK_OK(r, td__clock_measure(r->comm, NULL, NULL, &s));
    RANK_CHECK(r, fabs(s.offset_ns) <= s.error_ns + 1, "offset %g within %g", s.offset_ns,
               s.error_ns);
    RANK_CHECK(r, (s.error_ns > 0) == (r->rank >= 2), "rank %d: error %g", r->rank, s.error_ns);
}

TEST(other_hosts_are_measured)
{
    ranks_run(4, &(ranks_opts){.transport = "tcp", .per_host = 2}, across_hosts, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offset_and_drift),
        cmocka_unit_test(over_messages),
        cmocka_unit_test(other_hosts_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
