/* runner.h -- running a program in pieces, and several runs side by side.
 *
 * Gradients become final front to back (tandem/program.h, "Params"). Whoever wants to send them on
 * before backward ends runs the program in pieces: each until elements [0, count) of the block will
 * not change any more in this run. Statistics of the states, which lie behind the gradients, are
 * final with the last step. After which step how much is final is found once, when the runner is
 * made.
 *
 *     begin, until (rising counts; as often as one likes), end        all of it: td_runner_run()
 *
 * Between two pieces another runner may run on the same thread. Runs that take turns have their
 * activations each; what no piece leaves behind, or all make alike, one lends to the others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_RUNNER_H
#define TD_GRAPH_RUNNER_H

#include "device/block_cache.h"
#include "tandem/program.h"

void td__runner_begin(td_runner *r, td_run_key key);
/* As far as needed. Nothing is run if that much is final already. */
void td__runner_until(td_runner *r, size_t count);
/* The rest. Fails as td_runner_run(). */
TD_NODISCARD td_status td__runner_end(td_runner *r);

/* Values that are of all micro-batches of a batch (ops/op_sync_mean.c). How many a program has, and
 * numbers in value i, in the order in which they are met. */
int td__program_syncs(const td_program *p);
size_t td__program_sync_count(const td_program *p, int i);
/* Instead of `until`: up to the next one that is still to come, and where it lies: y, its unbiased
 * version u, n numbers each, and the elements that this micro-batch has behind each number (0: u is
 * not wanted). To be replaced by those of all micro-batches before the run goes on. */
typedef struct td__synced {
    float *y, *u;
    size_t n;
    int64_t count;
} td__synced;
td__synced td__runner_until_sync(td_runner *r);

/* A runner for the program and the params of `first`, which lends it scratch, packed weights and,
 * unless set otherwise, its block of gradients: one thread runs both, in turns. Destroyed before
 * `first`. */
TD_NODISCARD td_status td__runner_create_sibling(td_runner *first, td_runner **out);

/* A runner for `program`, or, if `first` is not NULL, a sibling of it, whose inputs lie in memory
 * of the caller: td__program_inputs() bytes that the program's device can read; borrowed. NULL: in
 * its own. */
TD_NODISCARD td_status td__runner_create_with(const td_program *program, td_params *params,
                                              td_runner *first, void *inputs, td_runner **out);
size_t td__program_inputs(const td_program *p);
/* Where an input of the program lies in that memory. */
size_t td__program_input_at(const td_program *p, const char *name);

/* Whether values between the pieces of a cut (graph/cut.h) stay in the memory of the device, where
 * the host does not read it: in the next runs td__runner_edge() is an address there, and others put
 * inputs that are edges where td__program_input_at() says, in the memory that the runner was made
 * with. Only the other inputs are sent there. */
void td__runner_keep_edges(td_runner *r, bool keep);
bool td__program_keeps_edges(const td_program *p); /* can its runners? */
/* An edge that another runner of the same rank has made becomes an input. */
TD_NODISCARD td_status td__runner_pass_edge(const td_runner *maker, int edge, td_runner *reader,
                                            const char *name);

/* What the next run would begin with after a change of the params, now: weights in the kernels' own
 * formats. */
void td__runner_prepare_ahead(td_runner *r);

/* Where the next runs put gradients and statistics: a block laid out as td_runner_grads(), which
 * then returns it, with zeros where nothing will be written; borrowed. NULL: the runner's own. */
void td__runner_set_grads(td_runner *r, float *block);

/* Is there such an input? Its size, where nbytes is not NULL. */
bool td__runner_reads(const td_runner *r, const char *name, size_t *nbytes);

/* Rows of an input of a run: row i lies `offset` bytes into block first + i of the set, or, where
 * the set does not have it, at rows + i times the size of a row. */
typedef struct td__block_rows {
    const td__block_set *set; /* ready; not let go of before the run has ended */
    size_t first, count, offset;
    const void *rows;
} td__block_rows;
TD_NODISCARD td_status td__runner_set_blocks(td_runner *r, const char *name,
                                             const td__block_rows *b);

/* What the stream of a device did in the last whole run, on its own clock: copies to it, kernels,
 * copies from it, one after the other, each with what it waited for. Only after they were asked to
 * be watched, and on a device with a clock (device.h); else false. Times are td__clock_ns(). */
enum { TD__STREAM_PARTS = 3 };
typedef struct td__stream_times {
    uint64_t at[TD__STREAM_PARTS + 1];
} td__stream_times;
void td__runner_watch_stream(td_runner *r, bool on);
bool td__runner_stream_times(const td_runner *r, td__stream_times *out);

/* The name of the node that is being run; NULL: none is. Any thread, while the runner lives. */
const char *td__runner_now(const td_runner *r);

#endif
