/* cudnn_load.c -- cuDNN is loaded when a kernel first wants it, once in a process; see cudnn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn_library.h"

#if TD_CUDNN
#include <stdio.h>

#include "base/check.h"
#include "base/fail.h"

static td_status open_cudnn(td__held *held)
{
    td__cudnn *l = (td__cudnn *)held;
    pthread_mutex_init(&l->lock, NULL);
    cudnnStatus_t st = l->cudnnCreate(&l->handle);
    if (st)
        return TD_FAIL(TD_EIO, "cuDNN cannot be initialised (status %d)", (int)st);
    size_t v = l->cudnnGetVersion();
    snprintf(held->version, sizeof held->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return TD_OK;
}

static void close_cudnn(td__held *held)
{
    td__cudnn *l = (td__cudnn *)held;
    for (int i = 0; i < l->n_plans; i++)
        l->cudnnBackendDestroyDescriptor(l->plans[i].plan);
    if (l->handle)
        l->cudnnDestroy(l->handle);
    pthread_mutex_destroy(&l->lock);
}

static const td__library_function FUNCTIONS[] = {
#define TD_DNN(name) {#name, offsetof(td__cudnn, name)},
#include "backend/cuda/cudnn.def"
#undef TD_DNN
};
static const char *const NAMES[] = {"libcudnn.so.9"};
static td__library library = {
    .what = "cuDNN 9",
    .without = "attention and convolutions run on kernels of our own, which are slower",
    .names = NAMES,
    .n_names = TD_LEN(NAMES),
    .functions = FUNCTIONS,
    .n_functions = TD_LEN(FUNCTIONS),
    .nbytes = sizeof(td__cudnn),
    .version = "cudnnGetVersion",
    .open = open_cudnn,
    .close = close_cudnn,
    .lock = PTHREAD_MUTEX_INITIALIZER};

td_status td__cudnn_get(const td_device *d, td__cudnn **out)
{
    td__held *held;
    td_status st = td__library_get(&library, d, &held);
    *out = (td__cudnn *)held;
    return st;
}

void td__cudnn_release(td__cudnn *l)
{
    td__library_release(&library, (td__held *)l);
}

void td__cudnn_look(char version[32])
{
    td__library_look(&library, version);
}

void td__cudnn_held(char version[32])
{
    td__library_version(&library, version);
}

const char *td__cudnn_version(const td__cudnn *l)
{
    return l ? l->held.version : NULL;
}

#else

td_status td__cudnn_get(const td_device *d, td__cudnn **out)
{
    (void)d;
    *out = NULL;
    return TD_OK;
}

void td__cudnn_release(td__cudnn *l)
{
    (void)l;
}

void td__cudnn_look(char version[32])
{
    version[0] = 0;
}

void td__cudnn_held(char version[32])
{
    version[0] = 0;
}

const char *td__cudnn_version(const td__cudnn *l)
{
    (void)l;
    return NULL;
}
#endif
