/* place.h -- where a group's members are, and with which GPUs, where the service says so itself:
 * a file in the job's directory, written before the members are started, from which the next
 * service knows what is taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_PLACE_H
#define TD_SERVICE_TRACK_PLACE_H

#include "service/track/launch.h"

/* l->parts and l->gpus, as far as they are set; hosts: names by number. */
TD_NODISCARD td_status td__place_write(const td__launch *l, const char *const *hosts);
/* Sets l->parts and l->gpus, of an earlier service with this token: false if there is no such file,
 * or one that does not fit the group or these hosts. */
bool td__place_read(td__launch *l, const char *const *hosts, int n_hosts);

/* Which of the hosts such a file names; false: there is none, or one that names no host. */
bool td__place_hosts(const char *path, const char *const *hosts, int n_hosts, bool *named);

/* "HOST", "HOST:SLOTS", "HOST:SLOTS/GPUS". nbytes: of the host's name; gpus -1: not said. */
bool td__place_parse_host(const char *text, size_t *nbytes, int *slots, int *gpus);

#endif
