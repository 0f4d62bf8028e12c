/* op.h -- what an operator is: one td_op_def in one file, and one line in ops.def. The conformance
 * and gradient tests pick it up by themselves (CONTRIBUTING.md, "Add an operator").
 *
 * Reference kernels compute in double, whatever the dtype of the node: the caller widens floating
 * inputs to double before and rounds the results once after. So the judge of every faster kernel is
 * more exact than what it judges, and the same code serves f64 gradient checks. Integer and bool
 * inputs come as they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_H
#define TD_OPS_OP_H

#include "ops/node.h"

/* What a run is keyed by; see base/rng.h. */
typedef struct td_run_ctx {
    uint64_t seed;
    uint32_t step;
    uint32_t micro_batch;
} td_run_ctx;

typedef struct td_op_args {
    int n_in, n_out;
    const td_desc *const *in_desc; /* n_in pointers */
    const void *attr;
    /* For ref only: */
    const td_desc *out_desc; /* n_out descs, all PLAIN */
    const void *const *in;   /* float inputs as const double *, others in their own type */
    void *const *out;        /* float outputs as double *, others in their own type */
    const td_run_ctx *ctx;
} td_op_args;

/* What a gradient rule gets: dy[k] is the gradient of output k (NULL where none flows); set dx[i]
 * where need[i]. Nodes are added to g, whose sticky error reports failures. */
typedef struct td_grad_args {
    td_graph *g;
    td_node *y;
    td_node *const *dy;
    const bool *need;
    td_node **dx;
} td_grad_args;

/* One case worth testing. Floating inputs are filled uniformly from [lo, hi) (both 0: [-1, 1)),
 * integer ones from [ilo, ihi). An input desc of dtype TD_F32 stands for "the float type under
 * test". */
enum { TD_SAMPLE_MAX_IN = 10 };
typedef struct td_op_sample {
    int n_in;
    td_desc in[TD_SAMPLE_MAX_IN];
    const void *attr;
    double lo, hi;
    int64_t ilo, ihi;
    unsigned positive; /* bit i: input i is filled from [0.5, 1.5) instead (variances, rstd) */
    unsigned no_grad;  /* bit i: finite differences do not apply to input i in this sample */
    unsigned weights;  /* bit i: input i is a weight in this sample, beside those of the operator */
    double tol;        /* factor on the backend test's tolerance; 0 means 1 */
} td_op_sample;

/* How an operator meets bf16 programs (graph/rewrites/rewrite_bf16.c). */
typedef enum td_bf16_rule {
    TD_BF16_FOLLOW,  /* takes what comes; if one floating activation is bf16, all become bf16 */
    TD_BF16_COMPUTE, /* floating activations become bf16; weights stay f32, kernels round them */
    TD_BF16_KEEP     /* inputs are left as they are: losses, metrics, leaves, integer operators */
} td_bf16_rule;

/* How an operator meets NHWC tensors (graph/rewrites/rewrite_nhwc.c). */
typedef enum td_layout_rule {
    TD_LAYOUT_RULE_PLAIN, /* wants row-major */
    TD_LAYOUT_RULE_ANY,   /* elementwise: all 4-D operands of the same layout */
    TD_LAYOUT_RULE_IMAGE  /* prefers NHWC on its 4-D inputs and outputs (weights, in `weights`,
                             excepted) */
} td_layout_rule;

typedef struct td_op_def {
    const char *name;
    int n_in_min, n_in_max;
    size_t attr_size; /* 0 for none */

    /* Check inputs and attributes, give the outputs' descs and their number. Nothing later
     * re-checks: kernels and gradients may rely on what passed here. On failure: TD_FAIL with what
     * is wrong; the caller adds call, node name and shapes. */
    td_status (*infer)(const td_op_args *a, td_desc *out, int *n_out);

    /* Reference kernel: plain C in double. Exactly one of ref and scalar is set, except for leaves
     * and views, which have neither. */
    void (*ref)(const td_op_args *a);
    /* Elementwise operators give one element from the matching elements of the (broadcast) inputs;
     * bool and integer inputs come as doubles. `num` holds the attributes as numbers, in the order
     * of the attr struct's double fields. */
    double (*scalar)(const double *x, const double *num);

    /* NULL says "not differentiable", and is tested as such. */
    void (*grad)(const td_grad_args *a);
    unsigned grad_out; /* bit k: besides output 0, a gradient may come through output k. Others
                              (statistics, what a backward needs again) refuse one. */

    unsigned weights; /* bit i: input i is a weight (may stay f32 beside bf16 activations) */
    unsigned inplace; /* bit i: output 0 may lie in input i's memory when sizes are equal */
    bool is_view;     /* output 0 is input 0's memory: reshape, part */
    bool random;      /* depends on the run's key: never merged with an equal node */
    td_bf16_rule bf16;
    td_layout_rule layout;

    const td_op_sample *samples;
    int n_samples;
} td_op_def;

/* The table, by opcode. Never NULL for a valid opcode. */
const td_op_def *td__op(td_opcode op);

#define TD_OP(ID, name) extern const td_op_def td__op_##name;
#include "ops/ops.def"
#undef TD_OP

#endif
