/* run_dir.h -- the directory of a run: job.yaml as resolved, metrics.jsonl, TensorBoard event
 * files, checkpoints/, log.txt, profile.txt and trace.json (--profile), report.html. Observers
 * that write into it are made here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_RUN_DIR_H
#define TD_TRAIN_RUN_DIR_H

#include "tandem/program.h"
#include "train/observer.h"

/* Make runs/NAME-0001, the first number that is free (mkdir decides), or open an existing
 * directory. path receives it. */
TD_NODISCARD td_status td__run_dir_create(const char *parent, const char *name, char path[4096]);

/* metrics.jsonl: one object per line, appended and flushed, {"kind": "step", ...}. On resume lines
 * after the checkpoint's step are cut off first. */
TD_NODISCARD td_status td__metrics_file_create(const char *dir, uint64_t from_step,
                                               td__observer **out);
void td__metrics_file_destroy(td__observer *o);
/* events.out.tfevents.*: TFRecord with masked crc32c, Event protobufs written by hand (scalars). */
TD_NODISCARD td_status td__tensorboard_create(const char *dir, uint64_t from_step,
                                              td__observer **out);
void td__tensorboard_destroy(td__observer *o);

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
} td__report_opts;
/* A self-contained page: curves as inline SVG, tables, no script from elsewhere. */
TD_NODISCARD td_status td__report_write(const td__report_opts *o);

#endif
