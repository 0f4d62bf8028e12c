/* The lock of a run's directory: it belongs to a job, as long as one of its processes lives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/run_lock.h"
#include "support/check.h"

enum { NOW_MS = 0, LONG_MS = 20000 };

static td_status take(const char *mark, uint64_t ms, int *fd)
{
    return td__run_lock_take(check_path("."), mark, td__deadline_in_ms(ms), fd);
}

TEST(one_process_alone)
{
    int one, two;

    check_tmpdir();
    CHECK(!td__run_lock_held(check_path(".")), "held before anybody came");
    CHECK_OK(take(NULL, NOW_MS, &one));
    CHECK_STATUS(take(NULL, NOW_MS, &two), TD_EINVAL);
    CHECK(two < 0 && strstr(td_last_error(), "another job"), "%s", td_last_error());
    CHECK(td__run_lock_held(check_path(".")), "not held");
    close(one);
    CHECK(!td__run_lock_held(check_path(".")), "held after it was given up");
    CHECK_OK(take(NULL, NOW_MS, &two));
    close(two);
    CHECK_STATUS(td__run_lock_take(check_path("nosuch"), NULL, td__deadline_in_ms(0), &one),
                 TD_EINVAL);
    check_tmpdir_remove();
}

TEST(ranks_of_one_job_share_it)
{
    int first, second, third, other;

    check_tmpdir();
    CHECK_OK(take("job-a", NOW_MS, &first));
    CHECK_OK(take("job-a", NOW_MS, &second));
    CHECK_STATUS(take("job-b", NOW_MS, &other), TD_EINVAL);
    close(first); /* rank 0 is gone: the directory is still the job's */
    CHECK_STATUS(take("job-b", NOW_MS, &other), TD_EINVAL);
    CHECK_STATUS(take("job-", NOW_MS, &other), TD_EINVAL);
    CHECK_STATUS(take("job-a-too", NOW_MS, &other), TD_EINVAL);
    CHECK_OK(take("job-a", NOW_MS, &third)); /* a replacement */
    close(second);
    CHECK_STATUS(take("job-b", NOW_MS, &other), TD_EINVAL);
    close(third);
    CHECK_OK(take("job-b", NOW_MS, &other));
    CHECK_STATUS(take("job-a", NOW_MS, &first), TD_EINVAL);
    close(other);
    check_tmpdir_remove();
}

/* A process of job-a that holds the lock until it is killed. */
static pid_t holder(void)
{
    int ready[2], fd;
    char c;

    CHECK(pipe(ready) == 0, "pipe");
    pid_t pid = fork();
    if (!pid) {
        if (take("job-a", NOW_MS, &fd) == TD_OK && write(ready[1], "", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    CHECK(pid > 0 && read(ready[0], &c, 1) == 1, "the holder did not get the lock");
    close(ready[0]);
    return pid;
}

/* A job that resumes as rank 0 dies: while another rank lives it waits and is refused, and it gets
 * the directory as soon as the last one is gone, however it ended. */
TEST(killed_processes_hold_nothing)
{
    int fd, status;

    check_tmpdir();
    pid_t zero = holder(), one = holder();
    CHECK(kill(zero, SIGKILL) == 0 && waitpid(zero, &status, 0) == zero, "kill");
    CHECK_STATUS(take("job-b", 50, &fd), TD_EINVAL);
    CHECK(kill(one, SIGSTOP) == 0, "stop"); /* stopped is alive */
    CHECK_STATUS(take("job-b", NOW_MS, &fd), TD_EINVAL);
    CHECK(kill(one, SIGKILL) == 0 && waitpid(one, &status, 0) == one, "kill");
    CHECK_OK(take("job-b", LONG_MS, &fd));
    close(fd);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_alone),
        cmocka_unit_test(ranks_of_one_job_share_it),
        cmocka_unit_test(killed_processes_hold_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
