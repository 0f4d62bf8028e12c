/* kept_samples.h -- samples of a dataset that are kept as blocks (device/block_cache.h) when they
 * were prepared once: read, decoded, mapped. The next epoch takes them from memory of the device or
 * from pinned memory, or reads them from the file level; the model's inputs are put together there
 * by one launch for each input, instead of being prepared and copied again.
 *
 * A block is a sample: its fields one after the other, each at a multiple of 64 bytes. Bits are the
 * same with and without it, as blocks are copies of what was read. For samples that are the same in
 * all epochs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_KEPT_SAMPLES_H
#define TD_STEP_KEPT_SAMPLES_H

#include "data/loader.h"
#include "device/block_cache.h"
#include "graph/runner.h"

typedef struct td__kept_samples td__kept_samples;

/* level: bytes of each level; the file lies in $TMPDIR (/tmp). */
TD_NODISCARD td_status td__kept_samples_create(const td__dataset *d, td_device *device,
                                               const size_t level[TD_BLOCK_LEVELS],
                                               td__kept_samples **out);
/* Would create() refuse the levels? */
TD_NODISCARD td_status td__kept_samples_check(const td__dataset *d,
                                              const size_t level[TD_BLOCK_LEVELS]);
void td__kept_samples_destroy(td__kept_samples *k); /* after the loaders; NULL is allowed */
const td__sample_keeper *td__kept_samples_keeper(const td__kept_samples *k);
int64_t td__kept_samples_room(const td__kept_samples *k); /* of the host level, in samples */
td__block_counters td__kept_samples_count(const td__kept_samples *k);

/* Field f of rows [at, at + rows) of a batch with kept rows is the runner's next input. */
TD_NODISCARD td_status td__kept_rows_feed(const td__batch *batch, int f, int64_t at, int64_t rows,
                                          td_runner *r, const char *input);

#endif
