/* client.h -- a training service as the client commands see it: where it is, the token for it,
 * calls that answer JSON, streams.
 *
 * Address and token come, first found first, from --server and --token-file, from TANDEM_SERVER and
 * TANDEM_TOKEN, from ~/.config/tandem/client.yaml; without any, the address is that of a service on
 * this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_CLIENT_CLIENT_H
#define TD_CMD_CLIENT_CLIENT_H

#include <jansson.h>

#include "base/text.h"
#include "command.h"
#include "remote/http.h"

/* Flags of every client command. */
#define TD_CLIENT_FLAGS                                                                           \
    {"server", 's', "URL", "the training service; http://127.0.0.1:6004 where nothing names one", \
     NULL},                                                                                       \
    {                                                                                             \
        "token-file", 0, "FILE", "file (mode 0600) that holds the token", "FILE"                  \
    }

typedef struct td__client {
    const td__args *args;
    td__http *http;
    char *server;        /* "http://127.0.0.1:6004" */
    char *authorization; /* a header; NULL: no token */
    bool streamed;       /* a stream was open */
} td__client;

/* All functions print one line when they fail, and return the exit status; 0 is success. */
int td__client_open(const td__args *a, td__client *c);
void td__client_close(td__client *c); /* a zeroed struct is allowed */

/* body: JSON or NULL. *out, if wanted, is the answer, owned by the caller. */
int td__client_call(td__client *c, const char *method, const char *path, const json_t *body,
                    json_t **out);
/* The same with a further header, "Idempotency-Key: x". */
int td__client_call_with(td__client *c, const char *method, const char *path, const char *header,
                         const json_t *body, json_t **out);

/* Pieces of an answer as they come, until its end; false from the sink ends it. *broken (may be
 * NULL): the connection was lost, and the caller may go on from where it was; without it that is a
 * failure. */
int td__client_stream(td__client *c, const char *path, td__http_sink sink, void *arg, bool *broken);
/* Wait before a lost stream is opened again, longer each time; false: that was the last time. */
bool td__client_pause(td__client *c, int tries);
/* Send a file as the body. */
int td__client_upload(td__client *c, const char *path, int fd, uint64_t nbytes, json_t **out);

/* A job's number; 0: it is none, and a line was printed. */
int td__client_job(const td__args *a, const char *text);

/* Members of answers. */
const char *td__client_text(const json_t *o, const char *key); /* "" if there is none */
int64_t td__json_whole(const json_t *o, const char *key);
/* Appends a segment of a path, escaped for a URL; '/' stays where `slashes`. */
void td__url_append(td__text *t, const char *s, bool slashes);

#endif
