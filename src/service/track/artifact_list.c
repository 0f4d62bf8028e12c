/* artifact_list.c -- see artifact_list.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/artifact_list.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"

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

td_status td__artifact_list_write(const char *artifacts, const char *path)
{
    char *roots[] = {(char *)(uintptr_t)artifacts, NULL};
    size_t root = strlen(artifacts) + 1;
    td_status st = TD_OK;
    td__file_out f;

    TD_TRY(td__file_out_open(&f, path));
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *e; walk && !st && (e = fts_read(walk));)
        if (e->fts_info == FTS_F && strlen(e->fts_path) < root + 1000 &&
            printable(e->fts_path + root))
            st = add(&f, e->fts_path, e->fts_path + root);
    if (walk)
        fts_close(walk);
    else
        st = TD_FAIL(TD_EIO, "%s: %s", artifacts, strerror(errno));
    if (st) {
        td__file_out_abandon(&f);
        return st;
    }
    return td__file_out_commit(&f);
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
