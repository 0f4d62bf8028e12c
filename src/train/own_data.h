/* own_data.h -- data.partition: ranks that train on samples of their own (data/partition.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_OWN_DATA_H
#define TD_TRAIN_OWN_DATA_H

#include "data/loader.h"
#include "train/trainer.h"

enum { TD__PARTITION_WEIGHTS = 1024 }; /* ranks of a weighted partition, at most */

/* TD_EINVAL with one line where the rule's ranks do not have params of their own, or weights do not
 * fit. */
TD_NODISCARD td_status td__partition_check(const td__train_opts *o, const td__sync_world *w);
/* Into the options of the rank's loader; weights: room that lives until the loader is made. */
void td__partition_set(const td__train_opts *o, const td__sync_traits *traits, int rank, int ranks,
                       double weights[TD__PARTITION_WEIGHTS], td__loader_opts *out);

#endif
