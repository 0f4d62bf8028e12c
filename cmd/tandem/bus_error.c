/* bus_error.c -- files are read through maps: one that somebody cuts short meanwhile, or whose disk
 * fails, ends the process by a signal, wherever it is read. Nothing can be saved then, but it can
 * be said which file it was: the kernel tells the address, /proc/self/maps whose it is.
 *
 * All of it is fit for a signal handler: open, read, write, poll. The action is the default again
 * when the handler returns, so the same access then ends the process. Several threads may meet the
 * end of the file at once: the first one speaks, the others wait for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bus_error.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 1024, READ = 4096, PATH_FIELD = 5, PATIENCE_MS = 2000 };

static atomic_flag speaking = ATOMIC_FLAG_INIT; /* a handler has nothing else to keep it in */

static const char *hex(const char *at, uintptr_t *out)
{
    *out = 0;
    for (;; at++) {
        int digit = *at >= '0' && *at <= '9'   ? *at - '0'
                    : *at >= 'a' && *at <= 'f' ? *at - 'W'
                                               : -1;
        if (digit < 0)
            return at;
        *out = *out << 4 | (uintptr_t)digit;
    }
}

/* A line is "begin-end perms offset device inode   path". The path if it has the address. */
static const char *path_in(const char *line, uintptr_t address)
{
    uintptr_t begin, end;
    const char *at = hex(line, &begin);

    if (*at != '-')
        return NULL;
    at = hex(at + 1, &end);
    if (address < begin || address >= end)
        return NULL;
    for (int field = 1; field < PATH_FIELD && *at; field++) {
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    return at + strspn(at, " ");
}

static void say(const char *path)
{
    static const char BEFORE[] = "tandem: ", AFTER[] = " can no longer be read: the file was "
                                                       "truncated, or its disk fails\n";
    char text[sizeof BEFORE + LINE + sizeof AFTER];
    size_t n = strlen(path);

    n = n < LINE ? n : LINE;
    memcpy(text, BEFORE, sizeof BEFORE - 1);
    memcpy(text + sizeof BEFORE - 1, path, n);
    memcpy(text + sizeof BEFORE - 1 + n, AFTER, sizeof AFTER - 1);
    ssize_t written = write(STDERR_FILENO, text, sizeof BEFORE + sizeof AFTER - 2 + n);
    (void)written;
}

/* Until the process is gone, as a rule. */
static void wait_for_the_end(void)
{
    poll(NULL, 0, PATIENCE_MS);
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    char buf[READ], line[LINE];
    size_t used = 0;
    const char *path = NULL;

    (void)context;
    if (atomic_flag_test_and_set(&speaking)) {
        wait_for_the_end();
        return;
    }
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && !path && (n = read(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < n && !path; i++) {
            if (buf[i] != '\n') {
                line[used] = buf[i];
                used += used < sizeof line - 1;
                continue;
            }
            line[used] = 0;
            used = 0;
            path = path_in(line, (uintptr_t)info->si_addr);
        }
    if (fd >= 0)
        close(fd);
    say(path && *path ? path : "a file or memory");
    signal(sig, SIG_DFL);
}

void td__explain_bus_errors(void)
{
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}
