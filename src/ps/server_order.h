/* server_order.h -- how many parameter servers an elastic run is to have from its next generation
 * on: the operator's last word (`tandem scale RUN N --servers S`), in the file `servers` of the
 * run's folder of checkpoints. Rank 0 reads it between steps, ends the generation if it asks for
 * another number, and tells all ranks when the next one begins. It holds for the run, also when
 * that is resumed, unless the job says another number then (--servers). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_SERVER_ORDER_H
#define TD_PS_SERVER_ORDER_H

#include "tandem/status.h"

enum { TD__MOST_SERVERS = 1024 };

TD_NODISCARD td_status td__server_order_write(const char *checkpoint_dir, int servers);
/* 0: there is none. */
int td__server_order_read(const char *checkpoint_dir);
/* What it was before: `servers` of an earlier read. */
TD_NODISCARD td_status td__server_order_restore(const char *checkpoint_dir, int servers);

#endif
