/* schedule_interleaved.c -- interleaved 1F1B (Narayanan et al. 2021): each stage has several
 * chunks, every stages-th of the model, and micro-batches pass them in groups of `stages`. The
 * pipeline fills in a shorter time, as a chunk is a smaller piece of work. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

/* Forward runs that stage has made when its first backward one comes. */
static int ahead_of(const td__schedule_case *c, int stage)
{
    int each = c->chunks / c->stages;
    return 2 * (c->stages - 1 - stage) + (each - 1) * c->stages;
}

static int in_flight(const td__schedule_case *c, int stage)
{
    return ahead_of(c, stage) + 1;
}

/* The chunk of the stage's k-th run in one direction. */
static int chunk_of(const td__schedule_case *c, int stage, int k, bool backward)
{
    int each = c->chunks / c->stages, nth = k / c->stages % each;
    return stage + c->stages * (backward ? each - 1 - nth : nth);
}

static void write_groups(td__schedule *s)
{
    const td__schedule_case *c = &s->of;
    int runs = c->chunks / c->stages * c->micro_batches;
    for (int stage = 0; stage < c->stages; stage++) {
        int ahead = ahead_of(c, stage) < runs ? ahead_of(c, stage) : runs;
        for (int k = 0; k < runs + ahead; k++) {
            if (k < runs)
                td__write_forward(s, stage, chunk_of(c, stage, k, false));
            if (k >= ahead)
                td__write_backward(s, stage, chunk_of(c, stage, k - ahead, true));
        }
    }
}

/* Where there is a group with fewer, there is no simple pattern; and where chunks do not all take
 * the same, it may not be the best. */
static td_status write_interleaved(td__schedule *s)
{
    if (s->of.micro_batches % s->of.stages == 0)
        write_groups(s);
    return td__write_greedy(s, &td__schedule_interleaved,
                            &(td__schedule_greedy){.in_flight = in_flight, .weight_at_once = true});
}

const td__schedule_def td__schedule_interleaved = {
    .name = "interleaved",
    .help = "1f1b with several chunks per stage: a smaller bubble for more messages",
    .write = write_interleaved};
