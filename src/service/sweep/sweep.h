/* sweep.h -- a sweep: many trials of one job with different values. What to try and which trials to
 * stop, as pure functions; sweeps.h runs them.
 *
 * Values of trial i are a function of the plan and of i alone, so that a service that was restarted
 * goes on with the same ones.
 *
 * asha is asynchronous successive halving in its stopping form (Li et al., 2020): rung r lies at
 * min_steps * factor^r steps. A trial that reaches a rung goes on if its value there is among the
 * best 1/factor of all that have reached it; nobody waits for others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SWEEP_SWEEP_H
#define TD_SERVICE_SWEEP_SWEEP_H

#include "base/key.h"
#include "service/spec.h"

typedef enum td__sweep_kind {
    TD_SWEEP_CHOICE,  /* one of `choices` */
    TD_SWEEP_UNIFORM, /* a number in [lo, hi) */
    TD_SWEEP_LOG,     /* a number in [lo, hi), its logarithm uniform */
    TD_SWEEP_INT,     /* a whole number in [lo, hi] */
} td__sweep_kind;

typedef struct td__sweep_dim {
    const char *name; /* "train.optimizer.lr", "LR" */
    td__sweep_kind kind;
    double lo, hi;
    const char *const *choices;
    int n_choices;
} td__sweep_dim;

typedef struct td__sweep {
    td__arena *arena;
    const char *name, *search, *metric, *goal;
    int64_t trials, parallel, seed, min_steps, factor;
    const td__sweep_dim *dims;
    int n_dims;
    const char *spec; /* as text for td__spec_parse */
} td__sweep;

extern const td__key td__sweep_keys[]; /* ends with a path of NULL */

/* From YAML or JSON; `source` stands for it in error texts. The spec is checked too, and `trials`
 * of a grid is the number of its combinations. */
TD_NODISCARD td_status td__sweep_parse(const char *text, size_t nbytes, const char *source,
                                       td__sweep **out);
void td__sweep_destroy(td__sweep *s);     /* NULL is allowed */
bool td__sweep_lower(const td__sweep *s); /* is a lower value better? */

/* The value of dimension `dim` in trial i, into buf; returns buf. */
enum { TD__SWEEP_VALUE = 256 };
char *td__sweep_value(const td__sweep *s, int64_t trial, int dim, char buf[TD__SWEEP_VALUE]);
/* The spec of trial i: its values are overrides of the job file, or parameters where there is
 * none. */
TD_NODISCARD td_status td__sweep_trial(const td__sweep *s, int64_t trial, td__job_spec **out);

/* What a line of metrics.jsonl says about the metric: false if nothing. */
bool td__sweep_read(const td__sweep *s, const char *line, size_t nbytes, int64_t *step,
                    double *value);

/* The rungs of asha. Zero-initialise. */
typedef struct td__asha {
    struct td__asha_rung {
        double *values;
        int n, room;
    } * rungs;
    int n_rungs;
} td__asha;
void td__asha_fini(td__asha *a);
/* A value that was reported before, of a sweep that is loaded again. */
TD_NODISCARD td_status td__asha_put(td__asha *a, int rung, double value);
/* A trial that has passed *rung rungs reports: true, it goes on. Out of memory: it goes on. */
bool td__asha_report(td__asha *a, const td__sweep *s, int64_t step, double value, int *rung);

#endif
