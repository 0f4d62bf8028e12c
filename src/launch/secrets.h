/* secrets.h -- what only the members of one launch know: its secret, its name, its certificate.
 * Generated for each launch, kept in memory, and erased at its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_SECRETS_H
#define TD_LAUNCH_SECRETS_H

#include "net/store.h"

typedef struct td__job_secrets {
    td__secret secret;
    char job[40];     /* marks the processes of the job (TANDEM_JOB) */
    char *cert, *key; /* PEM; NULL without TLS */
} td__job_secrets;

/* *s is all zero, and to be ended also if this fails. */
TD_NODISCARD td_status td__job_secrets_init(td__job_secrets *s, bool tls);
void td__job_secrets_fini(td__job_secrets *s);

#endif
