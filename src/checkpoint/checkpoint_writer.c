/* checkpoint_writer.c -- which process may write in a directory of checkpoints, where locks do not
 * tell: see TD__WRITER_FILE. A writer looks after every wait and before every change that is seen
 * by readers, so a predecessor that was stopped changes nothing more than the call that it was in:
 * it renames a checkpoint that is whole, or a pointer to one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint_impl.h"

/* "" where there is none. */
static void read_token(const td__checkpointer *c, char token[TD__WRITER_TOKEN])
{
    char path[TD__PATH];
    td__file_map map;

    token[0] = 0;
    if (td__run_dir_path(c->dir, TD__WRITER_FILE, path) || access(path, F_OK) != 0 ||
        td__file_map_open(&map, path))
        return;
    size_t n = map.nbytes < TD__WRITER_TOKEN - 1 ? map.nbytes : TD__WRITER_TOKEN - 1;
    memcpy(token, map.data, n);
    token[n] = 0;
    td__file_map_close(&map);
}

void td__checkpoint_writer_find(td__checkpointer *c)
{
    read_token(c, c->writer);
}

td_status td__checkpoint_writer_become(td__checkpointer *c)
{
    uint64_t number;
    char token[TD__WRITER_TOKEN];

    td__checkpoint_writer_find(c);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return TD_FAIL(TD_EIO, "cannot get random bytes for a token: %s", strerror(errno));
    snprintf(token, sizeof token, "%016" PRIx64, number);
    td_status st = td__checkpoint_point(c->dir, NULL, TD__WRITER_FILE, token);
    if (st == TD_EIO) { /* a full disk is no reason not to go on */
        TD_LOG(WARN, TRAIN, "%s; if the previous rank 0 is only stopped, it may write too",
               td_last_error());
        return TD_OK;
    }
    memcpy(c->writer, token, sizeof token);
    c->took_over = !st;
    return st;
}

td_status td__checkpoint_writer_check(const td__checkpointer *c)
{
    char token[TD__WRITER_TOKEN];
    read_token(c, token);
    return !*token || strcmp(token, c->writer) == 0
               ? TD_OK
               : TD_FAIL(TD_EABORTED,
                         "%s: another process has taken over and writes the checkpoints there",
                         c->dir);
}
