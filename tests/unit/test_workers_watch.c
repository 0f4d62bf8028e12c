/* A process that was killed and does not end, because the kernel does not let go of it, is told of
 * once, after the lease: who it is, and that the others wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/workers_impl.h"
#include "support/check.h"

enum { LEASE_MS = 1000 };
static const uint64_t BEGIN = 5000000000u, LEASE = LEASE_MS * 1000000ull;

/* A signal to its group does not reach it, since there is no such group: what becomes of a kill is
 * the same as where the kernel holds it up. */
static pid_t start_one(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "cannot fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

/* The line that the launcher has got, or "". */
static void hear(td__channel *c, char line[512])
{
    struct pollfd p = {c->in, POLLIN, 0};
    td__msg m;
    bool eof, found;
    line[0] = 0;
    if (poll(&p, 1, 0) == 0)
        return;
    CHECK_OK(td__channel_fill(c, &eof));
    CHECK_OK(td__channel_next(c, &m, &found));
    CHECK(found && m.kind == TD_MSG_LOST && m.nbytes < 512, "another message");
    memcpy(line, m.data, m.nbytes);
    line[m.nbytes] = 0;
}

TEST(one_that_was_killed_and_does_not_end_is_told_of_once)
{
    for (int member = 0; member < 2; member++) {
        int fds[2];
        bool lost = false;
        char line[512], pid[32];
        td__channel heard;
        td__agent_spec s = {.lease_ms = LEASE_MS, .heartbeat_ms = 200, .grace_ms = 1000};
        td__workers *w = calloc(1, sizeof *w);
        td__worker k = {.used = true,
                        .proc = 7,
                        .was_in = true,
                        .rank = 3,
                        .link = {.conn = {.fd = -1}},
                        .kill_at = BEGIN};
        CHECK(w && pipe(fds) == 0, "no memory, or no pipe");
        td__channel_init(&s.up, -1, fds[1]);
        td__channel_init(&heard, fds[0], -1);
        w->s = &s;
        w->lost = &lost;
        w->next_ns = UINT64_MAX;
        snprintf(w->report.host, sizeof w->report.host, "tin");
        w->now.n_members = 1;
        w->now.member[0] = member ? 7 : 8;
        k.child = (td__child){start_one(), 0, -1, -1, -1};
        snprintf(pid, sizeof pid, "pid %d", (int)k.child.pid);

        td__worker_watch(w, &k, BEGIN);
        CHECK_EQ_INT(k.kill_at, 0);
        CHECK(w->next_ns == BEGIN + LEASE + 1, "the agent would look again too late");
        td__worker_watch(w, &k, BEGIN + LEASE);
        hear(&heard, line);
        CHECK(!*line, "too early: %s", line);
        td__worker_watch(w, &k, BEGIN + LEASE + LEASE / 2);
        hear(&heard, line);
        CHECK(strstr(line, "rank 3 (host tin, pid ") && strstr(line, pid) &&
                  strstr(line, "was killed 1.5 s ago and has not ended"),
              "%s", line);
        CHECK(!strstr(line, "the other ranks wait") == !member, "%s", line);
        td__worker_watch(w, &k, BEGIN + 9 * LEASE);
        hear(&heard, line);
        CHECK(!*line, "twice: %s", line);
        CHECK(!lost, "the launcher is gone");

        kill(k.child.pid, SIGKILL);
        CHECK(waitpid(k.child.pid, NULL, 0) == k.child.pid, "no child");
        td__channel_fini(&s.up);
        td__channel_fini(&heard);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_was_killed_and_does_not_end_is_told_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
