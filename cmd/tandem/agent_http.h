/* agent_http.h -- the HTTP server that this program gives to its agents. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_AGENT_HTTP_H
#define TD_CMD_AGENT_HTTP_H

#include "launch/foreign/http.h"

/* NULL: this program was built without one. */
const td__foreign_http *td__agent_http(void);

#endif
