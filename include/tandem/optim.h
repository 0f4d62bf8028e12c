/* tandem/optim.h -- optimizers and learning-rate schedules.
 *
 * An optimizer turns the gradients of a runner's last run into a change of the params. It works on
 * the whole params block; its state lies in one block of the same order. Formulas, option names and
 * defaults are PyTorch's where PyTorch has the optimizer.
 *
 * Numbers   Each element's new value is a function of that element alone (lamb and lars: of its
 *           tensor), the same bits for any slicing of the block and for any instruction set.
 * Threads   An optimizer is used by one thread at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_H
#define TD_OPTIM_H

#include "tandem/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In options, 0 means "the default" and TD_ZERO means zero itself: {.beta1 = TD_ZERO}. It is the
 * negative zero, which no computation needs as an option. */
#define TD_ZERO (-0.0)

/* Every numeric option: field, smallest value, largest value, is the largest itself allowed. An
 * optimizer takes those that td_optimizer_has_option() names and refuses the others. */
#define TD_OPTIM_OPTION_MAP(X)         \
    X(lr, 0, 1e30, 1)                  \
    X(momentum, 0, 1, 0)               \
    X(dampening, 0, 1, 1)              \
    X(weight_decay, 0, 1e30, 1)        \
    X(beta1, 0, 1, 0)                  \
    X(beta2, 0, 1, 0)                  \
    X(eps, 0, 1e30, 1)                 \
    X(alpha, 0, 1, 0)                  \
    X(lr_decay, 0, 1e30, 1)            \
    X(initial_accumulator, 0, 1e30, 1) \
    X(trust, 0, 1e30, 1)               \
    X(clip_norm, 0, 1e30, 1)           \
    X(clip_value, 0, 1e30, 1)

/* Zero-initialise, then set what you need.
 *
 *   name     options (default)
 *   sgd      lr (0.001) momentum (0) dampening (0) weight_decay (0) nesterov
 *   adagrad  lr (0.01) lr_decay (0) weight_decay (0) initial_accumulator (0) eps (1e-10)
 *   rmsprop  lr (0.01) alpha (0.99) eps (1e-8) weight_decay (0) momentum (0) centered
 *   adam     lr (0.001) beta1 (0.9) beta2 (0.999) eps (1e-8) weight_decay (0: on the gradient)
 *   adamw    lr (0.001) beta1 (0.9) beta2 (0.999) eps (1e-8) weight_decay (0.01: decoupled)
 *   lamb     lr (0.001) beta1 (0.9) beta2 (0.999) eps (1e-6) weight_decay (0.01)
 *   lars     lr (0.1) momentum (0.9) weight_decay (1e-4) trust (0.001) eps (1e-8)
 *   all      clip_norm, clip_value (0: off), no_decay_vectors */
typedef struct td_optim_opts {
    const char *name; /* NULL means "sgd" */
    double lr;        /* for td_optimizer_lr(); each step is given its own */
    double momentum, dampening;
    double weight_decay;
    double beta1, beta2;
    double eps;
    double alpha;               /* rmsprop: smoothing of the squares */
    double lr_decay;            /* adagrad: lr / (1 + (t - 1) lr_decay) */
    double initial_accumulator; /* adagrad */
    double trust;               /* lars: trust coefficient */
    double clip_norm;           /* scale all gradients so that their L2 norm is at most this */
    double clip_value;          /* after that, cut each element to [-clip_value, clip_value] */
    bool nesterov;              /* sgd: needs momentum > 0 and dampening 0 */
    bool centered;         /* rmsprop: divide by the deviation rather than the root of squares */
    bool no_decay_vectors; /* params of fewer than 2 axes (biases, norms): no weight decay, and
                                   no trust ratio in lamb and lars */
} td_optim_opts;

typedef struct td_optimizer td_optimizer;

/* An optimizer of ps (borrowed, must outlive it). TD_EINVAL or TD_ENOTSUP with one line naming
 * optimizer, option and value if something cannot be: an unknown name, a value out of range, an
 * option that the optimizer does not have, row-sparse params where it has no rule for them (sgd
 * without momentum and adagrad are exact; adam and adamw are "lazy", as torch.optim.SparseAdam:
 * rows without gradient do not move; the others refuse). */
TD_NODISCARD TD_API td_status td_optimizer_create(const td_optim_opts *opts, td_params *ps,
                                                  td_optimizer **out);
TD_API void td_optimizer_destroy(td_optimizer *o); /* NULL is allowed */

/* One step with the gradients of r's last run (r must run on this optimizer's params) and learning
 * rate lr, which may be zero; folds r's statistics into the states and touches the params.
 * TD_EINVAL, with nothing changed, if lr is NaN, infinite or negative, or if clip_norm is set and
 * the norm is not finite. */
TD_NODISCARD TD_API td_status td_optimizer_step(td_optimizer *o, td_runner *r, double lr);

TD_API const char *td_optimizer_name(const td_optimizer *o);
TD_API double td_optimizer_lr(const td_optimizer *o); /* opts.lr, or the default */
/* L2 norm of all gradients of the last step, before clipping; 0 unless clip_norm is set. */
TD_API double td_optimizer_grad_norm(const td_optimizer *o);

/* For checkpoints: the number of steps made, and the state blocks (td_params_trainable() elements
 * each, same offsets as the params) under PyTorch's names ("exp_avg", "momentum_buffer"). */
TD_API uint64_t td_optimizer_steps(const td_optimizer *o);
TD_API void td_optimizer_set_steps(td_optimizer *o, uint64_t steps);
TD_API int td_optimizer_state_count(const td_optimizer *o);
TD_API const char *td_optimizer_state_name(const td_optimizer *o, int k);
TD_API float *td_optimizer_state(td_optimizer *o, int k, size_t *count);

/* The names of all optimizers, i = 0, 1, ...; NULL after the last. */
TD_API const char *td_optimizer_list(int i);
TD_API bool td_optimizer_has_option(const char *optimizer, const char *option);

/* Schedules: learning rate as a function of the step (0 is the first).
 *
 *   name         lr(s), s = steps since the end of the warm-up        needs (default)
 *   constant     lr
 *   step         lr gamma^floor(s / step_size)                        step_size, gamma (0.1)
 *   multistep    lr gamma^(number of milestones <= s)                 milestones, gamma (0.1)
 *   exponential  lr gamma^s                                           gamma
 *   polynomial   lr_min + (lr - lr_min) (1 - s/S)^power          total_steps, power (1), lr_min (0)
 *   cosine       lr_min + (lr - lr_min) (1 + cos(pi s/S)) / 2         total_steps, lr_min (0)
 *   plateau      lr, times gamma whenever the metric stops improving  gamma (0.1), patience (10)
 *
 * S = total_steps - warmup_steps; after it polynomial and cosine stay at lr_min. Any of them can
 * start with a linear warm-up: during steps k < warmup_steps the rate is
 * lr (w + (1 - w) k / warmup_steps), with w = warmup_start (default 1 / warmup_steps). */
typedef struct td_schedule_opts {
    const char *name; /* NULL means "constant" */
    double lr;        /* required, > 0 */
    int64_t warmup_steps;
    double warmup_start;
    int64_t total_steps;
    int64_t step_size;
    const int64_t *milestones; /* rising; copied */
    int n_milestones;
    double gamma, power, lr_min;
    /* plateau, as PyTorch's ReduceLROnPlateau; lr_min is the floor. */
    int patience;     /* metrics without improvement that are put up with; 0 means 10, -1 none */
    int cooldown;     /* metrics after a cut during which none are counted */
    double threshold; /* relative improvement that counts as one (1e-4) */
    bool maximize;    /* the metric is to grow (accuracy) rather than fall (loss) */
} td_schedule_opts;

typedef struct td_schedule td_schedule;

TD_NODISCARD TD_API td_status td_schedule_create(const td_schedule_opts *opts, td_schedule **out);
TD_API void td_schedule_destroy(td_schedule *s); /* NULL is allowed */
/* The rate of `step` (>= 0): a pure function of it, but plateau's depends on the metrics. */
TD_API double td_schedule_lr(const td_schedule *s, int64_t step);
/* Feed plateau with a metric (after each evaluation); the others ignore it. TD_EINVAL if NaN. */
TD_NODISCARD TD_API td_status td_schedule_metric(td_schedule *s, double metric);

/* Plateau's memory, for checkpoints. */
typedef struct td_schedule_state {
    double factor, best;
    int bad, cooldown;
    bool started;
} td_schedule_state;
TD_API td_schedule_state td_schedule_get_state(const td_schedule *s);
TD_API void td_schedule_set_state(td_schedule *s, td_schedule_state state);

/* The names of all schedules, i = 0, 1, ...; NULL after the last. */
TD_API const char *td_schedule_list(int i);

#ifdef __cplusplus
}
#endif
#endif
