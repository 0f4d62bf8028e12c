/* parts.h -- data.partition: which batches of an epoch are whose, where each worker has samples of
 * its own. Batches are not dealt by speed then: an epoch is each worker's own part once, in as many
 * batches as the size of its part asks for, and a worker that is done with them waits for the next
 * epoch. Steps are dealt out as evenly as can be, so that the first ones of an epoch are all
 * workers' too. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_PARTS_H
#define TD_PS_PARTS_H

#include "tandem/status.h"

typedef struct td__ps_part {
    int worker;
    int64_t index; /* among the steps of that worker */
} td__ps_part;

/* Of each of n steps of an epoch, into out. weights: (n_weights) sizes of parts, one for each
 * worker; NULL: equal. TD_EINVAL if they are of another number of workers, or all 0. */
TD_NODISCARD td_status td__ps_parts_fill(int workers, const int64_t *weights, int n_weights,
                                         int64_t n, td__ps_part *out);

#endif
