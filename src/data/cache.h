/* cache.h -- samples kept as they come out of the stages below. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_CACHE_H
#define TD_DATA_CACHE_H

#include "data/data.h"

/* The samples of base, kept in memory when first read (cache "memory"), or in a file: made at open
 * if it is not there or was made for other data, then mapped. base must outlive the cache. */
TD_NODISCARD td_status td__cache_open(td__dataset *base, const td__data_opts *o, td__part part,
                                      td__dataset **out);

#endif
