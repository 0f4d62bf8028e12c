/* checkpoint_dir.c -- directories of checkpoints: put into place, replaced, removed, swept, each
 * so that a crash at any call leaves whole ones only (see checkpoint_write.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint_impl.h"

td_status td__checkpoint_disk_failed(const char *path, const char *what)
{
    return TD_FAIL(TD_EIO, "%s: cannot %s: %s", path, what, strerror(errno));
}

td_status td__checkpoint_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return td__checkpoint_disk_failed(path, "open it");
    /* Some network file systems cannot sync a directory, and say so. */
    td_status st =
        fsync(fd) != 0 && errno != EINVAL ? td__checkpoint_disk_failed(path, "fsync it") : TD_OK;
    close(fd);
    return st;
}

/* A checkpoint's directory holds files only. What cannot be removed is left to the next sweep. */
void td__checkpoint_remove_dir(const char *path)
{
    DIR *d = opendir(path);
    if (d) {
        for (const struct dirent *e; (e = readdir(d));)
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                unlinkat(dirfd(d), e->d_name, 0);
        closedir(d);
    }
    if (rmdir(path) != 0 && errno != ENOENT)
        TD_LOG(WARN, TRAIN, "%s: cannot remove it: %s", path, strerror(errno));
}

/* Is it one of ours, left by a run that was killed? */
static bool is_leftover(const char *name)
{
    return strncmp(name, TD__TEMP_PREFIX "step-", sizeof TD__TEMP_PREFIX + 4) == 0 ||
           strncmp(name, TD__LATEST_FILE ".tmp-", sizeof TD__LATEST_FILE + 4) == 0 ||
           strncmp(name, TD__BEST_FILE ".tmp-", sizeof TD__BEST_FILE + 4) == 0 ||
           strncmp(name, TD__WRITER_FILE ".tmp-", sizeof TD__WRITER_FILE + 4) == 0;
}

/* A checkpoint whose replacement may not have got its name. */
static td_status put_back(const char *dir, const char *replaced)
{
    char old[TD__PATH], path[TD__PATH];
    TD_TRY(td__run_dir_path(dir, replaced, old));
    TD_TRY(td__run_dir_path(dir, replaced + strlen(TD__OLD_PREFIX), path));
    if (access(path, F_OK) == 0)
        td__checkpoint_remove_dir(old);
    else if (rename(old, path) != 0)
        return td__checkpoint_disk_failed(old, "rename it back");
    return TD_OK;
}

td_status td__checkpoint_sweep(const char *dir)
{
    char path[TD__PATH];
    td_status st = TD_OK;
    DIR *d = opendir(dir);
    if (!d)
        return td__checkpoint_disk_failed(dir, "read it");
    for (const struct dirent *e; (e = readdir(d));)
        if (td__is_replaced(e->d_name)) {
            TD_TRY_OR(st, done, put_back(dir, e->d_name));
        } else if (is_leftover(e->d_name) && !td__run_dir_path(dir, e->d_name, path)) {
            TD_LOG(INFO, TRAIN, "%s: removing an incomplete checkpoint", path);
            if (e->d_name[0] == '.')
                td__checkpoint_remove_dir(path);
            else
                unlink(path);
        }
done:
    closedir(d);
    return st;
}

/* Step 2 where the file system cannot exchange two names. Between the two renames the old one has
 * its other name, under which it is still found (checkpoint_read.c). */
static td_status replace(const char *dir, const char *temp, const char *name, const char *path)
{
    char old[TD__PATH], hidden[TD__STEP_NAME + sizeof TD__OLD_PREFIX];
    snprintf(hidden, sizeof hidden, TD__OLD_PREFIX "%s", name);
    TD_TRY(td__run_dir_path(dir, hidden, old));
    td__checkpoint_remove_dir(old); /* what could not be removed whole before */
    if (rename(path, old) != 0)
        return td__checkpoint_disk_failed(path, "rename it");
    if (rename(temp, path) != 0) {
        td_status st = td__checkpoint_disk_failed(path, "rename it into place");
        (void)!rename(old, path); /* if that fails, too: the next sweep does it */
        return st;
    }
    td__checkpoint_remove_dir(old);
    return TD_OK;
}

/* Step 2. `temp` holds the old one afterwards, if there was one. */
td_status td__checkpoint_install(const char *dir, const char *temp, const char *name,
                                 const char *path)
{
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return TD_OK;
    if (errno != ENOENT && access(path, F_OK) == 0)
        return replace(dir, temp, name, path);
    return rename(temp, path) == 0 ? TD_OK
                                   : td__checkpoint_disk_failed(path, "rename it into place");
}

td_status td__checkpoint_put(const char *dir, const char *temp, const char *name)
{
    char path[TD__PATH];

    TD_TRY(td__run_dir_path(dir, name, path));
    TD_TRY(td__checkpoint_install(dir, temp, name, path));
    if (access(temp, F_OK) == 0)
        td__checkpoint_remove_dir(temp);
    return td__checkpoint_sync_dir(dir);
}

td_status td__checkpoint_remove(const char *dir, const char *name)
{
    char path[TD__PATH], temp[TD__PATH], gone[TD__STEP_NAME + sizeof TD__TEMP_PREFIX];

    snprintf(gone, sizeof gone, TD__TEMP_PREFIX "%s", name);
    TD_TRY(td__run_dir_path(dir, name, path));
    TD_TRY(td__run_dir_path(dir, gone, temp));
    if (rename(path, temp) != 0)
        return td__checkpoint_disk_failed(path, "rename it to remove it");
    td__checkpoint_remove_dir(temp);
    return TD_OK;
}
