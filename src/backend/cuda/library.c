/* library.c -- see library.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/fail.h"

void *td__cuda_open_library(const char *const *names, int n)
{
    const char *folders = td__env_get(TD_ENV_CUDA_LIBS);
    char path[1024];
    void *library = NULL;
    if (folders && strcmp(folders, "none") == 0)
        return NULL;
    for (const char *at = folders; at && !library;
         at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL)
        for (int i = 0; i < n && !library; i++) {
            snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(at, ":"), at, names[i]);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    for (int i = 0; i < n && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < n && !library; i++) {
        snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", names[i]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

td_status td__cuda_find_functions(void *library, const char *what, const td__library_function *f,
                                  int n, void *to)
{
    for (int i = 0; i < n; i++) {
        void *at = dlsym(library, f[i].name);
        if (!at)
            return TD_FAIL(TD_ENOTSUP, "%s has no %s: it is too old", what, f[i].name);
        memcpy((char *)to + f[i].at, &at, sizeof at);
    }
    return TD_OK;
}
