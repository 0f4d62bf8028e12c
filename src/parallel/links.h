/* links.h -- communicators of two ranks, for threads that each talk with one other rank.
 *
 * A comm is used by one thread at a time, but comms are independent: a rank that has to listen to
 * several others at once, or to receive while it sends, has a link and a thread for each.
 *
 * On a link it is no failure that the other side is silent for long: it may compute, or have no
 * question. So links report no stalls. They end when a side is aborted, dies or leaves; one that
 * fails for a reason of its own aborts its links, or others wait for it.
 *
 * All functions are collective over the comm. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_LINKS_H
#define TD_PARALLEL_LINKS_H

#include "tandem/coll.h"

/* A wait that only the other side's life limits: milliseconds, 49 days. Where that side may be
 * stopped, the link keeps vigil (coll/vigil.h), which ends the wait. */
#define TD__LINK_IDLE_MS UINT32_MAX

/* Between rank 0 and each other rank: rank 0 gets all of them by rank (link[0] is NULL), another
 * rank its own as link[0]. link has room for as many as the comm has ranks; in a link rank 0 is
 * rank 0. On failure none is left. */
TD_NODISCARD td_status td__links_star(td_comm *comm, td_comm **link);
/* Between neighbours, in a line from rank 0 on: to the rank before and the one after; NULL: there
 * is none. The lower one is rank 0 of the two. */
TD_NODISCARD td_status td__links_line(td_comm *comm, td_comm **before, td_comm **after);

#endif
