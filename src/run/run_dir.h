/* run_dir.h -- the directory of a run: job.yaml as resolved, metrics.jsonl, TensorBoard event
 * files, failed.txt, faults.txt (--faults), ranks.jsonl (of the launcher), checkpoints/,
 * profile.txt and trace.json (--profile), report.html. Observers that write into it are made
 * here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_RUN_DIR_H
#define TD_RUN_RUN_DIR_H

#include "tandem/program.h"
#include "run/observer.h"

enum { TD__PATH = 4096 };

/* Make parent/NAME-0001, the first number that is free (mkdir decides), and its parents. With name
 * NULL, `parent` itself is the run's directory: made, or opened if it is there already. path
 * receives it. */
TD_NODISCARD td_status td__run_dir_create(const char *parent, const char *name,
                                          char path[TD__PATH]);
/* The run of that name with the highest number that has a job.yaml (one killed before it had is
 * none); TD_EINVAL if there is none. */
TD_NODISCARD td_status td__run_dir_newest(const char *parent, const char *name,
                                          char path[TD__PATH]);
/* Take away what processes that were killed over a file of the run have left of it. */
void td__run_dir_sweep(const char *dir);
/* Leave a line about why the run failed in its directory (failed.txt), or take it away (why NULL).
 * Nobody depends on it: failures are not told. */
void td__run_dir_failed(const char *dir, const char *why);
/* dir/file; TD_EINVAL if it is too long. */
TD_NODISCARD td_status td__run_dir_path(const char *dir, const char *file, char path[TD__PATH]);

/* metrics.jsonl: one object per line (event_json.h), appended and flushed. On resume lines after
 * the checkpoint's step are cut off first; from_step 0 begins anew. */
TD_NODISCARD td_status td__metrics_file_create(const char *dir, uint64_t from_step,
                                               td__observer **out);
/* The same after another process, which may still hold the file open: lines about steps after
 * `step` and validations after that of step `valid` are cut off, and what it goes on to write is
 * lost. *told_step, *told_valid: the last ones that the file has. */
TD_NODISCARD td_status td__metrics_file_take_over(const char *dir, uint64_t step, uint64_t valid,
                                                  uint64_t *told_step, uint64_t *told_valid,
                                                  td__observer **out);
void td__metrics_file_destroy(td__observer *o); /* NULL is allowed, as for all below */
/* events.out.tfevents.*: TFRecord with masked crc32c, Event protobufs written by hand. */
TD_NODISCARD td_status td__tensorboard_create(const char *dir, uint64_t from_step, bool holds,
                                              td__observer **out);
/* Also the graph (NULL: none), and histograms of the params at each validation. ps is borrowed. */
TD_NODISCARD td_status td__tensorboard_model(td__observer *o, const td_graph *g,
                                             const td_params *ps);
void td__tensorboard_destroy(td__observer *o);

/* trace.json, for Perfetto and chrome://tracing: steps, waits for data, validation, checkpoints.
 * `nodes`, after the run, adds the mean time of each node, one after the other. */
TD_NODISCARD td_status td__trace_create(const char *dir, td__observer **out);
TD_NODISCARD td_status td__trace_nodes(td__observer *o, const td_node_time *times, int n);
TD_NODISCARD td_status td__trace_finish(td__observer *o); /* the file is whole after this */
void td__trace_destroy(td__observer *o);
/* profile.txt: a table of nodes by time, and one of operators. */
TD_NODISCARD td_status td__profile_write(const char *dir, const td_node_time *times, int n);

/* One row of the layer table: what `tandem check` prints and the report shows. */
typedef struct td__layer_row {
    const char *name, *kind;
    td_shape out;
    int64_t params;
    double flops; /* forward, one sample */
} td__layer_row;

typedef struct td__report_opts {
    const char *dir; /* metrics.jsonl is read from there, report.html written there */
    const char *title, *job_text;
    const td__layer_row *layers;
    int n_layers;
    td_memory_plan memory;
    const td_node_time *profile;
    int n_profile;
    const td__scores *scores; /* of the part of this name; NULL: there are none */
    const char *scores_part;
    const char *const *class_names; /* of its classes; NULL: they are numbers */
    const char *failed;             /* why the run has failed; NULL: it has not */
    double every_s;                 /* the page is written again after about as long; 0: never */
} td__report_opts;
/* A self-contained page: curves as inline SVG, tables, no script from elsewhere. */
TD_NODISCARD td_status td__report_write(const td__report_opts *o);
/* While the run goes on, from its first step on: observes after the file of metrics does. What o
 * points to stays as long as the observer. */
TD_NODISCARD td_status td__report_live_create(const td__report_opts *o, td__observer **out);
void td__report_live_destroy(td__observer *o);

#endif
