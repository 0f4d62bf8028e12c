/* memory.c -- VmRSS and VmHWM of /proc/self/status. (getrusage() would also count what the process
 * had before it became this program.) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t kilobytes(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? 1024 * (size_t)strtoull(at + strlen(key), NULL, 10) : 0;
}

td__memory_use td__memory_read(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return (td__memory_use){.now = kilobytes(text, "VmRSS:"), .peak = kilobytes(text, "VmHWM:")};
}
