/* poison.c -- the first failure, kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/poison.h"

#include <stdio.h>

#include "base/fail.h"

bool td__poison_set(td__poison *p, td_status st, const char *text)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&p->state, &none, 1))
        return false;
    p->status = st;
    snprintf(p->text, sizeof p->text, "%s", text);
    atomic_store_explicit(&p->state, 2, memory_order_release);
    return true;
}

td_status td__poison_check(td__poison *p)
{
    return td__poison_is_set(p) ? TD_FAIL(p->status, "%s", p->text) : TD_OK;
}
