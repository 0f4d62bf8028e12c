/* artifact_list.c -- see artifact_list.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/artifact_list.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"
#include "base/text.h"

enum { NAME_MOST = 1000, PIECE = 1 << 16 };

static bool printable(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127)
            return false;
    return true;
}

void td__left_out_add(td__left_out *l, const char *name, const char *why)
{
    td__text shown = {0};

    if (!l || l->n++)
        return;
    td__text_printable(&shown, name);
    snprintf(l->first, sizeof l->first, "%.200s: %.80s", shown.data ? shown.data : "", why);
    td__text_fini(&shown);
}

void td__left_out_show(const td__left_out *l, char *out, size_t nbytes)
{
    char more[40] = "";

    out[0] = '\0';
    if (l->n > 1)
        snprintf(more, sizeof more, ", and %d more", l->n - 1);
    if (l->n)
        snprintf(out, nbytes, "left out of its artifacts: %s%s", l->first, more);
}

/* Piece by piece: mapped, a file that is made shorter meanwhile would end the program. */
static td_status hash_file(const td__artifact_opts *o, int fd, const char *name, td__sha256 *h,
                           uint64_t *nbytes)
{
    char piece[PIECE];
    struct stat info;

    if (fstat(fd, &info))
        return TD_FAIL(TD_EIO, "%s: %s", name, strerror(errno));
    for (*nbytes = 0; *nbytes < (uint64_t)info.st_size;) {
        uint64_t left = (uint64_t)info.st_size - *nbytes;
        if (o->stop && o->stop(o->arg))
            return TD_FAIL(TD_EABORTED, "stopped before all files were hashed");
        ssize_t n = read(fd, piece, left < sizeof piece ? (size_t)left : sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return TD_FAIL(TD_EIO, "%s: %s", name, strerror(errno));
        if (n == 0)
            return TD_FAIL(TD_EIO, "%s was made shorter while it was hashed", name);
        td__sha256_update(h, piece, (size_t)n);
        *nbytes += (uint64_t)n;
    }
    return TD_OK;
}

static td_status refuse(const char *path, const char *why);

/* It belongs to somebody else, or was replaced after it was found. */
static bool is_of_the_file(int error)
{
    return error == EACCES || error == EPERM || error == ENOENT || error == ELOOP ||
           error == ENOTDIR || error == ENXIO;
}

static td_status add(td__file_out *f, const td__artifact_opts *o, const char *artifacts,
                     const char *name)
{
    uint8_t digest[TD_SHA256_BYTES];
    char hex[TD_SHA256_HEX], line[1200];
    td__sha256 h = {0};
    uint64_t nbytes;
    int fd = td__file_open_below(artifacts, name, O_RDONLY, 0), error = errno;

    if (fd < 0 && !o->all && is_of_the_file(error)) {
        td__left_out_add(o->left_out, name, strerror(error));
        return TD_OK;
    }
    if (fd < 0)
        return refuse(name, strerror(error));
    td_status st = td__sha256_init(&h);
    if (!st)
        st = hash_file(o, fd, name, &h, &nbytes);
    close(fd);
    if (st) {
        td__sha256_fini(&h);
        return st;
    }
    td__sha256_final(&h, digest);
    td__sha256_hex(digest, hex);
    int n = snprintf(line, sizeof line, "%s %" PRIu64 " %s\n", hex, nbytes, name);
    td__file_out_write(f, line, (size_t)n);
    return TD_OK;
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

/* Of the walk: to be hashed, a folder, left out, or an error. */
static td_status found(td__file_out *f, const td__artifact_opts *o, const char *artifacts,
                       const FTSENT *e, size_t root)
{
    const char *why = trouble_with(e, root);
    bool link = e->fts_info == FTS_SL || e->fts_info == FTS_SLNONE;

    if (o->stop && o->stop(o->arg))
        return TD_FAIL(TD_EABORTED, "stopped before all files were hashed");
    if (why && o->all)
        return refuse(e->fts_path, why);
    if (why && !link)
        td__left_out_add(o->left_out, strlen(e->fts_path) > root ? e->fts_path + root : ".", why);
    if (why || e->fts_info != FTS_F)
        return TD_OK;
    return add(f, o, artifacts, e->fts_path + root);
}

td_status td__artifact_list_write(const char *artifacts, const char *path,
                                  const td__artifact_opts *o)
{
    static const td__artifact_opts NONE = {0};
    size_t n = strlen(artifacts);
    td_status st = TD_OK;
    td__file_out f;

    o = o ? o : &NONE;
    while (n > 1 && artifacts[n - 1] == '/')
        n--;
    char *base = td__strdup(artifacts), *roots[] = {base, NULL};
    size_t root = n + (n != 1 || artifacts[0] != '/'); /* where names begin */
    if (!base)
        return TD_FAIL(TD_ENOMEM, "artifacts: out of memory");
    base[n] = 0;
    TD_TRY_OR(st, done, td__file_out_open(&f, path));
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | (o->all ? FTS_COMFOLLOW : 0), by_name);
    for (const FTSENT *e; walk && !st && (e = fts_read(walk));)
        st = found(&f, o, base, e, root);
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
