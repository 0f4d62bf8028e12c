/* procs.h -- ranks as processes, for tests: started by fork, killed, stopped and waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_PROCS_H
#define TD_TESTS_SUPPORT_PROCS_H

#include <stddef.h>
#include <sys/types.h>

enum { PROCS_MOST = 16 };

/* What a rank does; its result is the exit status. Must not use cmocka's checks: print the reason
 * and give a status that is not 0. */
typedef int procs_body(int rank, int size, void *arg);

typedef struct procs {
    int size;
    pid_t pid[PROCS_MOST]; /* 0: has been waited for */
} procs;

/* Ranks die with the test. */
void procs_start(procs *p, int size, procs_body *body, void *arg);
void procs_signal(procs *p, int rank, int signal);
/* The rank's exit status, 128 + signal if it was killed. Ends the test after `ms`. */
int procs_wait(procs *p, int rank, int ms);
/* All ranks must give 0. */
void procs_wait_all(procs *p, int ms);

/* Memory that processes started later share with the test; zero-filled. */
void *procs_shared_alloc(size_t nbytes);
void procs_shared_free(void *p, size_t nbytes);
/* Wait until *word (in shared memory) is at least `value`; ends the test after `ms`. */
void procs_await(const int *word, int value, int ms);

/* Open descriptors, and mappings whose name contains `name`, of this process. */
int procs_count_fds(void);
int procs_count_maps(const char *name);

#endif
