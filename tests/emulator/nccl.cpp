/* nccl.cpp -- a stand-in for libnccl.so.2: the functions of coll/nccl/library.h between threads and
 * processes of one machine, through a file in shared memory.
 *
 * Memory of emulated GPUs is the process's, and a stream has done what was put there. So a call is
 * carried out by a thread of the communicator's, and is in progress, as far as anyone asks, until
 * its bytes have arrived: where a rank does not come it stays so until it is aborted; where a rank
 * has aborted, or its process has ended, it fails at once, before anybody else has noticed.
 * Messages go in pieces through a mailbox for each pair of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <memory>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { MOST = 16, PIECE = 64 << 10 };

struct mailbox {
    std::atomic<uint32_t> full;
    uint32_t nbytes;
    char bytes[PIECE];
};
struct shared {
    std::atomic<uint32_t> met;
    std::atomic<int> pid[MOST];
    std::atomic<bool> gone[MOST]; /* aborted */
    mailbox box[MOST][MOST];      /* by sender, receiver */
};
struct unique_id {
    char name[128];
};
struct message {
    bool sends;
    char *at;
    size_t nbytes, moved;
    int peer;
    bool any; /* an empty one is a piece, too */
};
struct communicator {
    int rank, size;
    std::string name;
    shared *all = nullptr;
    std::thread worker;
    std::atomic<int> result{SUCCESS};
    std::atomic<bool> aborted{false};
};
struct batch {
    communicator *of = nullptr;
    std::vector<message> list;
    std::vector<float> parts; /* of a sum, by rank */
    float *sum = nullptr;
    size_t count = 0;
};

thread_local int depth;
thread_local batch open_batch;

/* A piece of it, if there is room, or something has come. */
bool move_piece(communicator *c, message *m)
{
    mailbox *b = m->sends ? &c->all->box[c->rank][m->peer] : &c->all->box[m->peer][c->rank];
    if ((b->full.load(std::memory_order_acquire) != 0) == m->sends)
        return false;
    size_t left = m->nbytes - m->moved;
    if (m->sends) {
        b->nbytes = (uint32_t)std::min<size_t>(left, PIECE);
        memcpy(b->bytes, m->at + m->moved, b->nbytes);
    } else {
        if (b->nbytes > left)
            abort(); /* what NCCL would do with it nobody knows */
        memcpy(m->at + m->moved, b->bytes, b->nbytes);
    }
    m->moved += b->nbytes;
    m->any = true;
    b->full.store(m->sends ? 1 : 0, std::memory_order_release);
    return true;
}

/* No process, or one that has ended and is not yet waited for. */
bool has_ended(int pid)
{
    char path[40], line[512], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fgets(line, sizeof line, f))
        if (const char *after = strrchr(line, ')'))
            sscanf(after + 1, " %c", &state);
    if (f)
        fclose(f);
    return state == 'Z' || state == 'X';
}

bool lost_one(const communicator *c)
{
    for (int r = 0; r < c->size; r++) {
        int pid = c->all->pid[r];
        if (r != c->rank && (c->all->gone[r] || (pid != getpid() && has_ended(pid))))
            return true;
    }
    return false;
}

void carry_out(batch *b)
{
    enum { OFTEN = 1000 };
    communicator *c = b->of;
    size_t left = b->list.size();
    for (unsigned idle = 0; left && !c->aborted;) {
        bool moved = false, lost = idle % OFTEN == OFTEN - 1 && lost_one(c);
        std::vector<bool> waits(2 * MOST); /* messages between two ranks keep their order */
        for (message &m : b->list) {
            size_t lane = (size_t)m.peer + (m.sends ? MOST : 0);
            bool done = m.any && m.moved == m.nbytes;
            if (done || waits[lane])
                continue;
            moved = move_piece(c, &m) || moved;
            if (m.any && m.moved == m.nbytes)
                left--;
            else
                waits[lane] = true;
        }
        if (!moved && lost) { /* what it had sent before has been looked for since */
            c->result = REMOTE_ERROR;
            return;
        }
        idle = moved ? 0 : idle + 1;
        if (!moved)
            sched_yield();
    }
    for (size_t i = 0; b->sum && !left && i < b->count; i++) {
        float s = b->parts[i];
        for (int r = 1; r < c->size; r++)
            s += b->parts[(size_t)r * b->count + i];
        b->sum[i] = s;
    }
    if (!left)
        c->result = SUCCESS;
}

int submit()
{
    auto b = std::make_shared<batch>(std::move(open_batch)); /* what its vectors hold stays there */
    open_batch = batch();
    if (!b->of)
        return SUCCESS;
    communicator *c = b->of;
    if (c->result != SUCCESS)
        return INVALID_ARGUMENT; /* the call before is not through */
    if (c->worker.joinable())
        c->worker.join();
    c->result = IN_PROGRESS;
    c->worker = std::thread([b] { carry_out(b.get()); });
    return IN_PROGRESS;
}

int add(communicator *c, bool sends, const void *at, size_t nbytes, int peer)
{
    if (peer < 0 || peer >= c->size || (open_batch.of && open_batch.of != c))
        return INVALID_ARGUMENT;
    open_batch.of = c;
    open_batch.list.push_back({sends, (char *)(uintptr_t)at, nbytes, 0, peer, false});
    return depth ? SUCCESS : submit();
}

int to_all(communicator *c, const char *in, char *out, size_t nbytes)
{
    depth++;
    if (out + (size_t)c->rank * nbytes != in)
        memmove(out + (size_t)c->rank * nbytes, in, nbytes);
    int r = SUCCESS;
    for (int p = 0; p < c->size && !r; p++) {
        if (p == c->rank)
            continue;
        r = add(c, true, in, nbytes, p);
        r = r ? r : add(c, false, out + (size_t)p * nbytes, nbytes, p);
    }
    depth--;
    return r;
}

size_t size_of(int type)
{
    return type == 7 ? sizeof(float) : 1;
}

/* All ranks have the file; the last one takes its name away. */
void meet(communicator *c)
{
    uint32_t n = c->all->met.fetch_add(1) + 1;
    if (n == (uint32_t)c->size)
        shm_unlink(c->name.c_str());
    while (c->all->met < (uint32_t)c->size && !c->aborted)
        sched_yield();
    if (!c->aborted)
        c->result = SUCCESS;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int *v)
{
    const char *text = getenv("EMULATED_NCCL"); /* "21000": what tests want */
    *v = text ? atoi(text) : 22803;
    return SUCCESS;
}
EXPORT const char *ncclGetErrorString(int r)
{
    return r == SYSTEM_ERROR   ? "unhandled system error"
           : r == REMOTE_ERROR ? "remote process exited or there was a network error"
                               : "invalid argument";
}
EXPORT int ncclGetUniqueId(unique_id *id)
{
    static std::atomic<unsigned> number;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "/tandem-nccl-%d-%u", (int)getpid(), number++);
    int fd = shm_open(id->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    int r = fd >= 0 && ftruncate(fd, sizeof(shared)) == 0 ? SUCCESS : SYSTEM_ERROR;
    if (fd >= 0)
        close(fd);
    return r;
}
EXPORT int ncclCommInitRankConfig(communicator **out, int size, unique_id id, int rank,
                                  const void *config)
{
    uint32_t magic, version;
    memcpy(&magic, (const char *)config + sizeof(size_t), sizeof magic);
    memcpy(&version, (const char *)config + sizeof(size_t) + sizeof magic, sizeof version);
    if (magic != 0xcafebeef || version > 22803 || size > MOST)
        return INVALID_ARGUMENT;
    int fd = shm_open(id.name, O_RDWR, 0600);
    void *p = fd < 0 ? MAP_FAILED
                     : mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return SYSTEM_ERROR;
    communicator *c = *out = new communicator;
    c->rank = rank;
    c->size = size;
    c->name = id.name;
    c->all = (shared *)p;
    c->all->pid[rank] = (int)getpid();
    c->result = IN_PROGRESS;
    c->worker = std::thread([c] { meet(c); });
    return IN_PROGRESS;
}
EXPORT int ncclCommGetAsyncError(communicator *c, int *result)
{
    *result = c->result;
    return SUCCESS;
}
EXPORT int ncclCommAbort(communicator *c)
{
    c->aborted = true;
    if (c->worker.joinable())
        c->worker.join();
    c->all->gone[c->rank] = true;
    if (c->all->met < (uint32_t)c->size)
        shm_unlink(c->name.c_str());
    munmap(c->all, sizeof(shared));
    delete c;
    return SUCCESS;
}
EXPORT int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}
EXPORT int ncclGroupEnd(void)
{
    return --depth ? SUCCESS : submit();
}
EXPORT int ncclSend(const void *at, size_t n, int type, int peer, communicator *c, void *)
{
    return add(c, true, at, n * size_of(type), peer);
}
EXPORT int ncclRecv(void *at, size_t n, int type, int peer, communicator *c, void *)
{
    return add(c, false, at, n * size_of(type), peer);
}
EXPORT int ncclAllGather(const void *in, void *out, size_t n, int type, communicator *c, void *)
{
    int r = to_all(c, (const char *)in, (char *)out, n * size_of(type));
    return r || depth ? r : submit();
}
EXPORT int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, communicator *c,
                         void *)
{
    if (type != 7 || op != 0 || depth)
        return INVALID_ARGUMENT;
    std::vector<float> parts((size_t)c->size * n);
    int r = to_all(c, (const char *)in, (char *)parts.data(), n * sizeof(float));
    if (r)
        return r;
    open_batch.of = c;
    open_batch.parts = std::move(parts);
    open_batch.sum = (float *)out;
    open_batch.count = n;
    return submit();
}
