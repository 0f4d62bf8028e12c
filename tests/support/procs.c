/* procs.c -- ranks as processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/procs.h"

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "support/check.h"

void procs_start(procs *p, int size, procs_body *body, void *arg)
{
    CHECK(size <= PROCS_MOST, "%d ranks are too many", size);
    *p = (procs){.size = size};
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        p->pid[r] = fork();
        CHECK(p->pid[r] >= 0, "cannot fork");
        if (p->pid[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            int status = body(r, size, arg);
            fflush(NULL);
            _exit(status);
        }
    }
}

void procs_signal(procs *p, int rank, int signal)
{
    CHECK(p->pid[rank] > 0 && kill(p->pid[rank], signal) == 0, "cannot signal rank %d", rank);
}

static void kill_all(procs *p)
{
    for (int r = 0; r < p->size; r++) {
        if (p->pid[r] > 0) {
            kill(p->pid[r], SIGKILL);
            waitpid(p->pid[r], NULL, 0);
        }
    }
}

int procs_wait(procs *p, int rank, int ms)
{
    int fd = (int)syscall(SYS_pidfd_open, p->pid[rank], 0), status;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int ready = poll(&poll_fd, 1, ms);
    close(fd);
    if (ready != 1) {
        kill_all(p);
        CHECK(ready == 1, "rank %d has not ended after %d ms", rank, ms);
    }
    CHECK(waitpid(p->pid[rank], &status, 0) == p->pid[rank], "cannot wait for rank %d", rank);
    p->pid[rank] = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void procs_wait_all(procs *p, int ms)
{
    int status[PROCS_MOST];
    for (int r = 0; r < p->size; r++)
        status[r] = procs_wait(p, r, ms);
    for (int r = 0; r < p->size; r++)
        CHECK(status[r] == 0, "rank %d of %d ended with %d", r, p->size, status[r]);
}

void *procs_shared_alloc(size_t nbytes)
{
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED, "no shared memory of %zu bytes", nbytes);
    return p;
}

void procs_shared_free(void *p, size_t nbytes)
{
    munmap(p, nbytes);
}

void procs_await(const int *word, int value, int ms)
{
    td__deadline until = td__deadline_in_ms((uint64_t)ms);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
        CHECK(!td__deadline_passed(until), "waited in vain for %d", value);
        sched_yield();
    }
}

int procs_count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

int procs_count_maps(const char *name)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, name) != NULL;
    if (f)
        fclose(f);
    return n;
}
