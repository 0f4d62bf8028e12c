/* optimizer.h -- what an optimizer is: one td__optim_def in one file and one line in optim.def; and
 * how a step is made slice by slice.
 *
 * A step is begin, apply for every part of the gradient block in any order, apply_rows for every
 * row-sparse gradient, end. Parts may be of any size, so that a part can be updated as soon as its
 * reduction has arrived; for an optimizer that looks at whole tensors (`chunk`) a part must not
 * cut one. td_optimizer_step() is all of this for a block that lies in one piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_OPTIMIZER_H
#define TD_OPTIM_OPTIMIZER_H

#include "device/device.h"
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
    td__update update; /* of elements, once their learning rate is known */
    /* (optional, both) For optimizers that look at whole tensors before they change one: two sums
     * of squares over a chunk (at most TD_OPTIM_CHUNK elements), which may update states; they are
     * added over the tensor's chunks with td__tree_add, and give the learning rate of its elements,
     * unless it is exempt from the trust ratio. */
    void (*chunk)(td_stream *on, const td__optim_hyper *h, const td__optim_slice *s,
                  double sums[2]);
    float (*rate)(const td_optim_opts *o, const td__optim_hyper *h, const double sums[2]);
} td__optim_def;

#define TD_OPTIM(name) extern const td__optim_def td__optim_##name;
#include "optim/optim.def"
#undef TD_OPTIM

/* Does a step need the norm of all gradients? Then, before begin: the factor that clip_norm makes
 * of it, from the sum of squares of td__optim_param_squares over all dense params in order, then of
 * the row-sparse gradients, added with td__tree_add. TD_EINVAL if it is not finite. */
bool td__optim_clips(const td_optimizer *o);
double td__optim_param_squares(const td_optimizer *o, const float *grads, size_t count);
/* May td__optim_dense_squares() be called? It has the sums of all wanted params (NULL: of all) in
 * squares[], by param, 0 of others, after one wait for the device instead of one for each. */
bool td__optim_squares_at_once(const td_optimizer *o);
void td__optim_dense_squares(const td_optimizer *o, const float *grads, const bool *wanted,
                             double *squares);
TD_NODISCARD td_status td__optim_clip(td_optimizer *o, double squares, double *scale);
/* Begin step t + 1. Gradients are multiplied by scale before anything else. TD_EINVAL if lr is NaN,
 * infinite or negative, and then no step is begun. */
TD_NODISCARD td_status td__optim_begin(td_optimizer *o, double lr, double scale);
/* Update elements [begin, begin + count) of the params; grads points at the gradient of `begin`, in
 * memory of the params' device, or of the host that it reaches. */
void td__optim_apply(td_optimizer *o, const float *grads, size_t begin, size_t count);
void td__optim_apply_rows(td_optimizer *o, const td_sparse_grad *sg);
/* End the step: params are marked as changed. Fails if the device did. */
TD_NODISCARD td_status td__optim_end(td_optimizer *o);
/* May parts cut a tensor? */
bool td__optim_sliceable(const td_optimizer *o);

/* Sum of squares of x (norm.c), as if clamp(scale x, -clip, clip) were given: chunks of
 * TD_OPTIM_CHUNK, added in a binary tree that depends on n alone. */
double td__optim_squares(td_stream *on, const float *x, size_t n, float scale, float clip);

/* A sum in a fixed binary tree, fed term by term: neighbours first, then neighbouring pairs. */
typedef struct td__tree_sum {
    double level[64];
    uint64_t n;
} td__tree_sum;
void td__tree_add(td__tree_sum *s, double x);
double td__tree_total(const td__tree_sum *s);

/* ---- An optimizer of some elements, where several ranks share the work (parallel/zero.h) --------
 *
 * It holds state for its own elements alone and updates only these. Own ranges begin and end
 * where a chunk of a dense param does: the chunks of param i are its elements [c k, c (k+1)) with
 * c = TD_OPTIM_CHUNK, numbered through over the dense params in order. What depends on whole
 * tensors (the norm of all gradients, trust ratios) is then a matter of sums over chunks, which
 * the ranks exchange: the bits are those of one rank. */

/* Elements [begin, end) of the params block. */
typedef struct td__optim_range {
    size_t begin, end;
} td__optim_range;

/* own: rising, copied; row-sparse params that are to be updated must lie in it whole. */
TD_NODISCARD td_status td__optim_create_own(const td_optim_opts *opts, td_params *ps,
                                            const td__optim_range *own, int n_own,
                                            td_optimizer **out);
/* The part of state k that is held of elements [begin, end): how many of them, from *first on, and
 * where; ranges are not crossed. 0: none. */
size_t td__optim_state_part(td_optimizer *o, int k, size_t begin, size_t end, size_t *first,
                            float **state);
/* State k in one piece, as the host sees it (device/device.h). */
TD_NODISCARD td_status td__optim_map_state(td_optimizer *o, int k, td__map_use use,
                                           td__mapping *out);
/* The first chunk of param i; of td_params_count(): how many there are. */
int td__optim_chunk_of(const td_optimizer *o, int i);
/* Sums of squares of the gradients of all chunks in [begin, begin + count), by chunk. */
void td__optim_chunk_squares(const td_optimizer *o, const float *grads, size_t begin, size_t count,
                             double *squares);
/* The sum over all dense params of chunks' squares, to be gone on with for row-sparse ones. */
void td__optim_add_squares(const td_optimizer *o, const double *squares, td__tree_sum *sum);
/* After begin, if !td__optim_sliceable: two sums for each chunk in the range; then, when all are
 * known, the tensors' learning rates. apply may then cut tensors. keep: the states that this
 * changes; without it they stay as they are, and it is called again, to keep, before apply. */
void td__optim_chunk_sums(td_optimizer *o, const float *grads, size_t begin, size_t count,
                          bool keep, double *sums);
void td__optim_set_rates(td_optimizer *o, const double *sums);

#endif
