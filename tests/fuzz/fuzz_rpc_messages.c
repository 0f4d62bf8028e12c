/* Protobuf messages as clients may send them: each kind of request unpacked, written as JSON, read
 * from it, and packed again; sets of descriptors; CSV files of data sets. The first byte says
 * which. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data_management.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "metadata_store.pb-c.h"
#include "rpc/descriptors.h"
#include "rpc/grpc_wire.h"
#include "service/data/csv.h"
#include "service/message_json.h"
#include "tandem.pb-c.h"
#include "training_service.pb-c.h"

static const ProtobufCMessageDescriptor *const TYPES[] = {
    &training__train_request__descriptor,
    &training__get_training_status_response__descriptor,
    &tandem__v1__submit_request__descriptor,
    &tandem__v1__list_request__descriptor,
    &tandem__v1__quota__descriptor,
    &tandem__v1__watch_request__descriptor,
    &data_management__create_dataset_request__descriptor,
    &data_management__dataset_summary__descriptor,
    &data_management__versioned_snapshot__descriptor,
    &metadata_store__run_info__descriptor,
    &metadata_store__create_artifact_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
};

enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

static void message(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t nbytes)
{
    ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, nbytes, data), *again;
    td__text json = {0}, second = {0}, third = {0};
    td__arena *a;

    if (!m)
        return;
    td__message_to_json(m, &json);
    if (json.failed || td__arena_create(&a))
        abort();
    /* Texts may be no UTF-8, which JSON refuses, and of entries of a map with one key it keeps the
     * last; what it accepts, it keeps from then on. */
    if (td__message_from_json(a, type, json.data, json.used, &again) == TD_OK) {
        td__message_to_json(again, &second);
        if (td__message_from_json(a, type, second.data, second.used, &again))
            abort();
        td__message_to_json(again, &third);
        if (second.used != third.used || memcmp(second.data, third.data, third.used) != 0)
            abort();
    }
    td__arena_destroy(a);
    td__text_fini(&json);
    td__text_fini(&second);
    td__text_fini(&third);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void descriptors(const uint8_t *data, size_t nbytes)
{
    td__descriptors *d;

    if (td__descriptors_create(&d))
        abort();
    if (td__descriptors_add(d, data, nbytes) == TD_OK)
        (void)td__descriptors_by_symbol(d, "a.b");
    td__descriptors_destroy(d);
}

static void csv(const uint8_t *data, size_t nbytes)
{
    td__csv c;

    td__csv_init(&c, data, nbytes);
    while (td__csv_next(&c))
        for (int i = 0; i < c.n_fields; i++)
            if (td__csv_field(&c, i) > c.row.data + c.row.used)
                abort();
    td__csv_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    uint64_t ns;
    unsigned kind;

    if (!nbytes || nbytes > 65536)
        return 0;
    kind = data[0] % (N_TYPES + 3);
    data++;
    nbytes--;
    if (kind < N_TYPES)
        message(TYPES[kind], data, nbytes);
    else if (kind == N_TYPES)
        descriptors(data, nbytes);
    else if (kind == N_TYPES + 1)
        csv(data, nbytes);
    else
        (void)td__grpc_timeout((const char *)data, nbytes, &ns);
    return 0;
}
