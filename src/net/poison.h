/* poison.h -- the first failure of an object that several threads use, kept for ever: every later
 * call answers with it. A zeroed struct is good; nothing has to be released.
 *
 * That there is a failure is one word, set at once: a caller that reports a failure and finds that
 * another was quicker must not be told a moment later that all is well. Its text follows, and a
 * caller that comes in between waits for it. In memory that processes share, the one that wrote may
 * have been killed before it was through: then there is a failure without a text. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_POISON_H
#define TD_NET_POISON_H

#include <stdatomic.h>

#include "tandem/status.h"

typedef struct td__poison {
    atomic_int status; /* td_status: of the first failure */
    atomic_bool told;  /* the text is whole */
    char text[400];
} td__poison;

/* Keeps the first; true for the caller who set it. Any thread. */
bool td__poison_set(td__poison *p, td_status st, const char *text);

static inline bool td__poison_is_set(td__poison *p)
{
    return atomic_load_explicit(&p->status, memory_order_acquire) != TD_OK;
}

/* TD_OK, or the failure again, with its text as this thread's last error. */
TD_NODISCARD td_status td__poison_check(td__poison *p);

#endif
