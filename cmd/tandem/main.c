/* main.c -- finds the command, parses its arguments, runs it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "base/check.h"
#include "base/nearest.h"
#include "bus_error.h"
#include "help.h"

static const td__command *const COMMANDS[] = {
#define TD_COMMAND(name) &td__command_##name,
#include "commands.def"
#undef TD_COMMAND
};

const td__command *td__command_list(int i)
{
    return i >= 0 && i < TD_LEN(COMMANDS) ? COMMANDS[i] : NULL;
}

const td__command *td__command_find(const char *name)
{
    for (int i = 0; i < TD_LEN(COMMANDS); i++)
        if (strcmp(COMMANDS[i]->name, name) == 0)
            return COMMANDS[i];
    return NULL;
}

/* Commands that are not part of this program; ends with NULL. */
static const char *const LEFT_OUT[] = {
#ifndef TD_HAVE_SERVICE
#define TD_COMMAND(name) #name,
#include "service_commands.def"
#undef TD_COMMAND
#endif
    NULL};

int td__no_command(const char *name)
{
    for (const char *const *n = LEFT_OUT; *n; n++)
        if (strcmp(*n, name) == 0) {
            fprintf(stderr,
                    "tandem: %s is not here: built without the training service "
                    "(TD_SERVICE=OFF)\n",
                    name);
            return TD_EXIT_USAGE;
        }
    td__nearest near = {.word = name};

    for (int i = 0; i < TD_LEN(COMMANDS); i++)
        td__nearest_offer(&near, COMMANDS[i]->name);
    if (near.best)
        fprintf(stderr, "tandem: unknown command '%.64s'; did you mean %s?\n", name, near.best);
    else
        fprintf(stderr, "tandem: unknown command '%.64s'; see tandem help\n", name);
    return TD_EXIT_USAGE;
}

static int run(int argc, char *const *argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    td__args *a;

    if (!name) {
        fputs("tandem: expected a command; see tandem help\n", stderr);
        return TD_EXIT_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        td__help_program(stdout);
        return TD_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const td__command *c = td__command_find(name);
    if (!c)
        return td__no_command(name);
    int rc = td__args_parse(c, argc - 2, argv + 2, &a);
    if (rc)
        return rc;
    if (td__args_help(a))
        td__help_command(stdout, c);
    else
        rc = c->run(a);
    td__args_destroy(a);
    return rc;
}

/* A write beyond RLIMIT_FSIZE then fails with EFBIG, which is told like a full disk. Not ignored:
 * programs that tandem starts would inherit that. */
static void over_file_limit(int number)
{
    (void)number;
}

/* The parent may have closed some of descriptors 0, 1 and 2. A file that is opened must not get one
 * of these numbers: what is printed would be written into it. */
static void hold_standard_fds(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* Has standard output taken all that was written? An error of an earlier write is known by its flag
 * alone: a reader that went away, which is no failure, shows at the pipe. */
static bool written(int *why)
{
    struct pollfd end = {.fd = STDOUT_FILENO, .events = POLLOUT};
    bool earlier = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !earlier)
        return true;
    *why = errno ? errno : EIO;
    return *why == EPIPE || (poll(&end, 1, 0) == 1 && (end.revents & POLLERR));
}

int main(int argc, char **argv)
{
    int why;

    hold_standard_fds();
    td__explain_bus_errors();
    signal(SIGXFSZ, over_file_limit);
    signal(SIGCHLD, SIG_DFL); /* ignored by who started us: how a child ended would not be known */
    int rc = run(argc, argv);
    if (!written(&why) && rc == TD_EXIT_OK) {
        fprintf(stderr, "tandem: cannot write to standard output: %s\n", strerror(why));
        return TD_EXIT_FAILED;
    }
    return rc;
}
