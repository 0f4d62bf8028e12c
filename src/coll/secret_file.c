/* secret_file.c -- see secret_file.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

td_status td__secret_file_write(const char *path, const char *address, const td__secret *secret)
{
    char hex[TD_SECRET_HEX], text[TD_ADDRESS_BYTES + TD_SECRET_HEX + 4], temp[4096 + 8];
    snprintf(temp, sizeof temp, "%s.%d", path, (int)getpid());
    unlink(temp);
    td__secret_hex(secret, hex);
    int n = snprintf(text, sizeof text, "%s %s\n", address, hex);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, (size_t)n) == n;
    explicit_bzero(hex, sizeof hex);
    explicit_bzero(text, sizeof text);
    if (fd >= 0)
        close(fd);
    if (good && !rename(temp, path))
        return TD_OK;
    td_status st = TD_FAIL(TD_EIO, "cannot write %s: %s", path, strerror(errno));
    unlink(temp);
    return st;
}

td_status td__secret_file_read(const char *path, char address[TD_ADDRESS_BYTES], td__secret *secret)
{
    char text[512] = "", hex[TD_SECRET_HEX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TD_FAIL(TD_EINVAL, "%s: %s; is a job running there?", path, strerror(errno));
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0 || sscanf(text, "%255s %64s", address, hex) != 2 || strlen(hex) != TD_SECRET_HEX - 1)
        return TD_FAIL(TD_EINVAL, "%s is not the control file of a job", path);
    td_status st = td__secret_parse(hex, secret);
    explicit_bzero(text, sizeof text);
    explicit_bzero(hex, sizeof hex);
    return st;
}
