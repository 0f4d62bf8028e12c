/* sync_downpour.c -- Downpour SGD (Dean and others, 2012): a worker works on its own copy of the
 * params w', fetches it anew every n_fetch batches, and pushes the sum of its gradients every
 * n_push batches.
 *
 *     worker:  every n_fetch batches w' <- w;  a <- a + g(w');  w' <- w' - lr g(w');
 *              every n_push batches push a, a <- 0
 *     server:  w <- update(w, a), by Adagrad if the job asks for it:
 *              s <- s + a^2,  w <- w - lr a / (sqrt(s) + eps) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ps/ps.h"

static const td__key OPTIONS[] = {
    TD_KEY_ROW("n_push", INT, "Batches between two pushes of a worker.", .lo = 1, .hi = 1e6,
               .def = "1"),
    TD_KEY_ROW("n_fetch", INT, "Batches between two pulls of a worker.", .lo = 1, .hi = 1e6,
               .def = "2"),
    TD_KEY_ROW("adagrad", BOOL, "Servers update by Adagrad, whatever the job's optimizer is.",
               .def = "false"),
    TD_KEYS_END};

static int push_every(const td__ps_rule *r)
{
    return (int)td__sync_value(&r->base, "n_push");
}

static int fetch_every(const td__ps_rule *r)
{
    return (int)td__sync_value(&r->base, "n_fetch");
}

static void resolve(td__sync_config *c, const td__sync_job *j, td_optim_opts *optim)
{
    (void)j;
    for (const td__key *k = OPTIONS; k->path; k++)
        if (strcmp(k->path, "adagrad") == 0 && td__sync_setting_of(c, k) > 0)
            *optim = (td_optim_opts){.name = "adagrad",
                                     .lr = optim->lr,
                                     .weight_decay = optim->weight_decay,
                                     .clip_norm = optim->clip_norm};
}

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {.push_every = push_every, .fetch_every = fetch_every};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_downpour = {
    .name = "downpour",
    .help = "parameter servers, asynchronous: workers go on from their own params between pulls "
            "(parallel.servers)",
    .promise = "a function of the order of pushes, replayable",
    .options = OPTIONS,
    .resolve = resolve,
    .unplanned = TD__PS_UNPLANNED,
    .traits = td__ps_traits,
    .create = create,
    TD__PS_RULE,
};
