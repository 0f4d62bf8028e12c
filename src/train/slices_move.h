/* slices_move.h -- slices of optimizer state and params from the ranks that hold them to those that
 * are to hold them, memory to memory: at the start of a generation of an elastic run, whose map of
 * slices is another one, and before ranks go (elastic.h).
 *
 *   layout   which slices a rank holds: those of `rank` and of `mirror` in a world of `size` ranks
 *            (parallel/zero_map.h). A world of one: everything.
 *   cell     elements that are in one slice of every layout that is there, or is to be. For each
 *            cell every rank finds the same holders, and the same one of them to send it on.
 *
 * A cell goes straight from the memory of its holder to where it is to be, so that nobody needs
 * room for anything that it does not keep. What every rank holds whole (row-sparse params and their
 * state, running averages) goes to those who have nothing of the moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_SLICES_MOVE_H
#define TD_TRAIN_SLICES_MOVE_H

#include "optim/optimizer.h"
#include "tandem/coll.h"

typedef struct td__layout {
    int32_t size, rank, mirror; /* size 0: nothing; mirror -1: nobody */
} td__layout;

static inline bool td__layout_same(td__layout a, td__layout b)
{
    return a.size == b.size && a.rank == b.rank && a.mirror == b.mirror;
}

/* What a rank holds of the moment that all come to; n 0: nothing. */
enum { TD__MOST_LAYOUTS = 3 };
typedef struct td__holder {
    int n;
    td__layout layout[TD__MOST_LAYOUTS];
    bool whole; /* and all params */
} td__holder;

typedef struct td__move_opts {
    td_comm *comm;
    td_params *params;
    size_t bucket_nbytes;      /* of the maps */
    const td__holder *holders; /* by rank; all borrowed */
    const td__layout *to;      /* by rank */
} td__move_opts;

typedef struct td__move td__move;
/* Local. */
TD_NODISCARD td_status td__move_create(const td__move_opts *opts, td__move **out);
void td__move_destroy(td__move *m); /* NULL is allowed */
/* Elements of params that nobody holds; 0: nothing is missing. The same on all ranks. */
size_t td__move_missing(const td__move *m);
/* from: optimizers, in the order of this rank's layouts; to: of to[rank], which may be one of them;
 * NULL: nothing is to be held. Params move within the block. Collective; a failure leaves what the
 * rank holds as it was. */
TD_NODISCARD td_status td__move_run(td__move *m, td_optimizer *const *from, td_optimizer *to);

/* Who holds what in a world of n ranks with mirrors: host_of[ranks[i]] is the host of rank i of it;
 * ranks NULL: host_of[i]; host_of NULL: one host. */
TD_NODISCARD td_status td__layouts_of(const int *host_of, const int *ranks, int n, td__layout *out);
/* An optimizer that holds what the layout says, as at the beginning of a run. */
TD_NODISCARD td_status td__layout_optimizer(const td_optim_opts *opts, td_params *ps,
                                            td__layout layout, size_t bucket_nbytes,
                                            td_optimizer **out);

#endif
