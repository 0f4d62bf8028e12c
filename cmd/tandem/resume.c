/* resume.c -- may this job go on with that run?
 *
 * The digests of the two jobs decide. Where they differ, both jobs are written out as resolved YAML
 * (every key, in the same order) and compared line by line; the indentation of the first line that
 * differs gives the path of its key. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "train/report_data.h"

enum { MOST_DEPTH = 16, KEY = 64 };

/* The job as text, to be freed with free(). */
static td_status text_of(const td__job *j, char **out)
{
    size_t nbytes;

    *out = NULL;
    FILE *f = open_memstream(out, &nbytes);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory to write out a job");
    td_status st = td__job_write(j, f);
    if (fclose(f) != 0 && !st)
        st = TD_FAIL(TD_ENOMEM, "no memory to write out a job");
    if (st) {
        free(*out);
        *out = NULL;
    }
    return st;
}

/* Where in the file we are: the keys that lead to the current line. */
typedef struct where {
    char key[MOST_DEPTH][KEY];
    int indent[MOST_DEPTH];
    int depth;
} where;

static void enter(where *w, const char *line, size_t len)
{
    size_t indent = strspn(line, " ");
    const char *colon = memchr(line, ':', len);

    if (indent >= len || line[indent] == '#')
        return;
    while (w->depth && w->indent[w->depth - 1] >= (int)indent)
        w->depth--;
    size_t from = indent + (line[indent] == '-' ? 2 : 0);
    size_t n = colon && (size_t)(colon - line) > from ? (size_t)(colon - line) - from : 0;
    if (w->depth == MOST_DEPTH || !n || n >= KEY)
        return;
    snprintf(w->key[w->depth], KEY, "%.*s", (int)n, line + from);
    w->indent[w->depth++] = (int)indent;
}

static void path_of(const where *w, char *buf, size_t nbytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < w->depth && at < nbytes; i++)
        at += (size_t)snprintf(buf + at, nbytes - at, "%s%s", i ? "." : "", w->key[i]);
}

/* Does this key decide the numbers? The sections that do not are left out of the digest too. */
static bool decides(const where *w)
{
    static const char *const FREE[] = {"name", "parallel", "checkpoint", "log"};
    for (size_t i = 0; i < sizeof FREE / sizeof FREE[0]; i++)
        if (w->depth && strcmp(w->key[0], FREE[i]) == 0)
            return false;
    return true;
}

static const char *trimmed(const char *line, size_t *len)
{
    size_t skip = strspn(line, " -");
    skip = skip < *len ? skip : *len;
    *len -= skip;
    return line + skip;
}

static void first_difference(const char *a, const char *b, char *key, size_t nbytes, char *values,
                             size_t values_nbytes)
{
    where w = {0};

    snprintf(key, nbytes, "the job");
    *values = 0;
    while (*a || *b) {
        size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
        enter(&w, *a ? a : b, *a ? na : nb);
        if ((na != nb || memcmp(a, b, na) != 0) && decides(&w)) {
            path_of(&w, key, nbytes);
            size_t la = na, lb = nb;
            const char *ta = trimmed(a, &la), *tb = trimmed(b, &lb);
            snprintf(values, values_nbytes, " (\"%.*s\" there, \"%.*s\" here)",
                     (int)(la < 60 ? la : 60), ta, (int)(lb < 60 ? lb : 60), tb);
            return;
        }
        a += na + (a[na] == '\n');
        b += nb + (b[nb] == '\n');
    }
}

td_status td__resume_check(const td__session *s, const char *dir)
{
    char path[TD__PATH], digest[65], key[256], values[192], *a = NULL, *b = NULL;
    td__job *old = NULL;
    td_status st;

    TD_TRY(td__run_dir_path(dir, "job.yaml", path));
    TD_TRY(td__job_load(path, NULL, 0, &old));
    TD_TRY_OR(st, out, td__job_digest(old, digest));
    if (strcmp(digest, s->digest) == 0)
        goto out;
    TD_TRY_OR(st, out, text_of(old, &a));
    TD_TRY_OR(st, out, text_of(s->job, &b));
    first_difference(a, b, key, sizeof key, values, sizeof values);
    st = TD_FAIL(TD_EINVAL, "cannot resume %s: the job differs in %s%s", dir, key, values);
out:
    free(b);
    free(a);
    td__job_destroy(old);
    return st;
}

td_status td__resume_end(const char *dir, td__run_end *out)
{
    td__report_data d;
    char path[TD__PATH];
    struct stat info;

    *out = (td__run_end){0};
    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    if (stat(path, &info) != 0)
        return TD_OK;
    TD_TRY(td__report_data_read(dir, &d));
    snprintf(out->how, sizeof out->how, "%s", d.end);
    snprintf(out->digest, sizeof out->digest, "%s", d.digest);
    out->step = d.step.n ? (uint64_t)d.step.v[d.step.n - 1] : 0;
    td__report_data_fini(&d);
    return TD_OK;
}
