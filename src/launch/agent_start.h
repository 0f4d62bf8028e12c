/* agent_start.h -- starting an agent: as a copy of this process here, through ssh elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_AGENT_START_H
#define TD_LAUNCH_AGENT_START_H

#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/message.h"
#include "launch/secrets.h"
#include "launch/spawn.h"

typedef struct td__agent_link {
    td__channel down;
    td__child child; /* of a local agent only pid and pidfd */
    char noise[200]; /* last line of its standard error */
    size_t noise_used;
    bool noise_whole; /* its end was read */
} td__agent_link;

TD_NODISCARD td_status td__agent_start(const td__launch_opts *o, const td__host *host,
                                       td__agent_link *a);
/* SPEC (agent_spec.h) of host `index`. */
TD_NODISCARD td_status td__agent_tell_spec(td__agent_link *a, const td__launch_opts *o,
                                           const td__job_secrets *s, const td__hosts *hosts,
                                           int index, const char *const *argv);
/* Take in what an agent says, message by message; *eof: it has ended, or talks nonsense. *unread:
 * take() gave TD_EPEER, because nobody reads our own output any more; that is no failure here. */
typedef td_status td__agent_take(void *user, int index, const td__msg *m);
TD_NODISCARD td_status td__agent_hear(td__agent_link *a, td__agent_take *take, void *user,
                                      int index, bool *eof, bool *unread);
/* Hear what a remote shell writes to its standard error: its last line explains its failure. */
void td__agent_noise(td__agent_link *a);
/* Close its pipe: an agent that still runs kills its ranks and ends. Killed if it does not. */
void td__agent_release(td__agent_link *a, int patience_ms);

#endif
