/* p2p_direct.c -- send and receive: one message, which transports move in pieces by themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

/* An empty message is sent too, so that both sides meet: as one byte. */
static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    char token = 0;
    void *data = c->count ? c->out : &token;
    size_t nbytes = c->count ? td__nbytes(c, c->count) : 1;

    if (c->kind == TD_COLL_SEND)
        TD_TRY(td__coll_send(x, m, x->xfers, c->root, data, nbytes));
    else
        TD_TRY(td__coll_recv(x, m, x->xfers, c->root, data, nbytes));
    return td__coll_wait(x, m, x->xfers, 1);
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    return td__rounds_cost(x, 1, 1) + (double)td__nbytes(c, c->count) * x->mesh->beta;
}

const td__algo td__algo_send_direct = {
    .kind = TD_COLL_SEND,
    .name = "direct",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};

const td__algo td__algo_recv_direct = {
    .kind = TD_COLL_RECV,
    .name = "direct",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};
