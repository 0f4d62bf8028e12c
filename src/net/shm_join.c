/* shm_join.c -- how the ranks of a host come to share a segment.
 *
 *     rank 0                                         rank r
 *     memfd, sealed; listens at the door
 *                          <-- connects; token, rank, its pidfd
 *     same user? right token? new rank?
 *     when all are there: segment, all pidfds -->
 *                                                    maps, says STATE_HERE, meets
 *
 * The connections stay open: registered memory goes over them later. Strangers at the door are
 * turned away: another user by the kernel's word, anybody else by the token; who says nothing is
 * waited for HELLO_MS at most. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "net/refusals.h"
#include "net/shm_segment.h"

enum {
    HELLO_MS = 500,
    STEP_MS = 20,
    FDS = 200, /* per message; the kernel's limit is 253 */
    RING_MOST = 1 << 18,
    RING_LEAST = 1 << 14,
};
#define RINGS_TOTAL ((size_t)256 << 20)

typedef struct hello {
    uint8_t token[16];
    uint32_t rank;
} hello;

/* ---- descriptors over sockets ---- */

typedef union fd_control {
    char bytes[CMSG_SPACE(FDS * sizeof(int))];
    struct cmsghdr align;
} fd_control;

td_status td__shm_send_fds(int sock, const void *data, size_t nbytes, const int *fd, int n)
{
    fd_control control;
    struct iovec iov = {(void *)(uintptr_t)data, nbytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > 0) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fd, (size_t)n * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)nbytes)
        return TD_FAIL(TD_EPEER, "a rank of this host cannot be reached over its socket: %s",
                       strerror(errno));
    return TD_OK;
}

static void take_fds(struct msghdr *msg, int *fd, int room, int *n)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int got;
            memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof got);
            if (*n < room)
                fd[(*n)++] = got;
            else
                close(got);
        }
    }
}

td_status td__shm_recv_fds(shm_mesh *m, int sock, void *data, size_t nbytes, int *fd, int *n,
                           td__deadline until)
{
    int room = *n;
    *n = 0;
    for (;;) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        int ready = poll(&p, 1, td__deadline_left_ms(until, STEP_MS));
        if (ready > 0)
            break;
        if (m)
            TD_TRY(td__shm_health(m));
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "timed out waiting for a rank of this host on its socket");
    }
    fd_control control;
    struct iovec iov = {data, nbytes};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        take_fds(&msg, fd, room, n);
    if (got == (ssize_t)nbytes)
        return TD_OK;
    for (int i = 0; i < *n; i++)
        close(fd[i]);
    *n = 0;
    return TD_FAIL(TD_EPEER, "a rank of this host closed its socket (%zd of %zu bytes came)", got,
                   nbytes);
}

static int open_own_pidfd(void)
{
    return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

/* ---- the door ---- */

static socklen_t door_address(const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    size_t n = strlen(name);
    memcpy(a->sun_path + 1, name, n); /* a leading zero: abstract, no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

td_status td__shm_door_open(td__shm_door *out)
{
    uint64_t number;
    if (getrandom(out->token, sizeof out->token, 0) != (ssize_t)sizeof out->token ||
        getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return TD_FAIL(TD_EIO, "cannot get random bytes for a token: %s", strerror(errno));
    snprintf(out->name, sizeof out->name, "tandem-%016llx", (unsigned long long)number);
    struct sockaddr_un a;
    socklen_t n = door_address(out->name, &a);
    out->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (out->listener >= 0 && bind(out->listener, (struct sockaddr *)&a, n) == 0 &&
        listen(out->listener, 4096) == 0)
        return TD_OK;
    int why = errno;
    if (out->listener >= 0)
        close(out->listener);
    out->listener = -1;
    return TD_FAIL(TD_EIO, "cannot listen at the unix socket @%s: %s", out->name, strerror(why));
}

static bool same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;
    for (int i = 0; i < 16; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static void refuse(td__refusals *refusals, const struct ucred *who, const td__shm_door *door,
                   const char *why)
{
    char source[TD__REFUSALS_SOURCE];
    snprintf(source, sizeof source, "process %d of user %u at @%s", (int)who->pid,
             (unsigned)who->uid, door->name);
    td__refusals_log(refusals, source, why);
}

/* A connection at the door: its rank, or -1 if it is refused. */
static int admit(shm_mesh *m, const td__shm_door *door, int sock, td__refusals *refusals)
{
    struct ucred who = {0};
    socklen_t n_who = sizeof who;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &n_who) ||
        (who.uid != geteuid() && who.uid != 0)) {
        refuse(refusals, &who, door, "another user's process");
        return -1;
    }
    hello h;
    int fd = -1, n = 1;
    if (td__shm_recv_fds(NULL, sock, &h, sizeof h, &fd, &n, td__deadline_in_ms(HELLO_MS)))
        return -1;
    if (n == 1 && same_token(h.token, door->token) && h.rank > 0 &&
        h.rank < (uint32_t)m->mesh.size && m->pidfd[h.rank] < 0) {
        m->pidfd[h.rank] = fd;
        m->channel[h.rank] = sock;
        return (int)h.rank;
    }
    refuse(refusals, &who, door, "wrong handshake");
    if (n == 1)
        close(fd);
    return -1;
}

static td_status missing_at_door(const shm_mesh *m)
{
    for (int r = 1; r < m->mesh.size; r++)
        if (m->channel[r] < 0)
            return TD_FAIL(TD_ETIMEDOUT,
                           "timed out waiting for rank %d of this host to share memory", r);
    return TD_FAIL(TD_EPROTO, "the ranks of this host do not match those expected");
}

/* ---- the segment ---- */

static void layout_for(int size, shm_layout *out)
{
    size_t n = (size_t)size, ring = RING_MOST;
    while (ring > RING_LEAST && ring * n * n > RINGS_TOTAL)
        ring /= 2;
    out->ranks = td__align_up(sizeof(shm_head), PAGE);
    out->boards = td__align_up(out->ranks + n * sizeof(shm_rank), PAGE);
    out->stages = td__align_up(out->boards + 2 * n * sizeof(shm_board), PAGE);
    out->rings = out->stages + n * TD_SHM_STAGES * TD_SHM_STAGE;
    out->ring_nbytes = ring;
    out->ring_stride = td__align_up(sizeof(shm_ring) + ring, PAGE);
    out->total = out->rings + n * n * out->ring_stride;
}

static td_status make_segment(const shm_mesh *m, int *out)
{
    int fd = memfd_create("tandem-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shm_head *head = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)m->at.total) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return TD_FAIL(TD_EIO, "cannot create a shared segment of %zu bytes: %s", m->at.total,
                       strerror(why));
    }
    head->magic = TD_SHM_MAGIC;
    head->size = (uint32_t)m->mesh.size;
    munmap(head, sizeof *head);
    *out = fd;
    return TD_OK;
}

static td_status map_segment(shm_mesh *m, int fd)
{
    off_t nbytes = lseek(fd, 0, SEEK_END);
    if (nbytes != (off_t)m->at.total)
        return TD_FAIL(TD_EPROTO, "the shared segment has %lld bytes instead of %zu",
                       (long long)nbytes, m->at.total);
    void *p = mmap(NULL, m->at.total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return TD_FAIL(TD_ENOMEM, "cannot map a shared segment of %zu bytes: %s", m->at.total,
                       strerror(errno));
    m->map = p;
    m->head = p;
    m->ranks = (shm_rank *)(void *)(m->map + m->at.ranks);
    if (m->head->magic != TD_SHM_MAGIC || m->head->size != (uint32_t)m->mesh.size)
        return TD_FAIL(TD_EPROTO, "the shared segment belongs to another version or group");
#ifdef MADV_POPULATE_WRITE /* this rank's hot pages; failing is no harm */
    madvise(m->map, m->at.boards, MADV_POPULATE_WRITE);
    madvise(m->map + m->at.boards, 2 * (size_t)m->mesh.size * sizeof(shm_board),
            MADV_POPULATE_WRITE);
#endif
    return TD_OK;
}

/* ---- both sides ---- */

static td_status host_door(shm_mesh *m, const td__shm_door *door, td__deadline until)
{
    int size = m->mesh.size, missing = size - 1, segment = -1;
    td__refusals refusals = {0};
    td_status st;
    TD_TRY(make_segment(m, &segment));
    while (missing > 0) {
        if (door->store)
            TD_TRY_OR(st, done, td__store_may_wait(door->store));
        struct pollfd p = {.fd = door->listener, .events = POLLIN};
        if (poll(&p, 1, td__deadline_left_ms(until, STEP_MS)) > 0) {
            int sock = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC);
            if (sock >= 0 && admit(m, door, sock, &refusals) < 0)
                close(sock);
            else if (sock >= 0)
                missing--;
        }
        if (missing > 0 && td__deadline_passed(until))
            TD_TRY_OR(st, done, missing_at_door(m));
    }
    for (int r = 1; r < size; r++) {
        TD_TRY_OR(st, done, td__shm_send_fds(m->channel[r], "S", 1, &segment, 1));
        for (int from = 0; from < size; from += FDS)
            TD_TRY_OR(st, done,
                      td__shm_send_fds(m->channel[r], "P", 1, m->pidfd + from,
                                       size - from < FDS ? size - from : FDS));
    }
    TD_TRY_OR(st, done, map_segment(m, segment));
done:
    close(segment);
    return st;
}

/* Rank 0 sends when everybody has come, which may take long: until then somebody may be lost. */
static td_status await_rank_0(const td__shm_door *door, int sock, td__deadline until)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    while (door->store && !td__deadline_passed(until) &&
           poll(&p, 1, td__deadline_left_ms(until, STEP_MS)) == 0)
        TD_TRY(td__store_may_wait(door->store));
    return TD_OK;
}

static td_status come_to_door(shm_mesh *m, const td__shm_door *door, td__deadline until)
{
    struct sockaddr_un a;
    socklen_t n_a = door_address(door->name, &a);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int self = open_own_pidfd();
    if (sock < 0 || self < 0 || connect(sock, (struct sockaddr *)&a, n_a)) {
        int why = errno;
        if (sock >= 0)
            close(sock);
        if (self >= 0)
            close(self);
        return TD_FAIL(TD_EPEER, "rank %d cannot reach rank 0 at the unix socket @%s: %s",
                       m->mesh.rank, door->name, strerror(why));
    }
    m->channel[0] = sock;
    hello h = {.rank = (uint32_t)m->mesh.rank};
    memcpy(h.token, door->token, sizeof h.token);
    td_status st = td__shm_send_fds(sock, &h, sizeof h, &self, 1);
    close(self);
    if (st)
        return st;

    char kind;
    int segment = -1, n = 1;
    TD_TRY(await_rank_0(door, sock, until));
    TD_TRY(td__shm_recv_fds(NULL, sock, &kind, 1, &segment, &n, until));
    if (n != 1)
        return TD_FAIL(TD_EPROTO, "rank 0 sent no segment");
    st = map_segment(m, segment);
    close(segment);
    if (st)
        return st;
    for (int have = 0; have < m->mesh.size; have += n) {
        n = m->mesh.size - have;
        TD_TRY(td__shm_recv_fds(NULL, sock, &kind, 1, m->pidfd + have, &n, until));
        if (n == 0)
            return TD_FAIL(TD_EPROTO, "rank 0 sent too few process descriptors");
    }
    return TD_OK;
}

static td_status watch_peers(shm_mesh *m)
{
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (m->epoll < 0)
        return TD_FAIL(TD_EIO, "epoll: %s", strerror(errno));
    for (int r = 0; r < m->mesh.size; r++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = r};
        if (r != m->mesh.rank && epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->pidfd[r], &ev))
            return TD_FAIL(TD_EIO, "cannot watch the process of rank %d: %s", r, strerror(errno));
    }
    return TD_OK;
}

/* Look long if all ranks can have a core of their own. */
static td_status settle(shm_mesh *m, td__deadline until)
{
    shm_rank *me = &m->ranks[m->mesh.rank];
    CPU_ZERO(&me->cpus);
    sched_getaffinity(0, sizeof me->cpus, &me->cpus);
    me->pid = getpid();
    __atomic_store_n(&me->state, STATE_HERE, __ATOMIC_RELEASE);
    m->crowded = true;
    TD_TRY(td__shm_meet(&m->mesh, until));
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int r = 0; r < m->mesh.size; r++)
        CPU_OR(&all, &all, &m->ranks[r].cpus);
    m->crowded = CPU_COUNT(&all) < m->mesh.size;
    return td__mesh_measure(&m->mesh, until);
}

static td_status enter(shm_mesh *m, const td__shm_door *door, td__deadline until)
{
    size_t n = (size_t)m->mesh.size;
    m->pidfd = td__malloc(n * sizeof *m->pidfd);
    m->channel = td__malloc(n * sizeof *m->channel);
    m->sends = td__calloc(n, sizeof *m->sends);
    m->recvs = td__calloc(n, sizeof *m->recvs);
    for (size_t r = 0; r < n; r++) {
        if (m->pidfd)
            m->pidfd[r] = -1;
        if (m->channel)
            m->channel[r] = -1;
        if (m->sends)
            m->sends[r].last = &m->sends[r].first;
        if (m->recvs)
            m->recvs[r].last = &m->recvs[r].first;
    }
    if (!m->pidfd || !m->channel || !m->sends || !m->recvs)
        return TD_FAIL(TD_ENOMEM, "no memory for a mesh of %d ranks", m->mesh.size);
    layout_for(m->mesh.size, &m->at);
    if (m->mesh.rank == 0) {
        m->pidfd[0] = open_own_pidfd();
        if (m->pidfd[0] < 0)
            return TD_FAIL(TD_EIO, "pidfd_open: %s", strerror(errno));
        TD_TRY(host_door(m, door, until));
    } else {
        TD_TRY(come_to_door(m, door, until));
    }
    TD_TRY(watch_peers(m));
    return settle(m, until);
}

td_status td__mesh_shm_join(const td__shm_door *door, int rank, int size, td__deadline until,
                            td__mesh **out)
{
    *out = NULL;
    shm_mesh *m = td__calloc(1, sizeof *m);
    td_status st;
    if (m) {
        m->mesh = (td__mesh){.ops = &td__mesh_shm_ops, .rank = rank, .size = size};
        m->epoll = -1;
        st = enter(m, door, until);
    } else {
        st = TD_FAIL(TD_ENOMEM, "no memory for a mesh of %d ranks", size);
    }
    if (rank == 0 && door->listener >= 0)
        close(door->listener);
    if (!st)
        *out = &m->mesh;
    else if (m)
        td__mesh_destroy(&m->mesh);
    return st;
}
