/* ranks.c -- `-n`: the command starts itself in several ranks. Only rank 0 prints, so its output is
 * passed on as it is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_setup.h"
#include "launch/launch.h"

enum { MOST_RANKS = 4096, GRACE_MS = 60 * 1000 }; /* a step and a checkpoint may take a while */

bool td__ranks_wanted(const td__args *a, int *n, int *rc)
{
    td__world w;
    long ranks;

    *rc = TD_EXIT_OK;
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
        *rc =
            td__usage_error(a, "-n %ld in a world of %d ranks: leave -n out there", ranks, w.size);
    else
        return ranks > 1 && w.size == 1;
    return false;
}

/* The command line again, flag by flag, without -n. */
static void fill_argv(const td__args *a, const td__command *c, const char **argv, char **text)
{
    int n = 1;
    argv[n++] = c->name;
    for (const td__flag *f = c->flags; f && f->name; f++) {
        const char *const *values;
        int count = td__args_values(a, f->name, &values);
        if (strcmp(f->name, "ranks") == 0 || !td__args_has(a, f->name))
            continue;
        for (int i = 0; i < (count ? count : 1); i++) {
            const char *value = count ? values[i] : NULL;
            argv[n++] = *text;
            *text += 1 + sprintf(*text, "--%s%s%s", f->name, value ? "=" : "", value ? value : "");
        }
    }
    argv[n++] = "--";
    for (int i = 0; i < td__args_count(a); i++)
        argv[n++] = td__args_at(a, i);
    argv[n] = NULL;
}

/* Room for fill_argv. */
static void measure(const td__args *a, const td__command *c, size_t *words, size_t *nbytes)
{
    *words = 4 + (size_t)td__args_count(a);
    *nbytes = 1;
    for (const td__flag *f = c->flags; f && f->name; f++) {
        const char *const *values;
        int count = td__args_values(a, f->name, &values);
        *words += 1 + (size_t)count;
        *nbytes += strlen(f->name) + 4;
        for (int i = 0; i < count; i++)
            *nbytes += strlen(f->name) + 4 + (values[i] ? strlen(values[i]) : 0);
    }
}

int td__ranks_run(const td__args *a, const td__command *c, int n)
{
    char self[4096] = "tandem";
    size_t words, nbytes;
    int status = 0;

    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0)
        self[length] = 0;
    measure(a, c, &words, &nbytes);
    const char **argv = td__calloc(words, sizeof *argv);
    char *text = td__calloc(nbytes, 1), *at = text;
    td_status st = argv && text ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a command line");
    if (!st) {
        argv[0] = self;
        fill_argv(a, c, argv, &at);
        st = td__launch_run(&(td__launch_opts){.size = n, .plain = true, .grace_ms = GRACE_MS},
                            argv, &status);
    }
    td__free(argv);
    td__free(text);
    if (st)
        return td__failure(a, st);
    if (status == 128 + SIGINT || status == 128 + SIGTERM || status == 128 + SIGHUP)
        return TD_EXIT_INTERRUPTED;
    return status > 128 ? TD_EXIT_FAILED : status;
}

td_status td__ranks_join(const td_comm_opts *opts, td_comm **out)
{
    td__world w;

    *out = NULL;
    TD_TRY(td__world_from_env(&w));
    return w.size > 1 ? td_comm_world(opts, out) : TD_OK;
}
