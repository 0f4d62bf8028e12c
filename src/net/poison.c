/* poison.c -- the first failure, kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/poison.h"

#include <sched.h>
#include <stdio.h>

#include "base/deadline.h"
#include "base/fail.h"

enum { TEXT_MS = 500 }; /* far more than copying a line takes, also where cores are few */

bool td__poison_set(td__poison *p, td_status st, const char *text)
{
    int none = TD_OK;

    if (!atomic_compare_exchange_strong(&p->status, &none, (int)st))
        return false;
    snprintf(p->text, sizeof p->text, "%s", text);
    atomic_store_explicit(&p->told, true, memory_order_release);
    return true;
}

static bool has_text(td__poison *p)
{
    td__deadline until = 0;
    while (!atomic_load_explicit(&p->told, memory_order_acquire)) {
        until = until ? until : td__deadline_in_ms(TEXT_MS);
        if (td__deadline_passed(until))
            return false;
        sched_yield();
    }
    return true;
}

td_status td__poison_check(td__poison *p)
{
    td_status st = (td_status)atomic_load_explicit(&p->status, memory_order_acquire);
    if (!st)
        return TD_OK;
    return TD_FAIL(st, "%s", has_text(p) ? p->text : "a rank failed without a message");
}
