/* compress.h -- a run with compressed gradients: what goes together, and who applies what.
 *
 * A compressor that takes the momentum (topk, onebit) applies it, and clipping by the norm, on
 * every rank before the sum; the optimizer then has neither. Its weight decay becomes wd / (1 -
 * momentum): the pull that it has with momentum once that is under way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_COMPRESS_H
#define TD_TRAIN_COMPRESS_H

#include "train/trainer.h"

enum { TD__WARMUP_AUTO = -1 }; /* reduce_with.warmup_steps: topk: a tenth of the run, else none */

/* "none" and the names of all compressors that compress, i = 0, 1, ...; NULL after the last. */
const char *td__compress_word(int i);
/* TD_EINVAL, with one line, if o->compressor cannot be with these options. */
TD_NODISCARD td_status td__compress_check(const td__train_opts *o);
/* Check; settle who applies what for a run of that many ranks. One rank alone reduces nothing. */
TD_NODISCARD td_status td__compress_resolve(td__train_opts *o, int ranks);
/* The warm-up in a run of that many steps. */
int64_t td__compress_warmup(const td__train_opts *o, uint64_t steps);

#endif
