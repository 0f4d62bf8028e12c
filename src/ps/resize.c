/* resize.c -- elastic ranks whose servers come and go: how many there are in the generation that
 * begins (server_order.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "base/log.h"
#include "ps/ps.h"
#include "ps/server_order.h"

/* Rank 0: the number that is asked for, if the model and the job allow it; else the order is taken
 * back. */
static int find_servers(const td__sync_config *now, const td__sync_resizing *r)
{
    td__sync_config c = *now;
    int n = r->checkpoint_dir ? td__server_order_read(r->checkpoint_dir) : 0;
    td_status st = TD_OK;
    if (!n || n == c.servers)
        return c.servers;
    c.servers = n;
    if (n > 1 && !c.replicas)
        st = TD_FAIL(TD_EINVAL,
                     "parallel.servers: %d servers of elastic ranks need copies of "
                     "their shards: set parallel.replicas to 1",
                     n);
    if (!st)
        st = td__ps_check_params(&c, r->params);
    if (!st)
        return n;
    TD_LOG(WARN, TRAIN, "the run goes on with %d servers: %s", now->servers, td_last_error());
    if (td__server_order_write(r->checkpoint_dir, now->servers))
        TD_LOG(WARN, TRAIN, "%s", td_last_error());
    return now->servers;
}

static void say(const td__sync_config *c, const td__sync_resizing *r, int n)
{
    unsigned long long step = (unsigned long long)r->step + 1;
    if (r->begins)
        TD_LOG(
            WARN, TRAIN,
            "%d servers in the place of %d from step %llu on: the last order of this run (tandem "
            "scale); for %d remove %s/servers and resume again",
            n, c->servers, step, c->servers, r->checkpoint_dir);
    else
        TD_LOG(INFO, TRAIN, "%d servers in the place of %d from step %llu on", n, c->servers, step);
}

td_status td__ps_resize(td__sync_config *c, const td__sync_resizing *r)
{
    int32_t n = c->servers;
    bool first = td_comm_rank(r->comm) == 0;
    if (first)
        n = find_servers(c, r);
    TD_TRY(td_broadcast(r->comm, &n, 1, TD_I32, 0, NULL));
    if (n < 1 || n > TD__MOST_SERVERS)
        return TD_FAIL(TD_EPROTO, "rank 0 asks for %d servers", n);
    if (n != c->servers && first)
        say(c, r, n);
    c->servers = n;
    return TD_OK;
}
