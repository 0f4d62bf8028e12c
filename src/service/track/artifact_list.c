/* artifact_list.c -- see artifact_list.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/artifact_list.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"

enum { NAME_MOST = 1000 };

static bool printable(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127)
            return false;
    return true;
}

static td_status add(td__file_out *f, const char *path, const char *name)
{
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX], line[1200];
    td__file_map m;

    TD_TRY(td__file_map_open(&m, path));
    td_status st = td__sha256_of(m.data, m.nbytes, digest);
    if (!st) {
        td__sha256_hex(digest, hex);
        int n = snprintf(line, sizeof line, "%s %zu %s\n", hex, m.nbytes, name);
        td__file_out_write(f, line, (size_t)n);
    }
    td__file_map_close(&m);
    return st;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Why it cannot be in a list; NULL: it can, or is a folder. */
static const char *trouble_with(const FTSENT *e, size_t root)
{
    switch (e->fts_info) {
    case FTS_D:
    case FTS_DP: return NULL;
    case FTS_F:
        if (strlen(e->fts_path) >= root + NAME_MOST)
            return "its name is too long";
        return printable(e->fts_path + root) ? NULL : "its name has control characters";
    case FTS_SL:
    case FTS_SLNONE: return "a link, not a file";
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS: return strerror(e->fts_errno);
    default: return "not a file";
    }
}

static td_status refuse(const char *path, const char *why)
{
    td__text shown = {0};

    td__text_printable(&shown, path);
    td_status st = TD_FAIL(TD_EINVAL, "%.300s: %s", shown.data ? shown.data : "", why);
    td__text_fini(&shown);
    return st;
}

td_status td__artifact_list_write(const char *artifacts, const char *path, bool all)
{
    size_t n = strlen(artifacts);
    td_status st = TD_OK;
    td__file_out f;

    while (n > 1 && artifacts[n - 1] == '/')
        n--;
    char *base = td__strdup(artifacts), *roots[] = {base, NULL};
    size_t root = n + (n != 1 || artifacts[0] != '/'); /* where names begin */
    if (!base)
        return TD_FAIL(TD_ENOMEM, "artifacts: out of memory");
    base[n] = 0;
    TD_TRY_OR(st, done, td__file_out_open(&f, path));
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | (all ? FTS_COMFOLLOW : 0), by_name);
    for (FTSENT *e; walk && !st && (e = fts_read(walk));) {
        const char *why = trouble_with(e, root);
        if (why && all)
            st = refuse(e->fts_path, why);
        else if (!why && e->fts_info == FTS_F && (all || access(e->fts_path, R_OK) == 0))
            st = add(&f, e->fts_path, e->fts_path + root);
    }
    if (walk)
        fts_close(walk);
    else
        st = TD_FAIL(TD_EIO, "%s: %s", artifacts, strerror(errno));
    if (st)
        td__file_out_abandon(&f);
    else
        st = td__file_out_commit(&f);
done:
    td__free(base);
    return st;
}

bool td__artifact_list_next(const char *text, size_t nbytes, size_t *at, td__artifact_line *out)
{
    const char *line = text + *at;
    const char *end = *at < nbytes ? memchr(line, '\n', nbytes - *at) : NULL;
    char copy[1200];

    if (!end || (size_t)(end - line) >= sizeof copy)
        return false;
    memcpy(copy, line, (size_t)(end - line));
    copy[end - line] = '\0';
    *at += (size_t)(end - line) + 1;
    int name = 0;
    if (sscanf(copy, "%64[0-9a-f] %" SCNd64 " %n", out->sha256, &out->nbytes, &name) != 2 ||
        !name || strlen(copy + name) >= sizeof out->name)
        return false;
    snprintf(out->name, sizeof out->name, "%s", copy + name);
    return true;
}
