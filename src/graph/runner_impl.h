/* runner_impl.h -- the inside of runners, shared by runner*.c: runner_create.c makes one,
 * runner_values.c is its inputs and results, runner.c and runner_walk.c run it, runner_meet.c asks
 * other ranks for their pieces, runner_blame.c finds the first number that is not finite. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_RUNNER_IMPL_H
#define TD_GRAPH_RUNNER_IMPL_H

#include <stdatomic.h>

#include "graph/program_impl.h"
#include "graph/tensor.h"

typedef struct td__bound {
    td_kernel_call call;
    uint64_t calls, total_ns; /* while profiling */
} td__bound;

/* After step `step` elements [0, count) of the gradient block are final. */
typedef struct td__mark {
    int step;
    size_t count;
} td__mark;

/* A piece of a run as a tape (runner_tape.c). */
typedef struct td__runner_tape {
    int begin, end;
    const void *grads;
    td_tape *tape;
} td__runner_tape;
enum { TD__RUNNER_TAPES = 8 };

enum { TD__INPUT_BITS = 63 }; /* of td_runner.inputs_set; the last stands for all further ones */
struct td_runner {
    const td_program *p;
    td_params *ps;
    int *info_of;      /* by slot: index in ps */
    td_stream *stream; /* that carries out its kernels */
    void *space[TD_SPACE_COUNT];
    size_t space_bytes[TD_SPACE_COUNT];
    void *scratch, *packed;
    td_stream *branch; /* in tapes: of nodes that are carried out beside others; NULL: none are */
    td_mem branch_mem; /* their scratch */
    td_mem mem[TD_SPACE_COUNT], scratch_mem, packed_mem; /* those that are its own */
    td_mem key; /* the run's, as kernels see it: a td_run_ctx */
    /* Where the host cannot read the device's memory, copies that it can: of the inputs, taken when
     * a run begins, and of the roots' values, made when it ends. */
    td_mem inputs, results;
    uint64_t inputs_set;    /* bit by their order: set since the last run */
    uint64_t inputs_placed; /* those that are on the device already: td__runner_set_blocks() */
    td_mem pieces;          /* (inputs, piece_rows) pinned: copies of rows; made when needed */
    size_t piece_rows;
    bool inputs_by_hand; /* somebody has their address: all are sent before every run */
    bool inputs_sent;    /* they have been, once */
    bool edges_stay;     /* on the device: td__runner_keep_edges() */
    size_t *result_at;   /* by root: bytes */
    td__bound *steps;
    void **pointers; /* of all calls, one array */
    size_t n_pointers;
    void *own_grads; /* what space[TD_SPACE_GRAD] is unless set otherwise */
    td__mark *marks; /* rising in both */
    int n_marks;
    td_run_ctx ctx;
    int done, passed;  /* of the run under way: steps, marks */
    void *inputs_at;   /* the caller's memory for inputs; NULL: its own */
    td_runner *lender; /* whose scratch, packed weights and own gradients these are; NULL: own */
    uint64_t prepared; /* version of the params that `packed` was made from; 0: none */
    bool waits;        /* for each kernel, so that what fails is named: TANDEM_CUDA_WAIT */
    bool profile;
    td__timer *timer;      /* while profiling: the device's clock; NULL: the host's */
    td__timer *marks_of;   /* while streams are watched: of TD__STREAM_PARTS parts of a run */
    uint64_t stream_ended; /* td__clock_ns(), when the last run was seen to be over; 0: none */
    enum { TD__TAPE_UNKNOWN, TD__TAPE_ON, TD__TAPE_OFF } taping;
    td__runner_tape tapes[TD__RUNNER_TAPES];
    unsigned next_tape;
    td_tape *prepare_tape; /* of all preparations; NULL: none yet */
    td_comm *comm;         /* who has the other pieces of products; NULL: nobody */
    td__staging staging;   /* of what is exchanged with them */
    td_status failed;      /* an exchange of the run under way did; nothing else is run */
    char why[1024];
    atomic_int now; /* the step being run, from 1; 0: none. Any thread may look */
};

/* Where output k of n lies. */
void *td__runner_address(const td_runner *r, const td_node *n, int k);
/* May the host read what kernels read and write? */
static inline bool td__runner_host_reads(const td_runner *r)
{
    return td__device_host_reads(r->p->backend->device);
}
/* How many outputs of a root users read from the host; of gradients and statistics: none. */
static inline int td__root_results(const td__root *root)
{
    switch (root->kind) {
    case TD_ROOT_LOSS:
    case TD_ROOT_OUTPUT:
    case TD_ROOT_EDGE:
    case TD_ROOT_INPUT_GRAD: return 1;
    case TD_ROOT_SPARSE_GRAD: return 2; /* values and rows */
    default: return 0;
    }
}
/* Memory of an input that the host fills. */
void *td__runner_input_address(const td_runner *r, const td_node *n);
/* Output k of a root after a run, for the host. */
const void *td__runner_result(const td_runner *r, const td__root *root, int k);
/* The stream copies the inputs and the key to the device, or the results from it: all, or of one
 * phase (others may be read by somebody meanwhile). */
void td__runner_send(td_runner *r);
enum { TD__ALL_PHASES = -1 };
void td__runner_fetch(td_runner *r, int phase);
/* NULL if the program has none. */
const td__root *td__runner_root(const td_runner *r, td__root_kind kind, int index);
/* Post a kernel, or its preparation. */
void td__runner_launch(td_runner *r, const td_kernel_call *c, bool prepare);
/* Does the host do something between steps of a run: kernels of its own, or meetings? */
bool td__runner_stops(const td_runner *r);
/* Run steps [begin, end) as a tape; false: they are to be launched one by one. */
bool td__runner_play(td_runner *r, int begin, int end);
/* The same for the preparations of all steps, once after each change of the params. */
bool td__runner_play_prepare(td_runner *r);
void td__runner_launch_prepare(td_runner *r);
void td__runner_drop_tapes(td_runner *r);
/* Does the step need pieces that other ranks have? Then, after its kernel: ask for them. */
bool td__runner_meets(const td_node *n);
void td__runner_meet(td_runner *r, int step);
/* Weights in the kernels' own formats, if the params have changed. */
void td__runner_prepare(td_runner *r);

/* What a user can do about a loss that is not finite any more. */
#define TD_DIVERGED_HINT \
    "lower the learning rate (train.optimizer.lr) or clip gradients (train.clip)"
/* Why the loss of the run just made is not finite: always a failure (runner_blame.c). */
TD_NODISCARD td_status td__runner_blame(td_runner *r, const td_node *loss_node, float loss);

#endif
