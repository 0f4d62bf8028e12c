/* uses.c -- which steps of a program use which params (walk.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/program_impl.h"
#include "graph/walk.h"

int td__program_steps(const td_program *p)
{
    return p->n_steps;
}

size_t td__program_packed_most(const td_program *p)
{
    size_t most = 0;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].kernel.packed > most)
            most = p->steps[i].kernel.packed;
    return most;
}

/* The uses of step i; returns how many. at may be NULL. */
static int uses_of(const td_program *p, const td_params *ps, int i, td__param_use *at)
{
    const td_node *node = p->steps[i].node;
    int n = 0;

    for (int k = 0; k < node->n_in + node->n_out; k++) {
        bool in = k < node->n_in;
        const td__location *location =
            in ? td__location_of(p, node->in[k], 0) : td__location_of(p, node, k - node->n_in);
        if (location->space != (in ? TD_SPACE_PARAM : TD_SPACE_GRAD))
            continue;
        if (at)
            at[n] =
                (td__param_use){.step = i,
                                .param = td_params_find(ps, p->slots[location->slot].leaf->name),
                                .grad = !in};
        n++;
    }
    return n;
}

td_status td__program_uses(const td_program *p, const td_params *ps, td__param_use **out, int *n)
{
    *n = 0;
    for (int i = 0; i < p->n_steps; i++)
        *n += uses_of(p, ps, i, NULL);
    td__param_use *at = *out = td__calloc((size_t)*n + 1, sizeof *at);
    if (!at)
        return TD_FAIL(TD_ENOMEM, "no memory for %d uses of params", *n);
    for (int i = 0; i < p->n_steps; i++)
        at += uses_of(p, ps, i, at);
    return TD_OK;
}
