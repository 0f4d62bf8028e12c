/* distribute_all_gather.c -- every block is cut in as many pieces as there are ranks: rank 0 gives
 * each rank a piece (scatter), and the ranks give each other theirs (all-gather). So rank 0 sends
 * its data once whatever the number of ranks, and all links carry the rest:
 *
 *     rank 0 sends  (n-1)/n + (n-1)/n  of the data,  every other rank  (n-1)/n */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/distribute/distribute.h"

static td_status move_blocks(td__spread *s, char *data, char *piece)
{
    for (int64_t b = 0; b < s->blocks; b++) {
        size_t each = (td__spread_nbytes(s, b) + (size_t)s->size - 1) / (size_t)s->size;
        if (s->rank == 0)
            TD_TRY(td__spread_load(s, b, data));
        TD_TRY(td_coll_scatter(s->comm, data, piece, each, TD_U8, 0, NULL));
        TD_TRY(td_all_gather(s->comm, piece, data, each, TD_U8, NULL));
        if (s->rank > 0)
            td__spread_store(s, b, data);
    }
    return TD_OK;
}

static td_status spread(td__spread *s)
{
    size_t each = (td__spread_room(s) + (size_t)s->size - 1) / (size_t)s->size;
    size_t room = each * (size_t)s->size;
    char *data = td__alloc_block(room), *piece = td__alloc_block(each);
    td_status st = data && piece ? move_blocks(s, data, piece)
                                 : TD_FAIL(TD_ENOMEM, "no memory for a block of %zu bytes", room);

    td__free_block(piece, each);
    td__free_block(data, room);
    return st;
}

const td__distribute_def td__distribute_all_gather = {
    .name = "all_gather",
    .help = "each rank gets a piece of a block, and the ranks exchange pieces",
    .spread = spread,
};
