/* ref.c -- the reference backend: every node runs its operator's own definition, in double. Slow,
 * and the judge of all others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host.h"
#include "backend/ref_exec.h"
#include "base/alloc.h"
#include "base/fail.h"

static td_status ref_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    (void)b;
    (void)is_param;
    return td__ref_exec_plan(n, k);
}

static void ref_destroy(td_backend *b)
{
    td__free(b);
}

static void ref_enter(td_backend *b, unsigned *saved)
{
    (void)b;
    *saved = 0;
}

static void ref_leave(td_backend *b, unsigned saved)
{
    (void)b;
    (void)saved;
}

static const td_backend_ops OPS = {
    .name = "ref",
    .destroy = ref_destroy,
    .alloc = td__host_alloc,
    .free = td__host_free,
    .plan = ref_plan,
    .enter = ref_enter,
    .leave = ref_leave,
};

td_status td__ref_create(td_backend **out)
{
    td_backend *b = td__calloc(1, sizeof *b);

    *out = b;
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for the reference backend");
    b->ops = &OPS;
    return TD_OK;
}
