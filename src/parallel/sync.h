/* sync.h -- sync rules: how the work of several ranks becomes common progress.
 *
 * A rule answers: who computes which gradients, how they become updates of the params, when ranks
 * meet (to evaluate, to save, before the membership changes, at the end), what it adds to a
 * checkpoint, and what it promises about bits. The trainer asks the rule and knows none by name.
 * A rule is one file (sync_*.c) with one td__sync_ops and one line in sync.def.
 *
 *     check                              before any rank is started, and where ranks are known
 *     td__sync_create                    per run; in an elastic run per generation. Collective
 *       begin, batch ..., end, gather    a step; or abandon, after a failure
 *       meet                             between steps
 *     td__sync_destroy
 *
 * or, of a rule with a leader (traits.leads): rank 0 does this, the others call td__sync_serve,
 * which returns when the leader has met them at the end.
 *
 * A rule is built from the step engine (step/step.h), which runs this rank's micro-batches and
 * updates params; s->engine is there before create is called.
 *
 * Recovery  Params and optimizer state change in `end` alone. If it fails, some of them may have
 *           been updated and others not, on each rank different ones; with update_late, and always
 *           when clipping by the norm, nothing changes before all of the sum has arrived, and a
 *           failure of another rank leaves the state of before the step: ranks that were told of
 *           the failure inside a step then differ from those that had got the whole sum by one
 *           step at most.
 * Threads   One: the trainer's. Rules may have threads of their own.
 * Failure   As of the collectives: TD_EPEER and so on. Every wait has the comm's deadline. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_H
#define TD_PARALLEL_SYNC_H

#include "base/alloc.h"
#include "base/key.h"
#include "parallel/compress/compressor.h"
#include "parallel/shards.h"
#include "plan/mesh.h"
#include "run/rank_stats.h"
#include "run/result.h"
#include "step/step.h"
#include "tandem/coll.h"

typedef struct td__sync td__sync;
typedef struct td__sync_ops td__sync_ops;
typedef struct td__plan_case td__plan_case;         /* step_plan.h */
typedef struct td__planner td__planner;             /* the same */
typedef struct td__plan_follower td__plan_follower; /* plan_follow.h */

/* ---- What the job says ----------------------------------------------------------------------- */

typedef struct td__sync_setting {
    const char *name; /* the path of an option of the rule that is named */
    double value;
} td__sync_setting;

enum { TD__SYNC_SETTINGS = 8 };

/* Zero is the default of everything. */
typedef struct td__sync_config {
    const char *rule; /* a name of sync.def; NULL: the first rule there that fits what follows */
    td__sync_setting set[TD__SYNC_SETTINGS]; /* options of the rule that differ from its defaults */
    int n_set;
    /* Gradients of ranks that share no memory: bytes reduced at once; micro-batches that a thread
     * runs side by side meanwhile. */
    size_t bucket_nbytes;
    int in_flight;
    bool update_late; /* see Recovery */
    /* What ranks hold in shards (zero.h): 0 nothing, 1 the optimizer's state, 2 gradients too, 3
     * params too. */
    int zero;
    /* A name of compressors.def and its options; momentum and so on are the optimizer's where the
     * compressor takes them (td__sync_resolve). */
    const char *compressor;
    bool any_bits; /* sums may be in an order that depends on ranks (train.reproducible: false) */
    td__compressor_opts compress_with;
    /* Backup workers (backup.h): so many ranks may be late in each step without holding it up.
     * replay: a metrics.jsonl, to count as there. */
    int backup;
    const char *backup_replay;
    /* Parameter servers (ps/ps.h): the first ranks, in addition to those that compute. */
    int servers;
    /* A metrics.jsonl, to apply pushes, or messages of ranks that are not in step, in the order of
     * that run. */
    const char *replay;
    bool tables;         /* the model has tables on them */
    int replicas;        /* 1: each shard is kept by a second server */
    const char *clients; /* HOST:PORT of server 0 for clients of the run; NULL: of its host alone */
    /* How ranks are arranged; 0: 1, or along data what is left. Along the pipeline, a rank has
     * `chunks` parts of the model (0: what the schedule has), run in the order of a schedule
     * (plan/schedules.def; NULL: 1f1b). */
    td__rank_mesh mesh;
    const char *schedule;
    int chunks;
    const char *stages; /* layers that chunks after the first begin with; NULL: by cost */
    int in_order;       /* stages update one after the other; else together */
    int tensor_pieces;  /* in which products are computed; 0: as many as ranks along tensor */
    bool sequence;      /* what lies between products is computed in as many pieces of rows */
    /* Ranks hold the skeleton of each layer and a random part of the rest (rules/sync_skeleton.c):
     * 1: so; the skeleton's share of the connections; steps between two draws. */
    int partition;
    double skeleton_share;
    int skeleton_every;
    const struct td_plugin_sync *plugin; /* the job's own rule (tandem/plugin.h); NULL: none */
    /* (optional) Before a rank other than 0 hands in its share: where tests make it late. */
    void (*before_share)(void *user, int rank, uint64_t step);
    void *before_share_user;
} td__sync_config;

/* Where the rule is to run. */
typedef struct td__sync_world {
    int rank, ranks;
    bool shared;  /* all ranks share memory */
    bool elastic; /* their number may change */
    bool watched; /* somebody looks at micro-batches before their gradients are used */
    bool starts;  /* the run is about to begin: what is above is how it is */
} td__sync_world;
td__sync_world td__sync_world_of(const td_comm *comm, bool elastic); /* comm may be NULL */

/* The rest of the job that a rule may have to do with. */
typedef struct td__sync_job {
    const td_optim_opts *optim;
    int threads;                   /* compute threads of a rank; 0: as many as there are */
    double verify;                 /* share of micro-batches that are run twice */
    int micro_batches, accumulate; /* 0: not known yet */
    uint64_t seed;
    const char *backend;   /* NULL: the default */
    const char *partition; /* (data.partition) ranks are to have samples of their own; NULL: not */
} td__sync_job;

/* ---- Rules ----------------------------------------------------------------------------------- */

/* What a rule asks of the trainer; a function of config and world. */
typedef struct td__sync_traits {
    bool any_partition; /* the result is the same however micro-batches are dealt out to ranks */
    bool in_step;       /* ranks run the same batch at a time, each its range of micro-batches: they
                           may share values in the midst of it (step/sync_values.h) */
    bool leads;       /* rank 0 has the state, validates, saves and decides; the others serve it */
    bool no_partials; /* the engine keeps no blocks of gradients: the rule runs batches itself */
    bool sharded;     /* ranks hold optimizer state in shards (hold); */
    bool sharded_params; /* params too: no rank has all of them between steps */
    bool own_params;     /* those of ranks differ between meetings */
    bool own_data;       /* ranks may have samples of their own (data.partition): all of them where
                            own_params is set too, else share `share` of `shares`, -1: none */
    int share, shares;
    bool apart;          /* ranks are not in step between meetings: no collective calls there */
    bool takes_momentum; /* of the optimizer, which then has none (resolve) */
    bool keeps_batch;    /* a run that is resumed has the batch that it began with */
    bool holds_rows;     /* ranks beside the leader have parts of the model that no other rank's
                            params hold: a checkpoint needs all ranks */
    int threads;         /* that a rank computes with, at most; 0: any number */
    int replicas;  /* of the model: rank r has the rows of replica r modulo this; 0: every rank is
                     one */
    int in_flight; /* micro-batches that a thread runs side by side at a step's end; 1: one */
    /* A rank runs part `part` of `parts` of a batch, or nothing; parts 0: by its rank, of all. */
    int part, parts;
    bool no_rows;
    /* The rows of a batch that a rank reads, in order: returns how many, out may be NULL. NULL: the
     * range of its micro-batches (work_partition.h). */
    int64_t (*rows)(int64_t rows, int micro_batches, int rank, int size, int64_t *out);
} td__sync_traits;

typedef enum td__sync_meet {
    TD_MEET_BEGIN,  /* all ranks have the params to begin with; states are about to be restored */
    TD_MEET_EVAL,   /* the params are about to be evaluated, */
    TD_MEET_SAVE,   /* written to a checkpoint with the rule's states, */
    TD_MEET_RESIZE, /* handed on to other ranks: the generation ends; */
    TD_MEET_END     /* the run is over */
} td__sync_meet;

/* Where a step is in the run. */
typedef struct td__sync_place {
    uint64_t step, epoch; /* from 1; from 0 */
    int64_t batch;        /* the step's first one in the epoch */
    double lr;            /* of the step; 0: it is not known yet */
} td__sync_place;

/* Numbers that a rule keeps from step to step and a checkpoint must hold. */
typedef struct td__sync_block {
    const char *name;
    float *data;
    size_t count;
    bool may_be_absent; /* from checkpoints of before there was such a block: as after BEGIN */
} td__sync_block;
enum { TD__SYNC_BLOCKS = 4 };

/* A run whose memory is asked for beforehand. */
typedef struct td__sync_sizes {
    const td__sync_config *config;
    td__sync_world world;
    int micro_batches, accumulate;
    size_t grads, params;     /* bytes of a gradient block; of all params */
    const td__ownership *map; /* of what may be sharded */
    bool momentum;            /* the job's optimizer has it */
    bool own;                 /* without what is another rank's and mapped here too */
    /* Of rules whose ranks have parts of the model: it, and rows of the usual micro-batch. */
    const td__micro_batch_set *set;
    int64_t rows;
    const td_params *ps;
    int states; /* of the optimizer, by param */
} td__sync_sizes;

/* What the rank holds that has most of it, where ranks have parts of the model. Bytes. */
typedef struct td__sync_need {
    size_t weights, grads, optimizer, activations;
} td__sync_need;

/* A world whose ranks are to hold shards. */
typedef struct td__sync_hold {
    const td__sync_config *config;
    td_comm *comm;
    bool elastic; /* each holds the shards of another too */
    td_params *params;
    const td__micro_batch_set *set; /* whose model it is */
    int64_t rows;                   /* of the usual micro-batch */
    int micro_batches, accumulate;
} td__sync_hold;

/* What the rule inside one for groups of ranks is made with: by the ranks that have a part of the
 * model in common, which add up its gradients. */
typedef struct td__sync_inside {
    td__sync_config config;
    int ranks;
    td__param_range *own; /* (n_own) params that these ranks update; the caller frees it */
    int n_own;
    bool shares; /* each updates some of them: the squares for clipping are added up */
} td__sync_inside;

/* A generation of elastic ranks that begins. */
typedef struct td__sync_resizing {
    td_comm *comm;
    const td_params *params;
    const char *checkpoint_dir; /* rank 0 uses it; NULL: none */
    uint64_t step;              /* the last one that is done */
    bool begins;                /* so does the run, or it is resumed */
} td__sync_resizing;

struct td__sync_ops {
    const char *name, *help;
    const char *promise; /* about bits */
    /* Numbers, whole numbers (also by words, "ring=0 grid=1") and truth values, each with a
     * default: the keys of a job below train.sync. At most TD__SYNC_SETTINGS; NULL: none. */
    const td__key *options;
    size_t size; /* bytes of the rule's own struct, which begins with a td__sync */
    /* Its threads train in one process, and only some models: no part of `--sync all`. */
    bool one_process;
    /* The host reads or replaces fields of batches: no samples are kept as blocks (data.blocks). */
    bool reads_batches;
    /* (optional, all three) The job's key that asks for the rule, a value of it for comparisons,
     * and does the config ask? Then `check` is called. */
    const char *key, *sample;
    bool (*asked)(const td__sync_config *c);
    /* (optional) Where config.rule is NULL: can it be this one? The first in sync.def that fits is
     * it, so naming such a rule decides no numbers. NULL: the rule is used only by its name. */
    bool (*fits)(const td__sync_config *c, const td__sync_world *w);
    /* (optional) TD_EINVAL with one line if it cannot be with the rest of the job. */
    td_status (*check)(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w);
    /* (optional) The same, of the model. */
    td_status (*check_params)(const td__sync_config *c, const td_params *ps);
    /* (optional) Elastic ranks, before the rule of a generation is made: c becomes what has been
     * asked for meanwhile, the same on all of them. Collective. */
    td_status (*resize)(td__sync_config *c, const td__sync_resizing *r);
    /* (optional) What of the optimizer's work the rule does itself, or leaves to it. */
    void (*resolve)(td__sync_config *c, const td__sync_job *j, td_optim_opts *optim);
    /* (optional) Over the defaults, which are all zero but in_flight, 1. */
    void (*traits)(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);
    /* (optional) Bytes that the busiest rank holds to exchange gradients. */
    size_t (*exchange)(const td__sync_sizes *z);
    /* (optional) Of a rule whose ranks have parts of the model. */
    td_status (*need)(const td__sync_sizes *z, td__sync_need *out);
    /* Of a rule whose traits say sharded: what ranks hold. Local; before params are filled. */
    td_status (*hold)(const td__sync_hold *h, td__shards **out);
    /* (optional) Bytes of a bucket of its even shards, which `hold` makes; 0: the default. NULL:
     * those of the config. */
    size_t (*bucket_nbytes)(const td__sync_config *c, const td_params *ps);
    /* (optional) Of one with other shards than even ones (td__worlds): of `ranks` ranks, whatever
     * the comm. */
    td_status (*map)(const td__sync_hold *h, int ranks, td__ownership *out, td__holding *holdings);
    /* The operations of a step of one rank (step_plan.h), to which its calls are held. A rule
     * without: why there is none; neither of them: it is one for groups of ranks, with another rule
     * inside, which has one. */
    void (*plan)(td__planner *w);
    const char *unplanned;
    bool apart; /* its messages go over links of its own: the plan is checked and compared alone */
    /* (optional) Of a rule for groups of ranks: what the rule inside is made with, on rank 0 of
     * `ranks`. h has no comm. Local. */
    td_status (*inside)(const td__sync_hold *h, int ranks, td__sync_inside *out);
    /* (optional) What a step does besides what every one does, of a run of `steps` steps: steps of
     * different kinds have different plans. 0: nothing. */
    int (*kind)(const td__sync_config *c, uint64_t step, uint64_t steps);
    /* (optional) The rest of the struct, which is zeroed; destroy is called if it fails, too. */
    td_status (*create)(td__sync *s);
    /* (optional) Before destroy where all ranks go on, collective: nobody reads this rank's memory
     * any more. */
    td_status (*leave)(td__sync *s);
    void (*destroy)(td__sync *s);
    /* (optional) A step begins; td__step_begin() was called. */
    td_status (*begin)(td__sync *s, const td__sync_place *at);
    /* (optional) Run a batch; instead of td__step_batch(). */
    td_status (*batch)(td__sync *s, const td__batch *batch);
    /* Gradients in, params updated; what ranks say is in td__step_numbers(). */
    td_status (*step)(td__sync *s, double lr, td__step_result *out);
    /* (optional) After the step is counted as done: what others have updated comes to this rank. */
    td_status (*gather)(td__sync *s);
    /* (optional, both) step has failed, yet nothing is missing for the update: other ranks may have
     * made it. If they have: make it too; local, until the next step begins. */
    bool (*prepared)(const td__sync *s);
    td_status (*forward)(td__sync *s);
    /* (optional) It is prepared, and the comm is about to go: drop all but what forward needs. */
    void (*shed)(td__sync *s);
    /* (optional) The params become those to evaluate, save, hand on, end with. Collective, of a
     * rule with a leader: at the end only. */
    td_status (*meet)(td__sync *s, td__sync_meet why);
    /* (optional) Up to TD__SYNC_BLOCKS, in memory of the host; the same on all ranks after they
     * have met to save. What a rule before has left, of a checkpoint, of the generation before, is
     * filled in after TD_MEET_BEGIN. As of params: a step that fails leaves them as they were. */
    int (*states)(td__sync *s, td__sync_block *out);
    /* (optional) Ranks beside a leader: work until it meets them at the end. */
    td_status (*serve)(td__sync *s);
    /* (optional) What the leader knows of the others' times. */
    void (*note)(td__sync *s, td__rank_stats *stats);
    /* (optional) Numbers of the step that was done, up to TD__STEP_NOTES, for those who watch. */
    int (*notes)(td__sync *s, td__step_note *out);
    /* (optional) Rank 0, of a rule whose ranks are not in step: the order in which messages were
     * applied, which config.replay imposes on another run. The next part of it, without its step,
     * borrowed until the next call; false: there is no more so far. */
    bool (*order)(td__sync *s, td__order_event *out);
    /* (optional) What it adds to the result of a run; as long as s lives. */
    void (*report)(td__sync *s, td__train_result *out);
    /* (optional) This rank has failed: let nobody wait for it. Also after the last step. */
    void (*abandon)(td__sync *s, const char *why);
};

#define TD_SYNC(id) extern const td__sync_ops td__sync_##id;
#include "parallel/sync.def"
#undef TD_SYNC

/* All of sync.def, NULL after the last; alone in sync_rules.c, so that a test can have others. */
extern const td__sync_ops *const td__sync_rules[];

/* What the trainer does for a rule. */
typedef struct td__sync_host {
    void *user;
    /* Ranks beside a leader: run this rank's micro-batches of the step at `at`. batches: of it;
     * data_wait: seconds that it waited for samples. */
    td_status (*work)(void *user, const td__sync_place *at, int *batches, double *data_wait);
    bool (*stopping)(void *user); /* was this process asked to stop? */
    /* The sample at a position of an epoch; any thread, while steps are made. */
    int64_t (*sample)(void *user, uint64_t epoch, int64_t position);
    /* Ranks that keep the leader's state beside it. What the leader's is before the step under way,
     * besides the blocks: plain data. On such a rank: a step begins there; its update is made. */
    const void *(*place)(void *user, size_t *nbytes);
    void (*follows)(void *user, const void *place);
    void (*followed)(void *user, double lr, const td__step_result *r);
    /* Of the run's moment this rank has no more than n ranges of the params and states, of all that
     * servers hold, `total`; n 0: everything. */
    void (*holds)(void *user, const td__param_range *at, int n, size_t total);
    /* From here on this rank waits for others, which are judged instead if it takes long; NULL: not
     * any more. The trainer's thread. */
    void (*waits)(void *user, const char *what);
    /* What the run's moment needs is not there any more: no rank has it. */
    void (*lost)(void *user);
    /* The leader: the model's outputs for samples from elsewhere, with the params as they are. What
     * the model reads of them, input by input, is in `samples`; *out is to be freed (td__free). */
    td_status (*outputs)(void *user, int64_t rows, const void *samples, size_t nbytes, void **out,
                         size_t *row_nbytes);
} td__sync_host;

/* What a rule leaves in this process for the rule of the next generation. */
typedef struct td__sync_keep {
    void *data; /* NULL: nothing */
    void (*destroy)(void *data);
} td__sync_keep;
static inline void td__sync_keep_drop(td__sync_keep *k)
{
    if (k->data)
        k->destroy(k->data);
    k->data = NULL;
}

typedef struct td__sync_ctx {
    const td__sync_config *config; /* all are borrowed */
    td_comm *comm;                 /* NULL: alone */
    bool elastic;
    td__step_opts step; /* rank, size and what traits say are filled in */
    const td_optim_opts *optim;
    const char *checkpoint_dir; /* NULL: none */
    td__shards *shards;         /* what ranks hold so; NULL: nothing */
    const td__dataset *data;    /* that batches are of */
    int64_t batch, samples;     /* rows of a full batch, of an epoch */
    int64_t rows;               /* of the usual micro-batch */
    uint64_t steps;             /* of the whole run, */
    uint64_t done;              /* before the rule begins */
    td__sync_keep *keep;        /* of this process; NULL: nothing stays */
    bool own_data; /* the job has data.partition; weights: (n_weights) of a weighted one */
    const int64_t *weights;
    int n_weights;
    td__sync_host host;
} td__sync_ctx;

/* Every rule's struct begins with this. */
struct td__sync {
    const td__sync_ops *ops;
    td__sync_ctx x;
    td__sync_traits traits;
    td__step_engine *engine;
    td__sync_values *values; /* of all micro-batches, where the model has some; over `peers` */
    td_comm *peers;
    td__plan_follower *follower; /* NULL: there is no plan that calls are held to */
    bool begun;                  /* the step under way has a batch */
    bool met;                    /* since the last step */
    bool ended;                  /* all have met at the end */
    bool alone;                  /* ranks were lost, and the others have ended without meeting */
    bool resized;                /* the leader has ended the generation, not the run */
};

/* How a job divides the model among ranks, whatever their number. */
typedef struct td__sync_division {
    int ranks;                /* that have the model together; 1: each has all of it */
    bool stages, pieces;      /* a rank has some of the layers; a part of each wide layer */
    const char *split_params; /* what is set so that no rank has all params; NULL: nothing */
} td__sync_division;
td__sync_division td__sync_division_of(const td__sync_config *c);
/* Of so many ranks, how many compute each for themselves: groups of them, if they have the model
 * together; without servers. At least 1. */
int td__sync_replicas(const td__sync_config *c, int ranks);
/* c for ranks that use a trained model: how they divide it, and nothing of how it was trained. */
void td__sync_to_use(td__sync_config *c);
/* TD_EINVAL if ranks with whole models, which are replicas all of them, are not as many as the job
 * says. */
TD_NODISCARD td_status td__sync_check_mesh(const td__sync_config *c, const td__sync_world *w);
/* How products are cut, on a rank. */
td__tensor_cut td__sync_tensor_cut(const td__sync_config *c, int rank, int ranks);

/* TD_EINVAL if the host cannot read the memory of the job's backend, as `key` needs it. */
TD_NODISCARD td_status td__sync_needs_host(const td__sync_job *j, const char *key);
/* The value of an option of the rule: as it was set, or its default. */
double td__sync_value(const td__sync *s, const char *option);
/* The same, in a config that names the rule. */
double td__sync_option(const td__sync_config *c, const char *option);
/* The kind of the step under way (td__sync_ops). */
int td__sync_kind(const td__sync *s);
/* The most partials that a rank has in a step, of ranks with equal shares. */
size_t td__sync_slots(const td__sync_sizes *z);
/* A rule inside another one, whose engine the outer one runs: its begin; its step, which is
 * td__sync_hand_in() before the partials leave; its gather. */
TD_NODISCARD td_status td__sync_inner_begin(td__sync *inner, const td__sync_place *at);
TD_NODISCARD td_status td__sync_hand_in(td__sync *inner);
TD_NODISCARD td_status td__sync_inner_step(td__sync *inner, double lr, td__step_result *out);
/* Collectives of a rule: the numbers of this step, added up over all ranks. */
TD_NODISCARD td_status td__sync_sum_numbers(td__sync *s);

/* ---- For the trainer ------------------------------------------------------------------------- */

/* The rule of that name; NULL if there is none. */
const td__sync_ops *td__sync_named(const char *name);
/* The value of one of its options in a config that names the rule. */
double td__sync_setting_of(const td__sync_config *c, const td__key *option);
/* The rule that c means; TD_EINVAL if there is none of that name, or it has no such option. */
TD_NODISCARD td_status td__sync_find(const td__sync_config *c, const td__sync_world *w,
                                     const td__sync_ops **out);
TD_NODISCARD td_status td__sync_check(const td__sync_config *c, const td__sync_job *j,
                                      const td__sync_world *w);
/* Once, when a trainer is made: who applies what. */
TD_NODISCARD td_status td__sync_resolve(td__sync_config *c, const td__sync_job *j,
                                        const td__sync_world *w, td_optim_opts *optim);
/* Before td__sync_create, where ranks are elastic. */
TD_NODISCARD td_status td__sync_resize(td__sync_config *c, const td__sync_resizing *r);
/* The texts of c become copies. */
TD_NODISCARD td_status td__sync_copy_texts(td__sync_config *c, td__arena *to);
/* TD_EINVAL if the rule cannot train a model with these params. */
TD_NODISCARD td_status td__sync_check_params(const td__sync_config *c, const td__sync_world *w,
                                             const td_params *ps);
/* The same, of a model with values of all micro-batches (step/sync_values.h). */
typedef struct td__sync_shared {
    int micro_batches, accumulate, threads;
    bool verified, far; /* train.verify; the host cannot read its memory */
} td__sync_shared;
TD_NODISCARD td_status td__sync_check_shared(const td__sync_config *c, const td__sync_world *w,
                                             const td__sync_shared *v);
/* The result may depend on ranks and threads: c is to be what is fastest. */
void td__sync_any_bits(td__sync_config *c, const td_comm *comm);
/* The same, where some ranks have a GPU and some have not: they add up gradients in messages.
 * TD_EINVAL if the job's rule does not. */
TD_NODISCARD td_status td__sync_mixed(td__sync_config *c);
/* Momentum of the job's optimizer, wherever it is applied (td__sync_resolve). */
bool td__sync_has_momentum(const td__sync_config *c, const td_optim_opts *optim);
/* Of the rule that is found; of none, the defaults. */
td__sync_traits td__sync_traits_of(const td__sync_config *c, const td__sync_world *w);

size_t td__sync_exchange(const td__sync_sizes *z); /* bytes, of the busiest rank */
/* *parts: ranks have parts of the model, and *out is set. */
TD_NODISCARD td_status td__sync_needs(const td__sync_sizes *z, td__sync_need *out, bool *parts);
/* The shards that the rule wants held; NULL where every rank holds everything whole. */
TD_NODISCARD td_status td__sync_hold_shards(const td__sync_hold *h, td__shards **out);
/* Bytes of a bucket of even shards, as the rule's own are cut: whoever makes a map of what ranks
 * hold, or will hold, asks here. */
size_t td__sync_bucket_nbytes(const td__sync_config *c, const td__sync_world *w,
                              const td_params *ps);
/* Has the rule of several ranks shards of its own kind? Then: td__worlds' map. */
bool td__sync_maps(const td__sync_config *c);
TD_NODISCARD td_status td__sync_map(const td__sync_hold *h, int ranks, td__ownership *out,
                                    td__holding *holdings);

TD_NODISCARD td_status td__sync_create(const td__sync_ctx *x, td__sync **out);
/* Collective, before td__sync_destroy where ranks are well and go on. NULL is allowed. */
static inline td_status td__sync_leave(td__sync *s)
{
    return s && s->ops->leave ? s->ops->leave(s) : TD_OK;
}
void td__sync_destroy(td__sync *s); /* NULL is allowed */

TD_NODISCARD td_status td__sync_begin(td__sync *s, const td__sync_place *at, int batches,
                                      int64_t rows);
TD_NODISCARD td_status td__sync_batch(td__sync *s, const td__batch *batch);
TD_NODISCARD td_status td__sync_end(td__sync *s, double lr, td__step_say say, td__step_result *out);
/* Adds to times. If it fails the step is done all the same, with what others updated missing. */
TD_NODISCARD td_status td__sync_gather(td__sync *s, td__step_times *times);
/* Of no rule (NULL), these are false and do nothing. */
bool td__sync_prepared(const td__sync *s);
TD_NODISCARD td_status td__sync_forward(td__sync *s);
static inline void td__sync_shed(td__sync *s)
{
    if (s && s->ops->shed)
        s->ops->shed(s);
}
/* At begin and end, and else if there was a step since ranks have met. */
TD_NODISCARD td_status td__sync_meet_for(td__sync *s, td__sync_meet why);
int td__sync_states(td__sync *s, td__sync_block out[TD__SYNC_BLOCKS]);
TD_NODISCARD td_status td__sync_serve(td__sync *s);
void td__sync_note(td__sync *s, td__rank_stats *stats);
int td__sync_notes(td__sync *s, td__step_note out[TD__STEP_NOTES]);
static inline bool td__sync_order(td__sync *s, td__order_event *out)
{
    return s->ops->order && s->ops->order(s, out);
}
void td__sync_report(td__sync *s, td__train_result *out);
void td__sync_abandon(td__sync *s, const char *why);
/* Rank 0 decides alone, the others serve it, and have not met it at the end yet, or never will. */
bool td__sync_leads(const td__sync *s);

#endif
