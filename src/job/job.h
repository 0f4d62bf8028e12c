/* job.h -- a job file (YAML) as checked structs.
 *
 * Every key stands once in keys.def: path, type, range, default, help. The checker, `tandem help
 * job`, docs/job.md and the resolved file all come from that table. Errors are one line:
 *
 *     digits.yaml:12:5: train.optimzer: unknown key; did you mean train.optimizer?
 *     digits.yaml:14:10: train.batch: expected a whole number of at least 1, found -3
 *
 * Shape of a file: name, model, loss, metrics, data, train, parallel, checkpoint, log. The model
 * is a list of layers (Sequential; `as: NAME` taps a value, `from: NAME` or `add: NAME`,
 * `concat: [..]` uses it) or a ready-made one (`model: {name: gpt2, layers: 4, ...}`). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_JOB_JOB_H
#define TD_JOB_JOB_H

#include <stdio.h>

#include "base/file.h"
#include "data/data.h"
#include "step/model.h"
#include "run/run_dir.h"
#include "train/trainer.h"

typedef struct td__job td__job;

/* Read, override and check. `sets` are "path.to.key=value", or "@FILE": a file with any part of a
 * job, whose keys take the places of the job's (maps are merged, lists replaced). TD_EINVAL with
 * the one line above for anything wrong with the file. */
TD_NODISCARD td_status td__job_load(const char *path, const char *const *sets, int n_sets,
                                    td__job **out);
/* The same from memory; `name` stands for the file in texts. */
TD_NODISCARD td_status td__job_parse(const char *text, size_t nbytes, const char *name,
                                     const char *const *sets, int n_sets, td__job **out);
/* The text of a job file, which the user has named: its absence is TD_EINVAL. */
TD_NODISCARD td_status td__job_open(const char *path, td__file_map *m);
void td__job_destroy(td__job *j); /* NULL is allowed */
/* Load the plug-ins that the job names, if its file was named on the command line (`named`), and
 * find in them what it uses. */
TD_NODISCARD td_status td__job_load_plugins(td__job *j, bool named);
bool td__job_has_plugins(const td__job *j);

const char *td__job_name(const td__job *j);
/* model.from, from the folder of the job file on; NULL: none. */
const char *td__job_from(const td__job *j);
/* Are tables of the model on servers? */
bool td__job_has_tables(const td__job *j);
/* model.fresh and model.rename: pairs, a beginning of names in the file and what it is here. */
typedef struct td__job_from_opts {
    const char *const *fresh;
    int n_fresh;
    const char *const (*rename)[2];
    int n_renames;
} td__job_from_opts;
td__job_from_opts td__job_from_options(const td__job *j);
/* "job.yaml:7:3: train.shards is now train.micro_batches" for each key that was given by its old
 * name, i = 0, 1, ...; NULL after the last. */
const char *td__job_renamed(const td__job *j, int i);
/* After td__job_model: one line on what is probably not meant so; NULL: nothing is. */
const char *td__job_hint(const td__job *j);
/* The highest `place` of its layers; -1: none has any. */
int td__job_last_place(const td__job *j);
/* Every key with its value, defaults included, as YAML that loads to the same job. */
TD_NODISCARD td_status td__job_write(const td__job *j, FILE *to);
/* sha256 over what decides the numbers (model, loss, data, train), not names, logs or threads. */
TD_NODISCARD td_status td__job_digest(const td__job *j, char hex[65]);
/* Do they differ in that, but for the next? what: the first key and both values, "train.batch (64,
 * now 32)". */
bool td__job_differs(const td__job *a, const td__job *b, char *what, size_t nbytes);
/* Is train.epochs or train.steps another where the learning rate ends with the run? A run may be
 * made longer all the same, only its numbers are not those of one run of that length. */
bool td__job_ends_elsewhere(const td__job *a, const td__job *b, char *what, size_t nbytes);

/* The parts, ready for their layers; pointers are the job's own. */
const td__data_opts *td__job_data(const td__job *j);
/* Does the key say how ranks train together: a member of td__train_opts.sync? */
bool td__job_is_sync_key(const char *path);
const td__train_opts *td__job_train(const td__job *j); /* checkpoint_dir, profile: the caller's */

typedef struct td__job_log {
    const char *runs_dir; /* log.dir: "runs" */
    int64_t every;        /* steps between plain lines */
    bool tensorboard, report;
} td__job_log;
const td__job_log *td__job_log_opts(const td__job *j);

typedef struct td__job_hooks { /* on: shell commands; NULL: none */
    const char *epoch, *best, *end, *fail;
} td__job_hooks;
const td__job_hooks *td__job_hook_commands(const td__job *j);

enum { TD__ALL_DEVICES = 0 };
typedef struct td__job_parallel {
    const char *transport, *algo; /* NULL: by themselves */
    const char *distribute;       /* of rank 0's data: "none" */
    const char *processors;       /* "lowest", "same" */
    int devices;                  /* GPUs that one process drives, or TD__ALL_DEVICES */
    int64_t timeout;              /* seconds, of a collective call */
} td__job_parallel;
const td__job_parallel *td__job_parallel_opts(const td__job *j);

/* The model for data with these fields (td__data_fields): resolves what depends on them
 * (classes, vocabulary, shapes) and checks that it fits; TD_EINVAL with file:line:column of the
 * layer that does not. *out is valid as long as the job. Refuses models that cannot fit in
 * memory (10^12 params). */
TD_NODISCARD td_status td__job_model(td__job *j, const td__field *fields, int n_fields,
                                     td__model *out);
/* After td__job_model: the layer table for one sample. */
int td__job_layers(const td__job *j, const td__layer_row **out);

/* The path of the key that a user may mean by `word`, its last part or another tool's name for it:
 * "train.epochs" for "epochs"; NULL if there is none. */
const char *td__job_key_meant(const char *word);

/* `tandem help job`: the whole table as text; docs/job.md: the same as Markdown. */
TD_NODISCARD td_status td__job_help(FILE *to, const char *section, bool markdown);

#endif
