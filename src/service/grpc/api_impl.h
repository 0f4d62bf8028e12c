/* api_impl.h -- what the handlers of the gRPC services share. The argument of every service is the
 * API; a method's tag is the scope that it needs (rpc/tokens.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_GRPC_API_IMPL_H
#define TD_SERVICE_GRPC_API_IMPL_H

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/check.h"
#include "rpc/guard.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/work.h"
#include "service/grpc/api.h"

struct td__grpc_api {
    td__grpc_api_opts o;
    td__grpc *server;
    td__health *health;
    td__reflection *reflection;
    td__rates *rates; /* NULL: no limit */
    unsigned rate;    /* calls per second; 0: no limit */
    char (*addresses)[TD_ADDRESS_BYTES];
    int n_addresses;
    td__work_threads *workers; /* for uploads; NULL: none was needed yet */
    atomic_bool stopping;      /* they are to come to an end */
    td__grpc_counters counters;
};

extern const td__grpc_service td__book_training;   /* training.TrainingService */
extern const td__grpc_service td__book_data;       /* data_management.DataManagementService */
extern const td__grpc_service td__book_runs;       /* metadata_store.MetadataStoreService */
extern const td__grpc_service td__book_prediction; /* prediction.PredictionService */
extern const td__grpc_service td__tandem_v1;       /* tandem.v1.TrainingService */

/* A row of a table of methods. */
#define TD_METHOD(method, kind_, request_, scope, handler)                             \
    {                                                                                  \
        .name = (method), .kind = TD_GRPC_##kind_, .request = &request_##__descriptor, \
        .handle = (handler), .tag = TD_SCOPE_##scope                                   \
    }

td__caller td__grpc_caller(const td__call *c);
/* Finishes a call that was refused: true if it was. The text is td_last_error(). */
bool td__grpc_refused(td__call *c, td__answer a);

/* Texts of messages are not const in protobuf-c; it does not change them when it packs. */
static inline char *td__grpc_text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

/* Streams of tandem.v1 (tandem_streams.c). */
void td__tandem_watch(td__call *c, void *arg, const void *request);
void td__tandem_logs(td__call *c, void *arg, const void *request);
void td__tandem_metrics(td__call *c, void *arg, const void *request);
void td__tandem_read_artifact(td__call *c, void *arg, const void *request);

/* tandem_put.c */
void td__tandem_put_artifact(td__call *c, void *arg, const void *request);
void td__tandem_put_end(td__call *c, void *arg);
/* tandem_workers.c */
void td__tandem_list_workers(td__call *c, void *arg, const void *request);

#endif
