/* data_impl.h -- what the files of data sets, runs and models share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_DATA_IMPL_H
#define TD_SERVICE_DATA_DATA_IMPL_H

#include "base/alloc.h"
#include "rpc/work.h"
#include "service/config.h"
#include "service/data/data.h"

enum { TD__BUCKET_PATH = 4096 };

struct td__data {
    td__service *service;
    td__job_store *store;
    const td__service_config *config;
    td__work_threads *workers; /* one: commits keep the order of their requests */
    td__work_threads *waiters; /* wait for predictions and other services */
    td__subscription *events;
    int ending; /* runs whose end is not stored yet */
};

/* Documents of the store: kinds. */
#define TD_DOC_SET "data_set"    /* by id: DatasetSummary */
#define TD_DOC_VERSION "version" /* by "id/hash": VersionedSnapshot */
#define TD_DOC_RUN "run"         /* by run id: RunInfo */
#define TD_DOC_MODEL "model"     /* by run id: GetArtifactResponse */
#define TD_DOC_OWNER "owner"     /* by "data_set/ID", "run/ID": the user */

/* NULL in *out: there is none. */
TD_NODISCARD td_status td__doc_get(td__data *d, td__arena *a, const char *kind, const char *key,
                                   const ProtobufCMessageDescriptor *type, ProtobufCMessage **out);
TD_NODISCARD td_status td__doc_put(td__data *d, const char *kind, const char *key,
                                   const ProtobufCMessage *m);

/* Whose a document is, and whether this caller may change it. What nobody owns is the admins'. */
TD_NODISCARD td_status td__data_set_owner(td__data *d, const td__caller *who, const char *kind,
                                          const char *key);
TD_NODISCARD td__answer td__data_check_owner(td__data *d, const td__caller *who, const char *kind,
                                             const char *key);

/* Now, as "2026-11-16T11:20:33.123Z". */
char *td__data_now(td__data *d, td__arena *a);
/* A text in the arena; "" when out of memory is noted by the caller's own check of the arena. */
char *td__data_text(td__arena *a, const char *s);

/* The directory of `key` in a bucket, made with all above it. */
TD_NODISCARD td__answer td__data_dir(td__data *d, const char *bucket, const char *key,
                                     char path[TD__BUCKET_PATH]);

/* Something that reads or writes files on a worker and then answers. Begin of the work's struct;
 * `finish` stores documents and makes its message, on the loop thread; it begins with
 * td__data_work_failed unless it has something to store of a failure. */
typedef struct td__data_work {
    td__data *data;
    td__work work;
    td__arena *arena;
    td_status st;    /* of run */
    char error[512]; /* its text */
    td_status (*run)(struct td__data_work *w);
    td__answer (*finish)(struct td__data_work *w, ProtobufCMessage **out);
    td__data_done done; /* NULL: nobody waits */
    void *arg;
} td__data_work;

/* OK, or the answer that `run` ended with. */
td__answer td__data_work_failed(const td__data_work *w);
/* Takes a zeroed struct from td__calloc with run, finish, done, arg and arena set; frees it and the
 * arena at its end. */
void td__data_work_start(td__data *d, td__data_work *w);
void td__data_work_start_on(td__data *d, td__work_threads *threads, td__data_work *w);

/* Copies the files of a directory, or one file, into `to`, under their own names or part-0 and so
 * on; *n_files of them. */
TD_NODISCARD td_status td__data_copy(const char *from, const char *to, const char *prefix,
                                     int *n_files);
/* The record of a new model of that name, and the directory for its files. The first model of a
 * name lies under the name, as in the book; later ones do not overwrite it: they are
 * name@version. */
TD_NODISCARD td__answer td__model_name(td__data *d, td__arena *a, const char *name, const char *run,
                                       const char *algorithm, MetadataStore__GetArtifactResponse *m,
                                       char to[TD__BUCKET_PATH]);
/* Runs and models of jobs that tandem itself trains. */
TD_NODISCARD td_status td__job_runs_start(td__data *d);
/* Versions that were being built when the service ended. */
TD_NODISCARD td_status td__versions_resume(td__data *d);
/* Tells the service that data.metadata_service names of a run that has ended. Blocks. */
TD_NODISCARD td_status td__run_tell_other(const td__data *d, const MetadataStore__RunInfo *run);
/* The service asks for the data of a job. */
void td__data_for_job(void *arg, int32_t job, const char *dataset_id, const char *version_hash);
/* The same, answered by the service that data.service names. */
void td__data_of_other(void *arg, int32_t job, const char *dataset_id, const char *version_hash);

#endif
