/* service_rig.c -- see service_rig.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/service_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "service/spec.h"
#include "support/check.h"

char rig_dir[64];
static char SELF[4096];
td__service_config *rig_config;
td__loop *rig_loop;
td__service *rig_service;
const td__caller RIG_ME = {.user = "me", .admin = true};

void rig_open(void)
{
    char data[100];
    const char *sets[] = {data, "capacity.slots=8", "data.sync=normal", "schedule.preempt_s=0",
                          "capacity.gpus=4"};

    snprintf(data, sizeof data, "data.dir=%s/d", rig_dir);
    CHECK_OK(td__config_load(NULL, sets, TD_LEN(sets), &rig_config));
    CHECK_OK(td__loop_create(&rig_loop));
    CHECK_OK(td__service_create(
        &(td__service_opts){.loop = rig_loop, .config = rig_config, .self = SELF}, &rig_service));
}

void rig_close(void)
{
    td__service_destroy(rig_service);
    td__loop_destroy(rig_loop);
    td__config_destroy(rig_config);
}

int rig_set_up(void **state)
{
    ssize_t n = readlink("/proc/self/exe", SELF, sizeof SELF - 1);

    (void)state;
    SELF[n > 0 ? n : 0] = '\0';
    *strrchr(SELF, '/') = '\0';
    snprintf(strrchr(SELF, '/'), 16, "/tandem"); /* BUILD/tests/NAME: BUILD/tandem */
    snprintf(rig_dir, sizeof rig_dir, "/tmp/td-service-XXXXXX");
    assert_non_null(mkdtemp(rig_dir));
    rig_open();
    return 0;
}

int rig_tear_down(void **state)
{
    char command[100];

    (void)state;
    rig_close();
    snprintf(command, sizeof command, "%s", rig_dir);
    pid_t pid = fork();
    if (!pid) {
        execlp("rm", "rm", "-rf", command, (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

int32_t rig_submit_as(const td__caller *who, const char *json, td__answer want)
{
    td__job_spec *spec;
    int32_t job = 0;

    CHECK_OK(td__spec_parse(json, strlen(json), "test", &spec));
    td__answer a = td__service_submit(rig_service, who, spec, NULL, false, &job);
    if (a != want)
        fail_msg("%s: %s", td__answer_name(a), td_last_error());
    return job;
}

int32_t rig_submit(const char *json)
{
    return rig_submit_as(&RIG_ME, json, TD_ANSWER_OK);
}

const td__job_record *rig_get(int32_t job)
{
    const td__job_record *r;

    assert_int_equal(td__service_get(rig_service, job, &r), TD_ANSWER_OK);
    return r;
}

const td__job_record *rig_wait_state(int32_t job, td__job_state state)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);

    while (rig_get(job)->state != state) {
        if (td__deadline_passed(until) ||
            (td__job_state_final(rig_get(job)->state) && rig_get(job)->state != state))
            fail_msg("job %d is %s (%s), not %s", job, td__job_state_name(rig_get(job)->state),
                     rig_get(job)->message, td__job_state_name(state));
        CHECK_OK(td__loop_turn(rig_loop, 1000));
    }
    return rig_get(job);
}

const char *rig_path(int32_t job, const char *name, char path[4200])
{
    char dir[4096];

    snprintf(path, 4200, "%s/%s", td__service_job_dir(rig_service, job, dir, sizeof dir), name);
    return path;
}

void rig_touch(int32_t job, const char *name)
{
    char below[200], path[4200];

    snprintf(below, sizeof below, "work/%s", name);
    FILE *f = fopen(rig_path(job, below, path), "w");
    assert_non_null(f);
    fclose(f);
}

void rig_wait_file(int32_t job, const char *name, char *text, size_t nbytes)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    char below[200], path[4200];
    FILE *f = NULL;

    snprintf(below, sizeof below, "work/%s", name);
    while (!(f = fopen(rig_path(job, below, path), "r"))) {
        if (td__deadline_passed(until))
            fail_msg("%s is not written", path);
        CHECK_OK(td__loop_turn(rig_loop, 10));
    }
    text[fread(text, 1, nbytes - 1, f)] = '\0';
    fclose(f);
}

static void add_bytes(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    (void)offset;
    td__text_append(arg, bytes, nbytes);
}

static void no_more(void *arg, td_status st)
{
    (void)arg;
    CHECK_OK(st);
}

const td__log_sink RIG_SINK = {add_bytes, no_more, NULL};

void rig_check_log(int32_t job, int member, const char *want)
{
    td__text log = {0};

    td__service_logs(rig_service, job, 0, member, 0, &(td__log_sink){add_bytes, no_more, &log});
    assert_string_equal(log.data ? log.data : "", want);
    td__text_fini(&log);
}
