/* reflection.c -- the reflection service. Messages of v1 and v1alpha are the same on the wire, so
 * that those of v1 serve both. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/reflection.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/descriptors.h"

extern const unsigned char td__rpc_descriptors[]; /* cmake/service.cmake */
extern const size_t td__rpc_descriptors_bytes;

struct td__reflection {
    td__grpc *server;
    td__descriptors *descriptors;
};

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

#define CASE(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind
#define ANSWER(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind

enum { MOST_SERVICES = 32 };

/* What the answer is made of lies in the caller's frame: it is not referred to afterwards. */
static void send_answer(td__call *c, response_t *a)
{
    td__call_send(c, &a->base);
    *a = (response_t)GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
}

static void send_error(td__call *c, response_t *a, td__grpc_code code, const char *what,
                       const char *name)
{
    Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    char text[256];

    snprintf(text, sizeof text, "%s: %s", what, name);
    e.error_code = (int32_t)code;
    e.error_message = text;
    a->message_response_case = ANSWER(ERROR_RESPONSE);
    a->error_response = &e;
    send_answer(c, a);
}

static void send_file(td__call *c, response_t *a, const td__descriptor_file *f, const char *what,
                      const char *name)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData data;

    if (!f) {
        send_error(c, a, TD_GRPC_NOT_FOUND, what, name);
        return;
    }
    data = (ProtobufCBinaryData){f->nbytes, (uint8_t *)(uintptr_t)f->data};
    files.n_file_descriptor_proto = 1;
    files.file_descriptor_proto = &data;
    a->message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    a->file_descriptor_response = &files;
    send_answer(c, a);
}

static void send_services(td__call *c, response_t *a, const td__reflection *r)
{
    Grpc__Reflection__V1__ServiceResponse rows[MOST_SERVICES], *at[MOST_SERVICES];
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    const td__grpc_service *s;
    int n = 0;

    for (; n < MOST_SERVICES && (s = td__grpc_service_at(r->server, n)) != NULL; n++) {
        rows[n] =
            (Grpc__Reflection__V1__ServiceResponse)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        rows[n].name = (char *)(uintptr_t)s->name;
        at[n] = &rows[n];
    }
    list.n_service = (size_t)n;
    list.service = at;
    a->message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    a->list_services_response = &list;
    send_answer(c, a);
}

static void info(td__call *c, void *arg, const void *request)
{
    const td__reflection *r = arg;
    const request_t *q = request;
    response_t a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    a.valid_host = q->host;
    a.original_request = (request_t *)(uintptr_t)q;
    switch (q->message_request_case) {
    case CASE(FILE_BY_FILENAME):
        send_file(c, &a, td__descriptors_by_name(r->descriptors, q->file_by_filename),
                  "File not found", q->file_by_filename);
        break;
    case CASE(FILE_CONTAINING_SYMBOL):
        send_file(c, &a, td__descriptors_by_symbol(r->descriptors, q->file_containing_symbol),
                  "Symbol not found", q->file_containing_symbol);
        break;
    case CASE(LIST_SERVICES): send_services(c, &a, r); break;
    case CASE(FILE_CONTAINING_EXTENSION):
        send_error(c, &a, TD_GRPC_NOT_FOUND, "Extension not found",
                   q->file_containing_extension->containing_type);
        break;
    case CASE(ALL_EXTENSION_NUMBERS_OF_TYPE):
        send_error(c, &a, TD_GRPC_NOT_FOUND, "Type not found", q->all_extension_numbers_of_type);
        break;
    default: send_error(c, &a, TD_GRPC_INVALID_ARGUMENT, "Unknown request", ""); break;
    }
}

static const td__grpc_method METHOD = {
    .name = "ServerReflectionInfo",
    .kind = TD_GRPC_BIDI_STREAM,
    .request = &grpc__reflection__v1__server_reflection_request__descriptor,
    .handle = info,
};
static const td__grpc_service SERVICES[] = {
    {"grpc.reflection.v1.ServerReflection", &METHOD, 1},
    {"grpc.reflection.v1alpha.ServerReflection", &METHOD, 1},
};

td_status td__reflection_create(td__grpc *g, td__reflection **out)
{
    td__reflection *r = td__calloc(1, sizeof *r);
    td_status st;

    *out = NULL;
    if (!r)
        return TD_FAIL(TD_ENOMEM, "reflection: out of memory");
    r->server = g;
    TD_TRY_OR(st, fail, td__descriptors_create(&r->descriptors));
    TD_TRY_OR(st, fail, td__reflection_add(r, td__rpc_descriptors, td__rpc_descriptors_bytes));
    for (int i = 0; i < TD_LEN(SERVICES); i++)
        TD_TRY_OR(st, fail, td__grpc_add(g, &SERVICES[i], r));
    *out = r;
    return TD_OK;
fail:
    td__reflection_destroy(r);
    return st;
}

void td__reflection_destroy(td__reflection *r)
{
    if (!r)
        return;
    td__descriptors_destroy(r->descriptors);
    td__free(r);
}

td_status td__reflection_add(td__reflection *r, const uint8_t *set, size_t nbytes)
{
    return td__descriptors_add(r->descriptors, set, nbytes);
}
