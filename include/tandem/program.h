/* tandem/program.h -- from a graph to training steps: program (the plan), params (the numbers),
 * runner (the execution).
 *
 * A program is a graph after autodiff, rewrites and the memory plan, for one backend. Params hold
 * the trained numbers by name, in one block, so that several programs (training, evaluation) share
 * them. A runner executes a program on params; its steps allocate nothing.
 *
 * Threads   A program is read-only once made. A runner is used by one thread at a time; runners of
 *           different threads may share a program, and params as long as nobody updates them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PROGRAM_H
#define TD_PROGRAM_H

#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_program td_program;
typedef struct td_params td_params;
typedef struct td_runner td_runner;

/* Zero-initialise, then set what you need: zero always means "default". */
typedef struct td_program_opts {
    const char *backend;     /* "cpu" (default), "ref", "null", "far" (for tests) */
    td_dtype precision;      /* TD_F32 (default) or TD_BF16 */
    bool evaluate;           /* no gradients; dropout off, batch norm uses running averages */
    td_node *const *outputs; /* nodes to be readable after a run, besides the loss */
    int n_outputs;
    td_node *const *grad_inputs; /* inputs whose gradients are wanted, besides the params' */
    int n_grad_inputs;
    bool no_rewrites; /* run the graph as written: for tests and for finding culprits */
    bool no_reuse;    /* every value keeps its memory: for looking at them after a run */
    /* Sums in any order: other bits in every run, where kernels are faster for it (cuda). */
    bool nondeterministic;
} td_program_opts;

/* `loss` is a node of one f32 element (NULL with evaluate: outputs only). The graph is copied: it
 * may change or die afterwards. */
TD_NODISCARD TD_API td_status td_program_create(const td_graph *g, td_node *loss,
                                                const td_program_opts *opts, td_program **out);
TD_API void td_program_destroy(td_program *p); /* NULL is allowed */

typedef struct td_memory_plan {
    size_t activations;          /* the one block of all activations, after reuse: the peak */
    size_t activations_unshared; /* what it would be without reuse */
    size_t params, grads, states, packed, scratch, constants, inputs;
    size_t total; /* of a training runner with its own params, without optimizer state */
} td_memory_plan;
TD_API td_memory_plan td_program_memory(const td_program *p);

TD_API int td_program_node_count(const td_program *p);
TD_NODISCARD TD_API td_status td_program_write_text(const td_program *p, FILE *to);
TD_NODISCARD TD_API td_status td_program_write_dot(const td_program *p, FILE *to);

/* Params: names, shapes and one block, in the order in which backward makes gradients final.
 * Values start as their initialisers say, from `seed`. States (running averages) come along. */
TD_NODISCARD TD_API td_status td_params_create(const td_program *p, uint64_t seed, td_params **out);
TD_API void td_params_destroy(td_params *ps); /* NULL is allowed */

typedef struct td_param_info {
    const char *name;
    td_shape shape;
    size_t offset, count; /* elements in the block */
    bool is_state;
    bool sparse; /* gradient is row-sparse and not in the gradient block */
} td_param_info;
TD_API int td_params_count(const td_params *ps); /* params first, then states */
TD_API td_param_info td_params_info(const td_params *ps, int i);
TD_API int td_params_find(const td_params *ps, const char *name); /* -1 if there is none */
/* All params, then all states, in memory of the backend's device. The backends of today but "far"
 * compute in the host's memory; for all of them there are read and write. */
TD_API float *td_params_block(td_params *ps, size_t *count);
/* Elements [begin, begin + count) of the block. */
TD_NODISCARD TD_API td_status td_params_read(const td_params *ps, size_t begin, size_t count,
                                             float *to);
TD_NODISCARD TD_API td_status td_params_write(td_params *ps, size_t begin, size_t count,
                                              const float *from);
TD_API size_t td_params_trainable(const td_params *ps); /* elements of params alone */
/* To be called after writing to the block by hand; optimizers do it by themselves. */
TD_API void td_params_touch(td_params *ps);
/* sha256 over names, shapes and values, as 64 hex digits. */
TD_NODISCARD TD_API td_status td_params_digest(const td_params *ps, char hex[65]);
/* safetensors; every name must match in shape, unknown or missing names are errors. */
TD_NODISCARD TD_API td_status td_params_save(const td_params *ps, const char *path);
TD_NODISCARD TD_API td_status td_params_load(td_params *ps, const char *path);

/* A runner of p on ps (matched by name; borrowed, must outlive the runner). */
TD_NODISCARD TD_API td_status td_runner_create(const td_program *p, td_params *ps, td_runner **out);
TD_API void td_runner_destroy(td_runner *r); /* NULL is allowed */

/* The memory of an input, to be filled before a run; NULL if there is no such input. What is set
 * stays until it is set again; on a device with memory of its own, inputs whose address somebody
 * has go there before every run, and others when they were set. */
TD_API void *td_runner_input(td_runner *r, const char *name, size_t *nbytes);
TD_NODISCARD TD_API td_status td_runner_set_input(td_runner *r, const char *name, const void *data,
                                                  size_t nbytes);

/* What the run's random numbers are keyed by, besides the node: see DESIGN "same bits". */
typedef struct td_run_key {
    uint64_t seed;
    uint32_t step, micro_batch;
} td_run_key;

/* Forward and, in training programs, backward. Afterwards loss, outputs and gradients are valid
 * until the next run. TD_EINVAL naming the first bad node if the loss is NaN or infinite. */
TD_NODISCARD TD_API td_status td_runner_run(td_runner *r, td_run_key key);
TD_API float td_runner_loss(const td_runner *r);
/* opts.outputs[i] */
TD_API const void *td_runner_output(const td_runner *r, int i, size_t *nbytes);
TD_API const void *td_runner_grad_input(const td_runner *r, int i, size_t *nbytes);
/* The gradient block, in memory of the backend's device: one gradient per param element, at the
 * offsets of the params' block; then the new statistics of the states. */
TD_API float *td_runner_grads(td_runner *r, size_t *count);
/* Fold the statistics of the last run into the states (running averages). Optimizers call it. */
TD_API void td_runner_update_states(td_runner *r);

/* Row-sparse gradients of the last run: for param i, n rows (sorted, unique) and their values. */
typedef struct td_sparse_grad {
    int param; /* index in td_params */
    int64_t n_rows, width;
    const int32_t *rows;
    const float *values; /* (n_rows, width) */
} td_sparse_grad;
TD_API int td_runner_sparse_count(const td_runner *r);
TD_API td_sparse_grad td_runner_sparse_grad(const td_runner *r, int i);
TD_API td_params *td_runner_params(td_runner *r);

/* Time every node: switch on, run, read. */
typedef struct td_node_time {
    const char *name, *op, *impl;
    uint64_t calls, total_ns;
} td_node_time;
TD_API void td_runner_set_profile(td_runner *r, bool on);
TD_API int td_runner_profile_count(const td_runner *r);
TD_API td_node_time td_runner_profile(const td_runner *r, int i);

#ifdef __cplusplus
}
#endif
#endif
