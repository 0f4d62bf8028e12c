/* Health and reflection, as clients without .proto files use them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/descriptors.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "support/check.h"
#include "support/rpc_client.h"

extern const unsigned char td__service_descriptors[];
extern const size_t td__service_descriptors_bytes;

typedef struct rig {
    td__loop *loop;
    td__grpc *server;
    td__health *health;
    td__reflection *reflection;
    rpc_client *client;
} rig;

static void rig_init(rig *r)
{
    *r = (rig){0};
    CHECK_OK(td__loop_create(&r->loop));
    CHECK_OK(td__grpc_create(r->loop, NULL, &r->server));
    CHECK_OK(td__health_create(r->server, &r->health));
    CHECK_OK(td__reflection_create(r->server, &r->reflection));
    CHECK_OK(
        td__reflection_add(r->reflection, td__service_descriptors, td__service_descriptors_bytes));
    r->client = rpc_client_attach(r->loop, r->server);
}

static void rig_fini(rig *r)
{
    rpc_client_close(r->client);
    td__grpc_destroy(r->server);
    td__health_destroy(r->health);
    td__reflection_destroy(r->reflection);
    td__loop_destroy(r->loop);
}

/* ---- health ---- */

static int check_health(rig *r, const char *service)
{
    Grpc__Health__V1__HealthCheckRequest q = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *m;
    const rpc_reply *a;
    int status;

    q.service = (char *)(uintptr_t)service;
    a = rpc_unary(r->client, "/grpc.health.v1.Health/Check", &q.base,
                  &grpc__health__v1__health_check_response__descriptor, &m);
    if (a->status)
        return -a->status;
    status = (int)((Grpc__Health__V1__HealthCheckResponse *)m)->status;
    protobuf_c_message_free_unpacked(m, NULL);
    return status;
}

TEST(health_answers_for_the_server_and_its_services)
{
    rig r;

    rig_init(&r);
    CHECK_EQ_INT(check_health(&r, ""), 1);
    CHECK_EQ_INT(check_health(&r, "grpc.reflection.v1.ServerReflection"), 1);
    CHECK_EQ_INT(check_health(&r, "no.such.Service"), -TD_GRPC_NOT_FOUND);
    td__health_set(r.health, false);
    CHECK_EQ_INT(check_health(&r, ""), 2);
    rig_fini(&r);
}

TEST(watchers_of_health_are_told_of_changes)
{
    Grpc__Health__V1__HealthCheckRequest q = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    uint8_t buf[64];
    rig r;
    const rpc_reply *a;
    int32_t call;

    rig_init(&r);
    call = rpc_call(r.client, "/grpc.health.v1.Health/Watch", NULL, buf,
                    rpc_frame(buf, sizeof buf, &q.base), true);
    a = rpc_wait_body(r.client, call, 7);
    CHECK_EQ_INT(a->body[6], 1);
    td__health_set(r.health, false);
    a = rpc_wait_body(r.client, call, 14);
    CHECK_EQ_INT(a->body[13], 2);
    CHECK(!a->closed, "the stream has ended");
    rig_fini(&r);
}

/* ---- reflection ---- */

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

static response_t *ask(rig *r, const char *version, const request_t *q)
{
    char path[128];
    uint8_t buf[512];
    const rpc_reply *a;
    response_t *m;

    snprintf(path, sizeof path, "/grpc.reflection.%s.ServerReflection/ServerReflectionInfo",
             version);
    a = rpc_wait(r->client,
                 rpc_call(r->client, path, NULL, buf, rpc_frame(buf, sizeof buf, &q->base), true));
    CHECK_EQ_INT(a->status, 0);
    CHECK(a->n_body > 5, "no answer");
    m = (response_t *)protobuf_c_message_unpack(
        &grpc__reflection__v1__server_reflection_response__descriptor, NULL, a->n_body - 5,
        a->body + 5);
    CHECK(m != NULL, "malformed answer");
    return m;
}

static void drop(response_t *m)
{
    protobuf_c_message_free_unpacked(&m->base, NULL);
}

TEST(both_versions_list_services_and_give_files)
{
    static const char *const versions[] = {"v1", "v1alpha"};
    rig r;

    rig_init(&r);
    for (int i = 0; i < 2; i++) {
        request_t q = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
        response_t *m;

        q.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
        q.list_services = (char *)(uintptr_t) "*";
        m = ask(&r, versions[i], &q);
        CHECK(m->list_services_response, "no list");
        CHECK_EQ_INT(m->list_services_response->n_service, 3);
        assert_string_equal(m->list_services_response->service[0]->name, "grpc.health.v1.Health");
        assert_string_equal(m->original_request->list_services, "*");
        drop(m);
        q.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME;
        q.file_by_filename = (char *)(uintptr_t) "google/protobuf/empty.proto";
        m = ask(&r, versions[i], &q);
        CHECK(m->file_descriptor_response, "no file");
        CHECK_EQ_INT(m->file_descriptor_response->n_file_descriptor_proto, 1);
        drop(m);
        q.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
        q.file_containing_symbol = (char *)(uintptr_t) "no.Such";
        m = ask(&r, versions[i], &q);
        CHECK(m->error_response, "no error");
        CHECK_EQ_INT(m->error_response->error_code, TD_GRPC_NOT_FOUND);
        assert_string_equal(m->error_response->error_message, "Symbol not found: no.Such");
        drop(m);
    }
    rig_fini(&r);
}

/* ---- descriptors ---- */

static bool has(const td__descriptor_file *f, const char *text)
{
    return memmem(f->data, f->nbytes, text, strlen(text)) != NULL;
}

TEST(symbols_of_all_kinds_are_found)
{
    static const struct {
        const char *symbol, *file;
    } rows[] = {
        {"training.TrainingService", "training_service.proto"},
        {"training.TrainingService.Train", "training_service.proto"},
        {"training.TrainingStatus", "training_service.proto"},
        {"training.queuing", "training_service.proto"},
        {"training.TrainingJobMetadata.ParametersEntry", "training_service.proto"},
        {"training.TrainingJobMetadata.ParametersEntry.key", "training_service.proto"},
        {"data_management.DataManagementService", "data_management.proto"},
        {"metadata_store.RunInfo", "metadata_store.proto"},
        {"prediction.Predictor", "prediction_service.proto"},
        {"google.protobuf.Empty", "google/protobuf/empty.proto"},
        {"tandem.v1.TrainingService", "tandem.proto"},
        {"training", NULL},
        {"training.Trainin", NULL},
        {"", NULL},
    };
    td__descriptors *d;

    CHECK_OK(td__descriptors_create(&d));
    CHECK_OK(td__descriptors_add(d, td__service_descriptors, td__service_descriptors_bytes));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const td__descriptor_file *f = td__descriptors_by_symbol(d, rows[i].symbol);

        CHECK(!f == !rows[i].file, "%s", rows[i].symbol);
        if (f)
            assert_string_equal(f->name, rows[i].file);
    }
    td__descriptors_destroy(d);
}

/* Clients print names of fields as they are in the file only if there is no other for JSON. */
TEST(fields_have_no_names_in_camel_case)
{
    td__descriptors *d;
    const td__descriptor_file *f;

    CHECK_OK(td__descriptors_create(&d));
    CHECK_OK(td__descriptors_add(d, td__service_descriptors, td__service_descriptors_bytes));
    f = td__descriptors_by_name(d, "training_service.proto");
    CHECK(f && has(f, "job_id") && has(f, "train_data_version_hash"), "the file lacks its fields");
    CHECK(memmem(td__service_descriptors, td__service_descriptors_bytes, "jobId", 5) != NULL,
          "the compiler adds no names, so that this test tests nothing");
    CHECK(!has(f, "jobId") && !has(f, "trainDataVersionHash"), "names in camelCase are left");
    CHECK(has(f, "positionInQueue"), "a field that is named so in the file is gone");
    f = td__descriptors_by_name(d, "data_management.proto");
    CHECK(f && has(f, "version_hash") && !has(f, "versionHash"), "names in camelCase are left");
    td__descriptors_destroy(d);
}

TEST(malformed_sets_are_refused)
{
    td__descriptors *d;
    int refused = 0;

    for (size_t n = 0; n < 400; n++) { /* cut anywhere, some cuts fall between files */
        CHECK_OK(td__descriptors_create(&d));
        refused += td__descriptors_add(d, td__service_descriptors, n) != TD_OK;
        td__descriptors_destroy(d);
    }
    CHECK(refused > 390, "only %d of 400 cuts were noticed", refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_answers_for_the_server_and_its_services),
        cmocka_unit_test(watchers_of_health_are_told_of_changes),
        cmocka_unit_test(both_versions_list_services_and_give_files),
        cmocka_unit_test(symbols_of_all_kinds_are_found),
        cmocka_unit_test(fields_have_no_names_in_camel_case),
        cmocka_unit_test(malformed_sets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
