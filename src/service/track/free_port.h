/* free_port.h -- ports of this host that nobody listens on, for groups that share its network. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_FREE_PORT_H
#define TD_SERVICE_TRACK_FREE_PORT_H

#include "tandem/status.h"

/* The first of n successive ports. They may be taken by others before the group does; its program
 * then fails and is tried again. */
TD_NODISCARD td_status td__free_ports(int n, int *out);

#endif
