/* null.c -- the null backend: every kernel does nothing. Plans, schedules and memory can be tested
 * with it at any size in no time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"
#include "base/alloc.h"
#include "base/fail.h"

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

static void null_destroy(td_backend *b)
{
    td__free(b);
}

static void null_enter(td_backend *b, unsigned *saved)
{
    (void)b;
    *saved = 0;
}

static void null_leave(td_backend *b, unsigned saved)
{
    (void)b;
    (void)saved;
}

static const td_backend_ops OPS = {
    .name = "null",
    .destroy = null_destroy,
    .alloc = td__host_alloc,
    .free = td__host_free,
    .plan = null_plan,
    .enter = null_enter,
    .leave = null_leave,
};

td_status td__null_create(td_backend **out)
{
    td_backend *b = td__calloc(1, sizeof *b);

    *out = b;
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for the null backend");
    b->ops = &OPS;
    return TD_OK;
}
