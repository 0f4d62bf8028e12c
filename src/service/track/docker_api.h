/* docker_api.h -- the Docker Engine's API over its socket: requests, lists by label, output. The
 * paths carry no version, so that every engine answers in its own; what is used here has been the
 * same since 1.24. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_DOCKER_API_H
#define TD_SERVICE_TRACK_DOCKER_API_H

#include "remote/http_pool.h"
#include "service/track/cluster.h"
#include "service/track/json_io.h"

#define TD_DOCKER_TOKEN "tandem.token"   /* labels of containers and networks */
#define TD_DOCKER_MEMBER "tandem.member" /* */
#define TD_DOCKER_NAME "tandem.name"     /* of the group */
#define TD_DOCKER_PORT "tandem.port"     /* first of its ports, on the host's network */

enum { TD_DOCKER_ID = 72 };

/* One request; body (NULL: none) is sent as JSON, out (NULL: not wanted) is the answer, to be
 * released with json_decref. *status (may be NULL) is the answer's. */
typedef struct td__docker_call {
    const char *method, *path;
    json_t *body;
    json_t **out;
    int *status;
    uint64_t limit_ms; /* 0: 60,000 */
} td__docker_call;
TD_NODISCARD td_status td__docker_call_api(td__http_pool *p, const td__docker_call *c);

typedef struct td__container {
    char id[TD_DOCKER_ID];
    char state[24]; /* created, running, paused, restarting, removing, exited, dead */
    char name[256]; /* of the group */
    int member, port;
} td__container;
/* The containers of a group, in an array of its own; *out is freed with td__free. */
TD_NODISCARD td_status td__docker_list(td__http_pool *p, const char *token, td__container **out,
                                       int *n);
/* What has become of one. Unlike the list, which lags behind events, this waits until the engine
 * has written down what it is doing with the container. */
TD_NODISCARD td_status td__docker_inspect(td__http_pool *p, const char *id, int *status,
                                          td__seen *out);
/* What is missing here is fetched, by the key docker.pull. */
TD_NODISCARD td_status td__docker_pull(td__http_pool *p, const char *image, const char *policy);

/* Output of a container, without the engine's frames: 8 bytes (stream, 0, 0, 0, length) before each
 * piece. Zero-initialise. */
typedef struct td__docker_frames {
    uint8_t head[8];
    size_t have;   /* bytes of the head */
    uint32_t left; /* of the piece */
    td__cluster_sink sink;
    void *user;
} td__docker_frames;
bool td__docker_unframe(void *frames, const void *data, size_t nbytes);

/* DeviceRequests of a member: its GPUs by number, or how many where they are not known. */
json_t *td__docker_gpus(const td__launch *l, int member);

#endif
