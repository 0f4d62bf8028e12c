/* blocks.h -- named blocks of numbers that belong to the state of a run beside params and optimizer
 * states: "sync/<rule>/<name>" in optimizer.safetensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CHECKPOINT_BLOCKS_H
#define TD_CHECKPOINT_BLOCKS_H

#include <stddef.h>

#include "tandem/tensor.h"

enum { TD__CHECKPOINT_BLOCKS = 4, TD__BLOCK_NAME = 96 };

typedef struct td__checkpoint_block {
    const char *name;
    float *data; /* memory of the host */
    size_t count;
} td__checkpoint_block;

/* What blocks there are; can be sent to another process as it is. */
typedef struct td__block_list {
    char name[TD__CHECKPOINT_BLOCKS][TD__BLOCK_NAME];
    size_t count[TD__CHECKPOINT_BLOCKS];
    int n;
} td__block_list;

/* Copies of blocks; zeros: none. */
typedef struct td__block_copies {
    td__block_list list;
    float *data; /* one behind the other */
    size_t nbytes;
} td__block_copies;

TD_NODISCARD td_status td__block_copies_take(td__block_copies *c,
                                             const td__checkpoint_block *blocks, int n);
/* Room for that many bytes, for a list that is not there yet. */
TD_NODISCARD td_status td__block_copies_reserve(td__block_copies *c, size_t nbytes);
/* The copy of that name; NULL if there is none. */
const float *td__block_copies_find(const td__block_copies *c, const char *name, size_t *count);
void td__block_copies_fini(td__block_copies *c);
/* As n tensors for a file; both arrays have room for them. */
TD_NODISCARD td_status td__block_copies_list(const td__block_copies *c, td_tensor *tensors,
                                             td_named_tensor *items);

#endif
