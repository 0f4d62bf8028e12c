/* shared.c -- memory of the host that several processes map: a file in memory, without a name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "device/device_impl.h"

td_status td__shared_map(td_mem *m, int fd)
{
    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (m->fd < 0)
        return TD_FAIL(TD_EIO, "cannot duplicate the descriptor of shared memory: %s",
                       strerror(errno));
    m->at = mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->at == MAP_FAILED) {
        td_status st = TD_FAIL(TD_ENOMEM, "cannot map %zu bytes of shared memory: %s", m->nbytes,
                               strerror(errno));
        close(m->fd);
        return st;
    }
    return TD_OK;
}

td_status td__shared_alloc(td_mem *m)
{
    int fd = memfd_create("tandem", MFD_CLOEXEC);
    if (fd < 0)
        return TD_FAIL(TD_ENOMEM, "cannot make shared memory: %s", strerror(errno));
    td_status st =
        ftruncate(fd, (off_t)m->nbytes) == 0
            ? td__shared_map(m, fd)
            : TD_FAIL(TD_ENOMEM, "no %zu bytes of shared memory: %s", m->nbytes, strerror(errno));
    close(fd);
    return st;
}

void td__shared_free(td_mem *m)
{
    munmap(m->at, m->nbytes);
    close(m->fd);
}
