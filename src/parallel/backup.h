/* backup.h -- backup workers (Chen, Pan, Monga, Bengio, Jozefowicz: Revisiting Distributed
 * Synchronous SGD, 2016): of n + b ranks that work on a step, the n that are done first count, and
 * the work of those that come later is dropped. So b slow ranks hold nobody up.
 *
 * Rank 0 has the weights and makes the updates, as the parameter servers of the paper. To each
 * other rank it has a link and a thread (links.h), which does in turn:
 *
 *     order   {step, where its batches begin} and the weights        rank 0 -> rank r
 *     share   {step, rows, ...} and the gradients of rank r's rows   rank r -> rank 0
 *
 * A share that arrives while its step is open and fewer than n are there counts; any other is
 * dropped. Either way the rank then gets the newest step that is open, or the next one to be
 * opened, with the weights that belong to it: one that is late goes on with the others, however
 * many steps it has missed. Rank 0 works on a share of its own, which always counts, as there is no
 * update before it is done with it.
 *
 * Threads   Rank 0: open, close and end by one thread. The others: next and hand_in by one.
 * Failure   What happens on one link (the rank died, or aborted) is what close and end return. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_BACKUP_H
#define TD_PARALLEL_BACKUP_H

#include "step/grad_tree.h"
#include "tandem/coll.h"

/* Numbers that a rank gives with a share, for those who watch: nobody looks at them here. */
enum { TD__BACKUP_NOTES = 10 };

typedef struct td__backup_opts {
    td_comm *comm;         /* borrowed */
    size_t grads, params;  /* floats of a share, and of the weights */
    int lists;             /* row-sparse gradients of a share */
    const int64_t *widths; /* (lists) values in a row; copied */
} td__backup_opts;

/* What a rank is to work on. */
typedef struct td__backup_order {
    bool end; /* on nothing: training is over, and these are its weights */
    uint64_t step, epoch;
    int64_t batch; /* in the epoch, the step's first one */
} td__backup_order;

typedef struct td__backup td__backup;
TD_NODISCARD td_status td__backup_create(const td__backup_opts *o,
                                         td__backup **out); /* collective */
/* NULL is allowed; ranks that still wait for each other are told so. */
void td__backup_destroy(td__backup *b);
/* Let nobody wait any more. Any thread. */
void td__backup_abort(td__backup *b, const char *why);

/* Rank 0. Open a step whose weights are params, which do not change before close has returned. It
 * needs `needed` shares of other ranks: the first ones, or, with `only` (by rank; borrowed until
 * close), those of these ranks. */
void td__backup_open(td__backup *b, const td__backup_order *order, const float *params, int needed,
                     const bool *only);
/* Wait for the shares. rank, share: room for all ranks but one; in the order of ranks, valid until
 * the next step is opened. *stop: some rank asks to stop. */
TD_NODISCARD td_status td__backup_close(td__backup *b, int *rank, td__grad_share *share, int *n,
                                        bool *stop);
/* Whose share was the last that the step waited for; 0: it needed none. */
int td__backup_last(td__backup *b);
/* The newest notes of another rank, zeros before the first; bytes of weights sent so far. */
void td__backup_notes(td__backup *b, int rank, double *out);
uint64_t td__backup_sent(td__backup *b);
/* All others get the last weights; those that are late are waited for. */
TD_NODISCARD td_status td__backup_end(td__backup *b, const float *params);
/* Shares dropped so far, by rank; (ranks). */
void td__backup_dropped(td__backup *b, uint64_t *out);

/* The others. */
TD_NODISCARD td_status td__backup_next(td__backup *b, float *params, td__backup_order *order);
TD_NODISCARD td_status td__backup_hand_in(td__backup *b, uint64_t step, const td__grad_share *share,
                                          const double *notes, bool stop);

#endif
