/* mirror.h -- a run's checkpoints in remote storage (remote/remote.h): sent in the background while
 * the run goes on, and fetched to continue it elsewhere. URL/ holds
 *
 *     job.yaml                    the job as resolved
 *     step-00000100/...           the files of a checkpoint; state.json, which has the sha256 of
 *                                 all others, is sent last: without it there is no checkpoint
 *     latest, best                names of two of them, replaced after they are whole
 *     metrics.jsonl, report.html, ranks.jsonl, profile.txt, trace.json
 *                                 as far as the run has them: now and then, and at its end
 *
 * as a run's directory has them; and files of tables on servers (tables.h). If checkpoints come
 * faster than they can be sent, only the newest waits; the best and the last one are always sent.
 * Old ones are removed, state.json first, as checkpoint.keep says. Where ranks hold shards
 * (parallel.zero), each sends its own (shards.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_MIRROR_MIRROR_H
#define TD_MIRROR_MIRROR_H

#include "run/observer.h"

typedef struct td__mirror td__mirror;

/* Is this an address that checkpoints can be sent to? */
TD_NODISCARD td_status td__mirror_check(const char *url);
/* dir: the run's directory. next: an observer that is called too, after this one; may be NULL. */
TD_NODISCARD td_status td__mirror_create(const char *url, const char *dir, int keep,
                                         td__observer *next, td__mirror **out);
td__observer *td__mirror_observer(td__mirror *m);
/* Waits until all that is to be sent is there, for ten minutes without progress at most (a store
 * that has never answered: seconds), and ends. failed: the run has, and nobody waits for other
 * ranks or for a store that is away. The failure of the last one, if it could not be sent. NULL is
 * allowed. */
TD_NODISCARD td_status td__mirror_finish(td__mirror *m, bool failed);

/* What the ranks besides rank 0 do. It may observe on every rank: on rank 0 it does nothing. */
typedef struct td__shard_sender td__shard_sender;
TD_NODISCARD td_status td__shard_sender_create(const char *url, td__shard_sender **out);
td__observer *td__shard_sender_observer(td__shard_sender *s);
/* Waits as td__mirror_finish does; with failed not at all. NULL is allowed. */
void td__shard_sender_finish(td__shard_sender *s, bool failed);

/* Makes dir a run's directory with the newest checkpoint of url, unless it has that or a newer one
 * already. One process at a time; others wait and find it done. */
TD_NODISCARD td_status td__mirror_fetch(const char *url, const char *dir);
/* Has a checkpoint been sent there? */
TD_NODISCARD td_status td__mirror_any(const char *url, bool *any);

#endif
