/* server_order.c -- see server_order.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/server_order.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"

enum { PATH = 4096 };

static td_status name_file(const char *dir, char path[PATH])
{
    return snprintf(path, PATH, "%s/servers", dir) < PATH
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "%.60s...: the name is too long", dir);
}

td_status td__server_order_write(const char *checkpoint_dir, int servers)
{
    char path[PATH], text[16];
    td__file_out f;
    TD_TRY(name_file(checkpoint_dir, path));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, text, (size_t)snprintf(text, sizeof text, "%d\n", servers));
    return td__file_out_commit(&f);
}

int td__server_order_read(const char *checkpoint_dir)
{
    char path[PATH];
    int n = 0;
    FILE *f = name_file(checkpoint_dir, path) ? NULL : fopen(path, "re");
    bool good = f && fscanf(f, "%d", &n) == 1 && n > 0 && n <= TD__MOST_SERVERS;
    if (f)
        fclose(f);
    return good ? n : 0;
}

td_status td__server_order_restore(const char *checkpoint_dir, int servers)
{
    char path[PATH];
    if (servers)
        return td__server_order_write(checkpoint_dir, servers);
    TD_TRY(name_file(checkpoint_dir, path));
    if (unlink(path) != 0 && errno != ENOENT)
        return TD_FAIL(TD_EIO, "cannot remove %s: %s", path, strerror(errno));
    return TD_OK;
}
