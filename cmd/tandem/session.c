/* session.c -- from a command line to a session. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auto_mesh.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"
#include "coll/comm_setup.h"

enum { MOST_THREADS = 4096 };
_Static_assert((int)TD__PATH >= PATH_MAX, "room for what realpath finds");

static td_status take_threads(td__session *s, const char *value)
{
    char *end;

    if (!value)
        return TD_OK;
    long n = strtol(value, &end, 10);
    if (end == value || *end || n < 1 || n > MOST_THREADS)
        return TD_FAIL(TD_EINVAL, "--threads: expected a whole number from 1 to %d, found '%.60s'",
                       MOST_THREADS, value);
    s->threads = (int)n;
    return TD_OK;
}

/* Flags that are short for keys of the job. */
enum { MOST_SHORT = 4 + TD_AXES, SHORT = TD__PATH + 64 };
typedef struct short_flags {
    char text[MOST_SHORT][SHORT]; /* "train.sync=easgd" */
    int n;
} short_flags;

static td_status take_short(const td__args *a, short_flags *f)
{
    const char *sync = td__args_value(a, "sync"), *parallel = td__args_value(a, "parallel");
    const char *servers = td__args_value(a, "servers"), *replay = td__args_value(a, "replay");
    const char *strategy = td__args_value(a, "strategy");
    td__rank_mesh mesh = {{0}};
    if (sync)
        snprintf(f->text[f->n++], SHORT, "train.sync=%.100s", sync);
    if (strategy)
        snprintf(f->text[f->n++], SHORT, "parallel.strategy=%.100s", strategy);
    if (servers)
        snprintf(f->text[f->n++], SHORT, "parallel.servers=%.100s", servers);
    if (replay) {
        char path[TD__PATH];
        TD_TRY(td__run_dir_path(replay, "metrics.jsonl", path));
        snprintf(f->text[f->n++], SHORT, "parallel.replay=%s", path);
    }
    if (td__auto_mesh_wanted(a)) { /* whoever starts the ranks finds out, and tells them */
        td__world w;
        TD_TRY(td__world_from_env(&w));
        if (w.size > 1 || w.elastic)
            return TD_FAIL(TD_EINVAL, "--parallel auto: ranks that are started by others cannot "
                                      "choose; say which, e.g. data=2,pipeline=4");
        return TD_OK;
    }
    if (parallel && td__rank_mesh_parse(parallel, &mesh))
        return TD_FAIL(TD_EINVAL, "--parallel: %s", td_last_error());
    for (int x = 0; x < TD_AXES; x++)
        if (mesh.size[x])
            snprintf(f->text[f->n++], SHORT, "parallel.%s=%d", td__axis_name((td__axis)x),
                     mesh.size[x]);
    return TD_OK;
}

/* All overrides of the job that the command line has: flags first, so that --set finds the sync
 * rule's options. To be freed; they live as long as f and the arguments. */
static td_status take_sets(const td__args *a, short_flags *f, const char ***out, int *n_out)
{
    const char *const *given;
    int n = td__args_values(a, "set", &given);

    *out = td__calloc((size_t)n + MOST_SHORT, sizeof **out);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for %d overrides", n);
    for (int i = 0; i < f->n; i++)
        (*out)[i] = f->text[i];
    if (n)
        memcpy(*out + f->n, given, (size_t)n * sizeof **out);
    *n_out = n + f->n;
    return TD_OK;
}

td_status td__args_job(td__session *s, const td__args *a, const char *path)
{
    const char **sets;
    short_flags f = {.n = 0};
    int n;

    TD_TRY(take_short(a, &f));
    TD_TRY(take_threads(s, td__args_value(a, "threads")));
    s->of_run = !td__args_at(a, 0); /* --resume, --replay */
    TD_TRY(take_sets(a, &f, &sets, &n));
    td_status st = td__session_job(s, path, sets, n);
    td__free(sets);
    return st;
}

/* Axes that --parallel does not name are not those of the run, which had its own ranks. */
static td_status take_parallel(const td__args *a, short_flags *f)
{
    const char *parallel = td__args_value(a, "parallel");
    td__rank_mesh mesh = {{0}};

    if (!parallel)
        return TD_OK;
    if (td__auto_mesh_wanted(a))
        return TD_FAIL(TD_EINVAL, "--parallel auto: not for a trained model; say how ranks divide "
                                  "it, e.g. pipeline=4");
    if (td__rank_mesh_parse(parallel, &mesh))
        return TD_FAIL(TD_EINVAL, "--parallel: %s", td_last_error());
    for (int x = 0; x < TD_AXES; x++) {
        char size[16] = "1";
        if (mesh.size[x])
            snprintf(size, sizeof size, "%d", mesh.size[x]);
        else if (x == TD_AXIS_DATA)
            snprintf(size, sizeof size, "auto");
        snprintf(f->text[f->n++], SHORT, "parallel.%s=%s", td__axis_name((td__axis)x), size);
    }
    return TD_OK;
}

td_status td__args_trained(td__session *s, const td__args *a, td__checkpoint_info *info)
{
    const char **sets;
    short_flags f = {.n = 0};
    int n;

    TD_TRY(take_parallel(a, &f));
    TD_TRY(take_threads(s, td__args_value(a, "threads")));
    TD_TRY(take_sets(a, &f, &sets, &n));
    td_status st =
        td__session_trained(s, td__args_at(a, 0), sets, n, td__args_value(a, "checkpoint"), info);
    td__free(sets);
    return st;
}

td_status td__args_input(td__session *s, const td__args *a, char real[TD__PATH])
{
    const char *input = td__args_value(a, "input");
    struct stat info;

    if (!input)
        return TD_OK;
    if (td__args_value(a, "part"))
        return TD_FAIL(TD_EINVAL, "--input and --part cannot be given together");
    if (stat(input, &info) != 0)
        return TD_FAIL(TD_EINVAL, "--input: no such file: %s", input);
    if (!realpath(input, real)) /* relative names would start in the job's data.dir */
        return TD_FAIL(TD_EINVAL, "--input: cannot find %s", input);
    s->input = real;
    return TD_OK;
}

td_status td__output_check(const char *flag, const char *path)
{
    char dir[TD__PATH];
    struct stat info;
    const char *slash = strrchr(path, '/');

    if (strlen(path) >= sizeof dir)
        return TD_FAIL(TD_EINVAL, "--%s: the path %.60s... is too long", flag, path);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return TD_FAIL(TD_EINVAL, "--%s: %s is not a regular file", flag, path);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        return TD_FAIL(TD_EINVAL, "--%s: no such directory: %s", flag, dir);
    if (access(dir, W_OK) != 0)
        return TD_FAIL(TD_EINVAL, "--%s: no permission to write into %s", flag, dir);
    return TD_OK;
}

static int wider(int width, const char *text)
{
    int n = (int)strlen(text);
    return n > width ? n : width;
}

void td__print_layers(FILE *to, const td__layer_row *rows, int n)
{
    int name = 5, kind = 4, out = 6;
    int64_t params = 0;
    double flops = 0;
    char shape[128], count[TD__HUMAN], si[TD__HUMAN];

    for (int i = 0; i < n; i++) {
        name = wider(name, rows[i].name);
        kind = wider(kind, rows[i].kind);
        out = wider(out, td_shape_text(&rows[i].out, shape, sizeof shape));
        params += rows[i].params;
        flops += rows[i].flops;
    }
    fprintf(to, "%-*s  %-*s  %-*s  %14s  %10s\n", name, "layer", kind, "kind", out, "output",
            "parameters", "FLOP");
    for (int i = 0; i < n; i++)
        fprintf(to, "%-*s  %-*s  %-*s  %14s  %10s\n", name, rows[i].name, kind, rows[i].kind, out,
                td_shape_text(&rows[i].out, shape, sizeof shape),
                td__human_count(rows[i].params, count),
                rows[i].flops > 0 ? td__human_si(rows[i].flops, si) : "");
    fprintf(to, "%-*s  %-*s  %-*s  %14s  %10s\n", name, "total", kind, "", out, "",
            td__human_count(params, count), td__human_si(flops, si));
}
