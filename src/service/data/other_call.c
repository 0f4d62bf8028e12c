/* other_call.c -- see other_call.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/other_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "remote/http.h"
#include "rpc/grpc.h"
#include "rpc/grpc_wire.h"

enum { ASK_MS = 10000 };

/* "%20" as one character. */
static void decode(char *s)
{
    char *to = s;

    for (; *s; s++) {
        char hex[3] = {s[0] == '%' ? s[1] : 0, s[0] == '%' && s[1] ? s[2] : 0, 0};
        char *end;
        long c = strtol(hex, &end, 16);

        if (end == hex + 2) {
            *to++ = (char)c;
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

static td_status take_answer(const char *method, td__http_response *r,
                             const ProtobufCMessageDescriptor *type, td__other_answer *out)
{
    const uint8_t *frame = (const uint8_t *)r->body.data;

    out->code = r->grpc_status;
    if (r->grpc_status) {
        decode(r->grpc_message);
        snprintf(out->text, sizeof out->text, "%s: %s",
                 td__grpc_code_name((td__grpc_code)r->grpc_status), r->grpc_message);
        return TD_OK;
    }
    if (r->body.used >= TD_GRPC_FRAME_BYTES && !frame[0] &&
        td__grpc_frame_size(frame) == r->body.used - TD_GRPC_FRAME_BYTES)
        out->body = protobuf_c_message_unpack(type, NULL, r->body.used - TD_GRPC_FRAME_BYTES,
                                              frame + TD_GRPC_FRAME_BYTES);
    return out->body ? TD_OK : TD_FAIL(TD_EPROTO, "%s: malformed answer", method);
}

td_status td__other_call(const char *address, const char *method, const ProtobufCMessage *q,
                         const ProtobufCMessageDescriptor *type, td__other_answer *out)
{
    static const char *const HEADERS[] = {"Content-Type: application/grpc", "TE: trailers"};
    size_t n = protobuf_c_message_get_packed_size(q);
    uint8_t *body = td__malloc(n + TD_GRPC_FRAME_BYTES);
    char url[512];
    td__http *h = NULL;
    td__http_response r;

    *out = (td__other_answer){.code = -1};
    if (!body)
        return TD_FAIL(TD_ENOMEM, "%s: out of memory", method);
    td__grpc_frame_head(body, (uint32_t)n);
    protobuf_c_message_pack(q, body + TD_GRPC_FRAME_BYTES);
    snprintf(url, sizeof url, "http://%s/%s", address, method);
    td_status st = td__http_create(&(td__http_opts){0}, &h);
    if (!st) {
        st = td__http_call(h,
                           &(td__http_request){.method = "POST",
                                               .url = url,
                                               .headers = HEADERS,
                                               .n_headers = 2,
                                               .body = body,
                                               .body_nbytes = n + TD_GRPC_FRAME_BYTES,
                                               .grpc = true,
                                               .repeatable = true,
                                               .until = td__deadline_in_ms(ASK_MS)},
                           &r);
        if (!st)
            st = r.grpc_status >= 0 ? take_answer(method, &r, type, out)
                                    : TD_FAIL(TD_EPROTO, "%s is no gRPC server", url);
        td__http_response_fini(&r);
    }
    td__http_destroy(h);
    td__free(body);
    return st;
}
