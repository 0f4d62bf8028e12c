/* bus_error.h -- which file was it, when a mapped one can no longer be read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_BUS_ERROR_H
#define TD_CMD_BUS_ERROR_H

/* From now on a bus error (SIGBUS) prints one line before it ends the process. */
void td__explain_bus_errors(void);

#endif
