/* data.h -- data sets, runs and models as in the book: what its services data_management and
 * metadata_store keep, here in the service's own store, with files in buckets under data.dir.
 *
 * Data set  commits of uploaded files; a version is a choice of commits under a name that depends
 *           on nothing else (version_hash.h). Versions are built in the background.
 * Run       what a training program reports of itself: start, epochs, end.
 * Model     files of a run that it registered, under a name and a version.
 *
 * Owner     Data sets and runs belong to who made them, runs of jobs to the job's user: others, but
 *           admins, are DENIED what changes them.
 *
 * Messages are those of the .proto files; results lie in the caller's arena. All of it is called on
 * the loop thread; functions with a `done` answer later, after files were read or written. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_DATA_H
#define TD_SERVICE_DATA_DATA_H

#include "data_management.pb-c.h"
#include "metadata_store.pb-c.h"
#include "service/service.h"

typedef struct td__data td__data;

/* Goes on with versions that were being built. It becomes the service's source of data sets;
 * where the configuration names another data service (data.service), jobs' data is asked there. */
TD_NODISCARD td_status td__data_create(td__service *s, td__data **out);
/* Before the service. `done` of what was not finished is called. NULL is allowed. */
void td__data_destroy(td__data *d);

/* `m` belongs to the caller of done and is gone after its return; NULL with anything but OK, when
 * the text is td_last_error(). Called once, on the loop thread. */
typedef void (*td__data_done)(void *arg, td__answer a, const ProtobufCMessage *m);

/* ---- data sets ---- */

void td__data_create_set(td__data *d, const td__caller *who,
                         const DataManagement__CreateDatasetRequest *q, td__data_done done,
                         void *arg); /* a DatasetSummary */
void td__data_commit(td__data *d, const td__caller *who,
                     const DataManagement__CreateCommitRequest *q, td__data_done done,
                     void *arg); /* a DatasetSummary */
TD_NODISCARD td__answer td__data_summary(td__data *d, td__arena *a, const char *id,
                                         DataManagement__DatasetSummary **out);
TD_NODISCARD td__answer td__data_prepare(td__data *d, td__arena *a,
                                         const DataManagement__DatasetQuery *q,
                                         DataManagement__SnapshotVersion **out);
TD_NODISCARD td__answer td__data_fetch(td__data *d, td__arena *a, const char *id, const char *hash,
                                       DataManagement__VersionedSnapshot **out);
TD_NODISCARD td__answer td__data_delete(td__data *d, const td__caller *who, const char *id);
TD_NODISCARD td__answer td__data_list(td__data *d, void (*each)(void *arg, const char *id),
                                      void *arg);

/* ---- runs ---- */

TD_NODISCARD td__answer td__run_start(td__data *d, const td__caller *who, td__arena *a,
                                      const MetadataStore__LogRunStartRequest *q,
                                      MetadataStore__LogRunStartResponse **out);
TD_NODISCARD td__answer td__run_epoch(td__data *d, const td__caller *who, td__arena *a,
                                      const MetadataStore__EpochInfo *e);
TD_NODISCARD td__answer td__run_end(td__data *d, const td__caller *who, td__arena *a,
                                    const MetadataStore__LogRunEndRequest *q,
                                    MetadataStore__RunInfo **out);
TD_NODISCARD td__answer td__run_get(td__data *d, td__arena *a, const char *run,
                                    MetadataStore__RunInfo **out);

/* Runs of jobs that have just ended are stored in the background: fn is called when those that are
 * known now are stored, at once if there are none. Once, also when the service ends. */
void td__runs_settled(td__data *d, void (*fn)(void *arg), void *arg);

/* ---- models ---- */

void td__model_create(td__data *d, const td__caller *who,
                      const MetadataStore__CreateArtifactRequest *q, td__data_done done,
                      void *arg); /* a CreateArtifactResponse */
TD_NODISCARD td__answer td__model_get(td__data *d, td__arena *a, const char *run,
                                      MetadataStore__GetArtifactResponse **out);

/* ---- predictions ---- */

/* What the model of a run says of a text: a PredictResponse, {"result": "greeting"}. Models of
 * shipped algorithms only. STATE: the algorithm of the model has no predictor. */
void td__predict(td__data *d, const char *run, const char *document, td__data_done done, void *arg);

#endif
