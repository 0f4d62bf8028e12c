/* memory.h -- what a rank of a training run will need of memory, before it runs.
 *
 * Everything is planned, so this is a sum and not a guess, but for one row: `program`, the code,
 * its libraries and the data set, is what this process had when the trainer was made. With n ranks,
 * T compute threads, p bytes of weights, g of gradients (p but for row-sparse params, plus
 * statistics) and s of optimizer state (docs/parallel.md has the table):
 *
 *   weights      p, at stage 3 p/n and the buckets that are there at once; beside them the kernels'
 *                own formats: all, or at stage 3 those of one step
 *   gradients    g T of the runners and g for each partial of the micro-batch tree that is open;
 *   from stage 2 on a bucket and a little more optimizer    s; from stage 1 on s/n; with mirrors
 *   (elastic runs) both twice, and g/n in buffers activations  T times the planned block, inputs,
 *   constants, scratch; for training and evaluation; all but scratch for every micro-batch that a
 *   thread runs side by side buffers      what ranks exchange, batches read ahead, what rank 0
 *   writes checkpoints from
 *
 * An elastic rank has more while the world changes, until all have what they need: the shards that
 * it held in a world of n - 1 ranks beside those of its n; without shards, a second whole state.
 *
 * Pages of shared memory are counted for every rank that has them mapped, as the operating system
 * does. The rank that needs most is meant, which is rank 0 where it writes checkpoints. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_MEMORY_H
#define TD_TRAIN_MEMORY_H

#include "train/trainer.h"

#define TD__MEMORY_MAP(X)         \
    X(weights, "weights")         \
    X(grads, "gradients")         \
    X(optimizer, "optimizer")     \
    X(activations, "activations") \
    X(buffers, "buffers")         \
    X(program, "program")

typedef struct td__train_memory {
#define X(id, name) size_t id;
    TD__MEMORY_MAP(X)
#undef X
    size_t total;
    size_t changing; /* elastic: the total while the world changes; 0: it does not */
    size_t device;   /* of total, if the backend's memory is a device's: what is there */
} td__train_memory;

typedef struct td__memory_case {
    int ranks;
    const td__sync_config *sync; /* NULL: t's */
    bool shared;                 /* ranks share memory */
    bool saves;                  /* rank 0 writes checkpoints */
    bool elastic;                /* with shards, every rank holds those of another too */
} td__memory_case;

/* For t's job in this case, whatever it is in now. Programs are made where need be. */
TD_NODISCARD td_status td__trainer_memory(td__trainer *t, const td__memory_case *c,
                                          td__train_memory *out);

#endif
