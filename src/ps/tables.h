/* tables.h -- embedding tables on parameter servers (as XDL has them: Jiang and others, 2019): a
 * model reads a few rows of a table that no rank holds whole.
 *
 * In the graph such a table is a param with as many rows as a batch can name, and the ids of a
 * batch are its row numbers: before a batch is run, its ids are collected, each once, their rows
 * are pulled from the servers into the first rows of the param, and the field of ids becomes one of
 * row numbers (step/model.h, lookup). The row-sparse gradient of the param, which the engine has
 * added up over the micro-batches, is pushed by id after the batch.
 *
 * An id belongs to one server, by a hash. A server has a part of every table (id_table.h), and a
 * thread for every other rank that listens to it, servers too: the one that leads evaluates.
 *
 * Order    A worker pushes rows before its dense gradients, and servers keep them until server 0
 *          applies these: all servers apply the rows with them, in the one order of pushes
 *          (ps.h), by the learning rate of the worker's order. So rows that lie in a file are those
 *          of the batches that the checkpoint counts, and no others: a batch that is given out
 *          again, after a worker was lost or the run was resumed, updates its rows once. Where
 *          workers work together, gradients of all are added in the order of workers, to one
 *          update.
 * Files    In the run's folder of checkpoints, `tables/`: a server writes what has changed since
 *          its last file whenever ranks meet, and everything once in a while. A run is resumed on
 *          any number of servers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_TABLES_H
#define TD_PS_TABLES_H

#include "parallel/sync.h"

typedef struct td__ps_tables td__ps_tables;

/* Of the model that x is for; *out is NULL if it has none. TD_EINVAL if it has row-sparse gradients
 * of other params. Collective. */
TD_NODISCARD td_status td__ps_tables_create(const td__sync_ctx *x, int servers, bool together,
                                            td__ps_tables **out);
void td__ps_tables_destroy(td__ps_tables *t); /* NULL is allowed, for all */

/* Without servers, of a model that is trained: this process has all rows, of the files that belong
 * to the checkpoint of `step` in checkpoint_dir, which are read when the first batch is run. Of x:
 * optim, data, rows, and of step: set, params, program. *out is NULL if the model has none. */
TD_NODISCARD td_status td__ps_tables_read(const td__sync_ctx *x, const char *checkpoint_dir,
                                          uint64_t step, td__ps_tables **out);

/* No rank asks another any more. Rows, and what is kept of pushes, stay. */
void td__ps_tables_close(td__ps_tables *t);

/* This rank has failed: nobody is to wait for it. */
void td__ps_tables_abandon(td__ps_tables *t, const char *why);

/* A server: a worker is lost, or idle at the end of a run that has lost one: nobody waits until it
 * has closed its side. */
void td__ps_tables_lose(td__ps_tables *t, int rank, const char *why);

/* Are there more threads that wait for each other than processors? Then one that spins keeps
 * another, which has work, from running, and waits are to sleep at once. */
bool td__ps_tables_crowded(const td__ps_tables *t);

/* Has a server not answered a request of this rank in time? */
bool td__ps_tables_late(const td__ps_tables *t);

/* The server that has not answered while this rank waited for it, which has failed so; -1: none. */
int td__ps_tables_unanswered(const td__ps_tables *t);

/* A worker has run a batch: its gradients of rows go to the servers, which keep them; when it
 * returns, all of them have them. */
TD_NODISCARD td_status td__ps_tables_push(td__ps_tables *t, td__step_engine *e, double lr,
                                          uint64_t step);
/* Every server, in the order of server 0: update rows with what a worker, or all (-1), have pushed
 * in this step. What a server keeps of a step that is not applied goes with the worker's next. */
TD_NODISCARD td_status td__ps_tables_apply(td__ps_tables *t, int worker, uint64_t step);
/* Server 0, between steps, when the others have applied all that it has: all servers write or read
 * their files of this step. Without a folder of checkpoints, nothing. The param's rows become
 * zeros, which is what a checkpoint has of them. */
TD_NODISCARD td_status td__ps_tables_save(td__ps_tables *t, uint64_t step);
TD_NODISCARD td_status td__ps_tables_load(td__ps_tables *t, uint64_t step);

#endif
