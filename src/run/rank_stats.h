/* rank_stats.h -- where the time of all ranks goes, for those who watch the run.
 *
 * Every rank adds up its own steps. Now and then, about twice a second, and at the end all of them
 * exchange what they have, so that rank 0 can say who waits for whom. When, is a function of
 * numbers that all have from the exchange before: the ranks agree without asking. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_RANK_STATS_H
#define TD_RUN_RANK_STATS_H

#include "tandem/coll.h"
#include "run/observer.h"

typedef struct td__rank_stats td__rank_stats;

/* comm: borrowed. NULL with size 1: one rank, which has something to say at the end only. NULL with
 * more: rank 0, which is told by put and blame what the others did, who call nothing here. */
TD_NODISCARD td_status td__rank_stats_create(td_comm *comm, int size, td__rank_stats **out);
void td__rank_stats_destroy(td__rank_stats *s); /* NULL is allowed */

/* This rank's part of a step; memory is filled in here. */
void td__rank_stats_add(td__rank_stats *s, const td__rank_times *step);
/* Without a comm: what rank `rank` has done since the start, and what was waited because of it. */
void td__rank_stats_put(td__rank_stats *s, int rank, const td__rank_times *total);
void td__rank_stats_blame(td__rank_stats *s, int rank, double seconds);
/* After step `step`: *e has n ranks if there is something to tell, n == 0 otherwise; valid until
 * the next call. end: whatever is left. Collective. */
TD_NODISCARD td_status td__rank_stats_tell(td__rank_stats *s, uint64_t step, bool end,
                                           td__ranks_event *e);

#endif
