/* optimizer.h -- what an optimizer is: one td__optim_def in one file and one line in optim.def; and
 * how a step is made slice by slice.
 *
 * A step is begin, apply for every part of the gradient block in any order, apply_rows for every
 * row-sparse gradient, end. Parts may be of any size, so that a part can be updated as soon as its
 * reduction has arrived; for an optimizer that looks at whole tensors (per_tensor) a part must not
 * cut one. td_optimizer_step() is all of this for a block that lies in one piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_OPTIMIZER_H
#define TD_OPTIM_OPTIMIZER_H

#include "optim/kernels/kernels.h"
#include "tandem/optim.h"

typedef struct td__optim_option {
    const char *name; /* a field of td_optim_opts */
    double value;     /* its default */
} td__optim_option;

/* What a def's begin function knows about the step. */
typedef struct td__optim_step {
    const td_optim_opts *opts; /* resolved: defaults filled in */
    double lr;
    uint64_t t; /* 1 in the first step */
    bool rows;  /* the numbers are for row-sparse gradients */
} td__optim_step;

typedef struct td__optim_def {
    const char *name;
    const td__optim_option *options; /* those it takes, besides the common ones */
    int n_options;
    bool has_nesterov, has_centered;

    /* (optional) What ranges cannot say. */
    td_status (*check)(const td_optim_opts *o);
    /* Name the states that these options need; returns how many. */
    int (*states)(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE]);
    /* (optional) What the first state starts with; 0 without. */
    float (*first_state)(const td_optim_opts *o);
    /* Why row-sparse gradients cannot be had with these options; NULL if they can. */
    const char *(*no_rows)(const td_optim_opts *o);
    /* Work out the step's numbers; scale and clip are set already. */
    void (*begin)(const td__optim_step *st, td__optim_hyper *h);
    /* Exactly one of these. elements: scalar, avx2, avx512. tensor: s is one whole tensor; adapt
     * says whether its trust ratio applies. */
    td__optim_kernel *elements[3];
    void (*tensor)(td__isa isa, const td_optim_opts *o, const td__optim_hyper *h,
                   const td__optim_slice *s, bool adapt);
} td__optim_def;

#define TD_OPTIM(name) extern const td__optim_def td__optim_##name;
#include "optim/optim.def"
#undef TD_OPTIM

#define TD__OPTIM_KERNELS(name)                   \
    {                                             \
        name##_scalar, name##_avx2, name##_avx512 \
    }

/* Does a step need the norm of all gradients? Then, before begin: the factor that clip_norm makes
 * of it, from the sum of squares of td__optim_param_squares over all dense params in order, then of
 * the row-sparse gradients, added with td__tree_add. TD_EINVAL if it is not finite. */
bool td__optim_clips(const td_optimizer *o);
double td__optim_param_squares(const td_optimizer *o, const float *grads, size_t count);
TD_NODISCARD td_status td__optim_clip(td_optimizer *o, double squares, double *scale);
/* Begin step t + 1. Gradients are multiplied by scale before anything else. TD_EINVAL if lr is NaN,
 * infinite or negative, and then no step is begun. */
TD_NODISCARD td_status td__optim_begin(td_optimizer *o, double lr, double scale);
/* Update elements [begin, begin + count) of the params; grads points at the gradient of `begin`. */
void td__optim_apply(td_optimizer *o, const float *grads, size_t begin, size_t count);
void td__optim_apply_rows(td_optimizer *o, const td_sparse_grad *sg);
/* End the step: params are marked as changed. */
void td__optim_end(td_optimizer *o);
/* May parts cut a tensor? */
bool td__optim_sliceable(const td_optimizer *o);

/* Sum of squares of x (norm.c), as if clamp(scale x, -clip, clip) were given: chunks of
 * TD_OPTIM_CHUNK, added in a binary tree that depends on n alone. */
double td__optim_squares(td__isa isa, const float *x, size_t n, float scale, float clip);

/* A sum in a fixed binary tree, fed term by term: neighbours first, then neighbouring pairs. */
typedef struct td__tree_sum {
    double level[64];
    uint64_t n;
} td__tree_sum;
void td__tree_add(td__tree_sum *s, double x);
double td__tree_total(const td__tree_sum *s);

#endif
