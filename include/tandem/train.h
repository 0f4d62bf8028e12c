/* tandem/train.h -- training: of a model built in C, or of a job file as `tandem train` does it, on
 * any number of ranks.
 *
 *     td_trainer *t;
 *     td_run_result r;
 *     td_trainer_compile(build, NULL, train, valid,
 *                        &(td_compile_opts){.batch = 64, .epochs = 3, .loss = "cross_entropy",
 *                                           .optimizer = {.name = "adamw", .lr = 1e-3}},
 *                        &t);
 *     td_trainer_fit(t, &r);
 *     td_trainer_save(t, "model.safetensors");
 *     td_trainer_destroy(t);
 *
 *     td_job_load("job.yaml", &job);
 *     td_trainer_from_job(job, &(td_job_opts){.callbacks = {.step = on_step}}, &t);
 *     td_trainer_fit(t, &r);
 *
 * Run       A trainer makes one run: data, length and learning rates are known when it is made. It
 *           can be evaluated, loaded and saved before and after.
 * Bits      The same model, data, options and seed give the same weights, bit for bit, for any
 *           number of threads and ranks, and when a run is stopped and resumed.
 * Ranks     With several ranks (a td_comm of tandem/coll.h) all of them make the same calls with
 *           the same arguments, on datasets with the same samples. Files are rank 0's affair. A
 *           call that fails on one rank fails on all of them, and the comm is then of no further
 *           use.
 * Callbacks Called between steps, on the thread that called fit, on every rank.
 * Threads   A trainer is used by one thread at a time; td_trainer_stop by any, and by signal
 *           handlers.
 * Errors    A td_status, with one line in td_last_error(). A loss that is NaN is TD_EINVAL naming
 *           the step and the first bad node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_H
#define TD_TRAIN_H

#include "tandem/coll.h"
#include "tandem/data.h"
#include "tandem/optim.h"
#include "tandem/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_trainer td_trainer;

enum { TD_MAX_METRICS = 8 };

/* Loss first, then the model's metrics. */
typedef struct td_metrics {
    int n;
    const char *name[TD_MAX_METRICS + 1]; /* the trainer's own */
    double value[TD_MAX_METRICS + 1];
    int64_t samples;
    double seconds;
} td_metrics;

/* ---- What a run tells ------------------------------------------------------------------------ */

typedef struct td_run_info { /* known before the first step */
    const char *name;
    const char *run_dir;                         /* "": the run has none */
    uint64_t first_step, steps, steps_per_epoch; /* steps: the last one */
    int64_t batch, params;
    int micro_batches, threads, rank, ranks; /* threads: of each rank */
} td_run_info;

typedef struct td_step_info {
    uint64_t step, epoch;       /* step counts from 1; epoch from 0 */
    double loss, lr, grad_norm; /* grad_norm < 0: not known */
    int64_t samples;            /* in this step */
    double seconds, elapsed;    /* of this step; since the run began */
} td_step_info;

typedef struct td_eval_info {
    uint64_t step, epoch;
    const char *part; /* "valid", "test" */
    td_metrics metrics;
    bool best; /* the best so far by the watched metric */
} td_eval_info;

typedef struct td_checkpoint_info {
    uint64_t step;
    const char *path;
    size_t nbytes;
    double seconds; /* that writing took, in the background */
} td_checkpoint_info;

typedef enum td_run_end {
    TD_RUN_DONE,    /* all steps */
    TD_RUN_EARLY,   /* the watched metric did not improve any more */
    TD_RUN_STOPPED, /* somebody asked for it */
} td_run_end;

typedef struct td_run_result {
    td_run_end end;
    uint64_t step, epoch;
    double seconds, samples_per_second; /* of its steps alone */
    double train_loss;                  /* of the last step; NaN: there was none */
    double best;                        /* of the watched metric; NaN: there was no validation */
    uint64_t best_step;
    td_metrics test;    /* of the test part, where there is one; n 0: none */
    char digest[65];    /* sha256 of the weights, 64 hex digits */
    char run_dir[4096]; /* "": the run has none */
} td_run_result;

typedef enum td_answer { TD_CONTINUE, TD_STOP } td_answer;

/* All optional. TD_STOP: no further step, a checkpoint (where there are any), fit returns TD_OK
 * with TD_RUN_STOPPED. With several ranks one answer suffices; the ranks learn of it with the next
 * step, which is then the last. checkpoint: on rank 0 alone. */
typedef struct td_callbacks {
    void *user;
    td_answer (*begin)(void *user, const td_run_info *info);
    td_answer (*step)(void *user, const td_step_info *e);
    td_answer (*eval)(void *user, const td_eval_info *e);
    td_answer (*checkpoint)(void *user, const td_checkpoint_info *e);
    void (*end)(void *user, const td_run_result *r);
} td_callbacks;

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* A job file (docs/job.md): what `tandem train` reads. Errors name file, line and column. */
typedef struct td_job td_job;
TD_NODISCARD TD_API td_status td_job_load(const char *path, td_job **out);
/* The same from memory; `name` stands for the file in texts, and relative paths start in its
 * folder. */
TD_NODISCARD TD_API td_status td_job_parse(const char *text, const char *name, td_job **out);
TD_API void td_job_destroy(td_job *j); /* NULL is allowed */
/* Override a key, "train.batch=64", or those in a file, "@FILE"; on failure nothing changes. */
TD_NODISCARD TD_API td_status td_job_set(td_job *j, const char *key_value);
TD_API const char *td_job_name(const td_job *j);
/* Every key with its value, defaults included, as YAML that loads to the same job. */
TD_NODISCARD TD_API td_status td_job_write(const td_job *j, FILE *to);
/* sha256 over what decides the numbers, as 64 hex digits. */
TD_NODISCARD TD_API td_status td_job_digest(const td_job *j, char hex[65]);

/* Zero-initialise, then set what you need: zero always means "default". */
typedef struct td_job_opts {
    td_comm *comm;       /* NULL: the ranks that the launcher's environment tells of (tandem launch,
                          * mpirun, srun, torchrun; elastic ones too), or this one alone */
    const char *run_dir; /* NULL: log.dir/NAME-0001, with the first number that is free */
    bool no_run_dir;     /* write nothing: no metrics, checkpoints, report */
    bool resume;         /* go on with the run in run_dir, or with the newest of the job */
    bool profile;        /* time every node: profile.txt and trace.json */
    int threads;         /* compute threads of each rank; as the job says */
    const char *input;   /* a file of new samples in the place of the test part, for predictions */
    td_callbacks callbacks;
    /* Of a job that says data.source: memory, and of such a job's runs: its samples, the same on
     * every rank (or on rank 0 alone with data.distribute); data.split and data.maps do to them
     * what they do to those of files. valid and test may be NULL. Kept alive; their own batches and
     * order are not used. */
    td_dataset *train, *valid, *test;
} td_job_opts;

/* A trainer of a job; opts may be NULL. fit is then what `tandem train` does: the run's directory
 * with all its files, the test part, the report. The job may be destroyed afterwards. On elastic
 * ranks, whose run_dir is given, callbacks are called on rank 0 alone, and TD_EABORTED from fit
 * means that the others go on without this one. */
TD_NODISCARD TD_API td_status td_trainer_from_job(const td_job *j, const td_job_opts *opts,
                                                  td_trainer **out);
/* A trained model: a run's directory, a checkpoint's, or a job file, whose newest run is meant;
 * checkpoint is "latest" (NULL), "best" or "step-N". Not for fit. Ranks with opts->comm have the
 * parts of the model that the job's mesh gives them, and evaluate and predict together. */
TD_NODISCARD TD_API td_status td_trainer_from_run(const char *path, const char *checkpoint,
                                                  const td_job_opts *opts, td_trainer **out);
/* "train", "valid" or "test" of a trainer's data; NULL: test, or valid where there is no test part.
 * The dataset is the caller's, and must not outlive the trainer. */
TD_NODISCARD TD_API td_status td_trainer_part(td_trainer *t, const char *part, td_dataset **out);

/* ---- A model built in C ---------------------------------------------------------------------- */

/* A metric of one's own: an f32 scalar, the mean over rows. */
typedef struct td_build_metric {
    const char *name;
    td_node *node;
    bool higher_is_better;
} td_build_metric;

/* What a build function is given, and what it gives back. It is called for several numbers of rows
 * and adds the same nodes for each, except for their shapes. */
typedef struct td_build {
    td_graph *g;
    int64_t rows;
    td_node *output; /* to be set: (rows, ...), what predict gives; losses by name compare it */
    td_node *loss; /* a loss of one's own, f32 scalar, mean over rows; NULL: that of the options */
    td_build_metric metrics[TD_MAX_METRICS]; /* metrics of one's own, besides the options' */
    int n_metrics;
    void *inside; /* the trainer's own */
} td_build;

/* A data field as an input of the graph: (rows, shape of the field). NULL if samples have no such
 * field; the trainer then says so. */
TD_API td_node *td_build_input(td_build *b, const char *field);
/* Failures inside the graph need not be returned: they are found there. */
typedef td_status (*td_build_fn)(void *user, td_build *b);

typedef struct td_loss_opts {
    double label_smoothing; /* cross_entropy: share of each target spread over all classes */
    bool use_ignore;        /* cross_entropy: targets of class `ignore` do not count */
    int64_t ignore;
    double delta; /* huber: where the square becomes a line; 1 */
    /* cross_entropy: the loss of a sample counts so many times, by its class; classes after the
     * last have 1. The sum is divided by the number of samples that count, as Keras' class_weight
     * does. Must outlive the trainer. */
    const double *class_weights;
    int n_class_weights;
    /* Instead, as PyTorch's CrossEntropyLoss(weight): divided by the sum of the weights of those
     * samples' classes; what label_smoothing spreads over the classes is weighted by each. */
    bool weighted_mean;
} td_loss_opts;

/* Zero-initialise, then set what you need: zero always means "default". */
typedef struct td_compile_opts {
    const char *name; /* for callbacks and files; "model" */
    const char *loss; /* cross_entropy, mse, mae, huber, bce; NULL: by the target */
    td_loss_opts loss_opts;
    const char *target;         /* the data field that the output is compared with; "y" */
    const char *const *metrics; /* accuracy, top3, top5, top10, nll, bits, precision,
                                 * recall, f1, auc, mae, mse, rmse, r2, binary_accuracy; */
    int n_metrics;              /* 0: the one that goes with the loss; -1: none */
    td_optim_opts optimizer;    /* name NULL: "adamw" */
    td_schedule_opts schedule;  /* lr 0: the optimizer's; total_steps 0: of the run */
    int64_t batch;              /* of all ranks together; 32 */
    int64_t epochs, steps;      /* whichever ends first; both 0: 1 epoch */
    int accumulate;             /* batches added up before an update; 1 */
    int micro_batches;          /* of a batch; fixed for the same bits; 0: by batch and model */
    uint64_t seed;
    td_dtype precision;  /* TD_F32 or TD_BF16 */
    const char *backend; /* "cpu" */
    int threads;         /* compute threads; one per processor, shared by ranks */
    int64_t eval_every;  /* steps; 0: at the end of each epoch; -1: never */
    int64_t eval_batch;  /* batch */
    const char *watch;   /* what makes a checkpoint the best; "loss" */
    int patience;        /* validations without improvement; 0: never stop early */
    double min_delta;
    int prefetch, data_threads; /* batches read ahead (2), by so many threads (1) */
    const char *checkpoint_dir; /* NULL: none */
    int64_t checkpoint_every;   /* steps; 0: at the end of each epoch; -1: only at the end */
    int checkpoint_keep;        /* newest ones kept, besides the best; 3 */
    bool resume;                /* go on from the newest checkpoint there, if there is one */
    td_comm *comm;              /* the ranks that train together; NULL: this one alone */
    int zero;                   /* ranks hold shards: 0 of nothing, 1 of optimizer state, 2 of
                                     * gradients too, 3 of params too */
    td_callbacks callbacks;
    /* How ranks train together, as in a job: {"train.sync=easgd", "parallel.compress=topk",
     * "parallel.pipeline=2"}, docs/job.md. */
    const char *const *keys;
    int n_keys;
} td_compile_opts;

/* The names of all losses and metrics, i = 0, 1, ...; NULL after the last. */
TD_API const char *td_loss_list(int i);
TD_API const char *td_metric_list(int i);

/* A trainer of the model that `build` adds to graphs. train says which fields samples have, and
 * what fit reads: shuffled by the seed, in batches of opts->batch, whatever order the dataset has.
 * valid may be NULL. Both datasets are kept alive; comm and callbacks' user are borrowed. */
TD_NODISCARD TD_API td_status td_trainer_compile(td_build_fn build, void *user, td_dataset *train,
                                                 td_dataset *valid, const td_compile_opts *opts,
                                                 td_trainer **out);

/* ---- Any trainer ----------------------------------------------------------------------------- */

TD_API void td_trainer_destroy(td_trainer *t); /* NULL is allowed */

/* Train to the end. out may be NULL. A run that was stopped goes on if fit is called again. */
TD_NODISCARD TD_API td_status td_trainer_fit(td_trainer *t, td_run_result *out);
/* Ask fit to end after the step in flight, with a checkpoint. */
TD_API void td_trainer_stop(td_trainer *t);

/* Loss and metrics of all samples of d, with the weights as they are. Elastic ranks have those of
 * the newest checkpoint before fit, or the first ones, and evaluate each by itself then. */
TD_NODISCARD TD_API td_status td_trainer_evaluate(td_trainer *t, td_dataset *d, td_metrics *out);
/* The output for every sample of d, in order, as f32: (count, row shape...). `count` elements have
 * room at out; TD_EINVAL says how many are needed. out NULL: only *row is filled in. row may be
 * NULL. */
TD_NODISCARD TD_API td_status td_trainer_predict(td_trainer *t, td_dataset *d, float *out,
                                                 size_t count, td_shape *row);

/* Predictions as a file, .csv, .jsonl or .npy by its ending, written by rank 0: the most likely
 * class and the probabilities of all, or the values. */
TD_NODISCARD TD_API td_status td_trainer_predict_file(td_trainer *t, td_dataset *d,
                                                      const char *path);

/* The weights, as a .safetensors file: written by rank 0, read by all. load also takes a run's or a
 * checkpoint's directory. */
TD_NODISCARD TD_API td_status td_trainer_save(td_trainer *t, const char *path);
TD_NODISCARD TD_API td_status td_trainer_load(td_trainer *t, const char *path);

/* The trained numbers; borrowed. With zero = 3 a rank holds only its shards. */
TD_API td_params *td_trainer_params(td_trainer *t);
TD_API uint64_t td_trainer_step(const td_trainer *t); /* the last one done */
TD_API int td_trainer_rank(const td_trainer *t);

#ifdef __cplusplus
}
#endif
#endif
