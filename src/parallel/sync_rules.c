/* sync_rules.c -- the list of all sync rules. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/sync.h"

const td__sync_ops *const td__sync_rules[] = {
#define TD_SYNC(id) &td__sync_##id,
#include "parallel/sync.def"
#undef TD_SYNC
    NULL};
