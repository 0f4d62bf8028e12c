/* fuzz_file.h -- the fuzzer's bytes as a file, for parsers that read files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_FUZZ_FILE_H
#define TD_TESTS_FUZZ_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tandem/types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

typedef struct fuzz_file {
    int fd;
    char path[64];
} fuzz_file;

/* In memory; `path` works as long as it is open. */
static inline void fuzz_file_open(fuzz_file *f, const uint8_t *data, size_t nbytes)
{
    f->fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (f->fd < 0)
        abort();
    for (size_t at = 0; at < nbytes;) {
        ssize_t n = write(f->fd, data + at, nbytes - at);
        if (n <= 0)
            abort();
        at += (size_t)n;
    }
    snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
}

static inline void fuzz_file_close(fuzz_file *f)
{
    close(f->fd);
}

#endif
