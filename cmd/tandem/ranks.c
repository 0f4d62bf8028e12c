/* ranks.c -- `-n`: the command starts itself in several ranks. Only rank 0 prints, so its output is
 * passed on as it is; a terminal it gets itself, to draw its progress on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_setup.h"
#include "elastic_args.h"
#include "launch/launch.h"

enum { MOST_RANKS = 4096, GRACE_MS = 60 * 1000 }; /* a step and a checkpoint may take a while */

bool td__ranks_wanted(const td__args *a, int *n, int *rc)
{
    td__world w;
    long ranks;
    td__launch_opts elastic = {0};

    *rc = td__elastic_args(a, &elastic);
    if (*rc)
        return false;
    if (elastic.most) {
        *n = elastic.most;
        if (td__world_from_env(&w))
            *rc = td__failure(a, TD_EINVAL);
        else if (w.size > 1 || w.elastic)
            *rc = td__usage_error(
                a, "this process is a rank already: give -n and --elastic to `tandem launch`");
        return !*rc;
    }
    if (!td__args_int(a, "ranks", 1, MOST_RANKS, 0, &ranks)) {
        *rc = TD_EXIT_USAGE;
        return false;
    }
    if (!ranks)
        return false;
    *n = (int)ranks;
    if (td__world_from_env(&w))
        *rc = td__failure(a, TD_EINVAL);
    else if (w.size > 1 && w.size != *n)
        *rc = td__usage_error(
            a, "-n %ld, but this process is one of %d ranks already: leave -n out", ranks, w.size);
    else
        return ranks > 1 && w.size == 1;
    return false;
}

/* Flags for who starts the ranks, not for them. */
static bool is_ours(const char *flag)
{
    static const char *const OURS[] = {"ranks",     "elastic", "spares", "restarts",
                                       "heartbeat", "lease",   "hang"};
    for (size_t i = 0; i < sizeof OURS / sizeof OURS[0]; i++)
        if (!strcmp(flag, OURS[i]))
            return true;
    return false;
}

static bool is_among(const char *flag, const char *const *more)
{
    size_t length = strlen(flag);
    bool resume = strcmp(flag, "resume") == 0; /* the launcher that names the run has resumed it */
    for (; more && *more; more++)
        if ((strncmp(*more + 2, flag, length) == 0 && strchr("=", (*more)[2 + length])) ||
            (resume && strncmp(*more, "--run-dir=", 10) == 0))
            return true;
    return false;
}

/* The command line again, flag by flag, without those. */
static td_status make_argv(td__arena *arena, const td__args *a, const td__command *c,
                           const char *const *more, const char ***out)
{
    const char *const *values;
    size_t room = 5 + (size_t)td__args_count(a);
    int n = 0;
    for (const char *const *m = more; m && *m; m++)
        room++;

    for (const td__flag *f = c->flags; f && f->name; f++)
        room += 1 + (size_t)td__args_values(a, f->name, &values);
    const char **argv = *out = td__arena_alloc(arena, room * sizeof *argv);
    if (!argv)
        return TD_FAIL(TD_ENOMEM, "no memory for a command line");
    argv[n++] = "/proc/self/exe";
    argv[n++] = c->name;
    for (const td__flag *f = c->flags; f && f->name; f++) {
        int count = td__args_values(a, f->name, &values);
        if (is_ours(f->name) || is_among(f->name, more) || !td__args_has(a, f->name))
            continue;
        for (int i = 0; i < (count ? count : 1); i++) {
            const char *value = count ? values[i] : NULL;
            argv[n] =
                td__arena_printf(arena, "--%s%s%s", f->name, value ? "=" : "", value ? value : "");
            if (!argv[n++])
                return TD_FAIL(TD_ENOMEM, "no memory for a command line");
        }
    }
    for (; more && *more; more++)
        argv[n++] = *more;
    argv[n++] = "--";
    for (int i = 0; i < td__args_count(a); i++)
        argv[n++] = td__args_at(a, i);
    argv[n] = NULL;
    return TD_OK;
}

static td_status run(td__arena *arena, const td__args *a, const td__command *c, int n, int servers,
                     const char *const *more, char *cause, int *status)
{
    td__launch_opts o = {.size = n,
                         .lossy_from = servers,
                         .plain = true,
                         .terminal = isatty(STDOUT_FILENO),
                         .grace_ms = GRACE_MS,
                         .cause = cause};
    char self[4096];
    const char **argv;

    if (td__elastic_args(a, &o))
        return TD_FAIL(TD_EINVAL, "invalid flags for elastic ranks");
    if (o.most && servers) { /* in addition to -n; without a range, one of each is enough */
        o.most += servers;
        o.min_ranks += o.capped ? servers : 1;
    }
    TD_TRY(make_argv(arena, a, c, more, &argv));
    ssize_t length = readlink(argv[0], self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    argv[0] = length > 0 ? self : "tandem";
    return td__launch_run(&o, argv, status);
}

int td__ranks_run(const td__args *a, const td__command *c, int n, int servers,
                  const char *const *more, char *cause)
{
    td__arena *arena = NULL;
    int status = 0;
    td_status st = td__arena_create(&arena);

    if (!st)
        st = run(arena, a, c, n, servers, more, cause, &status);
    td__arena_destroy(arena);
    if (st)
        return td__failure(a, st);
    if (status == 128 + SIGINT || status == 128 + SIGTERM || status == 128 + SIGHUP)
        return TD_EXIT_INTERRUPTED;
    return status > 128 ? TD_EXIT_FAILED : status;
}
