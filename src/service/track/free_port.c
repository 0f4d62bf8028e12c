/* free_port.c -- ports of this host that nobody listens on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"

enum { ATTEMPTS = 50, HIGHEST = 65535 };

/* 0 asks for any; the port, or -1 if it is taken. */
static int try_port(int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), got = -1;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&in, sizeof in) == 0 &&
        getsockname(fd, (struct sockaddr *)&in, &n) == 0)
        got = ntohs(in.sin_port);
    if (fd >= 0)
        close(fd);
    return got;
}

td_status td__free_ports(int n, int *out)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int first = try_port(0), i = 1;
        while (first > 0 && i < n && first + i <= HIGHEST && try_port(first + i) > 0)
            i++;
        if (first > 0 && i == n) {
            *out = first;
            return TD_OK;
        }
    }
    return TD_FAIL(TD_EIO, "this host has no %d free ports in a row", n);
}
