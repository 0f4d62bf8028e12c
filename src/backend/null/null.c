/* null.c -- the null backend: every kernel does nothing. Plans, schedules and memory can be tested
 * with it at any size in no time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"

static void run_nothing(const td_kernel_call *c)
{
    (void)c;
}

static td_status null_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    (void)b;
    (void)is_param;
    *k = (td_kernel){.node = n, .impl = "null", .run = run_nothing};
    return TD_OK;
}

static const td_backend_ops OPS = {
    .name = "null",
    .destroy = td__host_destroy,
    .device = "host",
    .plan = null_plan,
    .enter = td__host_enter,
    .leave = td__host_leave,
};

td_status td__null_create(td_backend **out)
{
    return td__host_create(&OPS, sizeof(td_backend), out);
}
