/* service_rig.h -- a service with the tracker process in a directory of its own, for tests: one at
 * a time, its parts are variables here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_SERVICE_RIG_H
#define TD_TESTS_SUPPORT_SERVICE_RIG_H

#include "rpc/loop.h"
#include "service/config.h"
#include "service/service.h"

enum { RIG_DEADLINE_MS = 60000 };

extern char rig_dir[64]; /* data.dir is rig_dir/d */
extern td__service_config *rig_config;
extern td__loop *rig_loop;
extern td__service *rig_service;
extern const td__caller RIG_ME; /* an admin */

int rig_set_up(void **state); /* for cmocka: the directory, and rig_open */
int rig_tear_down(void **state);
void rig_open(void);
void rig_close(void); /* jobs go on */

/* Job ids; want: the answer that must come. */
int32_t rig_submit_as(const td__caller *who, const char *json, td__answer want);
int32_t rig_submit(const char *json);
const td__job_record *rig_get(int32_t job);
/* Turns the loop until the job is in that state; another final one fails the test. */
const td__job_record *rig_wait_state(int32_t job, td__job_state state);
/* A path below the job's directory. */
const char *rig_path(int32_t job, const char *name, char path[4200]);
/* A file of a job's work directory as text, once it is there. */
void rig_wait_file(int32_t job, const char *name, char *text, size_t nbytes);
void rig_touch(int32_t job, const char *name); /* make it, in the work directory */
/* A sink that appends to a td__text (arg), and takes no error. */
extern const td__log_sink RIG_SINK;
void rig_check_log(int32_t job, int member, const char *want);

#endif
