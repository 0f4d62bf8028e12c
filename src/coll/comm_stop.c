/* comm_stop.c -- ending a comm from another thread, whether it is being made or in use. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "coll/world_link.h"

void td__comm_stop_init(td__comm_stop *s)
{
    *s = (td__comm_stop){0};
    pthread_mutex_init(&s->lock, NULL);
}

void td__comm_stop_fini(td__comm_stop *s)
{
    pthread_mutex_destroy(&s->lock);
}

void td__comm_stop_now(td__comm_stop *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    snprintf(s->why, sizeof s->why, "%s", why);
    if (s->comm)
        td_comm_abort(s->comm, why);
    else if (s->store)
        td__store_stop_waits(s->store, TD_EABORTED, why);
    pthread_mutex_unlock(&s->lock);
}

void td__comm_stop_reset(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = false;
    pthread_mutex_unlock(&s->lock);
}

void td__comm_stop_has(td__comm_stop *s, td_comm *c, td__store *store)
{
    pthread_mutex_lock(&s->lock);
    s->comm = c;
    s->store = store;
    if (s->stopped && c)
        td_comm_abort(c, s->why);
    else if (s->stopped && store)
        td__store_stop_waits(store, TD_EABORTED, s->why);
    pthread_mutex_unlock(&s->lock);
}

bool td__comm_stop_is_set(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    pthread_mutex_unlock(&s->lock);
    return stopped;
}

td_status td__comm_stop_check(td__comm_stop *s)
{
    pthread_mutex_lock(&s->lock);
    td_status st = s->stopped ? TD_FAIL(TD_EABORTED, "%s", s->why) : TD_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}
