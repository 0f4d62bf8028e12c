/* session.h -- what most uses of a job begin with: a job file or a run's directory becomes a job,
 * its data, its model and a trainer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_SESSION_H
#define TD_API_SESSION_H

#include "checkpoint/checkpoint.h"
#include "data/data.h"
#include "fault/faults.h"
#include "job/job.h"
#include "parallel/distribute/distribute.h"
#include "ps/tables.h"
#include "run/run_dir.h"
#include "train/trainer.h"

/* Zero-initialise. */
typedef struct td__session {
    td__job *job;
    td_comm *comm;      /* the ranks that train together; NULL: this process is alone, or elastic */
    bool borrowed;      /* comm is the caller's, who set it */
    td__members *agent; /* hears what this rank does; NULL: none is there */
    td__members *members; /* the same, of an elastic launch; NULL: it is not one */
    td__faults *faults;   /* to be injected; NULL: none */
    td__data *data;
    td__distribution *distribution; /* of rank 0's data; NULL: every rank has its own */
    td__model model;
    td__trainer *trainer;
    td__ps_tables *tables; /* of a trained model: rows on servers, read from files; NULL: none */
    td__train_opts opts;   /* the job's; may be changed before td__session_trainer */
    int threads;           /* compute threads; 0: as the job says */
    bool scaled;           /* opts follow from the number of ranks, where the job says so */
    bool of_run;           /* the job file was found in a folder: nobody has named it */
    char digest[65];       /* of the job */
    const char *input;     /* new samples in the place of the test part; NULL: none */
    bool input_labelled;   /* they must have labels */
    bool joins; /* of a trained model: the ranks that the environment tells of use it together */
    int starts; /* of one: so many ranks are to be started for it, which is checked, nothing loaded;
                   1: can one be enough? */
    bool elsewhere;   /* of a trained model: its weights are used where they are, none loaded */
    bool sample_only; /* of a trained model: no data but one sample to fill in, its test part */
    td_dataset *given[TD_PART_COUNT]; /* of data.source: memory; own references, NULL: none */
    td__fit *fit; /* what a checkpoint says of the data; NULL: it is measured on the train part */
    /* Told how far rank 0's data have got on their way to the others; may be NULL. */
    td_status (*spreading)(void *user, const char *part, uint64_t done, uint64_t all);
    void *spreading_user;
} td__session;

/* A job that is taken over, with all that follows from it in opts. */
TD_NODISCARD td_status td__session_take(td__session *s, td__job *job);
/* The job at `path` with overrides: as td__job_load. */
TD_NODISCARD td_status td__session_job(td__session *s, const char *path, const char *const *sets,
                                       int n_sets);
/* Warn of keys that were given by their old names; of several ranks, one does. */
void td__session_warn_renamed(const td__job *j);
/* Before the data: they are to be read as those of the text of preprocessing.json, if there is one;
 * `where` is for errors. */
TD_NODISCARD td_status td__session_fit_text(td__session *s, const char *text, size_t nbytes,
                                            const char *where);
/* After the data: have they changed since? As td__data_changed. */
TD_NODISCARD td_status td__session_changed(td__session *s, bool *changed, char *what,
                                           size_t nbytes);
/* After td__session_data: of what is probably not meant so in the model, on so many ranks. */
void td__session_warn_model(const td__session *s, int ranks);
TD_NODISCARD td_status td__session_data(td__session *s);    /* then data and model */
TD_NODISCARD td_status td__session_trainer(td__session *s); /* then the trainer */
/* After the trainer: the graph of a micro-batch, from the model's inputs to its loss. The
 * caller's. */
TD_NODISCARD td_status td__session_graph(const td__session *s, td_graph **out);
/* Instead, before ranks are started: can parallel.tensor cut the model? */
TD_NODISCARD td_status td__session_check_tensor(td__session *s);
void td__session_fini(td__session *s);

/* After the job: join the other ranks that the environment tells of, if there are any; those of
 * a comm that is set already are joined. */
TD_NODISCARD td_status td__session_join(td__session *s);
/* Does the job leave something to the number of ranks, which elastic ranks do not have? */
TD_NODISCARD td_status td__session_check_elastic(const td__session *s);
/* On a comm, before anything else is called there: all ranks are here, and have the same idea of
 * which of them open the data, which decides the next calls. Collective. */
TD_NODISCARD td_status td__session_agree(const td__session *s);
/* 0 if alone; of an elastic rank, as it is now or was last. */
int td__session_rank(const td__session *s);

/* A session on a trained model: that of a run's directory, of a checkpoint's, or of a job file, at
 * `path`; overrides; and which checkpoint: as below. Ranks with a comm have the parts of it that
 * the job's mesh gives them, and the checkpoint that rank 0 has found; a failure of one of them is
 * told the others. Collective then. */
TD_NODISCARD td_status td__session_trained(td__session *s, const char *path,
                                           const char *const *sets, int n_sets, const char *which,
                                           td__checkpoint_info *info);
/* What failed with st, if anything did, is told the other ranks, who wait no longer. Returns st. */
td_status td__session_told(const td__session *s, td_status st);
/* A checkpoint of a run: "latest" (NULL), "best", or "step-N" with or without zeros. */
TD_NODISCARD td_status td__session_checkpoint(const char *run, const char *which,
                                              td__checkpoint_info *info);

/* The part called `name`; NULL: the test part, or else the validation part. */
TD_NODISCARD td_status td__session_part(const td__session *s, const char *name, td__part *part,
                                        td__dataset **out);

#endif
