/* grpc_server.c -- the server beside ours in make bench-service: gRPC's own C library, which
 * answers training.TrainingService/GetTrainingStatus with the message that is in a file. A call of
 * another name (tandem.v1.TrainingService/Watch) is a stream: it gets that message and stays open.
 *
 *     grpc_server ADDRESS ANSWER THREADS
 *
 * Calls wait in one completion queue, which THREADS threads serve. It prints a line when it
 * listens, and runs until it is killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING_CALLS = 1024 };

/* A call: asked for, its request received, answered; or held open. */
typedef struct call {
    enum { ASKED, RECEIVED, ANSWERED, HELD } state;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request;
    int cancelled;
} call;

static grpc_server *server;
static grpc_completion_queue *queue;
static char answer[4096];
static size_t n_answer;

static void ask(void)
{
    call *c = calloc(1, sizeof *c);

    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    grpc_server_request_call(server, &c->call, &c->details, &c->metadata, queue, queue, c);
}

static void receive(call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->request};

    c->state = RECEIVED;
    grpc_call_start_batch(c->call, &op, 1, c, NULL);
}

static void reply(call *c)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(answer, n_answer);
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = bytes},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server.status = GRPC_STATUS_OK},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->cancelled},
    };

    c->state = ANSWERED;
    grpc_call_start_batch(c->call, ops, 4, c, NULL);
    grpc_byte_buffer_destroy(bytes);
    grpc_slice_unref(slice);
}

/* One message of many, of which the others never come. */
static void hold(call *c)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(answer, n_answer);
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_op ops[2] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = bytes},
    };

    c->state = HELD;
    grpc_call_start_batch(c->call, ops, 2, c, NULL);
    grpc_byte_buffer_destroy(bytes);
    grpc_slice_unref(slice);
}

/* What is called is known by its last letters. */
static int is_stream(const call *c)
{
    const uint8_t *path = GRPC_SLICE_START_PTR(c->details.method);
    size_t n = GRPC_SLICE_LENGTH(c->details.method);

    return n > 6 && !memcmp(path + n - 6, "/Watch", 6);
}

static void end(call *c)
{
    if (c->request)
        grpc_byte_buffer_destroy(c->request);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    grpc_call_unref(c->call);
    free(c);
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        grpc_event e = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        call *c = e.tag;

        if (e.type != GRPC_OP_COMPLETE)
            continue;
        if (c->state == ASKED) {
            ask();
            receive(c);
        } else if (c->state == RECEIVED && is_stream(c)) {
            hold(c);
        } else if (c->state == RECEIVED) {
            reply(c);
        } else if (c->state == ANSWERED) {
            end(c);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    grpc_server_credentials *open;
    pthread_t thread;
    FILE *f;

    if (argc != 4 || !(f = fopen(argv[2], "rb"))) {
        fprintf(stderr, "usage: grpc_server ADDRESS ANSWER THREADS\n");
        return 2;
    }
    n_answer = fread(answer, 1, sizeof answer, f);
    fclose(f);
    grpc_init();
    queue = grpc_completion_queue_create_for_next(NULL);
    server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    open = grpc_insecure_server_credentials_create();
    if (!grpc_server_add_http2_port(server, argv[1], open)) {
        fprintf(stderr, "grpc_server: cannot listen at %s\n", argv[1]);
        return 1;
    }
    grpc_server_start(server);
    for (int i = 0; i < WAITING_CALLS; i++)
        ask();
    printf("listening\n");
    fflush(stdout);
    for (long i = strtol(argv[3], NULL, 10); i > 1; i--)
        pthread_create(&thread, NULL, serve, NULL);
    serve(NULL);
    return 0;
}
