/* driver.c -- see driver.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"

td__cuda_driver td__cu;

static const struct {
    const char *name;
    void **to;
} FUNCTIONS[] = {
#define TD_CU(name) {#name, (void **)&td__cu.name},
#include "device/cuda/driver.def"
#undef TD_CU
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the following */
static bool loaded;

const char *td__cuda_text(CUresult r, char *to, size_t room)
{
    const char *name = NULL, *text = NULL;
    td__cu.cuGetErrorName(r, &name);
    td__cu.cuGetErrorString(r, &text);
    snprintf(to, room, "%s (%s)", text ? text : "unknown error", name ? name : "?");
    return to;
}

td_status td__cuda_status(CUresult r, const char *what)
{
    char text[160];
    if (r == CUDA_SUCCESS)
        return TD_OK;
    return TD_FAIL(r == CUDA_ERROR_OUT_OF_MEMORY ? TD_ENOMEM : TD_EIO, "device cuda: %s: %s", what,
                   td__cuda_text(r, text, sizeof text));
}

static td_status load(void)
{
    const char *name = td__env_get(TD_ENV_CUDA_DRIVER);
    name = name ? name : "libcuda.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return TD_FAIL(TD_ENOTSUP, "device cuda: no CUDA driver on this machine (%s)", dlerror());
    for (int i = 0; i < TD_LEN(FUNCTIONS); i++) {
        *FUNCTIONS[i].to = dlsym(library, FUNCTIONS[i].name);
        if (!*FUNCTIONS[i].to) {
            dlclose(library);
            return TD_FAIL(TD_ENOTSUP, "device cuda: the driver %s is too old: it has no %s", name,
                           FUNCTIONS[i].name);
        }
    }
    char text[160];
    int count = 0;
    CUresult r = td__cu.cuInit(0);
    if (r == CUDA_SUCCESS)
        r = td__cu.cuDeviceGetCount(&count);
    if (r == CUDA_SUCCESS && count == 0)
        r = CUDA_ERROR_NO_DEVICE;
    if (r == CUDA_SUCCESS)
        return TD_OK;
    td_status st = TD_FAIL(TD_ENOTSUP, "device cuda: no GPU that this process can use: %s",
                           td__cuda_text(r, text, sizeof text));
    dlclose(library);
    return st;
}

td_status td__cuda_load(void)
{
    pthread_mutex_lock(&lock);
    td_status st = loaded ? TD_OK : load();
    loaded = !st;
    pthread_mutex_unlock(&lock);
    return st;
}
