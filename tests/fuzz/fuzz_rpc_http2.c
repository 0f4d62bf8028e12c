/* HTTP/2 as clients may send it, through the callbacks of the gRPC server: whole connections of
 * arbitrary bytes. The first byte says in how many pieces they come, and whether a correct preface
 * goes before them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/health.h"
#include "rpc/reflection.h"

static td__loop *loop;
static td__grpc *server;
static td__health *health;
static td__reflection *reflection;

static void must(td_status st)
{
    if (st)
        abort();
}

static void start(void)
{
    td__grpc_opts o = {.limits = {.max_message = 4096, .max_streams = 16}};

    must(td__loop_create(&loop));
    must(td__grpc_create(loop, &o, &server));
    must(td__health_create(server, &health));
    must(td__reflection_create(server, &reflection));
}

static void swallow(int fd)
{
    char buf[65536];

    while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) > 0)
        continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    size_t piece;
    int fd[2];

    if (!loop)
        start();
    if (!nbytes || nbytes > 65536)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd))
        abort();
    must(td__grpc_attach(server, fd[1]));
    if (data[0] & 1 && send(fd[0], preface, sizeof preface - 1, MSG_NOSIGNAL) < 0)
        abort();
    piece = data[0] & 2 ? 1 + (data[0] >> 2) : nbytes;
    data++;
    nbytes--;
    for (size_t at = 0; at < nbytes; at += piece) {
        size_t n = nbytes - at < piece ? nbytes - at : piece;

        if (send(fd[0], data + at, n, MSG_NOSIGNAL) < 0)
            break; /* the server has closed the connection */
        must(td__loop_turn(loop, 0));
        swallow(fd[0]);
    }
    must(td__loop_turn(loop, 0));
    swallow(fd[0]);
    close(fd[0]);
    for (td__grpc_stats s = {.open_connections = 1}; s.open_connections;) {
        must(td__loop_turn(loop, 0));
        td__grpc_stats_get(server, &s);
        if (!s.open_connections && s.open_calls)
            abort(); /* a call outlives its connection */
    }
    return 0;
}
