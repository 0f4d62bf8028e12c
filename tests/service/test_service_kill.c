/* kill -9 of the service at every call of its store and of its tracker, while jobs are submitted,
 * launched, finish and are cancelled. After a restart every accepted job ends in one final state,
 * its command has run once, none is lost and none is there twice; what was cancelled does not run.
 *
 * The client repeats what it was not answered, with the same idempotency keys. In the longer form
 * the restarted service is killed too, at another call.
 *
 * Test labels: full slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "rpc/loop.h"
#include "service/config.h"
#include "service/service.h"
#include "service/spec.h"
#include "support/check.h"
#include "support/full.h"

enum {
    JOBS = 3,
    SUCCEEDS = 0,
    IS_CANCELLED = 1,
    FAILS = 2,
    DEADLINE_MS = 60000,
    SAMPLE = 9,
    FAR_SAMPLE = 23
};

static const char *const SPECS[JOBS] = {
    "{\"command\": [\"sh\", \"-c\", \"echo ran >> ran\"]}",
    "{\"command\": [\"sh\", \"-c\", \"echo ran >> ran; echo $$ > pid; exec sleep 600\"], "
    "\"grace_s\": 1}",
    "{\"command\": [\"sh\", \"-c\", \"echo ran >> ran; exit 5\"]}",
};

/* The same on the tracker ssh, whose host is this one: there an attempt leaves a directory, which
 * is to be gone in the end. Commands name files of the test's directory, %s. */
static const char *const FAR_SPECS[JOBS] = {
    "{\"tracker\": \"ssh\", \"command\": [\"sh\", \"-c\", \"echo ran >> %s/ran-1\"]}",
    "{\"tracker\": \"ssh\", \"command\": [\"sh\", \"-c\", \"echo ran >> %s/ran-2; echo $$ > "
    "%s/pid-2; exec sleep 600\"], \"grace_s\": 1}",
    "{\"tracker\": \"ssh\", \"command\": [\"sh\", \"-c\", \"echo ran >> %s/ran-3; exit 5\"]}",
};

static char HOME[64], SELF[4096];
static bool far; /* on the tracker ssh */

typedef struct killing {
    td__points points;
    int count, at; /* killed at this call; 0: never */
} killing;

static td_status on_point(td__points *p, td__point_kind kind, const char *op)
{
    killing *k = (killing *)p;

    (void)kind;
    (void)op;
    if (++k->count == k->at)
        kill(getpid(), SIGKILL);
    return TD_OK;
}

static void spec_text(int job, char *text, size_t nbytes)
{
    const char *from = far ? FAR_SPECS[job] : SPECS[job];
    size_t used = 0;

    for (const char *c = from; *c && used + sizeof HOME < nbytes; c++)
        if (c[0] == '%' && c[1] == 's') {
            used += (size_t)snprintf(text + used, nbytes - used, "%s", HOME);
            c++;
        } else {
            text[used++] = *c;
        }
    text[used] = '\0';
}

/* Is something of an attempt there still? */
static bool left(void)
{
    char path[100];
    bool some = false;

    snprintf(path, sizeof path, "%s/there", HOME);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        some = some || e->d_name[0] != '.';
    if (d)
        closedir(d);
    return some;
}

/* One life of the service with its client. 0: all jobs have ended; others: what went wrong. */
static int live(int kill_at, int told)
{
    static const td__caller ME = {.user = "me", .admin = true};
    killing k = {.points = {on_point}, .at = kill_at};
    char data[100], reach[100], there[100];
    const char *sets[] = {data,
                          "capacity.slots=8",
                          "data.sync=normal",
                          "tracker.keep_ended_s=0",
                          "ssh.hosts=here:8",
                          reach,
                          there};
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);
    td__service_config *config;
    td__service *s;
    td__loop *loop;
    int32_t ids[JOBS] = {0};

    snprintf(data, sizeof data, "data.dir=%s/d", HOME);
    snprintf(reach, sizeof reach, "ssh.command=%s/reach", HOME);
    snprintf(there, sizeof there, "ssh.dir=%s/there", HOME);
    if (td__config_load(NULL, sets, TD_LEN(sets), &config) || td__loop_create(&loop) ||
        td__service_create(
            &(td__service_opts){.loop = loop, .config = config, .self = SELF, .points = &k.points},
            &s))
        return 2;
    for (int i = 0; i < JOBS; i++) {
        td__job_spec *spec;
        char key[8], text[400];
        snprintf(key, sizeof key, "key-%d", i);
        spec_text(i, text, sizeof text);
        if (td__spec_parse(text, strlen(text), "test", &spec) ||
            td__service_submit(s, &ME, spec, key, false, &ids[i]))
            return 3;
    }
    for (bool told_ids = false, cancelled = false;;) {
        const td__job_record *r;
        int ended = 0;
        if (td__loop_turn(loop, 1000) || td__service_failed(s) || td__deadline_passed(until))
            return 4;
        if (!told_ids && write(told, ids, sizeof ids) == (ssize_t)sizeof ids)
            told_ids = true; /* accepted: the turn has committed them */
        for (int i = 0; i < JOBS; i++) {
            if (td__service_get(s, ids[i], &r))
                return 5;
            ended += td__job_state_final(r->state);
            if (i == IS_CANCELLED && r->state == TD_JOB_RUNNING && !cancelled) {
                cancelled = true;
                if (td__service_cancel(s, &ME, ids[i], NULL))
                    return 6;
            }
        }
        if (ended == JOBS && !left())
            break;
    }
    td__service_destroy(s);
    td__loop_destroy(loop);
    td__config_destroy(config);
    return k.at > k.count ? 10 : 0; /* there are not so many calls */
}

/* A life in a process of its own; its exit status, or 128 + signal. */
static int run_life(int kill_at, int told)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (!pid)
        _exit(live(kill_at, told));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void file_of(int32_t job, const char *name, char *path, size_t nbytes)
{
    if (far)
        snprintf(path, nbytes, "%s/%s-%d", HOME, name, job);
    else
        snprintf(path, nbytes, "%s/d/jobs/%d/work/%s", HOME, job, name);
}

static int lines_of(int32_t job, const char *name)
{
    char path[200];
    int n = 0;

    file_of(job, name, path, sizeof path);
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

static bool still_runs(int32_t job)
{
    char path[200];
    int pid = 0;

    file_of(job, "pid", path, sizeof path);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid > 0 && kill(pid, 0) == 0;
}

typedef struct found {
    int n;
    td__job_state state[JOBS];
    int exit_status[JOBS];
} found;

static bool note(void *arg, const td__job_record *r)
{
    found *f = arg;

    f->n++;
    if (r->id >= 1 && r->id <= JOBS) {
        f->state[r->id - 1] = r->state;
        f->exit_status[r->id - 1] = r->exit_status;
    }
    return true;
}

static void check_end(int at, const int32_t ids[JOBS])
{
    char path[100];
    td__job_store *store;
    found f = {0};

    snprintf(path, sizeof path, "%s/d/service.db", HOME);
    CHECK_OK(td__job_store_open(path, &(td__job_store_opts){0}, &store));
    CHECK_OK(td__job_store_list(store, &(td__job_filter){0}, note, &f));
    td__job_store_close(store);
    if (f.n != JOBS)
        fail_msg("killed at call %d: %d jobs, not %d", at, f.n, JOBS);
    for (int i = 0; i < JOBS; i++)
        if (ids[i] != i + 1)
            fail_msg("killed at call %d: the client was told of job %d, not %d", at, ids[i], i + 1);
    if (f.state[SUCCEEDS] != TD_JOB_SUCCEEDED || f.state[IS_CANCELLED] != TD_JOB_CANCELLED ||
        f.state[FAILS] != TD_JOB_FAILED || f.exit_status[FAILS] != 5)
        fail_msg("killed at call %d: wrong result: %s, %s, %s with %d", at,
                 td__job_state_name(f.state[0]), td__job_state_name(f.state[1]),
                 td__job_state_name(f.state[2]), f.exit_status[FAILS]);
    if (lines_of(1, "ran") != 1 || lines_of(3, "ran") != 1 || lines_of(2, "ran") > 1)
        fail_msg("killed at call %d: commands ran %d, %d and %d times", at, lines_of(1, "ran"),
                 lines_of(2, "ran"), lines_of(3, "ran"));
    if (still_runs(2))
        fail_msg("killed at call %d: the cancelled job still runs", at);
}

static void remove_dir(void)
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        execlp("rm", "rm", "-rf", HOME, (char *)NULL);
        _exit(1);
    }
    waitpid(pid, &status, 0);
}

/* What runs a script there, as ssh does. */
static void make_host(void)
{
    char path[100];

    snprintf(path, sizeof path, "%s/reach", HOME);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("#!/bin/sh\nshift\nexec \"$@\"\n", f);
    assert_int_equal(fclose(f) | chmod(path, 0700), 0);
}

/* false: the service makes fewer calls than that. */
static bool kill_at(int at, int again_at)
{
    int32_t ids[JOBS] = {0}, later[JOBS];
    int told[2];

    snprintf(HOME, sizeof HOME, "/tmp/td-kill-XXXXXX");
    assert_non_null(mkdtemp(HOME));
    make_host();
    assert_int_equal(pipe(told), 0);
    int first = run_life(at, told[1]), second = again_at ? run_life(again_at, told[1]) : 0;
    int last = first && first != 10 ? run_life(0, told[1]) : 0;
    if ((first && first != 10 && first != 128 + SIGKILL) || last ||
        (second && second != 10 && second != 128 + SIGKILL))
        fail_msg("killed at call %d: lives ended with %d, %d, %d", at, first, second, last);
    close(told[1]);
    while (read(told[0], later, sizeof later) == (ssize_t)sizeof later) {
        if (ids[0] && memcmp(ids, later, sizeof ids) != 0)
            fail_msg("killed at call %d: other jobs for the same keys", at);
        memcpy(ids, later, sizeof ids);
    }
    close(told[0]);
    check_end(at, ids);
    remove_dir();
    return first != 10;
}

TEST(killed_at_every_call)
{
    int step = full_test() ? 1 : SAMPLE, n = 0;

    for (int at = 1; kill_at(at, full_test() ? at % 23 + 1 : 0); at += step)
        n++;
    print_message("killed at %d calls\n", n);
    assert_true(n >= (full_test() ? 20 : 3));
}

TEST(killed_at_calls_with_hosts_behind_ssh)
{
    int step = full_test() ? 1 : FAR_SAMPLE, n = 0;

    far = true;
    for (int at = 2; kill_at(at, full_test() ? at % 23 + 1 : 0); at += step)
        n++;
    far = false;
    print_message("killed at %d calls\n", n);
    assert_true(n >= (full_test() ? 20 : 3));
}

int main(void)
{
    ssize_t n = readlink("/proc/self/exe", SELF, sizeof SELF - 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_every_call),
                                       cmocka_unit_test(killed_at_calls_with_hosts_behind_ssh)};

    SELF[n > 0 ? n : 0] = '\0';
    *strrchr(SELF, '/') = '\0';
    snprintf(strrchr(SELF, '/'), 16, "/tandem"); /* BUILD/tests/NAME: BUILD/tandem */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
