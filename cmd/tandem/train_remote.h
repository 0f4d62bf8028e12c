/* train_remote.h -- `tandem train` and remote storage: checkpoint.upload, --resume=URL. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_TRAIN_REMOTE_H
#define TD_CMD_TRAIN_REMOTE_H

#include "train_impl.h"

/* Is checkpoint.upload carried out by this program? */
#ifdef TD_HAVE_SERVICE
#define TD_UPLOADS true
#else
#define TD_UPLOADS false
#endif

/* --resume=URL: the newest checkpoint there becomes a run's directory, --run-dir or runs/NAME with
 * the last name of the address, and --resume means that. */
TD_NODISCARD td_status td__training_fetch(td__training *t);
/* After the job is loaded: addresses that are none, and directories that are addresses. */
TD_NODISCARD td_status td__training_check_urls(const td__training *t);
/* As rank 0: an observer before `next`, if the job uploads; else `next`. */
td__observer *td__training_upload(td__training *t, td__observer *next);
/* Once the trainer is there, on every rank: what it holds of checkpoints is sent by itself
 * (parallel.zero). sent: waits for that, unless the run has failed. */
TD_NODISCARD td_status td__training_send_shards(td__training *t);
void td__training_sent_shards(td__training *t, int rc);
/* No longer rank 0, or over: waits for what is under way. rc, or failed if the last checkpoint did
 * not arrive. */
int td__training_uploaded(td__training *t, int rc);

#endif
