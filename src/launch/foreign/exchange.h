/* exchange.h -- what the agents of a generation tell each other for foreign programs: values under
 * keys, and an all-gather over hosts, both in the rendezvous store.
 *
 * Waits end with td__exchange_stop, when the generation does: a rank that never comes is the
 * launcher's affair, which ends all ranks when one fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_EXCHANGE_H
#define TD_LAUNCH_FOREIGN_EXCHANGE_H

#include "launch/agent_spec.h"
#include "net/store.h"

typedef struct td__exchange {
    td__store *store; /* NULL: not open */
    int host, n_hosts;
} td__exchange;

enum { TD_EXCHANGE_ASK_MS = 10000 }; /* for an answer of the store that waits for no rank */

TD_NODISCARD td_status td__exchange_init(td__exchange *x, const td__agent_spec *s,
                                         const char *store);
void td__exchange_stop(td__exchange *x);
void td__exchange_fini(td__exchange *x);

/* All-gather between the n hosts of `hosts` (rising numbers, this one among them; NULL: all): the
 * bytes of each, in the order of hosts, end to end. `name` is the same on all, and of this one
 * exchange. *out is the caller's (td__free), and not NULL. */
TD_NODISCARD td_status td__exchange_all(td__exchange *x, const char *name, const int *hosts, int n,
                                        const void *data, size_t nbytes, void **out,
                                        size_t *out_nbytes);

#endif
