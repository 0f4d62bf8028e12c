/* check.c -- see check.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void check_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print_error("%s:%d: %s: %s\n", file, line, cond, text);
    _fail(file, line);
    abort(); /* _fail does not return */
}

void check_status(td_status got, td_status want, const char *call, const char *file, int line)
{
    if (got != want)
        check_fail(file, line, call, "%s (%s), not %s", td_status_name(got),
                   got ? td_last_error() : "", td_status_name(want));
    if (got && !*td_last_error())
        check_fail(file, line, call, "%s without a text", td_status_name(got));
}

static char tmpdir[64];

const char *check_tmpdir(void)
{
    snprintf(tmpdir, sizeof tmpdir, "/tmp/tandem-test-XXXXXX");
    CHECK(mkdtemp(tmpdir), "cannot make %s", tmpdir);
    return tmpdir;
}

static void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    char sub[512];

    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (unlink(sub) != 0)
            remove_tree(sub);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

void check_tmpdir_remove(void)
{
    if (tmpdir[0])
        remove_tree(tmpdir);
    tmpdir[0] = 0;
}

const char *check_path(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *p = paths[turn++ % 4];

    snprintf(p, sizeof paths[0], "%s/%s", tmpdir, name);
    return p;
}

void check_write_file(const char *path, const void *data, size_t nbytes)
{
    unlink(path); /* some file systems flush a file that is cut and rewritten */
    FILE *f = fopen(path, "wb");
    CHECK(f, "cannot write %s", path);
    CHECK(!nbytes || fwrite(data, 1, nbytes, f) == nbytes, "cannot write %s", path);
    CHECK(fclose(f) == 0, "cannot write %s", path);
}

void *check_read_file(const char *path, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    CHECK(f, "cannot read %s", path);
    CHECK(fseek(f, 0, SEEK_END) == 0, "cannot seek in %s", path);
    long size = ftell(f);
    CHECK(size >= 0, "cannot seek in %s", path);
    rewind(f);
    char *data = malloc((size_t)size + 1);
    CHECK(data, "no memory for %ld bytes", size);
    CHECK(fread(data, 1, (size_t)size, f) == (size_t)size, "cannot read %s", path);
    data[size] = 0;
    fclose(f);
    *nbytes = (size_t)size;
    return data;
}

/* guard (GUARD bytes, the first of them hold the size) | nbytes | guard (GUARD bytes) */
enum { GUARD = 256, GUARD_BYTE = 0xC3, FILL_BYTE = 0xA5 };

void *check_alloc_guarded(size_t nbytes)
{
    size_t total = (nbytes + 2 * GUARD + 63) / 64 * 64;
    unsigned char *raw = aligned_alloc(64, total);

    CHECK(raw, "no memory for %zu bytes", total);
    memset(raw, GUARD_BYTE, total);
    memcpy(raw, &nbytes, sizeof nbytes);
    memset(raw + GUARD, FILL_BYTE, nbytes);
    return raw + GUARD;
}

void check_guards(const void *p)
{
    const unsigned char *raw = (const unsigned char *)p - GUARD;
    size_t nbytes;

    memcpy(&nbytes, raw, sizeof nbytes);
    for (size_t i = sizeof nbytes; i < GUARD; i++)
        CHECK(raw[i] == GUARD_BYTE, "byte %zu before the buffer changed", GUARD - i);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(raw[GUARD + nbytes + i] == GUARD_BYTE, "byte %zu after the buffer changed", i);
}

void check_free_guarded(void *p)
{
    if (!p)
        return;
    check_guards(p);
    free((unsigned char *)p - GUARD);
}
