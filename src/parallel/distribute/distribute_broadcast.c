/* distribute_broadcast.c -- every block is broadcast; the collective chooses how (a tree, a chain,
 * shared memory). Rank 0 reads the next block while one is on its way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/distribute/distribute.h"

static td_status move_blocks(td__spread *s, char *const *data)
{
    td_work *work = NULL;
    td_status st = TD_OK, waited;

    for (int64_t b = 0; b < s->blocks && !st; b++) {
        if (s->rank == 0)
            st = td__spread_load(s, b, data[b % 2]);
        if (work) {
            waited = td_work_wait(work);
            work = NULL;
            st = st ? st : waited;
        }
        if (!st)
            st = td_broadcast(s->comm, data[b % 2], td__spread_nbytes(s, b), TD_U8, 0,
                              &(td_coll_opts){.work = s->rank == 0 ? &work : NULL});
        if (!st && s->rank > 0)
            td__spread_store(s, b, data[b % 2]);
    }
    if (work) {
        waited = td_work_wait(work);
        st = st ? st : waited;
    }
    return st;
}

static td_status spread(td__spread *s)
{
    size_t room = td__spread_room(s);
    char *data[2] = {td__alloc_block(room), td__alloc_block(room)};
    td_status st = data[0] && data[1]
                       ? move_blocks(s, data)
                       : TD_FAIL(TD_ENOMEM, "no memory for two blocks of %zu bytes", room);

    td__free_block(data[0], room);
    td__free_block(data[1], room);
    return st;
}

const td__distribute_def td__distribute_broadcast = {
    .name = "broadcast",
    .help = "blocks are broadcast; every rank keeps all samples",
    .spread = spread,
};
