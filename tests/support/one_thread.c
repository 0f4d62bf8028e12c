/* one_thread.c -- holds tests to their label one-thread (cmake/tests.cmake): they are linked with
 * --wrap=pthread_create, and end here if they create a thread. Others never link this. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg)
{
    (void)thread, (void)attr, (void)main, (void)arg;
    fprintf(stderr, "a test with the label one-thread creates a thread: remove the label, so that "
                    "the thread sanitizer runs it\n");
    abort();
}
