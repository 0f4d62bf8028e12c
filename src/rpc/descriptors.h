/* descriptors.h -- what reflection tells clients: files of descriptors (FileDescriptorProto), by
 * name and by the symbols that they define.
 *
 * They come as sets that the protobuf compiler wrote (FileDescriptorSet). That compiler adds to
 * each field the name it has in JSON, in camelCase; clients that find none print fields under
 * their own names, which is what scripts parse. So those names are taken out here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_DESCRIPTORS_H
#define TD_RPC_DESCRIPTORS_H

#include "tandem/status.h"

typedef struct td__descriptors td__descriptors;

typedef struct td__descriptor_file {
    const char *name;    /* "training_service.proto" */
    const uint8_t *data; /* a FileDescriptorProto */
    size_t nbytes;
} td__descriptor_file;

TD_NODISCARD td_status td__descriptors_create(td__descriptors **out);
void td__descriptors_destroy(td__descriptors *d); /* NULL is allowed */

/* Copies what it needs. TD_EPROTO: not a FileDescriptorSet. */
TD_NODISCARD td_status td__descriptors_add(td__descriptors *d, const uint8_t *set, size_t nbytes);

/* NULL: there is none. */
const td__descriptor_file *td__descriptors_by_name(const td__descriptors *d, const char *name);
/* A service, method, message, enum, field or value, by its full name: "training.TrainRequest". */
const td__descriptor_file *td__descriptors_by_symbol(const td__descriptors *d, const char *name);

#endif
