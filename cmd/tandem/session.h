/* session.h -- what most commands begin with: the flags of a command line and the session
 * (api/session.h) that they ask for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_SESSION_H
#define TD_CMD_SESSION_H

#include <stdio.h>

#include "api/session.h"
#include "command.h"

/* The job at `path` with --sync, --set and --threads applied. */
TD_NODISCARD td_status td__args_job(td__session *s, const td__args *a, const char *path);
/* A session on a trained model: the place of the command's first argument, --set, --threads,
 * --checkpoint. */
TD_NODISCARD td_status td__args_trained(td__session *s, const td__args *a,
                                        td__checkpoint_info *info);

/* --input: new samples in the place of the test part, read, normalised and tokenised as the model's
 * training data were. real: room for the path, kept as long as the session. */
TD_NODISCARD td_status td__args_input(td__session *s, const td__args *a, char real[TD__PATH]);

/* Can a file be written at `path` (--FLAG)? Asked before the work, not after. */
TD_NODISCARD td_status td__output_check(const char *flag, const char *path);

/* Flags that several commands have. */
#define TD_FLAG_SET                                                                        \
    {                                                                                      \
        .name = "set", .value = "KEY=VALUE",                                               \
        .help = "override a key of the job: --set train.batch=64, or the keys in a file: " \
                "--set @FILE; may be given several times"                                  \
    }
#define TD_FLAG_SYNC                                                                     \
    {                                                                                    \
        .name = "sync", .value = "NAME",                                                 \
        .help = "sync rule: short for --set train.sync=NAME; see `tandem help job sync`" \
    }
#define TD_FLAG_PARALLEL                                                                       \
    {                                                                                          \
        .name = "parallel", .value = "AXES",                                                   \
        .help = "how ranks are arranged, e.g. data=2,pipeline=4: short for parallel.data and " \
                "parallel.pipeline; auto: as few stages as fit memory, auto:200MB: of a rank"  \
    }
#define TD_FLAG_SERVERS                                                               \
    {                                                                                 \
        .name = "servers", .value = "N",                                              \
        .help = "parameter servers, in addition to the ranks of -n: short for --set " \
                "parallel.servers=N"                                                  \
    }
#define TD_FLAG_STRATEGY                                                       \
    {                                                                          \
        .name = "strategy", .value = "NAME",                                   \
        .help = "mirrored, multi-worker or parameter-server: short for --set " \
                "parallel.strategy=NAME",                                      \
        .words = "mirrored multi-worker parameter-server"                      \
    }
#define TD_FLAG_THREADS                                                                   \
    {                                                                                     \
        .name = "threads", .letter = 'j', .value = "N",                                   \
        .help = "compute threads; the result does not depend on them (one per processor)" \
    }
#define TD_FLAG_CHECKPOINT                                                                         \
    {                                                                                              \
        .name = "checkpoint", .value = "NAME",                                                     \
        .help = "checkpoint to use: latest (the default), best, or step-N", .words = "latest best" \
    }
#define TD_FLAG_PART                                                                             \
    {                                                                                            \
        .name = "part", .value = "PART",                                                         \
        .help = "part of the data: train, valid or test (test; valid if there is no test part)", \
        .words = "train valid test"                                                              \
    }
#define TD_FLAG_INPUT(text)                                                            \
    {                                                                                  \
        .name = "input", .letter = 'i', .value = "FILE", .help = text, .words = "FILE" \
    }

/* "layer  kind  output  params  FLOP", aligned. */
void td__print_layers(FILE *to, const td__layer_row *rows, int n);

#endif
