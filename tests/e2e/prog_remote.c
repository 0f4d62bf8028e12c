/* prog_remote.c -- the client of remote storage as a command, for scripts:
 *
 *     prog_remote put URL FILE | get URL FILE [SHA256] | list URL | delete URL
 *
 * S3 by the usual variables; parts of uploads have 5 MiB, the least that S3 allows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "remote/remote.h"

enum { PART = 5 << 20, LIMIT_MS = 60000 };

static bool show(void *user, const char *name, uint64_t nbytes)
{
    (void)user;
    printf("%s %llu\n", name, (unsigned long long)nbytes);
    return true;
}

int main(int argc, char **argv)
{
    td__deadline until = td__deadline_in_ms(LIMIT_MS);
    char sha256[TD_SHA256_HEX];
    td__remote *r;
    td_status st = TD_EINVAL;

    if (argc < 3 || td__remote_create(&(td__remote_opts){.part_nbytes = PART}, &r)) {
        fprintf(stderr, "usage: prog_remote put|get|list|delete URL [FILE [SHA256]]\n");
        return 2;
    }
    if (strcmp(argv[1], "put") == 0 && argc > 3) {
        st = td__remote_put_file(r, argv[2], argv[3], sha256, until);
        if (!st)
            printf("%s\n", sha256);
    } else if (strcmp(argv[1], "get") == 0 && argc > 3) {
        st = td__remote_get_file(r, argv[2], argv[3], argc > 4 ? argv[4] : NULL, until);
    } else if (strcmp(argv[1], "list") == 0) {
        st = td__remote_list(r, argv[2], show, NULL, until);
    } else if (strcmp(argv[1], "delete") == 0) {
        st = td__remote_delete(r, argv[2], until);
    }
    if (st)
        fprintf(stderr, "prog_remote: %s\n", td_last_error());
    td__remote_destroy(r);
    return st ? 1 : 0;
}
