/* message_json.h -- protobuf messages as JSON objects and back, by their descriptors: fields under
 * their own names, maps as objects, enums by name. Specs of jobs are checked as JSON (spec.h), and
 * the store keeps data sets, runs and models so. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_MESSAGE_JSON_H
#define TD_SERVICE_MESSAGE_JSON_H

#include <protobuf-c/protobuf-c.h>

#include "base/alloc.h"
#include "base/text.h"

/* One object. Fields that are not set, or have their default, are left out. */
void td__message_to_json(const ProtobufCMessage *m, td__text *out);
/* A message in the arena. Fields that it does not know are ignored; TD_EPROTO: not such an
 * object. */
TD_NODISCARD td_status td__message_from_json(td__arena *a, const ProtobufCMessageDescriptor *d,
                                             const char *json, size_t nbytes,
                                             ProtobufCMessage **out);

#endif
