/* cudnn_load.c -- cuDNN is loaded when a kernel first wants it, once in a process; see cudnn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn_library.h"

#if TD_CUDNN
#include <dlfcn.h>
#include <stdio.h>

#include "backend/cuda/library.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the following, and `holders` */
static td__cudnn *the_one;
static bool told;

static void tell(const char *why)
{
    if (!told)
        TD_LOG(WARN, BACKEND,
               "%s: attention and convolutions run on kernels of our own, which are slower", why);
    told = true;
}

static td_status load(td__cudnn *l)
{
    static const td__library_function FUNCTIONS[] = {
#define TD_DNN(name) {#name, offsetof(td__cudnn, name)},
#include "backend/cuda/cudnn.def"
#undef TD_DNN
    };
    TD_TRY(td__cuda_find_functions(l->library, "cuDNN", FUNCTIONS, TD_LEN(FUNCTIONS), l));
    cudnnStatus_t st = l->cudnnCreate(&l->handle);
    if (st)
        return TD_FAIL(TD_EIO, "cuDNN cannot be initialised (status %d)", (int)st);
    size_t v = l->cudnnGetVersion();
    snprintf(l->version, sizeof l->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return TD_OK;
}

static void unload(td__cudnn *l)
{
    for (int i = 0; i < l->n_plans; i++)
        l->cudnnBackendDestroyDescriptor(l->plans[i].plan);
    if (l->handle)
        l->cudnnDestroy(l->handle);
    dlclose(l->library);
    pthread_mutex_destroy(&l->lock);
    td__free(l);
}

static td_status make(td__cudnn **out)
{
    static const char *const NAMES[] = {"libcudnn.so.9"};
    *out = NULL;
    void *library = td__cuda_open_library(NAMES, TD_LEN(NAMES));
    if (!library) {
        tell("no cuDNN 9 on this machine (TANDEM_CUDA_LIBS names its folder)");
        return TD_OK;
    }
    td__cudnn *l = td__calloc(1, sizeof *l);
    if (!l) {
        dlclose(library);
        return TD_FAIL(TD_ENOMEM, "no memory for cuDNN");
    }
    l->library = library;
    pthread_mutex_init(&l->lock, NULL);
    if (load(l)) { /* one that is broken is as good as none */
        tell(td_last_error());
        unload(l);
    } else {
        *out = l;
    }
    return TD_OK;
}

td_status td__cudnn_get(td__cudnn **out)
{
    pthread_mutex_lock(&lock);
    td_status st = the_one ? TD_OK : make(&the_one);
    if (the_one)
        the_one->holders++;
    *out = the_one;
    pthread_mutex_unlock(&lock);
    return st;
}

void td__cudnn_release(td__cudnn *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&lock);
    if (--l->holders == 0) {
        unload(l);
        the_one = NULL;
    }
    pthread_mutex_unlock(&lock);
}

const char *td__cudnn_version(const td__cudnn *l)
{
    return l ? l->version : NULL;
}

#else

td_status td__cudnn_get(td__cudnn **out)
{
    *out = NULL;
    return TD_OK;
}

void td__cudnn_release(td__cudnn *l)
{
    (void)l;
}

const char *td__cudnn_version(const td__cudnn *l)
{
    (void)l;
    return NULL;
}
#endif
