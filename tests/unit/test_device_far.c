/* test_device_far.c -- the memory of the far device, which stands for that of a GPU: a host that
 * touches it without asking dies, and system calls on it fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "support/check.h"

static void open_block(const char *name, td_device **d, td_mem *m)
{
    CHECK_OK(td__device_open(name, d));
    CHECK_OK(td__mem_alloc(*d, TD_MEM_OWN, 100, m));
}

/* How a child that runs fn ends. */
static int ends(void (*fn)(char *), char *at)
{
    pid_t pid = fork();
    int status;
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would report what is meant to happen */
        signal(SIGBUS, SIG_DFL);
        fn(at);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    return status;
}

static void read_it(char *at)
{
    volatile char c = *(volatile char *)at;
    (void)c;
}

static void write_it(char *at)
{
    *(volatile char *)at = 1;
}

TEST(a_host_that_touches_far_memory_dies)
{
    td_device *far, *host;
    td_mem m, near;
    open_block("far", &far, &m);
    open_block("host", &host, &near);
    int status = ends(read_it, m.at);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "reading: status %d", status);
    status = ends(write_it, (char *)m.at + 99);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "writing: status %d", status);
    CHECK_EQ_INT(ends(read_it, near.at), 0);
    CHECK(!td__device_host_reads(far) && td__device_host_reads(host), "who may read");
    td__mem_free(&m);
    td__mem_free(&near);
    td__device_release(far);
    td__device_release(host);
}

TEST(system_calls_on_far_memory_fail)
{
    td_device *far;
    td_mem m;
    int fd[2];
    open_block("far", &far, &m);
    CHECK(pipe(fd) == 0, "pipe: %s", strerror(errno));
    CHECK(write(fd[1], m.at, 100) == -1 && errno == EFAULT, "far memory was written to a pipe");
    close(fd[0]);
    close(fd[1]);
    td__mem_free(&m);
    td__device_release(far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_touches_far_memory_dies),
        cmocka_unit_test(system_calls_on_far_memory_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
