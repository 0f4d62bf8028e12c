/* socket.c -- sockets by text address. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/socket.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"

enum { BACKLOG = 1024, RETRY_MS = 10, RESOLVE_MS = 100, ATTEMPT_MS = 3000 };

static const char UNIX[] = "unix:@";

static bool is_unix(const char *address)
{
    return strncmp(address, UNIX, sizeof UNIX - 1) == 0;
}

static td_status unix_address(const char *address, struct sockaddr_un *sa, socklen_t *n)
{
    const char *name = address + sizeof UNIX - 1;
    size_t len = strlen(name);

    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len == 0 || len >= sizeof sa->sun_path)
        return TD_FAIL(TD_EINVAL, "address \"%s\": a name of 1 to %zu bytes is needed", address,
                       sizeof sa->sun_path - 1);
    memcpy(sa->sun_path + 1, name, len); /* a leading 0: the abstract name space */
    *n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    return TD_OK;
}

/* "host:port" or "[host]:port" in two texts. */
static td_status split(const char *address, char host[TD_ADDRESS_BYTES],
                       char port[TD_ADDRESS_BYTES])
{
    const char *colon = strrchr(address, ':'), *begin = address, *end = colon;

    if (colon && *begin == '[' && colon[-1] == ']') {
        begin++;
        end--;
    }
    if (!colon || end <= begin || !colon[1] || strlen(address) >= TD_ADDRESS_BYTES)
        return TD_FAIL(TD_EINVAL, "address \"%.*s\": expected host:port or unix:@name",
                       TD_ADDRESS_BYTES, address);
    snprintf(host, TD_ADDRESS_BYTES, "%.*s", (int)(end - begin), begin);
    snprintf(port, TD_ADDRESS_BYTES, "%s", colon + 1);
    return TD_OK;
}

/* *rc: of getaddrinfo. */
static td_status look_up(const char *address, int flags, struct addrinfo **out, int *rc)
{
    char host[TD_ADDRESS_BYTES], port[TD_ADDRESS_BYTES];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};

    *rc = 0;
    *out = NULL;
    TD_TRY(split(address, host, port));
    *rc = getaddrinfo(host, port, &hints, out);
    return *rc ? TD_FAIL(TD_EINVAL, "address \"%s\": %s", address, gai_strerror(*rc)) : TD_OK;
}

static td_status resolve(const char *address, int flags, struct addrinfo **out)
{
    int rc;

    return look_up(address, flags, out, &rc);
}

/* A name may become known with the container or the pod that it stands for, which starts beside
 * ours: what does not resolve yet is asked for again. */
static td_status resolve_by(const char *address, td__deadline until, struct addrinfo **out)
{
    for (bool told = false;;) {
        int rc;
        td_status st = look_up(address, 0, out, &rc);
        if (!st || (rc != EAI_NONAME && rc != EAI_NODATA && rc != EAI_AGAIN))
            return st;
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "cannot reach %s: %s", address, gai_strerror(rc));
        if (!told)
            TD_LOG(INFO, NET, "%s: %s: it is asked for again", address, gai_strerror(rc));
        told = true;
        poll(NULL, 0, td__deadline_left_ms(until, RESOLVE_MS));
    }
}

static int open_socket(int family)
{
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

td_status td__socket_join(const char *host, const char *port, char address[TD_ADDRESS_BYTES])
{
    int n =
        snprintf(address, TD_ADDRESS_BYTES, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    return n > 0 && n < TD_ADDRESS_BYTES ? TD_OK
                                         : TD_FAIL(TD_EINVAL, "address of %d bytes is too long", n);
}

static td_status bound_address(int fd, char actual[TD_ADDRESS_BYTES])
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    char host[TD_ADDRESS_BYTES], port[16];

    if (getsockname(fd, (struct sockaddr *)&sa, &n) ||
        getnameinfo((struct sockaddr *)&sa, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return TD_FAIL(TD_EIO, "cannot tell the address of a listening socket");
    return td__socket_join(host, port, actual);
}

static td_status listen_unix(const char *address, int *fd, char actual[TD_ADDRESS_BYTES])
{
    struct sockaddr_un sa;
    socklen_t n;

    TD_TRY(unix_address(address, &sa, &n));
    *fd = open_socket(AF_UNIX);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&sa, n) || listen(*fd, BACKLOG)) {
        int error = errno;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return TD_FAIL(TD_EIO, "cannot listen on %s: %s", address, strerror(error));
    }
    snprintf(actual, TD_ADDRESS_BYTES, "%s", address);
    return TD_OK;
}

td_status td__socket_listen(const char *address, int *fd, char actual[TD_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    int error = 0, one = 1;

    *fd = -1;
    if (is_unix(address))
        return listen_unix(address, fd, actual);
    TD_TRY(resolve(address, AI_PASSIVE, &found));
    for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
        int s = open_socket(a->ai_family);
        if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
            bind(s, a->ai_addr, a->ai_addrlen) || listen(s, BACKLOG)) {
            error = errno;
            if (s >= 0)
                close(s);
            continue;
        }
        *fd = s;
    }
    freeaddrinfo(found);
    if (*fd < 0)
        return TD_FAIL(TD_EIO, "cannot listen on %s: %s", address, strerror(error));
    td_status st = bound_address(*fd, actual);
    if (st) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

/* Begin to connect to one address; -1 with errno. */
static int begin(int family, const struct sockaddr *sa, socklen_t n)
{
    int fd = open_socket(family);

    if (fd >= 0 && connect(fd, sa, n) && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

td_status td__socket_connect_start(const char *address, int *fd)
{
    struct addrinfo *found = NULL;
    struct sockaddr_un sa;
    socklen_t n;

    if (is_unix(address)) {
        TD_TRY(unix_address(address, &sa, &n));
        *fd = begin(AF_UNIX, (struct sockaddr *)&sa, n);
    } else {
        TD_TRY(resolve(address, AI_NUMERICHOST, &found));
        *fd = begin(found->ai_family, found->ai_addr, found->ai_addrlen);
        freeaddrinfo(found);
    }
    return *fd >= 0 ? TD_OK : TD_FAIL(TD_EPEER, "cannot reach %s: %s", address, strerror(errno));
}

td_status td__socket_connected(int fd, const char *address)
{
    int error = 0;
    socklen_t n = sizeof error;

    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return error ? TD_FAIL(TD_EPEER, "cannot reach %s: %s", address, strerror(error)) : TD_OK;
}

/* One address, within its share of the time; -1 with errno. */
static int attempt(int family, const struct sockaddr *sa, socklen_t n, td__deadline until)
{
    td__deadline own = td__deadline_in_ms(ATTEMPT_MS);
    int error = 0, fd = begin(family, sa, n);
    socklen_t size = sizeof error;

    if (fd < 0)
        return -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int ready = poll(&p, 1, td__deadline_left_ms(own < until ? own : until, ATTEMPT_MS));
    if (ready == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    else
        error = ETIMEDOUT;
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int attempt_all(const struct addrinfo *found, td__deadline until)
{
    int fd = -1;

    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = attempt(a->ai_family, a->ai_addr, a->ai_addrlen, until);
    return fd;
}

td_status td__socket_connect(const char *address, td__deadline until, int *fd)
{
    struct addrinfo *found = NULL;
    struct sockaddr_un sa;
    socklen_t n = 0;
    td_status st = TD_OK;

    *fd = -1;
    if (is_unix(address))
        TD_TRY(unix_address(address, &sa, &n));
    else
        TD_TRY(resolve_by(address, until, &found));
    for (;;) {
        *fd =
            found ? attempt_all(found, until) : attempt(AF_UNIX, (struct sockaddr *)&sa, n, until);
        if (*fd >= 0)
            break;
        if ((errno != ECONNREFUSED && errno != EAGAIN && errno != ETIMEDOUT) ||
            td__deadline_passed(until)) {
            st = TD_FAIL(td__deadline_passed(until) ? TD_ETIMEDOUT : TD_EPEER,
                         "cannot reach %s: %s", address, strerror(errno));
            break;
        }
        poll(NULL, 0, td__deadline_left_ms(until, RETRY_MS));
    }
    if (found)
        freeaddrinfo(found);
    return st;
}

int td__socket_accept(int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) /* no harm where it is a unix socket: then it just fails */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void td__socket_keep(int fd)
{
    enum { IDLE_S = 2, EVERY_S = 1, TIMES = TD_SOCKET_SILENCE_MS / 1000 - IDLE_S };
    static const struct {
        int level, option, value;
    } ASK[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
               {IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S},
               {IPPROTO_TCP, TCP_KEEPINTVL, EVERY_S},
               {IPPROTO_TCP, TCP_KEEPCNT, TIMES}};

    for (int i = 0; i < TD_LEN(ASK); i++)
        setsockopt(fd, ASK[i].level, ASK[i].option, &ASK[i].value, sizeof ASK[i].value);
}

unsigned td__socket_silence_ms(int fd)
{
    struct tcp_info t = {0};
    socklen_t n = sizeof t;

    /* A window that is full leaves nothing unacknowledged; a link that is slow loses no packets
     * over and over. */
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) || !t.tcpi_unacked || t.tcpi_retransmits < 2)
        return 0;
    return t.tcpi_last_ack_recv;
}

td_status td__socket_route(const char *address, char host[TD_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    struct sockaddr_storage sa;
    bool known = false;

    snprintf(host, TD_ADDRESS_BYTES, "127.0.0.1");
    if (is_unix(address))
        return TD_OK;
    TD_TRY(resolve(address, 0, &found));
    for (const struct addrinfo *a = found; a && !known; a = a->ai_next) {
        /* Connecting a datagram socket sends nothing; it only asks the routing table. */
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t n = sizeof sa;
        known = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&sa, &n) == 0 &&
                getnameinfo((struct sockaddr *)&sa, n, host, TD_ADDRESS_BYTES, NULL, 0,
                            NI_NUMERICHOST) == 0;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    return known ? TD_OK : TD_FAIL(TD_EPEER, "no route to %s", address);
}

void td__socket_own_host(char host[TD_ADDRESS_BYTES])
{
    struct ifaddrs *all = NULL;

    if (!td__socket_route("192.0.2.1:9", host)) /* an address that nobody has (RFC 5737) */
        return;
    snprintf(host, TD_ADDRESS_BYTES, "127.0.0.1");
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK) &&
            !getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), host, TD_ADDRESS_BYTES, NULL, 0,
                         NI_NUMERICHOST))
            break;
    freeifaddrs(all);
}

void td__socket_source(int fd, char host[TD_ADDRESS_BYTES])
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof sa;

    if (getpeername(fd, (struct sockaddr *)&sa, &n) || sa.ss_family == AF_UNIX ||
        getnameinfo((struct sockaddr *)&sa, n, host, TD_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST))
        snprintf(host, TD_ADDRESS_BYTES, sa.ss_family == AF_UNIX ? "local" : "unknown");
}

void td__socket_poll(int fd, bool write, td__deadline until)
{
    struct pollfd p = {.fd = fd, .events = write ? POLLOUT : POLLIN};
    poll(&p, 1, td__deadline_left_ms(until, 1000));
}
