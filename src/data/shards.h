/* shards.h -- a part of data in several files, named by a range: train-{000..011}.tar. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SHARDS_H
#define TD_DATA_SHARDS_H

#include "base/file.h"

/* Maps the files, in order. *maps is freed with td__free and its files closed by the caller, also
 * after a failure: *n of them are open. */
TD_NODISCARD td_status td__shards_open(const char *source, const char *dir, const char *name,
                                       const char *expected, td__file_map **maps, int *n);

#endif
