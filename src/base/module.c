/* module.c -- see module.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/module.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"

static const char HERE = 0;

/* The folder of what this file is linked into. */
static void find_here(char *out, size_t max)
{
    Dl_info self;
    char *slash;
    snprintf(out, max, ".");
    if (!dladdr(&HERE, &self) || !self.dli_fname)
        return;
    snprintf(out, max, "%s", self.dli_fname);
    if (!strchr(out, '/')) /* a program that was found by PATH: its first argument alone */
        snprintf(out, max, "%s", (const char *)(uintptr_t)getauxval(AT_EXECFN));
    if ((slash = strrchr(out, '/')))
        *slash = '\0';
    else
        snprintf(out, max, ".");
}

td_status td__module_open(const char *file, const char *entry, void **out)
{
    const char *dir = td__env_get(TD_ENV_MODULES);
    char here[1024], path[1200];
    void *handle = NULL;

    find_here(here, sizeof here);
    const char *const places[] = {dir ? "" : NULL, "", "/tandem", "/../lib/tandem"};
    for (size_t i = 0; i < sizeof places / sizeof *places && !handle; i++) {
        if (!places[i])
            continue;
        snprintf(path, sizeof path, "%s%s/%s", i == 0 ? dir : here, places[i], file);
        /* RTLD_GLOBAL: Open MPI loads parts of itself that look for its own symbols. */
        handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!handle)
            TD_LOG(DEBUG, BASE, "%s: %s", path, dlerror());
    }
    if (!handle)
        return TD_FAIL(TD_ENOTSUP, "there is no module %s in %s or next to the program", file,
                       dir ? dir : here);
    *out = dlsym(handle, entry);
    return *out ? TD_OK : TD_FAIL(TD_ENOTSUP, "%s has no function %s", path, entry);
}

void *td__module_cuda(const char *const *names, int n)
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
