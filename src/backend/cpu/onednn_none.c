/* onednn_none.c -- a build without oneDNN; see engine_onednn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/conv.h"
#include "backend/cpu/engine_onednn.h"

const char *td__onednn_version(void)
{
    return NULL;
}

unsigned td__onednn_alone(void)
{
    return 1;
}

void td__onednn_restore(unsigned team)
{
    (void)team;
}

td_status td__product_onednn_init(td__product *p)
{
    (void)p;
    return TD_ENOTSUP;
}

void td__product_onednn_fini(td__product *p)
{
    (void)p;
}

td_status td__product_onednn_pack(const td__product *p, void *packed, const void *b, void *scratch)
{
    (void)p, (void)packed, (void)b, (void)scratch;
    return TD_ENOTSUP;
}

td_status td__product_onednn_run(const td__product *p, void *c, void *pre, const void *a,
                                 const void *b, const float *bias, void *scratch)
{
    (void)p, (void)c, (void)pre, (void)a, (void)b, (void)bias, (void)scratch;
    return TD_ENOTSUP;
}

td_status td__conv_plan_onednn(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    (void)cpu, (void)v, (void)k;
    return TD_ENOTSUP;
}
