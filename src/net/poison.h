/* poison.h -- the first failure of an object that several threads use, kept for ever: every later
 * call answers with it. A zeroed struct is good; nothing has to be released. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_POISON_H
#define TD_NET_POISON_H

#include <stdatomic.h>

#include "tandem/status.h"

typedef struct td__poison {
    atomic_int state; /* 0 none, 1 being written, 2 set */
    td_status status;
    char text[400];
} td__poison;

/* Keeps the first; true for the caller who set it. Any thread. */
bool td__poison_set(td__poison *p, td_status st, const char *text);

static inline bool td__poison_is_set(td__poison *p)
{
    return atomic_load_explicit(&p->state, memory_order_acquire) == 2;
}

/* TD_OK, or the failure again, with its text as this thread's last error. */
TD_NODISCARD td_status td__poison_check(td__poison *p);

#endif
