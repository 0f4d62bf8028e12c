/* other_call.h -- one gRPC call to another service: data_management, metadata_store. It blocks: for
 * worker threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_DATA_OTHER_CALL_H
#define TD_SERVICE_DATA_OTHER_CALL_H

#include <protobuf-c/protobuf-c.h>

#include "tandem/status.h"

typedef struct td__other_answer {
    int code;               /* of gRPC; 0: OK */
    char text[512];         /* of a refusal: "NOT_FOUND: Dataset 1 not found" */
    ProtobufCMessage *body; /* of OK: the caller's, released by protobuf_c_message_free_unpacked */
} td__other_answer;

/* address: HOST:PORT. method: "package.Service/Method". A server that cannot be reached is tried
 * again for a while: calls must be repeatable. Any answer of its own is TD_OK, whatever its code.
 */
TD_NODISCARD td_status td__other_call(const char *address, const char *method,
                                      const ProtobufCMessage *q,
                                      const ProtobufCMessageDescriptor *type,
                                      td__other_answer *out);

#endif
