/* The pipes between launcher, agent and processes: orders that come at once are both obeyed, and
 * what a process wrote is passed on to the end, however slow the launcher is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "launch/launch.h"
#include "launch/lines.h"
#include "support/check.h"
#include "tandem/alloc.h"

enum { PATIENCE_MS = 60000 };

typedef struct agent_at {
    td__channel c;
    pid_t pid;
} agent_at;

/* TD_EPEER: the agent is gone. */
static td_status send_texts(agent_at *a, td__msg_kind kind, const char *const *texts)
{
    td__texts t = {0};
    for (; *texts; texts++)
        td__texts_add(&t, "%s", *texts);
    CHECK(!t.failed, "no memory");
    td_status st = td__channel_send(&a->c, kind, -1, t.data, t.used);
    td__texts_fini(&t);
    return st;
}

/* The next message of this kind; false: the agent has ended. Others may come all the time. */
static bool await_kind(agent_at *a, td__msg_kind kind, td__msg *m)
{
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    for (bool eof = false;;) {
        bool found;
        CHECK_OK(td__channel_next(&a->c, m, &found));
        if (found && m->kind == kind)
            return true;
        if (found)
            continue;
        if (eof)
            return false;
        struct pollfd p = {a->c.in, POLLIN, 0};
        CHECK(!td__deadline_passed(until), "timed out waiting for message %d", (int)kind);
        if (poll(&p, 1, td__deadline_left_ms(until, PATIENCE_MS)) != 1)
            continue;
        CHECK_OK(td__channel_fill(&a->c, &eof));
    }
}

/* An agent of one process that runs `sleep` for so long, in which the nth allocation fails (0:
 * none). */
static void start_agent(agent_at *a, bool elastic, const char *seconds, uint64_t nth)
{
    static const char SECRET[] =
        "secret=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char job[32], sleep_for[32];
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "no sockets");
    a->pid = fork();
    CHECK(a->pid >= 0, "no process");
    if (!a->pid) {
        close(pair[0]);
        td_alloc_fail_at(nth);
        _exit(td__agent_run(pair[1], pair[1], NULL) ? 1 : 0);
    }
    close(pair[1]);
    td__channel_init(&a->c, pair[0], pair[0]);
    snprintf(job, sizeof job, "job=pipes%d", (int)a->pid);
    snprintf(sleep_for, sizeof sleep_for, "arg=%s", seconds);
    const char *spec[] = {SECRET,          job,           "index=0",   "entry=localhost:1",
                          "grace=1000000", "cwd=/",       "arg=sleep", sleep_for,
                          "elastic=1:1",   "first=1",     "spares=0",  "crashes=5",
                          "heartbeat=200", "lease=10000", "hang=0",    NULL};
    if (!elastic)
        spec[8] = NULL;
    td_status st = send_texts(a, TD_MSG_SPEC, spec);
    st = st ? st : td__channel_send(&a->c, TD_MSG_PARENT, -1, NULL, 0);
    CHECK(!st || nth, "the agent ended");
}

static void await_ready(agent_at *a)
{
    td__msg m;
    CHECK(await_kind(a, TD_MSG_READY, &m), "the agent ended");
}

/* While it is stopped, so that it reads them together. */
static void say_go_and_stop(agent_at *a, const char *const *go)
{
    int status;
    kill(a->pid, SIGSTOP);
    CHECK(waitpid(a->pid, &status, WUNTRACED) == a->pid && WIFSTOPPED(status), "not stopped");
    CHECK_OK(send_texts(a, TD_MSG_GO, go));
    CHECK_OK(td__channel_send(&a->c, TD_MSG_STOP, -1, NULL, 0));
    kill(a->pid, SIGCONT);
}

/* It ends by itself. */
static void see_end(agent_at *a)
{
    int status;
    td__msg m;
    CHECK(!await_kind(a, TD_MSG_COUNT, &m), "a message that there is not");
    CHECK(waitpid(a->pid, &status, 0) == a->pid && status == 0, "status %d", status);
    td__channel_fini(&a->c);
}

/* As when a rank of another host fails before this one has begun: nothing more comes that would
 * make the agent look. */
TEST(ranks_are_stopped_that_were_told_to_at_once)
{
    agent_at a;
    td__msg m;
    start_agent(&a, false, "1000", 0);
    await_ready(&a);
    say_go_and_stop(&a, (const char *const[]){"127.0.0.1:1", "127.0.0.1:2", NULL});
    CHECK(await_kind(&a, TD_MSG_EXIT, &m), "the agent ended");
    assert_string_equal(m.data, "143");
    CHECK_OK(td__channel_send(&a.c, TD_MSG_END, -1, NULL, 0));
    see_end(&a);
}

TEST(elastic_processes_are_not_started_that_are_to_stop)
{
    agent_at a;
    start_agent(&a, true, "1000", 0);
    await_ready(&a);
    say_go_and_stop(&a, (const char *const[]){NULL});
    see_end(&a);
}

/* What comes first of: the agent is ready, has done its work, or says why it cannot. */
static td__msg_kind await_any(agent_at *a)
{
    td__deadline until = td__deadline_in_ms(PATIENCE_MS);
    for (bool eof = false, found;;) {
        td__msg m;
        CHECK_OK(td__channel_next(&a->c, &m, &found));
        if (found && (m.kind == TD_MSG_READY || m.kind == TD_MSG_EXIT || m.kind == TD_MSG_OVER ||
                      m.kind == TD_MSG_FAILED))
            return m.kind;
        if (found)
            continue;
        if (eof)
            return TD_MSG_COUNT;
        struct pollfd p = {a->c.in, POLLIN, 0};
        CHECK(!td__deadline_passed(until), "an agent goes on without the memory that it needs");
        if (poll(&p, 1, td__deadline_left_ms(until, PATIENCE_MS)) == 1)
            CHECK_OK(td__channel_fill(&a->c, &eof));
    }
}

/* Whichever allocation fails, an agent has done its work or says why it cannot: never does it go on
 * with what it has not got. */
TEST(an_agent_without_memory_ends)
{
    enum { ALLOCATIONS = 60 }; /* more than there are before the first process runs */
    for (int elastic = 0; elastic < 2; elastic++) {
        int n_failed = 0;
        for (uint64_t nth = 1; nth <= ALLOCATIONS; nth++) {
            agent_at a;
            int status;
            start_agent(&a, elastic, "0", nth);
            td__msg_kind what = await_any(&a);
            if (what == TD_MSG_READY) {
                static const char *const FIXED[] = {"127.0.0.1:1", "127.0.0.1:2", NULL};
                td_status st = send_texts(&a, TD_MSG_GO, elastic ? FIXED + 2 : FIXED);
                CHECK(!st || st == TD_EPEER, "%s", td_last_error());
                what = await_any(&a);
            }
            n_failed += what == TD_MSG_FAILED || what == TD_MSG_COUNT;
            td__channel_fini(&a.c); /* the launcher is gone: so is the agent */
            CHECK(waitpid(a.pid, &status, 0) == a.pid && WIFEXITED(status), "status %d", status);
        }
        CHECK(n_failed > 0 && n_failed < ALLOCATIONS, "%d failed", n_failed);
    }
}

/* More is on its way to the launcher than an agent wants to keep, and the process has ended. */
TEST(the_last_lines_are_passed_on_to_a_slow_launcher)
{
    enum { QUEUED = 5 << 20, LINE = 100, LINES = 600 };
    int pipe_fd[2], pair[2];
    char line[LINE];
    bool lost = false, eof = false, found;
    size_t got = 0;
    td__channel up, down;
    td__lines l;
    td__msg m;
    CHECK(!pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK), "no pipe");
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "no sockets");
    td__channel_init(&up, pair[0], pair[0]);
    td__channel_init(&down, pair[1], pair[1]);
    CHECK_OK(td__channel_queue(&up));
    char *before = calloc(1, QUEUED);
    CHECK(before, "no memory");
    CHECK_OK(td__channel_send(&up, TD_MSG_ERR, 0, before, QUEUED));
    free(before);
    CHECK(td__channel_full(&up), "not full");

    CHECK_OK(td__lines_init(&l, &pipe_fd[0], TD_MSG_OUT));
    memset(line, 'x', LINE - 1);
    line[LINE - 1] = '\n';
    for (int i = 0; i < LINES; i++)
        CHECK(write(pipe_fd[1], line, LINE) == LINE, "line %d", i);
    td__lines_pump(&l, &up, &lost, 0, true);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    CHECK(!lost, "nobody listens");

    while (up.queue_used > up.queue_sent || got < (size_t)LINE * LINES) {
        CHECK_OK(td__channel_flush(&up));
        struct pollfd p = {pair[1], POLLIN, 0};
        CHECK(poll(&p, 1, 0) == 1, "%zu bytes of %d came", got, LINE * LINES);
        CHECK_OK(td__channel_fill(&down, &eof));
        for (;;) {
            CHECK_OK(td__channel_next(&down, &m, &found));
            if (!found)
                break;
            got += m.kind == TD_MSG_OUT ? m.nbytes : 0;
        }
    }
    CHECK_EQ_INT(got, LINE * LINES);
    td__lines_fini(&l);
    td__channel_fini(&up);
    td__channel_fini(&down);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_stopped_that_were_told_to_at_once),
        cmocka_unit_test(elastic_processes_are_not_started_that_are_to_stop),
        cmocka_unit_test(an_agent_without_memory_ends),
        cmocka_unit_test(the_last_lines_are_passed_on_to_a_slow_launcher),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
