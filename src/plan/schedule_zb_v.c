/* schedule_zb_v.c -- ZB-V (Qi et al. 2024): two chunks per stage in a V, so that a micro-batch
 * comes back to the stage where it began, and gradients of params are made while a stage would
 * wait. The first stage has the first and the last chunk, and so both uses of tied weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_write.h"

/* Chunks of half the size: the memory of 1F1B. */
static int in_flight(const td__schedule_case *c, int stage)
{
    (void)stage;
    return 2 * c->stages;
}

static td_status write_zb_v(td__schedule *s)
{
    return td__write_greedy(s, &td__schedule_zb_v, &(td__schedule_greedy){.in_flight = in_flight});
}

const td__schedule_def td__schedule_zb_v = {
    .name = "zb-v",
    .help = "two chunks per stage in a V, gradients of params made while a stage would wait",
    .per_stage = 2,
    .v_shaped = true,
    .write = write_zb_v};
