/* sync_buckets.h -- what the rules share that send gradients bucket by bucket while backward still
 * runs (bucket_sum.h): exact data parallel between hosts, and compressors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_BUCKETS_H
#define TD_PARALLEL_SYNC_BUCKETS_H

#include "parallel/bucket_sum.h"
#include "parallel/step_plan.h"

/* The struct of such a rule. */
typedef struct td__sync_buckets {
    td__sync base;
    td__bucket_sum *sum;
    size_t *marks; /* by bucket: where it ends */
    td__step_stream stream;
    uint32_t step; /* the one under way */
} td__sync_buckets;

/* Parts of a td__sync_ops. create: compressor NULL: the tree. in_flight: late: no bucket leaves
 * before backward is over. */
TD_NODISCARD td_status td__sync_buckets_create(td__sync *s, const char *compressor,
                                               const td__compressor_opts *with);
void td__sync_buckets_destroy(td__sync *s);
TD_NODISCARD td_status td__sync_buckets_step(td__sync *s, double lr, td__step_result *out);
void td__sync_buckets_abandon(td__sync *s, const char *why);
void td__sync_buckets_plan(td__planner *w, const char *compressor, const td__compressor_opts *with);
int td__sync_buckets_in_flight(const td__sync_config *c, bool late);

#endif
