/* backend_auto.h -- which backend a job gets that leaves the choice to the machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_BACKEND_AUTO_H
#define TD_GRAPH_BACKEND_AUTO_H

/* What "auto" stands for on this machine: "cuda" where a GPU can be used, else "cpu". */
const char *td__backend_auto(void);

#endif
