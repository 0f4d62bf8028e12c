/* ref.c -- the reference backend: every node runs its operator's own definition, in double. Slow,
 * and the judge of all others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"
#include "backend/ref_exec.h"

static td_status ref_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    (void)b;
    (void)is_param;
    return td__ref_exec_plan(n, k);
}

static const td_backend_ops OPS = {
    .name = "ref",
    .destroy = td__host_destroy,
    .device = "host",
    .plan = ref_plan,
    .enter = td__host_enter,
    .leave = td__host_leave,
};

td_status td__ref_create(td_backend **out)
{
    return td__host_create(&OPS, sizeof(td_backend), out);
}
