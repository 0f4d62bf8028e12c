/* session.h -- what most commands begin with: a job file or a run's directory becomes a job, its
 * data, its model and a trainer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_SESSION_H
#define TD_CMD_SESSION_H

#include <stdio.h>

#include "command.h"
#include "data/data.h"
#include "job/job.h"
#include "parallel/distribute.h"
#include "checkpoint/checkpoint.h"
#include "fault/faults.h"
#include "run/run_dir.h"
#include "train/trainer.h"

/* Zero-initialise. */
typedef struct td__session {
    td__job *job;
    td_comm *comm; /* the ranks that train together; NULL: this process is alone, or elastic */
    td__members *members; /* of an elastic launch; NULL: it is not one */
    td__faults *faults;   /* --faults; NULL: none */
    td__data *data;
    td__distribution *distribution; /* of rank 0's data; NULL: every rank has its own */
    td__model model;
    td__trainer *trainer;
    td__train_opts opts; /* the job's; may be changed before td__session_trainer */
    char digest[65];     /* of the job */
    const char *input;   /* new samples in the place of the test part; NULL: none */
    /* Told how far rank 0's data have got on their way to the others; may be NULL. */
    td_status (*spreading)(void *user, const char *part, uint64_t done, uint64_t all);
    void *spreading_user;
} td__session;

/* The job at `path` with --set and --threads applied. */
TD_NODISCARD td_status td__session_job(td__session *s, const td__args *a, const char *path);
/* Warn of keys that were given by their old names; of several ranks, one does. */
void td__session_warn_renamed(const td__job *j);
TD_NODISCARD td_status td__session_data(td__session *s);    /* then data and model */
TD_NODISCARD td_status td__session_trainer(td__session *s); /* then the trainer */
void td__session_fini(td__session *s);

/* After the job: join the other ranks, if there are any. */
TD_NODISCARD td_status td__session_join(td__session *s);
/* 0 if alone; of an elastic rank, as it is now or was last. */
int td__session_rank(const td__session *s);

/* What the user named: a run's directory, a checkpoint's, or a job file. */
typedef struct td__place {
    char job[TD__PATH]; /* the job file */
    char run[TD__PATH]; /* the run; "" for a job file: its newest run is meant */
} td__place;
TD_NODISCARD td_status td__place_find(const char *path, td__place *out);

/* A session on a trained model: the place of the command's first argument, --set, --checkpoint. */
TD_NODISCARD td_status td__session_trained(td__session *s, const td__args *a,
                                           td__checkpoint_info *info);
/* The checkpoint of a run that --checkpoint asks for. */
TD_NODISCARD td_status td__session_checkpoint(const td__args *a, const char *run,
                                              td__checkpoint_info *info);

/* The part called --part; without it the test part, or else the validation part. */
TD_NODISCARD td_status td__session_part(const td__session *s, const td__args *a, td__part *part,
                                        td__dataset **out);

/* Can a file be written at `path` (--FLAG)? Asked before the work, not after. */
TD_NODISCARD td_status td__output_check(const char *flag, const char *path);

/* Flags that several commands have. */
#define TD_FLAG_SET                                                                         \
    {                                                                                       \
        .name = "set", .value = "KEY=VALUE",                                                \
        .help = "change a key of the job: --set train.batch=64, or those in a file: --set " \
                "@FILE; may be given several times"                                         \
    }
#define TD_FLAG_THREADS                                                                   \
    {                                                                                     \
        .name = "threads", .letter = 'j', .value = "N",                                   \
        .help = "compute threads; the result does not depend on them (one per processor)" \
    }
#define TD_FLAG_CHECKPOINT                                                                 \
    {                                                                                      \
        .name = "checkpoint", .value = "NAME",                                             \
        .help = "which one: latest (the default), best, or step-N", .words = "latest best" \
    }
#define TD_FLAG_PART                                                              \
    {                                                                             \
        .name = "part", .value = "PART",                                          \
        .help = "train, valid or test (test; valid where there is no test part)", \
        .words = "train valid test"                                               \
    }

/* "layer  kind  output  params  FLOP", aligned. */
void td__print_layers(FILE *to, const td__layer_row *rows, int n);

#endif
