/* library.c -- see library.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/module.h"

enum { OLDEST = 21700 };

static td__nccl_api api;
static const struct {
    const char *name;
    void **to;
} FUNCTIONS[] = {
#define X(name, type, args) {"nccl" #name, (void **)&api.name},
    TD_NCCL_MAP(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the following, and api */
static bool loaded;

static td_status open_library(void **out)
{
    static const char *const NAMES[] = {"libnccl.so.2"};
    const char *named = td__env_get(TD_ENV_NCCL);
    bool none = named && strcmp(named, "none") == 0;
    *out = none ? NULL : named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : td__module_cuda(NAMES, 1);
    return *out ? TD_OK
                : TD_FAIL(TD_ENOTSUP, "no %s on this machine (TANDEM_NCCL names it)",
                          named && !none ? named : NAMES[0]);
}

static td_status load(void)
{
    void *library;
    TD_TRY(open_library(&library));
    for (int i = 0; i < TD_LEN(FUNCTIONS); i++) {
        *FUNCTIONS[i].to = dlsym(library, FUNCTIONS[i].name);
        if (!*FUNCTIONS[i].to)
            return TD_FAIL(TD_ENOTSUP, "NCCL is too old: it has no %s", FUNCTIONS[i].name);
    }
    if (api.GetVersion(&api.version) || api.version < OLDEST)
        return TD_FAIL(TD_ENOTSUP, "NCCL is too old: version %d, 2.17 is needed", api.version);
    return TD_OK;
}

td_status td__nccl_load(const td__nccl_api **out)
{
    pthread_mutex_lock(&lock);
    td_status st = loaded ? TD_OK : load();
    loaded = !st;
    pthread_mutex_unlock(&lock);
    *out = st ? NULL : &api;
    return st;
}
